"""protocol × learner × seed → rows → the scores of `driftline eval --json`."""

from __future__ import annotations

import dataclasses
import glob
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from driftline.curate.core.atomic_io import locked
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor import Executor
from driftline.curate.core.files.digests import code_of
from driftline.eval import outcomes
from driftline.eval import rows as row_files
from driftline.eval.checkpoint import Checkpoint
from driftline.eval.engine import fused
from driftline.eval.experiment.code import code_or_name
from driftline.eval.experiment.cost_estimate import core_seconds, finished_runs
from driftline.eval.experiment.inputs import numbers_of, several, stream_of
from driftline.eval.experiment.jobs import AnyLearner, AnyProtocol, Job, Settings, Setup, jobs_of, settings_text
from driftline.eval.experiment.presets import left_out
from driftline.eval.experiment.tune import Choice, Grid, choose, started
from driftline.eval.learner import Learner
from driftline.eval.protocol import Protocol, Ran, Start, skip_reason
from driftline.eval.results import Results
from driftline.eval.reveals import label_time_note
from driftline.eval.rows import Run, folder_name, keep_skipped
from driftline.eval.scoring import timeline, versions
from driftline.eval.scoring.aggregate import summary
from driftline.eval.scoring.ranking import standing_of
from driftline.eval.scoring.sums import groups_of
from driftline.stream_builder.stream import Stream

Reuse = Literal["same", "any"]  # of finished runs: by the same code, or by any


def evaluate(
    stream: Stream | str | Path,
    protocol: AnyProtocol,
    learners: AnyLearner | Sequence[AnyLearner],
    seeds: int | Sequence[int] = 1,
    settings: Settings | None = None,
    out: str | Path | None = None,
    progress: Callable[[int], None] = lambda n: None,
    stream_folder: Path | None = None,
    executor: Executor | None = None,
    tune: Grid | None = None,
    keep_run: Callable[[Run], None] = lambda run: None,
    preset: str = "",
    reuse: Reuse = "same",
) -> Results:
    """Run every learner with every seed; returns the document of `driftline eval --json`.

    stream: or its folder. protocol: a registered name, `package.module:Name`, a class derived from `Protocol`, or an
    instance. learners: one or several, likewise; names also with settings, as in `reservoir(alpha=5)`; scikit-learn
    classifiers. seeds: their number, or each of them. settings: `{"epochs": 10}` goes to the protocol or
    to every learner that has such a setting, `{"er.memory": 500}` to one learner,
    `{"probabilities": "all"}` to the records of each test (see `outcomes.probabilities`).
    out: folder for rows; finished runs in it are not repeated. progress: called with 1 after each run that was not
    found there. stream_folder, executor: processes or Ray share the runs of learners that are given by name; rows are
    the same as those of one process. tune: setting → candidates; each learner that has such settings chooses among
    them for every seed, by the protocol's primary score on samples that are not scored afterwards, and its rows record
    the choice. keep_run: called with each finished run. preset: a paper's settings (`PRESETS`) for the learners and
    protocols that it names; settings override it. reuse: "same" repeats a run of `out` whose code has changed since (of
    driftline's `eval`, of a learner or protocol of one's own); "any" takes it, and its result says `"code": "other"`.

    Raises IncompatibleStream (the stream lacks what the protocol needs) and BadConfig (a setting) before any work. A
    learner that cannot run or fails is listed under "skipped" with the reason; the others go on.
    """
    out = None if out is None else Path(out)
    stream_folder = Path(stream) if stream_folder is None and isinstance(stream, str | Path) else stream_folder
    stream, learners, seeds = stream_of(stream, out is not None), several(learners), numbers_of(seeds)
    grid, jobs = jobs_of(
        stream, protocol, learners, seeds, settings or {}, tune or {}, out, preset=preset, any_code=reuse == "any"
    )
    stream = outcomes.numbered(stream, grid.most_probable)
    names = {job.place: job.name for job in jobs}
    failed: dict[int, str] = {}
    shared: set[str] = set()  # learners whose runs other processes do first
    if executor is not None and stream_folder is not None and out is not None and grid.portable(executor):
        by_name = [job for job in jobs if job.name in [learner for learner in learners if isinstance(learner, str)]]
        shared = {job.name for job in by_name}
        parts = _parts(grid.protocol, sorted(by_name, key=lambda job: job.seed), executor.workers)
        tasks = [(stream_folder, grid, [dataclasses.replace(job, spec=None) for job in part]) for part in parts]
        gpus = int(any(job.changed.get("device") == "cuda" for job in by_name))
        if tasks and grid.protocol.shardable:  # more processes than runs: several share one
            tasks = [tasks[i % len(tasks)] for i in range(max(len(tasks), executor.workers))]
        told = [0] * len(parts)
        for number, (because, done) in executor.run_tasks(_shared_runs, tasks, gpus=gpus):
            failed |= {of: because[name] for of, name in names.items() if name in because and of not in failed}
            more = max(done - told[number % len(parts)], 0)  # processes that share a part did the same runs
            told[number % len(parts)] += more
            progress(more)
    finished: list[tuple[int, Run]] = []
    for part in _parts(grid.protocol, [job for job in jobs if job.place not in failed], 1):
        for job, run, found in _runs(stream, grid, part):
            progress(0 if found or job.name in shared else 1)
            if isinstance(run, Run):
                finished.append((job.place, run))
                keep_run(run)
            else:
                failed.setdefault(job.place, str(run))
    runs = [run for of, run in finished if of not in failed]
    skipped = [{"learner": name, "because": failed[of]} for of, name in names.items() if of in failed]
    if out is not None:
        asked = [*dict.fromkeys(names.values()), "all"]
        keep_skipped(out, grid.name, _about(stream, seeds[0] if len(seeds) == 1 else None), asked, skipped)
    scored = summary(runs, stream.name, stream.sha256, grid.name, groups_of(stream), len(stream.classes))
    results = Results({**scored, "classes": list(stream.classes), "skipped": skipped})
    results.runs, results.on = runs, stream
    return results


