"""`driftline submit`, `verify`, `leaderboard`: results that others can check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from curate.core.errors import IntegrityError
from pipelines.cli.common import Json, command

submit_app = typer.Typer(rich_markup_mode=None)
Streams = Annotated[
    list[Path] | None, typer.Option("--stream", help="A stream that it names: runs on it are done again; may repeat.")
]
Again = Annotated[int, typer.Option("--again", min=0, help="How many runs are done again.")]
Seed = Annotated[int, typer.Option("--seed", help="Decides which.")]


@command(submit_app, "submit", 'driftline submit runs --name "Our method" --out ours.zip')
def submit(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Folders with rows of driftline eval.")],
    name: Annotated[str, typer.Option("--name", help="What the leaderboard calls it.")],
    out: Annotated[Path, typer.Option("--out", help="A .zip file.")],
    contact: Annotated[str, typer.Option("--contact", help="An address or page.")] = "",
) -> None:
    """Pack rows, hashes and the environment into one file."""
    from eval.leaderboard.submission import pack

    manifest = pack(paths, name, out, contact)
    print(f"{out}: {sum(m.endswith('run.json') for m in manifest['files'])} runs, {len(manifest['scores'])} scores")


@command(submit_app, "verify", "driftline verify ours.zip --stream stream --again 2")
def verify(
    path: Annotated[Path, typer.Argument(metavar="SUBMISSION", help="What driftline submit wrote.")],
    stream: Streams = None,
    again: Again = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Check hashes, score the rows again, run some again; exit 1 where anything differs."""
    from eval.leaderboard.submission import verify as check

    verdict = check(path, stream or (), again, seed)
    if as_json:
        print(json.dumps(verdict.plain()))
    else:
        for one in verdict.again:
            print(f"again: {one['learner']}, {one['protocol']}, seed {one['seed']}: {one['differs'] or 'the same'}")
        if verdict.holds:
            print(f"{verdict.name} holds" + ("" if verdict.again else "; nothing was run again (--stream)"))
    if not verdict.holds:
        raise IntegrityError(f"{verdict.name} does not hold: {' '.join(verdict.problems)}")


@command(submit_app, "leaderboard", "driftline leaderboard ours.zip theirs.zip --stream stream --out leaderboard.md")
def leaderboard(
    paths: Annotated[list[Path], typer.Argument(metavar="SUBMISSION…", help="What driftline submit wrote.")],
    out: Annotated[Path, typer.Option("--out", help="A Markdown file.")],
    stream: Streams = None,
    again: Again = 1,
    seed: Seed = 0,
) -> None:
    """Verify submissions, and write a page of those; one that does not hold is an error."""
    from curate.core.atomic_io import write_text
    from eval.leaderboard.submission import board
    from eval.leaderboard.submission import verify as check

    write_text(out, board([check(path, stream or (), again, seed) for path in paths]))
    print(f"leaderboard: {out}")
