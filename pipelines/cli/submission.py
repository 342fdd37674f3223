"""`driftline submit`, `verify`, `leaderboard`: results that others can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curate.core.errors import IntegrityError
from pipelines.cli.common import Json, command, show

submit_app = typer.Typer()
Streams = Annotated[
    list[Path] | None,
    typer.Option("--stream", help="A stream of the submission, to repeat runs on; may be repeated."),
]
Again = Annotated[int, typer.Option("--again", min=0, help="How many runs are repeated.")]
Seed = Annotated[int, typer.Option("--seed", help="Random seed for the choice of these runs.")]


@command(submit_app, "submit", 'driftline submit runs --name "Our method" --out ours.zip', panel="Evaluate")
def submit(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Folders with rows of driftline eval.")],
    name: Annotated[str, typer.Option("--name", help="The name on the leaderboard.")],
    out: Annotated[Path, typer.Option("--out", help="A .zip file.")],
    contact: Annotated[str, typer.Option("--contact", help="An e-mail address or a web page.")] = "",
    as_json: Json = False,
) -> None:
    """Pack rows, hashes and the environment into one file."""
    from eval.leaderboard.submission import pack

    manifest = pack(paths, name, out, contact)
    runs, scores = sum(m.endswith("run.json") for m in manifest["files"]), len(manifest["scores"])
    show(as_json, {"file": str(out), "runs": runs, "scores": scores}, f"{out}: {runs} runs, {scores} scores")


@command(submit_app, "verify", "driftline verify ours.zip --stream stream --again 2", panel="Evaluate")
def verify(
    path: Annotated[Path, typer.Argument(metavar="SUBMISSION", help="A file of driftline submit.")],
    stream: Streams = None,
    again: Again = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Check a submission: hashes, scores, repeated runs.

    Exits with code 1 if anything differs.
    """
    from eval.leaderboard.submission import verify as check

    verdict = check(path, stream or (), again, seed)
    lines = [
        f"again: {run['learner']}, {run['protocol']}, seed {run['seed']}: {run['differs'] or 'the same'}"
        for run in verdict.again
    ]
    if verdict.holds:
        lines.append(f"{verdict.name} holds" + ("" if verdict.again else "; no run was repeated (see --stream)"))
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
    paths: Annotated[list[Path], typer.Argument(metavar="SUBMISSION…", help="Files of driftline submit.")],
    out: Annotated[Path, typer.Option("--out", help="A Markdown file.")],
    stream: Streams = None,
    again: Again = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Verify submissions and write a page of them.

    A submission that does not hold is an error.
    """
    from curate.core.atomic_io import write_text
    from eval.leaderboard.board import board
    from eval.leaderboard.submission import verify as check

    write_text(out, board([check(path, stream or (), again, seed) for path in paths]))
    show(as_json, {"leaderboard": str(out)}, f"leaderboard: {out}")
