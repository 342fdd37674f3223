"""protocol × learner × seed → rows → the numbers of `driftline eval --json`."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.core.atomic_io import fingerprint
from curate.core.errors import BadConfig, Diverged, DriftlineError, IncompatibleStream, crashed
from curate.core.executor import Executor
from curate.core.seeding import rng_for
from eval import rows as row_files
from eval.checkpoint import Checkpoint
from eval.experiment.cost_estimate import core_seconds
from eval.experiment.learner_spec import fields_of, named
from eval.experiment.tune import Grid, choose
from eval.learner import Learner
from eval.protocol import PROTOCOLS, Walk
from eval.rows import Row, Run, keep_skipped
from eval.scoring.aggregate import summary
from stream_builder.stream import Stream

Settings = Mapping[str, Any]


def evaluate(
    stream: Stream,
    protocol: str,
    learners: Sequence[str | Learner | type[Learner]],
    seeds: Sequence[int] = (0,),
    settings: Settings | None = None,
    out: Path | None = None,
    tell: Callable[[int], None] = lambda n: None,
    where: Path | None = None,
    executor: Executor | None = None,
    tune: Grid | None = None,
    keep: Callable[[Run], None] = lambda run: None,
) -> dict[str, Any]:
    """Run every learner with every seed; returns the document of `driftline eval --json`.

    learners: catalogue names, also with settings as in `reservoir(alpha=5)`, instances, or classes of your own.
    settings: `{"epochs": 10}` goes to the protocol or to every learner that has such a setting, `{"er.memory": 500}`
    to one learner, `{"ocrr.every": 20}` to one protocol. out: folder for rows; finished runs found there are not
    repeated. tell: called with 1 after each run. where, executor: the stream's folder, and processes or Ray that share
    the runs of catalogue learners; rows are the same as those of one process.

    tune: setting → candidates; each learner that has such settings chooses among them on a part of the first step's
    training data, for every seed, and its rows tell what it chose. keep: called with each run that finished.

    Raises IncompatibleStream (the stream lacks what the protocol needs) and BadConfig (unknown setting) before any
    work. A learner that fails is listed under "skipped" with the reason; the others go on.
    """
    walk, jobs = _jobs(stream, protocol, learners, seeds, settings or {}, tune or {})
    failed: dict[str, str] = {}
    shared: set[str] = set()  # learners whose runs other processes do first
    if (
        executor is not None
        and where is not None
        and out is not None
        and (executor.workers > 1 or executor.kind == "ray")
    ):
        given = [job for job in jobs if job.name in [one for one in learners if isinstance(one, str)]]
        shared = {job.name for job in given}
        parts = _parts(walk, sorted(given, key=lambda job: job.seed), executor.workers)
        tasks = [_Task(where, protocol, walk, [job.plain() for job in part], out) for part in parts]
        gpus = int(any(job.changed.get("device") == "cuda" for job in given))
        if tasks and getattr(walk, "divides", False):  # more processes than runs: several at one
            tasks = [tasks[i % len(tasks)] for i in range(max(len(tasks), executor.workers))]
        for number, because in executor.run_tasks(_shared_runs, tasks, gpus=gpus):
            failed |= {name: why for name, why in because.items() if name not in failed}
            tell(len(parts[number]) if number < len(parts) else 0)
    runs: list[Run] = []
    left = [job for job in jobs if job.name not in failed]
    for part in _parts(walk, left, 1):
        for job, run in _runs(stream, protocol, walk, part, out):
            tell(0 if job.name in shared else 1)
            if isinstance(run, Run):
                runs.append(run)
                keep(run)
            else:
                failed.setdefault(job.name, str(run))
    runs = [run for run in runs if run.about["learner"] not in failed]
    skipped = [
        {"learner": name, "because": failed[name]} for name in dict.fromkeys(job.name for job in jobs) if name in failed
    ]
    if out is not None:
        about = {"name": stream.name, "sha256": stream.sha256}
        keep_skipped(out, protocol, about, [*dict.fromkeys(job.name for job in jobs), "all"], skipped)
    return {**summary(runs, stream.name, stream.sha256, protocol), "skipped": skipped}


@dataclasses.dataclass(frozen=True)
class _Job:
    """One run to come. changed: the learner's settings. tune: candidates to choose among first."""

    name: str
    make: Callable[..., Learner] | None
    changed: dict[str, Any]
    seed: int
    tune: dict[str, list[Any]]

    def plain(self) -> _Job:
        """For another process, where the name makes the learner."""
        return dataclasses.replace(self, make=None)

    def learner(self, **more: Any) -> Learner:
        """A new one."""
        make = self.make or named(self.name)[1]
        return make(**{**self.changed, **more})


