"""`driftline submit`, `verify`, `leaderboard`: results that others can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from driftline.curate.core.errors import BadConfig, IntegrityError
from driftline.pipelines.cli.common import Json, Plugins, admit, command, show

submit_app = typer.Typer()
Streams = Annotated[
    list[Path] | None,
    typer.Option("--stream", help="A stream of the submission, to repeat runs on; may be repeated."),
]
Again = Annotated[int | None, typer.Option("--again", min=0, help="How many runs are repeated; default: a tenth.")]
Public = Annotated[
    str,
    typer.Option(
        "--public-value",
        help="A text that nobody knew when the file was handed in; with the file's hash it decides which runs are "
        "repeated. Default: a random one, which is printed.",
    ),
]
RunCode = Annotated[
    bool,
    typer.Option(
        "--run-code",
        help="Also run learners that are code of the submission: in Linux namespaces, without network, with read-only "
        "files.",
    ),
]
Seconds = Annotated[int, typer.Option("--seconds", min=1, help="Time limit of the check and of each repeated run.")]


@command(submit_app, "submit", 'driftline submit runs --name "Our method" --out ours.zip', panel="Evaluate")
def submit(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Folders with rows of driftline eval.")],
    name: Annotated[str, typer.Option("--name", help="The name on the leaderboard.")],
    out: Annotated[Path, typer.Option("--out", help="A .zip file.")],
    contact: Annotated[str, typer.Option("--contact", help="An e-mail address or a web page.")] = "",
    code: Annotated[
        list[Path] | None, typer.Option("--code", help="NAME.py of a learner named NAME:CLASS; may be repeated.")
    ] = None,
    plugins: Plugins = None,
    as_json: Json = False,
) -> None:
    """Pack rows, hashes and the environment into one file."""
    from driftline.eval.leaderboard.submission import pack

    admit(plugins)
    manifest = pack(paths, name, out, contact, code or ())
    runs, scores = sum(m.endswith("run.json") for m in manifest["files"]), len(manifest["scores"])
    show(as_json, {"file": str(out), "runs": runs, "scores": scores}, f"{out}: {runs} runs, {scores} scores")


@command(submit_app, "verify", "driftline verify ours.zip --stream stream --again 2", panel="Evaluate")
def verify(
    path: Annotated[Path, typer.Argument(metavar="SUBMISSION", help="A file of driftline submit.")],
    stream: Streams = None,
    again: Again = None,
    public_value: Public = "",
    seconds: Seconds = 3600,
    run_code: RunCode = False,
    plugins: Plugins = None,
    as_json: Json = False,
) -> None:
    """Check a submission: hashes, scores, repeated runs.

    It is read and run in processes without network. Exits with code 1 if anything differs.
    """
    from driftline.eval.leaderboard.isolation import Limits
    from driftline.eval.leaderboard.verification import verify as check

    admit(plugins)
    verdict = check(path, stream or (), again, public_value, Limits(seconds), run_code)
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
    show(as_json, verdict.plain(), "\n".join(lines))
    if not verdict.holds:
        raise IntegrityError(f"{verdict.name} does not hold: {' '.join(verdict.problems)}")


@command(
    submit_app,
    "leaderboard",
    "driftline leaderboard ours.zip theirs.zip --stream stream --out leaderboard.md",
    panel="Evaluate",
)
def leaderboard(
    out: Annotated[Path, typer.Option("--out", help="A Markdown file.")],
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="SUBMISSION…", help="Files of driftline submit.")
    ] = None,
    stream: Streams = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Also the shipped results of all learners on the given streams.")
    ] = False,
    again: Again = None,
    public_value: Public = "",
    seconds: Seconds = 3600,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Also show runs without stream or outcomes; the page marks them.")
    ] = False,
    run_code: RunCode = False,
    site: Annotated[
        Path | None, typer.Option("--site", help="Folder of a static site: tables, lite track, files to download.")
    ] = None,
    plugins: Plugins = None,
    as_json: Json = False,
) -> None:
    """Verify submissions and write a page of them.

    A submission that does not hold is an error; so is one without its stream, unless --unverified is said.
    """
    from driftline.curate.core.atomic_io import write_text
    from driftline.eval.leaderboard.board import board
    from driftline.eval.leaderboard.isolation import Limits
    from driftline.eval.leaderboard.verification import verify as check

    admit(plugins)
    paths = list(paths or ())
    if baselines:
        from driftline.eval.leaderboard.baselines import on

        paths += on(stream or ())
    if not paths:
        raise BadConfig("There is no submission to show.", "", "Name files of driftline submit, or add --baselines.")
    limits = Limits(seconds)
    verdicts = [
        check(path, stream or (), again, public_value, limits, run_code, elsewhere=unverified) for path in paths
    ]
    write_text(out, board(verdicts, unverified))
    document: dict[str, Any] = {"leaderboard": str(out)}
    text = f"leaderboard: {out}"
    if site is not None:
        from driftline.eval.leaderboard.site import write_site

        counts = write_site(paths, verdicts, stream or (), site, limits)
        document["site"] = {"folder": str(site), **counts}
        text += f"\nsite: {site / 'index.html'}, {counts['tables']} tables of {counts['submissions']} submissions"
    show(as_json, document, text)
