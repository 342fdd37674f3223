"""`driftline demo`, `init`, `plan`, `run`, `status`, `trace`: a run folder, from its settings to its release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, Waiting
from driftline.curate.core.executor import Engine, Executor, default_workers
from driftline.pipelines.actions import common
from driftline.pipelines.actions.action import Answer, Shown, action
from driftline.pipelines.actions.common import context_of_last, executor_of, log_of, next_step
from driftline.pipelines.kinds import Names, Place, Settings, changes_of, path_of, several

if TYPE_CHECKING:
    from driftline.pipelines.run.run_folder import Run
    from driftline.pipelines.run.runner import Verdict

MOST = 12  # buckets that a plan lists


def reasons(ctx: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the reasons for which the run of the command line dropped photos."""
    from driftline.pipelines.stages import STAGES
    from driftline.pipelines.stages.state import done_of

    root = Path(ctx.params.get("run") or ".")
    counts = [done["counts"]["dropped"] for name in STAGES if (done := done_of(root, name))]
    return sorted({reason for dropped in counts for reason in dropped if reason.startswith(incomplete)})


@action("driftline demo --out demo", "Start")
def demo(out: Place = "demo", *, full: bool = False, real: bool = False, album: Place | None = None) -> Shown[Any]:
    """Run all steps on rendered or real images, offline.

    Photos, build, stream, evaluation, report.

    out DIR: Folder for all results.
    full: The large world of the README's figures: five times the photos, five seeds.
    real: Real dated images instead: fruit, painted 1904–1942 (public domain).
    album DIR: Only write rendered photos to practise on, a folder a class, into this new folder.
    """
    from driftline.pipelines.run.run_folder import Run

    if real + full + (album is not None) > 1:
        raise BadConfig("--full, --real and --album exclude each other.", "", "Give one of them.")
    if album is not None:
        from driftline.pipelines.demo.world import write_album

        photos = write_album(common.guarded_out(path_of(album), option="--album"))
        return Shown(path_of(album), f"album: {album}, {photos} photos", {"out": str(path_of(album)), "photos": photos})
    folder = path_of(out)
    if not (folder / "driftline.yaml").is_file():  # else the demo goes on, or that run refuses it
        common.guarded_out(folder, "run")
    run_log = log_of(folder / "log.jsonl")
    if real:
        from driftline.pipelines.demo.real import demo as real_demo

        result = real_demo(folder, run_log)
    else:
        from driftline.pipelines.demo.journey import QUICK, Scale
        from driftline.pipelines.demo.journey import demo as journey

        result = journey(folder, Scale() if full else QUICK, run_log)
    return Shown(Run(folder), f"report: {result['report']}", {"out": str(folder), **result})


def _presets() -> list[str]:
    from driftline.pipelines.config import presets

    return presets.names()


@action("driftline init photos2024 --preset folder", "Build", completes={"preset": _presets})
def init(path: Place, *, preset: str = "folder", settings: Settings = (), force: bool = False) -> Shown[Run]:
    """Write DIR/driftline.yaml: every setting, with a comment.

    path DIR: Folder of the run; created if it does not exist.
    preset NAME: First values (driftline list presets).
    force: Replace an existing driftline.yaml.
    """
    from driftline.curate.core.settings import resolve_path
    from driftline.curate.sources.base import FileSource
    from driftline.pipelines.config.loader import load
    from driftline.pipelines.config.presets import write_run_file
    from driftline.pipelines.run.run_folder import Run

    folder = path_of(path)
    file = write_run_file(folder, preset, changes_of(settings), force)
    source = load(file).collection
    lines = [f"wrote {file} (preset {preset})"]
    if isinstance(source, FileSource) and "://" not in source.path:
        collected = resolve_path(source.path, folder)
        lines += [] if collected.exists() else [f"There is no {collected.absolute()}: set collection.path in {file}."]
    return Shown(Run(folder), "\n".join([*lines, next_step("plan", folder)]), {"out": str(file)})