def draws_of(folder: Path) -> dict[int, Path]:
    """Seed → stream folder of each draw that `driftline stream compose --seeds` wrote into a folder."""
    folders = {place.parent.name.removeprefix("seed-"): place.parent for place in folder.glob("seed-*/stream.json")}
    return {int(seed): folders[seed] for seed in sorted(filter(str.isdigit, folders), key=int)}


def evaluate_draws(
    draws: Mapping[int, Path],
    protocol: AnyProtocol,
    learners: AnyLearner | Sequence[AnyLearner],
    settings: Settings | None = None,
    out: str | Path | None = None,
    progress: Callable[[int], None] = lambda n: None,
    executor: Executor | None = None,
    tune: Grid | None = None,
    preset: str = "",
    reuse: Reuse = "same",
) -> Results:
    """As `evaluate`, with each seed on its own draw of one composed stream: seed → folder, as from `draws_of`. A
    learner that fails on one draw is skipped. Raises BadConfig for streams that are not draws of one stream."""
    streams = {seed: Stream.load(folder) for seed, folder in draws.items()}
    if {stream.facts.get("seed") for stream in streams.values()} != set(streams) or len(
        {stream.facts.get("family") for stream in streams.values()}
    ) != 1:  # fmt: skip
        folders = ", ".join(map(str, draws.values()))
        raise BadConfig(f"{folders}: not the draws of one stream.", "Expected folders of stream compose --seeds.")
    runs: list[Run] = []
    failed: dict[str, str] = {}
    for seed, stream in streams.items():
        more: Any = {"progress": progress, "stream_folder": draws[seed], "executor": executor, "tune": tune}
        more |= {"preset": preset, "reuse": reuse}
        results = evaluate(stream, protocol, learners, [seed], settings, out, keep_run=runs.append, **more)
        failed = {entry["learner"]: entry["because"] for entry in results["skipped"]} | failed
    done = [run for run in runs if run.about["learner"] not in failed]
    skipped = [{"learner": name, "because": because} for name, because in failed.items()]
    scored = summary(done, stream.name, str(stream.facts["family"]), results["protocol"], classes=len(stream.classes))
    whole = Results({**scored, "classes": results["classes"], "skipped": skipped})
    whole.runs = done
    return whole


