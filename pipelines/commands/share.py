"""`driftline submit`, `verify`, `leaderboard`: results that others can check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig, IntegrityError
from driftline.pipelines.actions.action import Answer, Shown, action
from driftline.pipelines.actions.common import admit, guarded_out, log_of
from driftline.pipelines.kinds import Names, Place, kind_of, path_of, places_of, several


@action('driftline submit runs --name "Our method" --out ours.zip', "Share")
def submit(
    runs: Sequence[Place], *, name: str, out: Place, contact: str = "", code: Sequence[Place] = (), plugin: Names = ()
) -> Shown[Answer]:
    """Pack results and their hashes into one file.

    name TEXT: The name on the leaderboard.
    out FILE.zip: The file to hand in.
    contact TEXT: An e-mail address or a web page.
    code NAME.py: Code of a learner NAME:CLASS, for readers. Repeatable.
    """
    from driftline.eval.leaderboard.submission import pack

    file = guarded_out(path_of(out), suffixes=(".zip",))
    admit(several(plugin))
    manifest = pack(places_of(runs), name, file, contact, places_of(code))
    number = sum(m.endswith("run.json") for m in manifest["files"])
    return Shown({"out": str(file), "runs": number}, f"{file}: {number} runs")


@action("driftline verify ours.zip --stream stream --again 2", "Share")
def verify(
    path: Place, *, stream: Sequence[Place] = (), again: int | None = None, public_value: str = "",
    head: str | None = None, plugin: Names = (),
) -> Shown[Answer]:  # fmt: skip
    """Check every byte of a file or folder against its hashes.

    The scores of a submission are computed again, too, and some of its runs are repeated; code in it is never run.
    Exits with code 1 if anything differs, and names the first difference.

    path PATH: A submission, ledger, release or stream, or the store of a run.
    stream STREAM: A stream of the submission, to repeat runs on. Repeatable.
    head HASH: Ledger: the head that was noted elsewhere.
    """
    file = path_of(path)
    admit(several(plugin))
    if file.is_dir():
        return _folder(file)
    if not is_ledger(file):
        return _submission(file, places_of(stream), again, public_value)
    from driftline.eval.memory.correction_ledger import verify

    verdict = verify(file, head)
    noted = [] if verdict.noted is None else [f"added after its head was noted: {verdict.entries - verdict.noted}"]
    lines = [f"{file} holds: {verdict.entries} entries", *noted, f"head {verdict.head}", f"root {verdict.root}"]
    return Shown(asdict(verdict), "\n".join(lines))


def is_ledger(path: Path) -> bool:
    """Whether a file begins like a ledger, of whatever version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(17) == b"driftline ledger "


def _folder(path: Path) -> Shown[Answer]:
    """A release, a stream, or the store of a run."""
    kind = kind_of(path)
    if kind == "release":
        from driftline.curate.release.format import Release

        Release.open(path).verify()
    elif kind == "stream":
        from driftline.stream_builder.stream import Stream

        Stream.load(path).verify(path)
    else:
        from driftline.pipelines.run.living import damaged_in, store_of

        document, lines = damaged_in(store_of(path))
        way_out = "Run: driftline heal, with the folder of the run."
        problem = IntegrityError(f"{len(lines)} files of the store are damaged.", "", way_out) if lines else None
        return Shown(document, "\n".join([f"{document['files']:,} files read", *lines]), problem=problem)
    return Shown({"path": str(path), "holds": True}, f"{path} holds")


def _submission(path: Path, streams: Sequence[Path], again: int | None, public_value: str) -> Shown[Answer]:
    from driftline.eval.leaderboard.verification import verify as check

    verdict = check(path, streams, again, public_value)
    lines = [f"{_named(run)}: {run['differs'] or 'the same'}" for run in verdict.again]
    lines += [f"{_named(run)}: not re-run: {run['because']}" for run in verdict.not_again]
    lines += [f"{_named(run)}: unverified: {run['because']}" for run in verdict.unverified]
    lines.append(f"chosen by sha256 {verdict.sha256} and the public value {verdict.public_value!r}")
    if verdict.holds:
        checked = len({run["run"] for run in [*verdict.again, *verdict.not_again]}) - len(verdict.unverified)
        lines.append(f"{verdict.name} holds: {checked} runs verified, {len(verdict.again)} of them run again")
    differs = IntegrityError(f"{verdict.name} fails verification: {' '.join(verdict.problems)}")
    return Shown(verdict.plain(), "\n".join(lines), problem=None if verdict.holds else differs)