@action("driftline run photos2024 --until retrieve", "Build")
def run(
    run: Place, *, until: str | None = None, start: str | None = None, settings: Settings = (),
    workers: int | str = "auto", engine: Engine = "local",
) -> Shown[Answer]:  # fmt: skip
    """Run all stages that are not done yet.

    All settings are checked first; those of --set are kept for the next run, until --set or driftline.yaml changes
    them. Old output is kept until the new one is complete. The same command continues a run that was stopped or killed.
    It exits with code 3 where answers are missing: add them (driftline annotate, or a results file in DIR/answers) and
    run it again.
    """
    from driftline.pipelines.run import runner

    folder = path_of(run)
    context = common.context_to_run(folder, changes_of(settings), executor_of(engine, workers))
    entries = runner.run(context, start, until)
    missing = next((entry["because"] for entry in entries if "because" in entry), None)
    lines = [runner.table(entries), *([] if missing else _following(folder, entries))]
    waits = Waiting("The run waits for answers.", "", missing) if missing else None
    return Shown({"out": str(folder), "stages": entries}, "\n".join(lines), problem=waits)


def _following(folder: Path, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the release is and what it is for, or how the run goes on."""
    if entries[-1]["state"] != "done":
        return [next_step("run", folder)]
    from driftline.pipelines.stages.state import folder_of

    release = f"release: {folder_of(folder, 'publish') / 'release'}"
    return [release, next_step("stream", "from-release", folder, "--out", "stream")]


@action("driftline plan photos2024", "Build")
def plan(run: Place, *, until: str | None = None, start: str | None = None, settings: Settings = ()) -> Shown[Answer]:
    """Show what a run would do and need; change nothing.

    Photos, buckets, candidates, disk, estimated time, answers of people and their cost, the model, what is
    reused, and problems: with problems the exit code is 1.
    """
    return planned(path_of(run), until, start, changes_of(settings))


def planned(
    folder: Path, until: str | None, start: str | None, changes: Sequence[str], grows: bool = False
) -> Shown[Answer]:
    """The same; grows: of `driftline grow`, which keeps the borders of the buckets."""
    from driftline.curate.core.files import one_walk
    from driftline.pipelines.forecast import forecast
    from driftline.pipelines.run.living import borders_if_grown
    from driftline.pipelines.run.runner import plan

    context = context_of_last(folder, changes, True, Executor(workers=default_workers()))
    with one_walk():
        plans = plan(context, start, until)
        needs = forecast(context, plans, borders_if_grown(context) if grows else None)
    lines = "\n".join(filter(None, [common.kept_text(context, changes), plan_text(plans, needs)]))
    problems = " ".join(needs["problems"])
    problem = DriftlineError(f"{folder} cannot run like this: {problems}") if problems else None
    return Shown({"plan": [asdict(p) for p in plans], **needs}, lines, problem=problem)


def plan_text(plans: Sequence[Verdict], needs: Mapping[str, Any]) -> str:
    """The plan for people. needs: of `forecast`."""
    from driftline.curate.images.local_files import counts_text
    from driftline.pipelines.run.runner import duration
    from driftline.pipelines.stages.base import reasons_text

    lines = [*(f"{p.stage:<11}{p.action:<8}{p.because}" for p in plans), ""]
    add: Callable[[str, str], None] = lambda head, sentence: lines.append(f"{head:<11}{sentence}")  # noqa: E731
    if (photos := needs["photos"]) is not None:
        basis = "; filter drops ".join(filter(None, [photos["known_by"], reasons_text(photos["sample_dropped"])]))
        if photos["addresses"] is not None:
            measured = f", as of {photos['share_known_by']}" if photos["share_known_by"] else ""
            basis = f"{photos['addresses']:,} URLs{measured}; {basis}"
        add("photos", f"{'at most ' if photos['at_most'] else ''}{photos['expected']:,} ({basis})")
    if (files := needs["files"]) is not None:
        left = f"; left out: {counts_text(files['left_out'])}" if files["left_out"] else ""
        add("files", f"{', '.join(f'{name} {n:,}' for name, n in files['photos'].items())}{left}")
    for head, sentence in _photos_text(needs):
        add(head, sentence)
    if (size := needs["disk"]["bytes"]) is not None and size > 0:
        guess = "" if needs["disk"]["known_by"] == "files" else f" (at {needs['disk']['known_by']})"
        free = needs["disk"]["free"] / 1e6
        add("disk", f"about {size / 1e6:,.{int(size < 1e7)}f} MB of photos{guess}; {free:,.0f} MB are free")
    model = needs["model"]
    megabytes = f" ({model['megabytes']:,} MB)" if model["megabytes"] else ""
    states = {"missing": f"missing, and {model['server']} does not answer", "to download": f"to download{megabytes}"}
    add("model", f"{model['name']}: {states.get(model['state'], model['state'])}")
    if times := {name: seconds for name, seconds in needs["seconds"].items() if seconds}:
        most = ", ".join(f"{name} {duration(times[name])}" for name in sorted(times, key=lambda one: -times[one])[:2])
        unknown = ", ".join(name for name, seconds in needs["seconds"].items() if seconds is None)
        rest = f"; not known: {unknown}" if unknown else ""
        add("time", f"about {duration(sum(times.values()))} by the last run, else by a test machine ({most}{rest})")
    if (asked := needs["questions"]) is not None and not asked["images"]:
        add("people", "no further answers are needed")
    elif asked is not None:
        people = f"{asked['images']:,} images × {asked['workers']} = {asked['answers']:,} answers"
        paid = f"${asked['usd']:,.2f} for paid workers with the fee of {asked['platform']}"
        add("people", f"{asked['word']} {people}, {duration(3600 * asked['hours'])}; {paid}, free by yourself")
        least = f", less than the ${asked['least_an_hour']:,.2f} that it requires"
        hourly = f"${asked['usd_an_hour']:,.2f} an hour{least if asked['usd_an_hour'] < asked['least_an_hour'] else ''}"
        add("", f"pay: {hourly}; fee: {asked['fee']}")
        gold = f", gold {asked['gold']:,}" if asked["gold"] else ""
        add("", f"basis: {asked['known_by']}{gold}")
    for what, others in (("requests", "knows the other photos"), ("embeddings", "has the other vectors")):
        if needs["again"] and needs["again"][what] is not None:
            add("again", f"about {needs['again'][what]:,} {what}; the store {others}")
    for problem in needs["problems"]:
        add("problem", problem)
    return "\n".join(lines)


def _photos_text(needs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Columns, dates, buckets, licences and candidates of a forecast: what is counted, and what is odd."""
    from driftline.curate.metadata.clocks import contradiction_sentence, reset_sentence
    from driftline.curate.release.selection import few

    yield from (("columns", note) for note in needs["columns"])
    yield from (("dates", reset_sentence(day, n, "taken")) for day, n in needs["reset_clocks"].items())
    yield from (("dates", contradiction_sentence(*places)) for places in needs["contradicted_dates"].items())
    if needs["undecided"]:
        why = "because only the year, month or day is known: date_undecided"
        way_out = "Choose longer buckets, or give exact dates in the source"
        yield "dates", f"{needs['undecided']:,} photos may be in several buckets, {why}. {way_out}"
    if (buckets := needs["buckets"]) is not None:
        shown = ", ".join(f"{b['name']}: {b['photos']:,}" for b in buckets[:MOST])
        yield "buckets", f"{shown}{f' and {len(buckets) - MOST} more' if len(buckets) > MOST else ''}"
        if needs["thin"]:
            yield "", f"{needs['thin']:,} photos wait until their time has buckets.min_photos: thin_period"
        if len(buckets) == 1:
            yield "", "one bucket: no model can be tested on a later time"
    if (refused := needs["without_licence"]) is not None:
        yield "licences", f"{refused['photos']:,} of {refused['of']:,} permit no copies: only URLs are published"
    yield from (("images", sentence) for sentence in needs["placeholders"])
    if needs["without_candidates"]:
        yield "candidates", needs["without_candidates"]
    if (wanted := needs["candidates"]) is not None:
        background = f" + {wanted['background']:,} of the background" if wanted["background"] else ""
        yield "candidates", f"{wanted['concepts']} concepts × {wanted['per_class']:,}{background} in each bucket"
        if wanted["short_buckets"]:
            yield "", f"{few(wanted['short_buckets'])}: fewer photos than that"


@action("driftline status photos2024 --json", "Build", completes={"reason": reasons})
def status(
    run: Place, reason: Names = (), *, dropped: bool = False, settings: Settings = (), verify: bool = False
) -> Shown[Answer]:
    """Show each stage: state, counts, dropped by reason, seconds.

    With the settings of the last run. Missing and cut files are named, with the command that repairs.
    driftline status DIR --dropped no_upload_date lists the photos that were dropped for this reason.

    reason REASON: --dropped: only these.
    dropped: List the photos that were dropped, with path or URL.
    verify: Read all output and compare its checksums.
    """
    from driftline.curate.metadata.withdrawals import NAME, withdrawals
    from driftline.pipelines.run import runner

    folder, changes, of_reasons = path_of(run), changes_of(settings), several(reason)
    context = context_of_last(folder, changes, True)
    if of_reasons and not dropped:
        raise BadConfig(f"{of_reasons[0]!r} was given without --dropped.", "Expected both.", "Add --dropped.")
    entries = runner.status(context, verify)
    if dropped:
        from driftline.pipelines.stages.photos import dropped as rows_of
        from driftline.pipelines.stages.photos import dropped_text as text

        rows = rows_of(folder, of_reasons)
        return Shown({"stages": entries, "dropped": rows}, text(rows, context.config))
    withdrawn = [one.id for one in withdrawals(folder / NAME)]
    document: Answer = {"stages": entries} | ({"withdrawn": withdrawn} if withdrawn else {})
    lines = [*filter(None, [common.kept_text(context, changes)]), runner.table(entries)]
    if withdrawn:
        from driftline.curate.release.selection import few  # imports numpy

        lines.append(f"withdrawn: {len(withdrawn):,} photos, {few(withdrawn)} ({folder / NAME})")
    store = context.config.store.folder(folder)
    if store.is_dir():
        from driftline.pipelines.run.living import size_of

        document["store"] = size_of(store)
        lines.append(f"store: {document['store']['files']:,} files, {document['store']['bytes']:,} bytes ({store})")
    deleted, more = _deleted(folder)
    return Shown(document | deleted, "\n".join([*lines, *more]))


def _deleted(folder: Path) -> tuple[Answer, list[str]]:
    """What was deleted of people's answers or is being deleted: for --json, and as lines."""
    from driftline.curate.validation.settings import FORGOTTEN
    from driftline.pipelines.stages.state import INTENT

    if (folder / INTENT).is_file():
        line = f"answers are being deleted; that was interrupted. Go on: driftline forget {folder} --yes"
        return {"deleting": True}, [line]
    if not (folder / FORGOTTEN).is_file():
        return {}, []
    from driftline.curate.validation.answers.stored import briefly

    entries, lines = briefly(folder)
    return {"answers_deleted": entries}, lines


@action("driftline trace photos2024 holiday/IMG_0042.jpg", "Build")
def trace(run: Place, photo: str) -> Shown[Answer]:
    """Show one photo's history through every stage.

    Where it entered, where it was dropped and why, its bucket, scores and votes.

    photo PHOTO: Path, file name, URL or id of a photo.
    """
    from driftline.pipelines.stages.photos import history_text as text
    from driftline.pipelines.stages.photos import trace as history_of

    history = history_of(path_of(run), photo)
    return Shown(history, text(history))
