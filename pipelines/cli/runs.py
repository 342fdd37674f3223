"""`driftline demo`, `init`, `run`, `status`, `trace`: a run folder, from its settings to its release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, Waiting
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers
from driftline.pipelines.cli.common import (
    Engine,
    RunFolder,
    Sets,
    Workers,
    command,
    context_of_last,
    context_to_run,
    executor_of,
    kept_text,
    log_of,
    next_step,
    option,
    several,
    show,
)
from driftline.pipelines.cli.listing import named
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.store import size_of

runs_app = typer.Typer()

Until = Annotated[str | None, named("--until", "stages", "Stop after this stage", metavar="STAGE")]
From = Annotated[str | None, named("--from", "stages", "Repeat this stage and all later ones", metavar="STAGE")]


def _reasons(ctx: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the reasons for which the run of the command line dropped photos."""
    from driftline.pipelines.run.state import done_of
    from driftline.pipelines.stages import STAGES

    root = Path(ctx.params.get("directory") or ".")
    counts = [done["counts"]["dropped"] for name in STAGES if (done := done_of(root, name))]
    return sorted({reason for dropped in counts for reason in dropped if reason.startswith(incomplete)})


Reasons = Annotated[
    list[str] | None,
    option("--reason", "REASON", "Only for this reason (driftline status). Repeatable.", autocompletion=_reasons),
]


@command(runs_app, "demo", "driftline demo --out demo", panel="Start")
def demo(
    out: Annotated[Path, option("--out", "DIR", "Folder for all results.")] = Path("demo"),
    quick: Annotated[bool, option("--quick", None, "A smaller world: about a minute.")] = False,
    real: Annotated[
        bool, option("--real", None, "Real dated pictures instead: fruit, painted 1904–1942 (public domain).")
    ] = False,
) -> None:
    """Run all steps on built-in or real pictures, offline.

    Photos, build, stream, evaluation, report.
    """
    if not (out / "driftline.yaml").is_file():  # else the demo goes on, or that run refuses it
        guarded_out(out, "run")
    run_log = log_of(out / "log.jsonl")
    if real:
        if quick:
            raise BadConfig("--real and --quick exclude each other.", "", "Leave out --quick.")
        from driftline.pipelines.demo.real import demo as real_demo

        result = real_demo(out, run_log)
    else:
        from driftline.pipelines.demo.journey import QUICK, Scale
        from driftline.pipelines.demo.journey import demo as journey

        result = journey(out, QUICK if quick else Scale(), run_log)
    show({"out": str(out), **result}, f"report: {result['report']}")


def _presets() -> list[str]:
    from driftline.pipelines.config import presets

    return presets.names()


@command(runs_app, "init", "driftline init photos2024 --preset folder", panel="Build")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the run; created if it does not exist.")],
    preset: Annotated[
        str, option("--preset", None, "First values (driftline list presets).", autocompletion=_presets)
    ] = "folder",
    sets: Sets = None,
    force: Annotated[bool, option("--force", None, "Replace an existing driftline.yaml.")] = False,
) -> None:
    """Write DIR/driftline.yaml: every setting, with a comment."""
    from driftline.curate.core.settings import resolve_path
    from driftline.curate.sources.base import FileSource
    from driftline.pipelines.config.loader import load
    from driftline.pipelines.config.presets import write_run_file

    path = write_run_file(directory, preset, sets or (), force)
    source = load(path).collection
    lines = [f"wrote {path} (preset {preset})"]
    if isinstance(source, FileSource) and "://" not in source.path:
        photos = resolve_path(source.path, directory)
        lines += [] if photos.exists() else [f"There is no {photos.absolute()}: set collection.path in {path}."]
    lines.append(next_step("plan", directory))
    show({"out": str(path)}, "\n".join(lines))


@command(runs_app, "run", "driftline run photos2024 --until retrieve", panel="Build")
def run(
    directory: RunFolder,
    until: Until = None,
    start: From = None,
    sets: Sets = None,
    workers: Workers = "auto",
    engine: Engine = "local",
    yes: Annotated[bool, option("--yes", None, "Repeat finished work of more than 10 minutes.")] = False,
) -> None:
    """Run all stages that are not done yet.

    All settings are checked first; those of --set are kept for the next run, until --set or driftline.yaml changes
    them. Old output is kept until the new one is complete. The same command continues a run that was stopped or killed.
    It exits with code 3 where answers are missing: add them (driftline annotate, or a results file in DIR/answers) and
    run it again.
    """
    from driftline.pipelines.run import runner

    context = context_to_run(directory, sets, executor_of(engine, workers))
    entries = runner.run(context, start, until, yes)
    waits = any("because" in entry for entry in entries)
    following = "" if waits else "\n" + _following(directory, entries)
    show({"out": str(directory), "stages": entries}, runner.table(entries) + following)
    for entry in entries:
        if "because" in entry:
            raise Waiting("The run waits for answers.", "", entry["because"])