@action(
    "driftline leaderboard ours.zip --stream stream --out board.md", "Share",
    needs={"--again --public-value --unverified": "--out"},
)  # fmt: skip
def leaderboard(
    submission: Sequence[Place] = (), *, out: Place | None = None, check: bool = False, stream: Sequence[Place] = (),
    baselines: bool = False, again: int | None = None, public_value: str = "", unverified: bool = False,
    plugin: Names = (),
) -> Shown[Answer]:  # fmt: skip
    """Verify submissions and write a page of them.

    A submission that fails verification is an error; so is one without its stream, except with --unverified. --check
    exits with 1 if a result is outdated (older code gave it) or false; --check --baselines checks the shipped results.

    submission SUBMISSION…: Files of driftline submit.
    out FILE.md: The page.
    check: Write no page: run every run again, and name outdated and false results.
    stream STREAM: A stream of the submission, to repeat runs on. Repeatable.
    baselines: Also the shipped results of all learners on the given streams.
    unverified: Also show runs without stream or predictions; the page marks them.
    """
    from driftline.curate.core.atomic_io import write_text
    from driftline.eval.leaderboard.verification import board, verify

    if (out is None) != check:
        raise BadConfig(f"--out and --check are {'both' if check else 'not'} given.", "Expected one of them.")
    page = None if out is None else guarded_out(path_of(out), suffixes=(".md",))
    admit(several(plugin))
    paths, streams = places_of(submission), places_of(stream)
    if baselines:
        from driftline.eval.leaderboard.baselines import on

        paths += on(streams)
    if not paths:
        raise BadConfig("There is no submission to show.", "", "Name files of driftline submit, or add --baselines.")
    if page is None:
        return _check(paths, streams)
    verdicts = [verify(path, streams, again, public_value, elsewhere=unverified) for path in paths]
    write_text(page, board(verdicts, unverified))
    return Shown({"out": str(page)}, f"leaderboard: {page}")


def _named(run: Mapping[str, Any]) -> str:
    return f"{run['learner']}, {run['protocol']}, seed {run['seed']}"


def _check(paths: Sequence[Path], streams: Sequence[Path]) -> Shown[Answer]:
    """Run all runs again; of shipped streams that are not given, too."""
    from tempfile import TemporaryDirectory

    from driftline.eval.leaderboard import baselines
    from driftline.eval.leaderboard.submission import opened, runs_of
    from driftline.eval.leaderboard.verification import verify

    checks = []
    with TemporaryDirectory(prefix="driftline-") as folder:
        shipped, there = baselines.shipped().values(), baselines.shipped(baselines.HERE / "streams")
        names = [path.stem for path in paths if path in shipped and not streams and path.stem in there]
        unpacked = [Path(folder, name) for name in names]
        for name, place in zip(names, unpacked, strict=True):
            baselines.unpacked(name, place)
        for path in paths:
            runs = runs_of(opened(path)[0])
            seconds = sum(run.about["seconds"] for run in runs)
            log_of().say(f"{path.name}: {len(runs)} runs, which took {seconds:,.0f} s of training")
            verdict = verify(path, [*streams, *unpacked], len(runs), "all", elsewhere=True)
            checks.append({"file": path.name} | verdict.repeated())
    text = "\n".join(line for check in checks for line in _repeated_text(check))
    wrong = [check for check in checks if check["stale"] or check["false"] or check["problems"]]
    problem = IntegrityError(f"{len(wrong)} of {len(checks)} submissions have results that this code does not repeat.")
    return Shown({"checked": checks}, text, problem=problem if wrong else None)


def _repeated_text(one: dict[str, Any]) -> list[str]:
    """What `Verdict.repeated` says, in lines."""
    others = [(kind, run) for kind in ("stale", "false") for run in one[kind]]
    lines = [f"{_named(run)}: {kind}, {run['differs']}" for kind, run in others]
    reasons = Counter(run["because"] for run in one["not_again"])
    lines += [f"{count} runs were not run again: {reason}" for reason, count in reasons.items()]
    total = one["same"] + len(others) + len(one["not_again"])
    return [*lines, *one["problems"], f"{one['file']}: {one['same']} of {total} runs are what the code gives"]