def _jobs(
    stream: Stream,
    protocol: str,
    learners: Sequence[str | Learner | type[Learner]],
    seeds: Sequence[int],
    settings: Settings,
    tune: Grid,
) -> tuple[Walk, list[_Job]]:
    """The protocol as it is for this stream, and its runs, learner after learner. Raises IncompatibleStream and
    BadConfig."""
    chosen = [named(one) for one in learners]
    walk, per_learner = _settle(protocol, chosen, settings)
    walk.fit(stream)
    walk = walk.settled(stream)
    tuned = {name: {k: list(v) for k, v in tune.items() if k in fields_of(make)} for name, make in chosen}
    if lost := sorted(set(tune) - {k for of in tuned.values() for k in of}):
        raise BadConfig(f"--tune names {lost[0]!r}.", "Expected a setting that a learner of this run has.")
    return walk, [_Job(name, make, per_learner[name], s, tuned[name]) for name, make in chosen for s in seeds]


@dataclasses.dataclass(frozen=True)
class _Task:
    where: Path
    protocol: str
    walk: Any
    jobs: list[_Job]
    out: Path


def _parts(walk: Walk, jobs: Sequence[_Job], workers: int) -> list[list[_Job]]:
    """Jobs that are done by one call: one, or as many as share a pass over the stream, spread evenly. An instance that
    was handed in learns for one seed after the other, so that it never shares a pass with itself."""
    share = max(1, min(getattr(walk, "abreast", 1), -(-len(jobs) // workers)))
    parts: list[list[_Job]] = []
    for job in jobs:
        if (
            not parts
            or len(parts[-1]) == share
            or hasattr(job.make, "instance")
            or hasattr(parts[-1][0].make, "instance")
        ):
            parts.append([])
        parts[-1].append(job)
    return parts


def _shared_runs(task: _Task) -> dict[str, str]:
    """Runs in a process of their own; row folders are written whole or not at all. Returns who failed, and why."""
    stream = Stream.load(task.where)
    failed: dict[str, str] = {}
    for job, run in _runs(stream, task.protocol, task.walk, task.jobs, task.out):
        if not isinstance(run, Run):
            failed.setdefault(job.name, str(run))
    return failed


def _runs(
    stream: Stream, protocol: str, walk: Walk, jobs: Sequence[_Job], out: Path | None
) -> Iterator[tuple[_Job, Run | Exception]]:
    """Each job's run, or why there is none. Finished ones are read; the others walk the stream, together where the
    protocol can."""
    begun: list[tuple[_Job, _Begun]] = []
    for job in jobs:
        try:
            one = _begin(stream, protocol, walk, job, out)
            if isinstance(one, Run):
                yield job, one
            elif hasattr(walk, "together"):
                if one.learner.needs_whole_steps:
                    raise IncompatibleStream(f"It cannot learn batch by batch: {one.learner.needs_whole_steps}.")
                begun.append((job, one))
            else:
                rows = list(walk.walk(stream, one.learner, rng_for(job.seed, protocol, "walk"), job.seed))
                yield job, _finish(stream, walk, one, rows)
        except (IncompatibleStream, Diverged) as error:
            yield job, error
        except DriftlineError:  # a setting or a file that the user can put right, for all
            raise
        except Exception as error:  # the learner is somebody's own: the others go on
            yield job, crashed(error)
    if begun:
        saves = [None if one.folder is None else Checkpoint(one.folder / "state.pickle") for _, one in begun]
        for i, rows in walk.together(stream, [one.learner for _, one in begun], saves):  # type: ignore[attr-defined]
            job, one = begun[i]
            yield job, rows if isinstance(rows, Exception) else _finish(stream, walk, one, rows)


def _settle(
    protocol: str, chosen: Sequence[tuple[str, Callable[..., Learner]]], settings: Settings
) -> tuple[Walk, dict[str, dict[str, Any]]]:
    """Hand each setting to whom it belongs. Raises BadConfig naming what nobody has."""
    kind = PROTOCOLS[protocol]
    of_walk = {f.name: f for f in dataclasses.fields(kind)}
    of_learner = {name: fields_of(make) for name, make in chosen}
    for_walk: dict[str, Any] = {}
    per_learner: dict[str, dict[str, Any]] = {name: {} for name, _ in chosen}
    for key, value in settings.items():
        owner, dot, field = key.rpartition(".")
        targets = [n for n in per_learner if (not dot or owner in (n, n.partition("(")[0])) and field in of_learner[n]]
        if owner in PROTOCOLS and owner != protocol and field in {f.name for f in dataclasses.fields(PROTOCOLS[owner])}:
            continue  # said to another of several
        if (not dot or owner == protocol) and field in of_walk:
            for_walk[field] = value
        elif targets:
            for name in targets:
                per_learner[name][field] = value
        else:
            known = sorted({*of_walk, *(f"{n}.{f}" for n, fs in of_learner.items() for f in fs)})
            raise BadConfig(f"Nobody has the setting {key!r}.", f"Known here: {', '.join(known) or 'none'}.")
    return kind(**for_walk), per_learner


@dataclasses.dataclass(frozen=True)
class Plan:
    """runs: in all. finished: of them, found on disk. core_seconds: of those to come, as far as it can be told."""

    runs: int
    finished: int
    core_seconds: float | None


def plan(
    stream: Stream,
    protocol: str,
    learners: Sequence[str],
    seeds: Sequence[int],
    settings: Settings | None = None,
    out: Path | None = None,
    tune: Grid | None = None,
) -> Plan:
    """What `evaluate` would do with the same arguments. Raises as it does, before any work."""
    walk, jobs = _jobs(stream, protocol, learners, seeds, settings or {}, tune or {})
    places = [_place(stream, protocol, walk, job, job.learner(), out)[1] for job in jobs]
    done = [place is not None and (place / "run.json").is_file() for place in places]
    left = [job.learner() for job, finished in zip(jobs, done, strict=True) if not finished]
    known = protocol.startswith("clear-") and not tune
    seconds = core_seconds(stream, left, protocol == "clear-streaming") if known else None
    return Plan(len(jobs), sum(done), seconds)


def _place(
    stream: Stream, protocol: str, walk: Walk, job: _Job, learner: Learner, out: Path | None
) -> tuple[dict[str, Any], Path | None]:
    """Who a run is, and the folder of its rows, whose name is a digest of that."""
    identity = {
        "protocol": protocol,
        "protocol_settings": dataclasses.asdict(walk),  # type: ignore[call-overload]
        "learner": job.name,
        "settings": learner.settings() | ({"tune": dict(job.tune)} if job.tune else {}),
        "seed": job.seed,
        "stream": {"name": stream.name, "sha256": stream.sha256},
        "steps": len(stream.steps),
    }
    if out is None:
        return identity, None
    return identity, out / protocol / f"{_slug(job.name)}-seed{job.seed}-{fingerprint(identity)[:12]}"


@dataclasses.dataclass
class _Begun:
    """A run that has begun: who it is, where its rows go, what was tuned."""

    identity: dict[str, Any]
    folder: Path | None
    learner: Learner
    picked: dict[str, Any]
    clock: float


def _begin(stream: Stream, protocol: str, walk: Walk, job: _Job, out: Path | None) -> Run | _Begun:
    """The stored run, or a learner that is ready to begin."""
    learner = job.learner()
    identity, folder = _place(stream, protocol, walk, job, learner, out)
    if folder is not None and (folder / "run.json").is_file():
        return row_files.load(folder)
    clock = time.process_time()
    picked: dict[str, Any] = {}
    if job.tune:
        first = walk.first_step(stream, rng_for(job.seed, protocol, "walk"))
        picked = choose(lambda **one: job.learner(**one), job.tune, walk.task(stream), first, job.seed)
        learner = job.learner(**picked)
    if stream.x_shape == () and not getattr(learner, "reads_texts", False):
        raise IncompatibleStream(
            f"It sees vectors; {stream.name!r} holds texts.",
            "",
            "Encode them: stream from-texts --encoder, or --encoders.",
        )
    task = dataclasses.replace(
        walk.task(stream), seed=job.seed, store=None if out is None else out / "fits", prior=stream.prior
    )
    learner.begin(task, rng_for(job.seed, protocol, job.name))
    return _Begun(identity, folder, learner, picked, clock)


def _finish(stream: Stream, walk: Walk, one: _Begun, rows: Sequence[Row]) -> Run:
    """The run's record, stored where there is a folder."""
    learner = one.learner
    together = hasattr(walk, "together")  # then the clock also ran for others
    cost = {
        "stored_bytes": learner.stored_bytes(),
        "gradient_steps": learner.gradient_steps,
        "seconds": round(max((row.seconds for row in rows), default=0.0) if together else _since(one.clock), 3),
    }
    same_as = {"published": stream.facts["published"]} if "published" in stream.facts else {}
    of_walk = {"told": told} if (told := walk.told(stream)) else {}
    samples = sum(len(step.splits.get("train", ())) for step in stream.steps)
    budget = {"budget": spent} if (spent := walk.spent(learner, samples)) else {}
    facts = {"learner_facts": learner.metadata()} if learner.metadata() else {}
    chosen = {"chosen": one.picked} if "tune" in one.identity["settings"] else {}
    about = {**one.identity, **cost, **same_as, **of_walk, **budget, **facts, **chosen}
    if one.folder is not None:
        row_files.save(one.folder, about, rows)
    return Run(about, list(rows))


def _since(clock: float) -> float:
    return time.process_time() - clock


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)


def seeds_of(text: str) -> list[int]:
    """`0-4` or `0,2,5` → seeds. Raises BadConfig.

    >>> seeds_of("0-2,7")
    [0, 1, 2, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise BadConfig(f"--seeds is {text!r}.", "Expected numbers and ranges, as in 0-4 or 0,2,5.")
        found.extend(range(int(low), int(high if dash else low) + 1))
    if not found or len(set(found)) != len(found):
        raise BadConfig(f"--seeds is {text!r}.", "Expected at least one seed, none twice.")
    return found
