"""`driftline grow`, `heal`, `withdraw` and `forget`: a run whose source goes on, and what may leave it."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.curate.core.errors import Waiting
from driftline.pipelines.cli.common import (
    Engine,
    RunFolder,
    Sets,
    Workers,
    command,
    context_of_last,
    context_to_run,
    executor_of,
    next_step,
    option,
    several,
    show,
)
from driftline.pipelines.cli.runs import Reasons, Until, planned
from driftline.pipelines.cli.store import collected

living_app = typer.Typer()


@command(living_app, "grow", "driftline grow photos2024 --max-minutes 50 --max-usd 20", panel="Keep")
def grow_(
    directory: RunFolder,
    until: Until = None,
    sets: Sets = None,
    workers: Workers = "auto",
    engine: Engine = "local",
    minutes: Annotated[
        float | None, option("--max-minutes", None, "Stop after about so long; the next call goes on.", min=0)
    ] = None,
    cost: Annotated[
        float | None, option("--max-usd", "USD", "Refuse questions that cost more than this.", min=0)
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", None, "Only say what is to do, as driftline plan.")] = False,
) -> None:
    """Run all stages on a source with new records; safe under cron.

    Only new photos are fetched, embedded, retrieved and asked. Buckets keep their borders; buckets.grow says what later
    photos do. Exit codes: 0 done (or paused by --max-minutes), 1 failed or busy, 2 bad usage, 3 waiting for answers.
    """
    from driftline.pipelines.run.living import grow

    if dry_run:
        return planned(directory, until, sets=sets, grows=True)
    context = context_to_run(directory, sets, executor_of(engine, workers))
    summary = grow(context, until, minutes, cost)
    buckets = summary["buckets"]
    opened = buckets["now"][len(buckets["before"]) :]
    counts = (f"{what} {summary[what]['before']:,} → {summary[what]['now']:,}" for what in ("rows", "images"))
    lines = [
        f"{summary['state']}: {', '.join(counts)}; {summary['gone']:,} rows are kept that the source no longer has",
        f"buckets {len(buckets['now'])}, new: {', '.join(opened) or 'none'}",
    ]
    show(summary, "\n".join(lines))
    if summary["because"]:
        raise Waiting("The run waits for answers.", "", summary["because"])


@command(
    living_app, "heal", "driftline heal photos2024 --reason timeout,http_5xx", panel="Keep", needs={"--yes": "--gc"}
)
def heal_(
    directory: RunFolder,
    reasons: Reasons = None,
    days: Annotated[float | None, option("--older-than", "DAYS", "Only if last asked so long ago.", min=0)] = None,
    sets: Sets = None,
    workers: Workers = "auto",
    engine: Engine = "local",
    gc: Annotated[bool, option("--gc", None, "Instead, list the files of the store that no run needs.")] = False,
    yes: Annotated[bool, option("--yes", None, "Delete the files that --gc lists.")] = False,
) -> None:
    """Ask again for photos that were missed; repair what is damaged.

    Reads all finished output. Without --reason, misses that may be temporary are asked for again; network stands for
    all reasons of an outage. The history of attempts is in driftline trace. The summary tells photos that vanished from
    those that failed. --gc: photos that no stage holds any more, and their vectors; a changed filter may need them
    again. Answers are never deleted.
    """
    if gc:
        document, lines = collected(directory, yes)
        return show(document, "\n".join(lines))
    from driftline.pipelines.run.living import heal

    context = context_to_run(directory, sets, executor_of(engine, workers))
    summary = heal(context, several(reasons), days)
    lines = [
        *(f"mended {e['stage']}: {e['because']}" for e in summary["mended"]),
        *(f"{e['state']}: {e['file']} ({e['photos']:,} photos)" for e in summary["damaged"]),
        *([] if summary["mended"] or summary["damaged"] else ["nothing was damaged"]),
        f"asked {summary['asked']:,}, healed {summary['healed']:,}",
        *(
            f"{word}: {', '.join(f'{k} {v:,}' for k, v in summary[word].items()) or 'none'}"
            for word in ("failed", "vanished")
        ),
    ]
    show(summary, "\n".join(lines))


@command(living_app, "withdraw", "driftline withdraw photos2024 6985418911 --reason 'asked by mail'", panel="Release")
def withdraw_(
    directory: RunFolder,
    photos: Annotated[list[str], typer.Argument(metavar="PHOTO…", help="Path, file name, URL or id of each photo.")],
    reason: Annotated[str, option("--reason", "TEXT", "Why, for yourself: it is not published.")] = "",
) -> None:
    """Take photos out because their owners ask for it.

    They are kept in DIR/withdrawals.csv, which every later command obeys; other runs with the same store refuse their
    addresses. The next run makes a release without them, whose WITHDRAWN.csv lets owners of copies find them.
    """
    from driftline.pipelines.run.withdrawing import withdraw_photos

    summary = withdraw_photos(directory, photos, reason)
    lines = [f"withdrawn: {', '.join(summary['withdrawn']) or 'none'}"]
    lines += [f"already: {', '.join(summary['already'])}"] if summary["already"] else []
    if summary["release"] is not None:
        lines.append(f"Release {summary['release']} holds them: raise release.version before you publish again.")
    show(summary, "\n".join([*lines, next_step("run", directory)]))


@command(living_app, "forget", "driftline forget photos2024 --yes", panel="Release")
def forget_(
    directory: RunFolder,
    yes: Annotated[bool, option("--yes", None, "Delete what is listed.")] = False,
) -> None:
    """Delete names and answers of people, after a release.

    Without --yes they are listed. Verdicts and counts stay: later releases have the same labels, and their card says
    what was deleted. New answers count. After a kill the same command, or the next run, goes on.
    """
    from driftline.curate.validation.answers.standing import briefly
    from driftline.pipelines.run.forgetting import forget

    summary = forget(context_of_last(directory, None, False), yes)
    lines = [f"{place['file']}  {place['holds']}" for place in summary["files"]]
    what = f"{summary['answers']:,} answers of {summary['people']:,} people to {summary['images']:,} images"
    if not lines:
        lines = ["There is nothing to delete.", *briefly(directory)[1]]
    elif yes:
        lines += [f"deleted: {what}; verdicts and counts stay", next_step("run", directory)]
    else:
        lines += [f"to be deleted: {what}; verdicts and counts stay", "Add --yes to delete them."]
    lines += [
        f"{run} uses the same store: forget there first, or it asks again about images that only these people answered."
        for run in summary["other_runs"]
    ]
    show(summary, "\n".join(lines))
