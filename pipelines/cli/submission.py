"""`driftline submit`, `verify`, `leaderboard`: results that others can check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from driftline.curate.core.errors import BadConfig, IntegrityError
from driftline.pipelines.cli.common import Plugins, Runs, admit, command, log_of, option, show
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.store import damaged_in, store_of

submit_app = typer.Typer()
Streams = Annotated[
    list[Path] | None, option("--stream", "STREAM", "A stream of the submission, to repeat runs on. Repeatable.")
]
Again = Annotated[int | None, option("--again", None, "How many runs are repeated (default: a tenth).", min=0)]
PublicValue = Annotated[
    str,
    option(
        "--public-value",
        None,
        "A text that nobody knew when the file was handed in; with the file's hash it decides which runs are "
        "repeated (default: a random one, which is printed).",
    ),
]


@command(submit_app, "submit", 'driftline submit runs --name "Our method" --out ours.zip', panel="Share")
def submit(
    paths: Runs,
    name: Annotated[str, option("--name", None, "The name on the leaderboard.")],
    out: Annotated[Path, option("--out", "FILE.zip", "The file to hand in.")],
    contact: Annotated[str, option("--contact", None, "An e-mail address or a web page.")] = "",
    code: Annotated[
        list[Path] | None, option("--code", "NAME.py", "Code of a learner NAME:CLASS, for readers. Repeatable.")
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Pack rows, hashes and the environment into one file."""
    from driftline.eval.leaderboard.submission import pack

    guarded_out(out, suffixes=(".zip",))
    admit(plugins)
    manifest = pack(paths, name, out, contact, code or ())
    runs, scores = sum(m.endswith("run.json") for m in manifest["files"]), len(manifest["scores"])
    show({"out": str(out), "runs": runs, "scores": scores}, f"{out}: {runs} runs, {scores} scores")


@command(submit_app, "verify", "driftline verify ours.zip --stream stream --again 2", panel="Share")
def verify(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A submission, ledger, release or stream, or the store of a run.")
    ],
    stream: Streams = None,
    again: Again = None,
    public_value: PublicValue = "",
    head: Annotated[str | None, option("--head", "HASH", "Ledger: the head that was noted elsewhere.")] = None,
    plugins: Plugins = None,
) -> None:
    """Check every byte against its hashes; the content says what it is.

    Of a submission also scores and some runs, which are repeated; code that it holds or names is not run. Exits with
    code 1 if anything differs, and names the first difference.
    """
    admit(plugins)
    if is_ledger(path):
        from driftline.eval.memory.correction_ledger import verify as check_ledger

        found = check_ledger(path, head)
        noted = [] if found.noted is None else [f"added after its head was noted: {found.entries - found.noted}"]
        lines = [f"{path} holds: {found.entries} entries", *noted, f"head {found.head}", f"root {found.root}"]
        return show(found.plain(), "\n".join(lines))
    if path.is_dir():
        return _folder(path)
    _submission(path, stream or (), again, public_value)