def _about(stream: Stream, seed: int | None) -> dict[str, str]:
    """What a record says about its stream. A draw that is evaluated with its own seed is one of a family."""
    about = {"name": stream.name, "sha256": stream.sha256}
    family = stream.facts.get("family")
    return about | ({"family": str(family)} if family and stream.facts.get("seed") == seed else {})


_Task = tuple[Path, Setup, list[Job]]  # runs for another process, and the folder of their stream


def _parts(protocol: Protocol, jobs: Sequence[Job], workers: int) -> list[list[Job]]:
    """Jobs of one call of `run_many`: as many as it takes at once, spread evenly. A learner that was given as an
    instance runs one seed after the other, so that it never shares a pass with itself."""
    share = max(1, min(protocol.learners_per_pass, -(-len(jobs) // workers)))
    parts: list[list[Job]] = []
    for job in jobs:
        alone = any(other.spec and other.spec.instance for other in (job, *(parts[-1][:1] if parts else ())))
        if alone or not parts or len(parts[-1]) == share:
            parts.append([])
        parts[-1].append(job)
    return parts


def _shared_runs(task: _Task) -> tuple[dict[str, str], int]:
    """Runs in a process of their own; row folders are written whole or not at all. Returns who failed, and why, and
    how many runs were not found on disk."""
    stream_folder, grid, jobs = task
    failed: dict[str, str] = {}
    done = 0
    for job, run, found in _runs(outcomes.numbered(Stream.load(stream_folder), grid.most_probable), grid, jobs):
        if not isinstance(run, Run):
            failed.setdefault(job.name, str(run))
        done += not found
    return failed, done


def _runs(stream: Stream, grid: Setup, jobs: Sequence[Job]) -> Iterator[tuple[Job, Run | Exception, bool]]:
    """Each job's run, or why there is none, and whether it was found on disk. The protocol does the others. stream:
    numbered."""
    begun: list[tuple[Job, _Begun]] = []
    stored = outcomes.Shared()
    for job in jobs:
        try:
            run = _begin(stream, grid, job)
        except Exception as error:
            yield job, skip_reason(error), False
            continue
        if isinstance(run, _Stored):
            loaded, _ = outcomes.load(run.folder, stored)  # a damaged one is no failure of its learner
            other = loaded.about.get("code_of") != run.code_of
            loaded = dataclasses.replace(loaded, about=loaded.about | {"other_code": True}) if other else loaded
            yield job, loaded, True
        else:
            begun.append((job, run))
    for i, ran in grid.protocol.run_many(stream, [run.start for _, run in begun]):
        job, begun_run = begun[i]
        try:
            finished = ran if isinstance(ran, Exception) else _finish(stream, grid, begun_run, ran)
        except Exception as error:
            finished = skip_reason(error)
        yield job, finished, False


@dataclasses.dataclass(frozen=True)
class Workload:
    """What `evaluate` would do."""

    runs: int
    """in all"""
    finished: int
    """runs that are on disk"""
    core_seconds: float
    """of the runs to come whose time can be estimated"""
    not_known: list[str]
    """learners of the others"""
    settings: dict[str, str]
    """learner → its settings that are not defaults, and where each comes from"""
    untold: dict[str, str]
    """learner → the part of its code that cannot be read, so that its finished runs are not used again"""
    left_out: str = ""
    """what of a preset's recipe this stream cannot have; "" if nothing"""
    label_time: str = ""
    """whether the protocol uses the stream's label_time; "" for a stream without it"""


def plan(
    stream: Stream | str | Path,
    protocol: AnyProtocol,
    learners: Sequence[AnyLearner],
    seeds: Sequence[int],
    settings: Settings | None = None,
    out: Path | None = None,
    tune: Grid | None = None,
    preset: str = "",
    reuse: Reuse = "same",
) -> Workload:
    """What `evaluate` would do with the same arguments. Raises as it does, before any work."""
    stream = stream_of(stream, out is not None)
    grid, jobs = jobs_of(
        stream, protocol, learners, seeds, settings or {}, tune or {}, out, preset=preset, any_code=reuse == "any"
    )
    created, shown, untold = [], {}, {}
    for job in jobs:
        with suppress(Exception):  # `evaluate` says why a learner cannot be created
            learner = job.learner()
            identity, place = _place(stream, grid, job, learner)
            created.append((job.name, learner, place))
            shown[job.name] = settings_text(learner.settings() | job.tune, job.origin)
            if out is not None and "untold" in identity["code_of"]:
                untold[job.name] = identity["code_of"]["untold"]
    done = [place is not None and _finished(place, grid) and bool(row_files.load(place)) for *_, place in created]
    left = [(name, learner) for (name, learner, _), finished in zip(created, done, strict=True) if not finished]
    past = [] if grid.out is None or tune else finished_runs(grid.out / folder_name(grid.name), stream)
    sizes = None if tune else grid.protocol.training_sizes(stream)
    seconds = core_seconds(stream, [learner for _, learner in left], sizes, past)
    not_known = dict.fromkeys(name for (name, _), one in zip(left, seconds, strict=True) if one is None)
    estimated = sum(one for one in seconds if one is not None)
    late = label_time_note(grid.name, grid.protocol.late_labels, stream)
    without = left_out(preset, grid.name, stream.x_shape)
    return Workload(len(jobs), sum(done), estimated, list(not_known), shown, untold, without, late)


def _place(stream: Stream, grid: Setup, job: Job, learner: Learner) -> tuple[dict[str, Any], Path | None]:
    """A run's identity, and the folder of its rows, whose name ends with a digest of the identity; if any code will do,
    that of a finished run that differs in nothing else."""
    identity = {
        "protocol": grid.name,
        "protocol_settings": dataclasses.asdict(grid.protocol),
        "learner": job.name,
        "settings": job.recorded(learner) | ({"tune": dict(job.tune)} if job.tune else {}),
        "seed": job.seed,
        "stream": _about(stream, job.seed),
        "steps": len(stream.steps),
    }
    same, identity = identity, identity | {"code_of": code_or_name(learner, grid.protocol)}
    if grid.out is None:
        return identity, None
    folder, name = grid.out / folder_name(grid.name), row_files.stored_name(identity)
    if grid.any_code:
        wanted = json.loads(json.dumps(same))
        for other in sorted(folder.glob(f"{glob.escape(name.rpartition('-')[0])}-*")):
            record = row_files.record(other) if _finished(other, grid) else {}
            if all(record.get(key) == value for key, value in wanted.items()):
                return identity, other
    return identity, folder / name


@dataclasses.dataclass(frozen=True)
class _Stored:
    """A run that is finished on disk."""

    folder: Path
    code_of: dict[str, str]
    """the code that is here now; of the stored run if any code will do, it may be other code"""


@dataclasses.dataclass(frozen=True)
class _Begun:
    """A run that has begun."""

    start: Start
    identity: dict[str, Any]
    origin: dict[str, str]
    """where its settings come from that are no defaults"""
    own_rules: bool
    """whether the protocol has rules that the learner does not obey"""
    folder: Path | None
    """of its rows"""
    choice: Choice | None
    """settings that were chosen"""
    clock: float
    """process time when it began"""


def _begin(stream: Stream, grid: Setup, job: Job) -> _Stored | _Begun:
    """The folder of the stored run, or a learner that is ready to begin."""
    learner, protocol = job.learner(), grid.protocol
    identity, folder = _place(stream, grid, job, learner)
    if folder is not None and _finished(folder, grid):
        return _Stored(folder, identity["code_of"])
    clock = time.process_time()
    choice = choose(protocol, stream, grid.name, job.learner, job.tune, job.seed) if job.tune else None
    if choice is not None:
        learner = job.learner(**choice.settings)
    start = started(protocol, stream, grid.name, learner, job.seed, grid.out and grid.out / "fits")
    own_rules = grid.rules and not learner.obeys
    save = None if folder is None else Checkpoint(folder / f"state{grid.most_probable or ''}.safetensors")
    return _Begun(dataclasses.replace(start, save=save), identity, job.origin, own_rules, folder, choice, clock)


def _finished(folder: Path, grid: Setup) -> bool:
    """Whether a run is stored that can be used again, with as many probabilities as are asked for: its code must be one
    that can be told, unless any will do."""
    if not (folder / "run.json").is_file():
        return False
    record = row_files.record(folder)
    readable = grid.any_code or "untold" not in record.get("code_of", {})
    return readable and record.get("probabilities", 0) >= grid.most_probable


def _finish(stream: Stream, grid: Setup, run: _Begun, ran: Ran) -> Run:
    """The run's record, stored if there is a folder."""
    learner, protocol = ran.learner, grid.protocol
    alone = protocol.learners_per_pass == 1  # else the clock ran for other learners, too
    seconds = max([time.process_time() - run.clock if alone else 0.0, *(row.seconds for row in ran.rows)])
    records = outcomes.table(ran.rows, groups_of(stream))
    changes = row_files.last_changes(ran.rows, protocol.roles.step)
    if learner.needs.future:  # it learned all steps before the first test
        changes = dict.fromkeys(changes, len(stream.steps) - 1)
    rows = [
        row_files.changed(row, {"last_change": changes[row.learned_to]}) if row.learned_to in changes else row
        for row in ran.rows
    ]
    about = run.identity | {"stored_bytes": learner.stored_bytes(), "gradient_steps": learner.gradient_steps}
    about |= {"seconds": round(seconds, 3), "kernel": fused.kind(), "code": code_of(), "tests": row_files.tested(rows)}
    notes = {
        "published": stream.facts.get("published"),
        "learner_facts": learner.metadata(),
        "timeline": timeline.record(stream),
        "release": versions.record(stream),
        "label_time": label_time_note(grid.name, protocol.late_labels, stream),
        "probabilities": grid.most_probable,
        "settings_from": run.origin,
        "rules": "own" if run.own_rules else "",
    }
    about["standing"] = standing_of(type(learner), type(protocol))
    chosen = {} if run.choice is None else {"chosen": run.choice.settings, "selection": run.choice.record}
    about |= {k: v for k, v in notes.items() if v} | protocol.facts(stream, learner, run.start.seed)
    about |= dict(ran.facts) | chosen
    folder = run.folder
    if code_or_name(learner, protocol) != run.identity["code_of"]:
        about["edited_while_running"] = True
        folder = folder and folder.with_name(f"{folder.name}-edited")
    if folder is not None:
        with locked(folder):  # several processes end the run that they shared
            if _finished(folder, grid) and "edited_while_running" not in about:
                return outcomes.load(folder)[0]
            (folder / "run.json").unlink(missing_ok=True)  # the same run without probabilities
            outcomes.write(folder / outcomes.FILE, records)
            outcomes.write_probabilities(folder / outcomes.PROBABILITIES, rows)
            row_files.save(folder, about, rows)
    return Run(about, list(rows))