def _following(directory: Path, entries: Sequence[Mapping[str, Any]]) -> str:
    """Where the release is and what it is for, or how the run goes on."""
    if entries[-1]["state"] != "done":
        return next_step("run", directory)
    from driftline.pipelines.run.state import folder_of

    release = f"release: {folder_of(directory, 'publish') / 'release'}"
    return f"{release}\n{next_step('stream', 'from-release', directory, '--out', 'stream')}"


@command(runs_app, "plan", "driftline plan photos2024", panel="Build")
def plan_(
    directory: RunFolder,
    until: Until = None,
    start: From = None,
    sets: Sets = None,
) -> None:
    """Show what a run would do and need; change nothing.

    Photos, buckets, candidates, disk, estimated time, answers of people and their cost, the model, the network, what is
    reused, and problems: with problems the exit code is 1.
    """
    planned(directory, until, start, sets)


def planned(
    directory: Path,
    until: str | None,
    start: str | None = None,
    sets: list[str] | None = None,
    grows: bool = False,
) -> None:
    """The same; grows: of `driftline grow`, which keeps the borders of the buckets."""
    from dataclasses import asdict

    from driftline.curate.core.files.walk import one_walk
    from driftline.pipelines.forecast.needs import forecast
    from driftline.pipelines.forecast.text import text
    from driftline.pipelines.run.living import borders_if_grown
    from driftline.pipelines.run.plan import plan

    context = context_of_last(directory, sets, True, Executor(workers=default_workers()))
    with one_walk():
        plans = plan(context, start, until)
        needs = forecast(context, plans, borders_if_grown(context) if grows else None)
    lines = "\n".join(filter(None, [kept_text(context, sets), text(plans, needs)]))
    show({"plan": [asdict(p) for p in plans], **needs}, lines)
    if problems := needs["problems"]:
        raise DriftlineError(f"{directory} cannot run like this: {' '.join(problems)}")


@command(runs_app, "status", "driftline status photos2024 --json", panel="Build")
def status(
    directory: RunFolder,
    reasons: Annotated[
        list[str] | None, typer.Argument(metavar="REASON", help="--dropped: only these.", autocompletion=_reasons)
    ] = None,
    dropped: Annotated[bool, option("--dropped", None, "List the photos that were dropped, with path or URL.")] = False,
    sets: Sets = None,
    verify: Annotated[bool, option("--verify", None, "Read all output and compare its checksums.")] = False,
) -> None:
    """Show each stage: state, counts, dropped by reason, seconds.

    With the settings of the last run. Missing and cut files are named, with the command that repairs.
    driftline status DIR --dropped no_upload_date lists the photos that were dropped for this reason.
    """
    from driftline.curate.metadata.withdrawals import NAME, withdrawals
    from driftline.pipelines.run import runner
    from driftline.pipelines.run.state import left_over

    context = context_of_last(directory, sets, True)
    if reasons and not dropped:
        raise BadConfig(f"{reasons[0]!r} was given without --dropped.", "Expected both.", "Add --dropped.")
    entries = runner.status(context, verify)
    if dropped:
        from driftline.pipelines.reporting.photos import dropped as rows_of
        from driftline.pipelines.reporting.photos import text

        rows = rows_of(directory, several(reasons))
        return show({"stages": entries, "dropped": rows}, text(rows, context.config))
    others = left_over(directory)
    withdrawn = [one.id for one in withdrawals(directory / NAME)]
    document: dict[str, Any] = {"stages": entries} | ({"left_over": others} if others else {})
    document |= {"withdrawn": withdrawn} if withdrawn else {}
    lines = [*filter(None, [kept_text(context, sets)]), runner.table(entries), *([others] if others else [])]
    if withdrawn:
        from driftline.curate.release.selection import few  # imports numpy

        lines.append(f"withdrawn: {len(withdrawn):,} photos, {few(withdrawn)} ({directory / NAME})")
    store = context.config.store.folder(directory)
    if store.is_dir():
        document["store"] = size_of(store)
        lines.append(f"store: {document['store']['files']:,} files, {document['store']['bytes']:,} bytes ({store})")
    deleted, more = _deleted(directory)
    show(document | deleted, "\n".join([*lines, *more]))


def _deleted(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """What was deleted of people's answers or is being deleted: for --json, and as lines."""
    from driftline.curate.validation.answers import FORGOTTEN
    from driftline.pipelines.run.state import INTENT

    if (directory / INTENT).is_file():
        line = f"answers are being deleted; that was interrupted. Go on: driftline forget {directory} --yes"
        return {"deleting": True}, [line]
    if not (directory / FORGOTTEN).is_file():
        return {}, []
    from driftline.curate.validation.answers.standing import briefly

    entries, lines = briefly(directory)
    return {"answers_deleted": entries}, lines


@command(runs_app, "trace", "driftline trace photos2024 holiday/IMG_0042.jpg", panel="Build")
def trace(
    directory: RunFolder,
    photo: Annotated[str, typer.Argument(metavar="PHOTO", help="Path, file name, URL or id of a photo.")],
) -> None:
    """Show one photo's history through every stage.

    Where it entered, where it was dropped and why, its bucket, scores and votes.
    """
    from driftline.pipelines.reporting.trace import text
    from driftline.pipelines.reporting.trace import trace as history_of

    history = history_of(directory, photo)
    show(history, text(history))