def is_ledger(path: Path) -> bool:
    """Whether a file begins like a ledger, of whatever version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(17) == b"driftline ledger "


def _folder(path: Path) -> None:
    """A release, a stream, or the store of a run."""
    if (path / "release.json").is_file():
        from driftline.curate.release.format import Release

        Release.open(path).verify()
    elif (path / "stream.json").is_file():
        from driftline.stream_builder.stream import Stream

        Stream.load(path).verify(path)
    else:
        document, lines = damaged_in(store_of(path))
        show(document, "\n".join([f"{document['files']:,} files read", *lines]))
        if lines:
            way_out = "Run: driftline heal, with the folder of the run."
            raise IntegrityError(f"{len(lines)} files of the store are damaged.", "", way_out)
        return
    show({"path": str(path), "holds": True}, f"{path} holds")


def _submission(path: Path, streams: Sequence[Path], again: int | None, public_value: str) -> None:
    from driftline.eval.leaderboard.verification import verify as check

    verdict = check(path, streams, again, public_value)
    outcomes = [(run, run["differs"] or "the same") for run in verdict.again]
    outcomes += [(run, f"not re-run: {run['because']}") for run in verdict.not_again]
    lines = [f"{run['learner']}, {run['protocol']}, seed {run['seed']}: {result}" for run, result in outcomes]
    lines += [
        f"{run['learner']}, {run['protocol']}, seed {run['seed']}: unverified: {run['because']}"
        for run in verdict.unverified
    ]
    lines.append(f"drawn by sha256 {verdict.sha256} and the public value {verdict.public_value!r}")
    if verdict.holds:
        checked = len({run["run"] for run in [*verdict.again, *verdict.not_again]}) - len(verdict.unverified)
        lines.append(f"{verdict.name} holds: {checked} runs verified, {len(verdict.again)} of them run again")
    show(verdict.plain(), "\n".join(lines))
    if not verdict.holds:
        raise IntegrityError(f"{verdict.name} does not hold: {' '.join(verdict.problems)}")


@command(
    submit_app,
    "leaderboard",
    "driftline leaderboard ours.zip --stream stream --out board.md",
    panel="Share",
    needs={"--again --public-value --unverified": "--out"},
)
def leaderboard(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="SUBMISSION…", help="Files of driftline submit.")
    ] = None,
    out: Annotated[Path | None, option("--out", "FILE.md", "The page.")] = None,
    check: Annotated[
        bool, option("--check", None, "Write no page: run every run again, and name stale and false rows.")
    ] = False,
    stream: Streams = None,
    baselines: Annotated[
        bool, option("--baselines", None, "Also the shipped results of all learners on the given streams.")
    ] = False,
    again: Again = None,
    public_value: PublicValue = "",
    unverified: Annotated[
        bool, option("--unverified", None, "Also show runs without stream or outcomes; the page marks them.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Verify submissions and write a page of them.

    A submission that does not hold is an error; so is one without its stream, unless --unverified is said. --check
    exits with 1 if a row is stale (older code gave it) or false; --check --baselines checks the shipped rows.
    """
    from driftline.curate.core.atomic_io import write_text
    from driftline.eval.leaderboard.board import board
    from driftline.eval.leaderboard.verification import verify

    if (out is None) != check:
        raise BadConfig(f"--out and --check are {'both' if check else 'not'} given.", "Expected one of them.")
    if out is not None:
        guarded_out(out, suffixes=(".md",))
    admit(plugins)
    paths = list(paths or ())
    if baselines:
        from driftline.eval.leaderboard.baselines import on

        paths += on(stream or ())
    if not paths:
        raise BadConfig("There is no submission to show.", "", "Name files of driftline submit, or add --baselines.")
    if out is None:
        _check(paths, stream or ())
        return
    verdicts = [verify(path, stream or (), again, public_value, elsewhere=unverified) for path in paths]
    write_text(out, board(verdicts, unverified))
    show({"out": str(out)}, f"leaderboard: {out}")


def _check(paths: Sequence[Path], streams: Sequence[Path]) -> None:
    """Run all runs again; of shipped streams that are not given, too."""
    from tempfile import TemporaryDirectory

    from driftline.eval.leaderboard import baselines
    from driftline.eval.leaderboard.submission import opened, runs_of
    from driftline.eval.leaderboard.verification import verify

    found = []
    with TemporaryDirectory(prefix="driftline-") as folder:
        shipped = baselines.shipped().values()
        names = [path.stem for path in paths if path in shipped and not streams and baselines.has_stream(path.stem)]
        unpacked = [Path(folder, name) for name in names]
        for name, place in zip(names, unpacked, strict=True):
            baselines.unpacked(name, place)
        for path in paths:
            runs = runs_of(opened(path)[0])
            seconds = sum(run.about["seconds"] for run in runs)
            log_of().say(f"{path.name}: {len(runs)} runs, which took {seconds:,.0f} s of training")
            verdict = verify(path, [*streams, *unpacked], len(runs), "all", elsewhere=True)
            found.append({"file": path.name} | verdict.repeated())
    show({"checked": found}, "\n".join(line for one in found for line in _repeated_text(one)))
    if wrong := [one for one in found if one["stale"] or one["false"] or one["problems"]]:
        raise IntegrityError(f"{len(wrong)} of {len(found)} submissions have rows that the code does not give.")


def _repeated_text(one: dict[str, Any]) -> list[str]:
    """What `Verdict.repeated` says, in lines."""
    others = [(kind, run) for kind in ("stale", "false") for run in one[kind]]
    lines = [
        f"{run['learner']}, {run['protocol']}, seed {run['seed']}: {kind}, {run['differs']}" for kind, run in others
    ]
    reasons = Counter(run["because"] for run in one["not_again"])
    lines += [f"{count} runs were not run again: {reason}" for reason, count in reasons.items()]
    total = one["same"] + len(others) + len(one["not_again"])
    return [*lines, *one["problems"], f"{one['file']}: {one['same']} of {total} runs are what the code gives"]
