"""protocol × learner × seed → rows → the scores of `driftline eval --json`."""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import fingerprint, locked
from driftline.curate.core.digests import code_of
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor import Executor
from driftline.eval import outcomes
from driftline.eval import rows as row_files
from driftline.eval.abilities import metadata, stored_bytes
from driftline.eval.checkpoint import Checkpoint
from driftline.eval.engine import fused
from driftline.eval.experiment.cost_estimate import core_seconds, finished_runs
from driftline.eval.experiment.learner_spec import LearnerSpec, spec_of
from driftline.eval.experiment.settings import check_settings, setting_names, unknown_setting
from driftline.eval.experiment.tune import Choice, Grid, choose, planned, started
from driftline.eval.learner import Learner
from driftline.eval.protocol import PROTOCOLS, Protocol, Ran, Start, protocol_named, skip_reason
from driftline.eval.results import Results
from driftline.eval.rows import Run, folder_name, keep_skipped
from driftline.eval.scoring import timeline, versions
from driftline.eval.scoring.aggregate import summary
from driftline.stream_builder.stream import Stream

Settings = Mapping[str, Any]
AnyProtocol = str | Protocol | type[Protocol]
AnyLearner = str | Learner | type[Learner]


def evaluate(
    stream: Stream,
    protocol: AnyProtocol,
    learners: Sequence[AnyLearner],
    seeds: Sequence[int] = (0,),
    settings: Settings | None = None,
    out: str | Path | None = None,
    progress: Callable[[int], None] = lambda n: None,
    stream_folder: Path | None = None,
    executor: Executor | None = None,
    tune: Grid | None = None,
    keep_run: Callable[[Run], None] = lambda run: None,
) -> Results:
    """Run every learner with every seed; returns the document of `driftline eval --json`.

    protocol: a registered name, `package.module:Name`, a class derived from `Protocol`, or an instance. learners:
    likewise; names also with settings, as in `reservoir(alpha=5)`. settings: `{"epochs": 10}` goes to the protocol or
    to every learner that has such a setting, `{"er.memory": 500}` to one learner, `{"ocrr.every": 20}` to one protocol,
    `{"probabilities": "all"}` to the records of each test (see `outcomes.probabilities`).
    out: folder for rows; finished runs in it are not repeated. progress: called with 1 after each run. stream_folder,
    executor: processes or Ray share the runs of learners that are given by name; rows are the same as those of one
    process. tune: setting → candidates; each learner that has such settings chooses among them for every seed, by the
    protocol's primary score on samples that are not scored afterwards, and its rows record the choice. keep_run:
    called with each finished run.

    Raises IncompatibleStream (the stream lacks what the protocol needs) and BadConfig (a setting) before any work. A
    learner that cannot run or fails is listed under "skipped" with the reason; the others go on.
    """
    out = None if out is None else Path(out)
    grid, jobs = _grid(stream, protocol, learners, seeds, settings or {}, tune or {}, out=out)
    stream = outcomes.numbered(stream, grid.most_probable)
    names = list(dict.fromkeys(job.name for job in jobs))
    failed: dict[str, str] = {}
    shared: set[str] = set()  # learners whose runs other processes do first
    if executor is not None and stream_folder is not None and out is not None and grid.portable(executor):
        by_name = [job for job in jobs if job.name in [learner for learner in learners if isinstance(learner, str)]]
        shared = {job.name for job in by_name}
        parts = _parts(grid.protocol, sorted(by_name, key=lambda job: job.seed), executor.workers)
        tasks = [(stream_folder, grid, [dataclasses.replace(job, spec=None) for job in part]) for part in parts]
        gpus = int(any(job.changed.get("device") == "cuda" for job in by_name))
        if tasks and grid.protocol.shardable:  # more processes than runs: several share one
            tasks = [tasks[i % len(tasks)] for i in range(max(len(tasks), executor.workers))]
        for number, because in executor.run_tasks(_shared_runs, tasks, gpus=gpus):
            failed |= {name: why for name, why in because.items() if name not in failed}
            progress(len(parts[number]) if number < len(parts) else 0)
    runs: list[Run] = []
    for part in _parts(grid.protocol, [job for job in jobs if job.name not in failed], 1):
        for job, run in _runs(stream, grid, part):
            progress(0 if job.name in shared else 1)
            if isinstance(run, Run):
                runs.append(run)
                keep_run(run)
            else:
                failed.setdefault(job.name, str(run))
    runs = [run for run in runs if run.about["learner"] not in failed]
    skipped = [{"learner": name, "because": failed[name]} for name in names if name in failed]
    if out is not None:
        keep_skipped(out, grid.name, _about(stream, seeds[0] if len(seeds) == 1 else None), [*names, "all"], skipped)
    return Results({**summary(runs, stream.name, stream.sha256, grid.name), "skipped": skipped})


