"""`driftline grow`, `heal`, `withdraw` and `forget`: a run whose source goes on, and what may leave it."""

from __future__ import annotations

from driftline.curate.core.errors import Waiting
from driftline.curate.core.executor import Engine
from driftline.pipelines.actions.action import Answer, Shown, action
from driftline.pipelines.actions.common import context_of_last, context_to_run, executor_of, next_step
from driftline.pipelines.commands.build import planned, reasons
from driftline.pipelines.kinds import Names, Place, Settings, changes_of, path_of, several


@action("driftline grow photos2024 --max-usd 20", "Keep")
def grow(
    run: Place, *, until: str | None = None, settings: Settings = (), workers: int | str = "auto",
    engine: Engine = "local", max_usd: float | None = None, dry_run: bool = False,
) -> Shown[Answer]:  # fmt: skip
    """Run all stages on a source with new records; safe under cron.

    Only new photos are fetched, embedded, retrieved and labelled. Buckets keep their borders; buckets.grow decides
    about
    later photos. Exit codes: 0 done, 1 failed or busy, 2 bad usage, 3 waiting for answers. After a kill the next call
    continues.

    max_usd USD: Stop if the new questions cost more than this.
    dry_run: Only show what would be done, as driftline plan.
    """
    from driftline.pipelines.run.living import grow

    if dry_run:
        return planned(path_of(run), until, None, changes_of(settings), grows=True)
    context = context_to_run(path_of(run), changes_of(settings), executor_of(engine, workers))
    summary = grow(context, until, max_usd)
    buckets = summary["buckets"]
    opened = buckets["now"][len(buckets["before"]) :]
    counts = (f"{what} {summary[what]['before']:,} → {summary[what]['now']:,}" for what in ("rows", "images"))
    lines = [
        f"{summary['state']}: {', '.join(counts)}",
        f"buckets {len(buckets['now'])}, new: {', '.join(opened) or 'none'}",
    ]
    because = summary["because"]
    waits = Waiting("The run waits for answers.", "", because) if because else None
    return Shown(summary, "\n".join(lines), problem=waits)


@action(
    "driftline heal photos2024 --reason timeout,http_5xx",
    "Keep",
    needs={"--yes": "--gc"},
    completes={"reason": reasons},
)
def heal(
    run: Place, *, reason: Names = (), settings: Settings = (),
    workers: int | str = "auto", engine: Engine = "local", gc: bool = False, yes: bool = False,
) -> Shown[Answer]:  # fmt: skip
    """Retry failed downloads and repair damaged files.


    Reads all finished output. Without --reason, only failures that may be temporary are retried; network stands for all
    reasons of an outage. The history of attempts is in driftline trace. The summary counts photos that vanished and
    those that failed. --gc: photos that no stage has any more, and their vectors; a changed filter may need them again.
    Answers are never deleted.

    gc: Instead, list the files of the store that no run needs.
    yes: Delete the files that --gc lists.
    """
    from driftline.pipelines.run.living import collected, heal

    if gc:
        document, lines = collected(path_of(run), yes)
        return Shown(document, "\n".join(lines))
    context = context_to_run(path_of(run), changes_of(settings), executor_of(engine, workers))
    summary = heal(context, several(reason))
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
    return Shown(summary, "\n".join(lines))


@action("driftline withdraw photos2024 6985418911 --reason 'asked by mail'", "Release")
def withdraw(run: Place, photos: Names, *, reason: str = "") -> Shown[Answer]:
    """Remove photos because their owners ask for it.

    They are kept in DIR/withdrawals.csv, which every later command obeys; other runs with the same store never
    request their URLs. The next run makes a release without them, whose WITHDRAWN.csv lets owners of copies find them.

    photos PHOTO…: Path, file name, URL or id of each photo.
    reason TEXT: Why, for yourself: it is not published.
    """
    from driftline.pipelines.run.leaving import withdraw_photos

    folder = path_of(run)
    summary = withdraw_photos(folder, [photos] if isinstance(photos, str) else list(photos), reason)
    lines = [f"withdrawn: {', '.join(summary['withdrawn']) or 'none'}"]
    lines += [f"already: {', '.join(summary['already'])}"] if summary["already"] else []
    if summary["release"] is not None:
        lines.append(f"Release {summary['release']} holds them: raise release.version before you publish again.")
    return Shown(summary, "\n".join([*lines, next_step("run", folder)]))


@action("driftline forget photos2024 --yes", "Release")
def forget(run: Place, *, yes: bool = False) -> Shown[Answer]:
    """Delete annotators' names and answers, after a release.

    Without --yes they are listed. Labels and counts stay: later releases have the same labels, and their card lists
    what was deleted. New answers count. After a kill the same command, or the next run, continues.

    yes: Delete what is listed.
    """
    from driftline.curate.validation.answers.stored import briefly
    from driftline.pipelines.run.leaving import forget

    folder = path_of(run)
    summary = forget(context_of_last(folder, (), False), yes)
    lines = summary["files"][:]
    what = f"{summary['answers']:,} answers of {summary['people']:,} people to {summary['images']:,} images"
    if not lines:
        lines = ["There is nothing to delete.", *briefly(folder)[1]]
    elif yes:
        lines += [f"deleted: {what}; labels and counts stay", next_step("run", folder)]
    else:
        lines += [f"to be deleted: {what}; labels and counts stay", "Add --yes to delete them."]
    return Shown(summary, "\n".join(lines))
