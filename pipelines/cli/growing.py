"""`driftline grow` and `heal`: a run whose source goes on."""

from __future__ import annotations

from typing import Annotated

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

    executor = Executor(workers=workers or default_workers())
    summary = grow(context_of_last(directory, sets, as_json, executor), until, minutes, cost)
    rows, images, buckets = summary["rows"], summary["images"], summary["buckets"]
    opened = buckets["now"][len(buckets["before"]) :]
    lines = [
        f"{summary['state']}: {rows['new']:,} new rows, {rows['gone']:,} gone, {rows['kept']:,} kept that are gone; "
        f"{images['new']:,} new images, {images['near_copies_of_stored']:,} of them near copies of stored ones",
        f"requests {summary.get('requests', 0):,}, embeddings {summary.get('embeddings', 0):,}",
        f"buckets {len(buckets['now'])}, new: {', '.join(opened) or 'none'}",
    ]
    show(as_json, summary, "\n".join(lines))
    if summary["because"]:
        raise Waiting("The run waits for answers.", "", summary["because"])


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
    executor = Executor(workers=workers or default_workers())
    summary = heal(context_of_last(directory, changes, as_json, executor), reasons or (), days)
    lines = [
        f"asked {summary['asked']:,}, healed {summary['healed']:,}",
        *(f"{e['state']}: {e['file']} ({e['photos']:,} photos)" for e in summary["damaged"]),
        *(
            f"{word}: {', '.join(f'{k} {v:,}' for k, v in summary[word].items()) or 'none'}"
            for word in ("failed", "vanished")
        ),
    ]
    show(as_json, summary, "\n".join(lines))