def draws_of(folder: Path) -> dict[int, Path]:
    """Seed → stream folder of each draw that `driftline stream compose --seeds` wrote into a folder."""
    folders = {place.parent.name.removeprefix("seed-"): place.parent for place in folder.glob("seed-*/stream.json")}
    return {int(seed): folders[seed] for seed in sorted(filter(str.isdigit, folders), key=int)}


def evaluate_draws(
    draws: Mapping[int, Path],
    protocol: AnyProtocol,
    learners: Sequence[AnyLearner],
    settings: Settings | None = None,
    out: str | Path | None = None,
    progress: Callable[[int], None] = lambda n: None,
    executor: Executor | None = None,
    tune: Grid | None = None,
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
        results = evaluate(stream, protocol, learners, [seed], settings, out, keep_run=runs.append, **more)
        failed = {entry["learner"]: entry["because"] for entry in results["skipped"]} | failed
    done = [run for run in runs if run.about["learner"] not in failed]
    skipped = [{"learner": name, "because": because} for name, because in failed.items()]
    return Results({**summary(done, stream.name, str(stream.facts["family"]), results["protocol"]), "skipped": skipped})


def _about(stream: Stream, seed: int | None) -> dict[str, str]:
    """What a record says about its stream. A draw that is evaluated with its own seed is one of a family."""
    about = {"name": stream.name, "sha256": stream.sha256}
    family = stream.facts.get("family")
    return about | ({"family": str(family)} if family and stream.facts.get("seed") == seed else {})


@dataclasses.dataclass(frozen=True)
class _Grid:
    """What all runs of one call have in common."""

    name: str
    """of the protocol, in rows"""
    protocol: Protocol
    """with numbers in place of settings that depend on the stream"""
    out: Path | None
    """folder for rows"""
    most_probable: int
    """how many classes of a sample are recorded"""

    def portable(self, executor: Executor) -> bool:
        """Whether there are other processes that can load the protocol; a class of a script or notebook they cannot."""
        if executor.kind == "ray":
            return True
        if type(self.protocol).__module__ == "__main__":
            return False
        try:
            return executor.workers > 1 and bool(pickle.dumps(self.protocol))
        except (pickle.PicklingError, AttributeError):
            return False


@dataclasses.dataclass(frozen=True)
class _Job:
    """A planned run."""

    name: str
    """of the learner, in rows"""
    spec: LearnerSpec | None
    """makes the learner; None: the name does, in another process"""
    changed: dict[str, Any]
    """settings of the learner"""
    seed: int
    tune: dict[str, list[Any]]
    """candidates to choose from before the run"""

    def learner(self, **more: Any) -> Learner:
        """A new learner."""
        spec = self.spec or spec_of(self.name)
        return spec(**{**self.changed, **more})


_Task = tuple[Path, _Grid, list[_Job]]  # runs for another process, and the folder of their stream


def _grid(
    stream: Stream,
    protocol: AnyProtocol,
    learners: Sequence[AnyLearner],
    seeds: Sequence[int],
    settings: Settings,
    tune: Grid,
    out: Path | None,
) -> tuple[_Grid, list[_Job]]:
    """The protocol for this stream, and its runs, learner after learner. Raises IncompatibleStream and BadConfig."""
    fused.kind()  # raises for a wrong DRIFTLINE_KERNEL
    specs = [spec_of(learner) for learner in learners]
    name, kind, make = protocol_named(protocol)
    most_probable, others = outcomes.asked(settings, len(stream.classes))
    own, per_learner = _split_settings(name, kind, specs, others)
    instance = make(**check_settings(kind, own, name))
    instance.check(stream)
    instance = instance.resolve(stream)
    tuned: dict[str, dict[str, list[Any]]] = {}
    for spec in specs:
        per_learner[spec.name], tuned[spec.name] = planned(instance, spec, per_learner[spec.name], tune)
    if unused := sorted(set(tune) - {key for grid in tuned.values() for key in grid}):
        raise unknown_setting(unused[0], {key for spec in specs for key in spec.settings}, "--tune: ")
    jobs = [_Job(s.name, s, per_learner[s.name], seed, tuned[s.name]) for s in specs for seed in seeds]
    return _Grid(name, instance, out, most_probable), jobs


def _split_settings(
    protocol: str, kind: type[Protocol], specs: Sequence[LearnerSpec], settings: Settings
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings of the protocol, and of each learner. Raises BadConfig for one that nothing has."""
    own, learner_fields = setting_names(kind), {spec.name: spec.settings for spec in specs}
    for_protocol: dict[str, Any] = {}
    per_learner: dict[str, dict[str, Any]] = {spec.name: {} for spec in specs}
    for key, value in settings.items():
        owner, dot, field = key.rpartition(".")
        named = [n for n in per_learner if not dot or owner in (n, n.partition("(")[0])]
        targets = [n for n in named if field in learner_fields[n]]
        if owner in PROTOCOLS and owner != protocol and field in setting_names(PROTOCOLS[owner]):
            continue  # for another protocol of the same command
        if (not dot or owner == protocol) and field in own:
            for_protocol[field] = value
        elif targets:
            for name in targets:
                per_learner[name][field] = value
        else:
            owners = {protocol: own, **learner_fields}
            available = {f"{owner}.{name}" if dot else name for owner, names in owners.items() for name in names}
            raise unknown_setting(key, available)
    return for_protocol, {spec.name: spec.check(per_learner[spec.name]) for spec in specs}


def _parts(protocol: Protocol, jobs: Sequence[_Job], workers: int) -> list[list[_Job]]:
    """Jobs of one call of `run_many`: as many as it takes at once, spread evenly. A learner that was given as an
    instance runs one seed after the other, so that it never shares a pass with itself."""
    share = max(1, min(protocol.learners_per_pass, -(-len(jobs) // workers)))
    parts: list[list[_Job]] = []
    for job in jobs:
        alone = any(other.spec and other.spec.instance for other in (job, *(parts[-1][:1] if parts else ())))
        if alone or not parts or len(parts[-1]) == share:
            parts.append([])
        parts[-1].append(job)
    return parts


def _shared_runs(task: _Task) -> dict[str, str]:
    """Runs in a process of their own; row folders are written whole or not at all. Returns who failed, and why."""
    stream_folder, grid, jobs = task
    failed: dict[str, str] = {}
    for job, run in _runs(outcomes.numbered(Stream.load(stream_folder), grid.most_probable), grid, jobs):
        if not isinstance(run, Run):
            failed.setdefault(job.name, str(run))
    return failed


def _runs(stream: Stream, grid: _Grid, jobs: Sequence[_Job]) -> Iterator[tuple[_Job, Run | Exception]]:
    """Each job's run, or why there is none. Finished runs are read; the protocol does the others. stream: numbered."""
    begun: list[tuple[_Job, _Begun]] = []
    for job in jobs:
        try:
            run = _begin(stream, grid, job)
        except Exception as error:
            yield job, skip_reason(error)
            continue
        if isinstance(run, Path):
            yield job, row_files.load(run)  # a damaged one is no failure of its learner
        else:
            begun.append((job, run))
    for i, ran in grid.protocol.run_many(stream, [run.start for _, run in begun]):
        job, begun_run = begun[i]
        try:
            finished = ran if isinstance(ran, Exception) else _finish(stream, grid, begun_run, ran)
        except Exception as error:
            finished = skip_reason(error)
        yield job, finished


@dataclasses.dataclass(frozen=True)
class Workload:
    """What `evaluate` would do."""

    runs: int
    """in all"""
    finished: int
    """runs that are on disk"""
    core_seconds: float | None
    """of the runs to come; None: there is no estimate"""


def plan(
    stream: Stream,
    protocol: AnyProtocol,
    learners: Sequence[AnyLearner],
    seeds: Sequence[int],
    settings: Settings | None = None,
    out: Path | None = None,
    tune: Grid | None = None,
) -> Workload:
    """What `evaluate` would do with the same arguments. Raises as it does, before any work."""
    grid, jobs = _grid(stream, protocol, learners, seeds, settings or {}, tune or {}, out=out)
    created = []
    for job in jobs:
        with suppress(Exception):  # `evaluate` says why a learner cannot be created
            created.append((learner := job.learner(), _place(stream, grid, job, learner)[1]))
    done = [place is not None and _finished(place, grid) and bool(row_files.load(place)) for _, place in created]
    left = [learner for (learner, _), finished in zip(created, done, strict=True) if not finished]
    past = [] if grid.out is None else finished_runs(grid.out / folder_name(grid.name), stream)
    sizes = None if tune else grid.protocol.training_sizes(stream)
    return Workload(len(jobs), sum(done), None if sizes is None else core_seconds(stream, left, sizes, past))


def _place(stream: Stream, grid: _Grid, job: _Job, learner: Learner) -> tuple[dict[str, Any], Path | None]:
    """A run's identity, and the folder of its rows, whose name ends with a digest of the identity."""
    identity = {
        "protocol": grid.name,
        "protocol_settings": dataclasses.asdict(grid.protocol),
        "learner": job.name,
        "settings": learner.settings() | ({"tune": dict(job.tune)} if job.tune else {}),
        "seed": job.seed,
        "stream": _about(stream, job.seed),
        "steps": len(stream.steps),
    }
    if grid.out is None:
        return identity, None
    name = f"{folder_name(job.name)}-seed{job.seed}-{fingerprint(identity)[:12]}"
    return identity, grid.out / folder_name(grid.name) / name


@dataclasses.dataclass(frozen=True)
class _Begun:
    """A run that has begun."""

    start: Start
    identity: dict[str, Any]
    folder: Path | None
    """of its rows"""
    choice: Choice | None
    """settings that were chosen"""
    clock: float
    """process time when it began"""


def _begin(stream: Stream, grid: _Grid, job: _Job) -> Path | _Begun:
    """The folder of the stored run, or a learner that is ready to begin."""
    learner, protocol = job.learner(), grid.protocol
    identity, folder = _place(stream, grid, job, learner)
    if folder is not None and _finished(folder, grid):
        return folder
    clock = time.process_time()
    choice = choose(protocol, stream, grid.name, job.learner, job.tune, job.seed) if job.tune else None
    if choice is not None:
        learner = job.learner(**choice.settings)
    start = started(protocol, stream, grid.name, learner, job.seed, grid.out and grid.out / "fits")
    save = None if folder is None else Checkpoint(folder / f"state{grid.most_probable or ''}.safetensors")
    return _Begun(dataclasses.replace(start, save=save), identity, folder, choice, clock)


def _finished(folder: Path, grid: _Grid) -> bool:
    """Whether a run is stored, with as many probabilities as are asked for."""
    return (folder / "run.json").is_file() and row_files.record(folder).get("probabilities", 0) >= grid.most_probable


def _finish(stream: Stream, grid: _Grid, run: _Begun, ran: Ran) -> Run:
    """The run's record, stored if there is a folder."""
    learner, rows, protocol = ran.learner, ran.rows, grid.protocol
    alone = protocol.learners_per_pass == 1  # else the clock ran for other learners, too
    seconds = max([time.process_time() - run.clock if alone else 0.0, *(row.seconds for row in rows)])
    about = run.identity | {"stored_bytes": stored_bytes(learner), "gradient_steps": learner.gradient_steps}
    about |= {"seconds": round(seconds, 3), "kernel": fused.kind(), "code": code_of(), "tests": row_files.tested(rows)}
    notes = {
        "published": stream.facts.get("published"),
        "told": protocol.stream_notes(stream),
        "budget": protocol.budget_report(learner, sum(len(step.splits.get("train", ())) for step in stream.steps)),
        "learner_facts": metadata(learner),
        "timeline": timeline.record(stream),
        "release": versions.record(stream),
        "probabilities": grid.most_probable,
    }
    chosen = {} if run.choice is None else {"chosen": run.choice.settings, "selection": run.choice.record}
    about |= {k: v for k, v in notes.items() if v} | dict(ran.facts) | chosen
    about |= protocol.records(stream, learner, run.start.seed)
    records = outcomes.table(rows)
    if run.folder is not None:
        with locked(run.folder):  # several processes end the run that they shared
            if _finished(run.folder, grid):
                return row_files.load(run.folder)
            (run.folder / "run.json").unlink(missing_ok=True)  # the same run without probabilities
            outcomes.write(run.folder / outcomes.FILE, records)
            outcomes.write_probabilities(run.folder / outcomes.PROBABILITIES, rows)
            row_files.save(run.folder, about, rows)
    return Run(about, list(rows))
