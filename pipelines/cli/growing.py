"""`driftline grow` and `heal`: a run whose source goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from driftline.curate.core.errors import Waiting
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers
from driftline.pipelines.cli.common import Json, RunFolder, Sets, command, context_of_last, show
from driftline.pipelines.cli.runs import Until

living_app = typer.Typer()
Workers = Annotated[int | None, typer.Option("--workers", min=1, max=256, help="Processes (default: one per core).")]


@command(living_app, "grow", "driftline grow photos2024 --max-minutes 50 --max-cost 20", panel="Build")
def grow_(
    directory: RunFolder,
    until: Until = None,
    sets: Sets = None,
    workers: Workers = None,
    minutes: Annotated[
        float | None, typer.Option("--max-minutes", min=0, help="Stop after about so long; the next call goes on.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option("--max-cost", min=0, help="Refuse questions that cost more than this (USD).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run all stages on a source with new records; safe under cron.

    Only new photos are fetched, embedded, retrieved and asked. Buckets keep their borders; buckets.grow says what later
    photos do. Exit codes: 0 done (or paused by --max-minutes), 1 failed or busy, 2 bad usage, 3 waiting for answers.
    """
    from driftline.pipelines.run.living import grow

    found = grow(_context(directory, sets, as_json, workers), until, minutes, cost)
    rows, images, buckets = found["rows"], found["images"], found["buckets"]
    opened = buckets["now"][len(buckets["before"]) :]
    lines = [
        f"{found['state']}: {rows['new']:,} new rows, {rows['gone']:,} gone, {rows['kept']:,} kept that are gone; "
        f"{images['new']:,} new images, {images['near_copies_of_stored']:,} of them near copies of stored ones",
        f"requests {found.get('requests', 0):,}, embeddings {found.get('embeddings', 0):,}",
        f"buckets {len(buckets['now'])}, new: {', '.join(opened) or 'none'}",
    ]
    show(as_json, found, "\n".join(lines))
    if found["because"]:
        raise Waiting("The run waits for answers.", "", found["because"])


@command(living_app, "heal", "driftline heal photos2024 --reason timeout --reason http_5xx", panel="Build")
def heal_(
    directory: RunFolder,
    reasons: Annotated[
        list[str] | None,
        typer.Option(
            "--reason", metavar="REASON", help="Ask again for misses of this reason (default: temporary ones)."
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--older-than", min=0, metavar="DAYS", help="Only if last asked so long ago.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option("--mirror", help="Also look here: the same as --set fetch.mirror=…, for all misses.")
    ] = None,
    sets: Sets = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Ask again for photos that were missed; repair what is damaged.

    The history of attempts is in driftline trace. The summary tells photos that vanished from those that failed.
    """
    from driftline.pipelines.run.living import heal

    changes = [*(sets or []), *([f"fetch.mirror={mirror}"] if mirror else [])]
    found = heal(_context(directory, changes, as_json, workers), reasons or (), days)
    told = ["failed", "vanished"]
    lines = [
        f"asked {found['asked']:,}, healed {found['healed']:,}",
        *(f"{e['state']}: {e['file']} ({e['photos']:,} photos)" for e in found["damaged"]),
        *(f"{word}: {', '.join(f'{k} {v:,}' for k, v in found[word].items()) or 'none'}" for word in told),
    ]
    show(as_json, found, "\n".join(lines))


def _context(directory: Path, sets: list[str] | None, quiet: bool, workers: int | None) -> Any:
    """The context of a run; without --set, with the settings of the last run."""
    executor = Executor(workers=workers or default_workers())
    return context_of_last(directory, sets, quiet, executor)
