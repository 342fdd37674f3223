"""protocol × learner × seed → rows → the scores of `driftline eval --json`."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor import Executor
from driftline.eval import predictions
from driftline.eval import rows as row_files
from driftline.eval.experiment.jobs import AnyLearner, AnyProtocol, Job, Settings, Setup, jobs_of, settings_text, swept
from driftline.eval.experiment.presets import left_out
from driftline.eval.experiment.runs import about_stream, is_finished, place_of, runs_of, shared_runs, shares
from driftline.eval.experiment.tune import Grid, started
from driftline.eval.history import label_time_note
from driftline.eval.learner import Learner
from driftline.eval.predictions import groups_of
from driftline.eval.protocol import Protocol
from driftline.eval.results import Results
from driftline.eval.rows import Run, folder_name, keep_skipped
from driftline.eval.scoring.aggregate import summary
from driftline.eval.settings import setting_names, spec_of
from driftline.stream_builder.stream import Stream

Reuse = Literal["same", "any"]  # of finished runs: by the same code, or by any


def evaluate(
    stream: Stream | str | Path | Mapping[int, Path], protocol: AnyProtocol,
    learners: AnyLearner | Sequence[AnyLearner], seeds: int | Sequence[int] = 1, settings: Settings | None = None,
    out: str | Path | None = None, progress: Callable[[int], None] = lambda n: None, stream_folder: Path | None = None,
    executor: Executor | None = None, tune: Grid | None = None, keep_run: Callable[[Run], None] = lambda run: None,
    preset: str = "", reuse: Reuse = "same", scored: bool = True,
) -> Results:  # fmt: skip
    """Run every learner with every seed; returns the document of `driftline eval --json`.

    stream: or its folder; or draws of one composed stream, seed → folder as from `draws_of`, each of which is evaluated
    with its own seed. protocol: a registered name, `package.module:Name`, a class derived from `Protocol`, or an
    instance. learners: one or several, likewise; names also with settings, as in `reservoir(alpha=5)`; scikit-learn
    classifiers. seeds: their number, or each of them. settings: `{"epochs": 10}` goes to the protocol or
    to every learner that has such a setting and has it not in its name, `{"er.memory": 500}` to one learner,
    `{"policy": ["oracle", "random_10"]}` lets the protocol run with one after the other.
    out: folder for rows; finished runs in it are not repeated. progress: called with 1 after each run that was not
    found there. stream_folder, executor: processes or Ray share the runs of learners that are given by name; rows are
    the same as those of one process. tune: setting → candidates; each learner that has such settings chooses among
    them for every seed, by the protocol's primary score on samples that are not scored afterwards, and its rows record
    the choice. keep_run: called with each finished run. preset: a paper's settings (`PRESETS`) for the learners and
    protocols that it names; settings override it. reuse: "same" repeats a run of `out` whose code has changed since (of
    driftline's `eval`, of a learner or protocol of one's own); "any" takes it, and its result says `"code": "other"`.
    scored: False leaves "results" empty, for those who need the runs alone.

    Raises IncompatibleStream (the stream lacks what the protocol needs) and BadConfig (a setting, streams that are not
    draws of one) before any work. A learner that cannot run or fails is listed under "skipped" with the reason; the
    others go on.
    """
    out = None if out is None else Path(out)
    given: Any = (several(learners), settings or {}, tune or {}, out, preset, reuse)
    planned = [_parts_on(*one, protocol, *given) for one in _streams(stream, seeds, stream_folder, out is not None)]
    finished: list[tuple[tuple[str, int], Run]] = []
    failed: dict[tuple[str, int], str] = {}  # values of the protocol's settings, place of a learner → why
    for parts in planned:
        of_stream: dict[tuple[str, int], str] = {}
        for part in parts:
            done, because = _all_runs(part, executor, progress, keep_run)
            finished += [((part.values, place), run) for place, run in done]
            of_stream |= {(part.values, place): why for place, why in because.items()}
        failed = of_stream | failed
        if out is not None:
            asked = [*dict.fromkeys(job.name for job in parts[0].jobs), "all"]
            about = about_stream(part.stream, part.seeds[0] if len(part.seeds) == 1 else None)
            keep_skipped(out, part.grid.name, about, asked, _skipped(parts, of_stream))
    runs = [run for key, run in finished if key not in failed]
    on, name = part.stream, part.grid.name
    family = str(on.facts["family"]) if isinstance(stream, Mapping) else ""
    groups = None if family else groups_of(on)
    document = summary(runs if scored else (), on.name, family or on.sha256, name, groups)
    results = Results({**document, "classes": list(on.classes), "skipped": _skipped(planned[0], failed)})
    results.runs, results.on = runs, None if family else on
    return results


@dataclasses.dataclass(frozen=True)
class _Part:
    """What runs on one stream with one set of the protocol's settings."""

    stream: Stream
    """numbered"""
    seeds: list[int]
    folder: Path | None
    values: str
    """of the protocol's settings that have several, as "policy=oracle"; "" if none has"""
    grid: Setup
    jobs: list[Job]


def _streams(stream: Any, seeds: Any, folder: Path | None, stored: bool) -> list[tuple[Stream, list[int], Path | None]]:
    """What `evaluate` is asked to run on, with the seeds of each. Raises BadConfig."""
    if not isinstance(stream, Mapping):
        folder = Path(stream) if folder is None and isinstance(stream, str | Path) else folder
        return [(stream_of(stream, stored), numbers_of(seeds), folder)]
    streams = {seed: Stream.load(place) for seed, place in stream.items()}
    families = {one.facts.get("family") for one in streams.values()}
    if {one.facts.get("seed") for one in streams.values()} != set(streams) or len(families) != 1:
        folders = ", ".join(map(str, stream.values()))
        raise BadConfig(f"{folders}: not samples of one stream.", "Expected folders of stream compose --seeds.")
    return [(one, [seed], stream[seed]) for seed, one in streams.items()]


def _parts_on(
    stream: Stream, seeds: list[int], folder: Path | None, protocol: AnyProtocol, learners: Sequence[AnyLearner],
    settings: Settings, tune: Grid, out: Path | None, preset: str, reuse: Reuse,
) -> list[_Part]:  # fmt: skip
    """One for each combination of values of the protocol's settings. Raises as `evaluate`, before any work."""
    parts = []
    for values, chosen in swept(protocol, settings):
        grid, jobs = jobs_of(stream, protocol, learners, seeds, chosen, tune, out, preset, any_code=reuse == "any")
        parts.append(_Part(predictions.numbered(stream), seeds, folder, values, grid, jobs))
    return parts


def _skipped(parts: Sequence[_Part], failed: Mapping[tuple[str, int], str]) -> list[dict[str, str]]:
    """The learners without results, in their order, and why."""
    skipped = []
    for part in parts:
        for place, name in {job.place: job.name for job in part.jobs}.items():
            if (why := failed.get((part.values, place))) is not None:
                skipped.append({"learner": name, "because": f"{part.values}: {why}" if part.values else why})
    return skipped


def _all_runs(
    part: _Part, executor: Executor | None, progress: Callable[[int], None], keep_run: Callable[[Run], None]
) -> tuple[list[tuple[int, Run]], dict[int, str]]:
    """Place of a learner and run, and why others failed, by place."""
    grid, jobs, names = part.grid, part.jobs, {job.place: job.name for job in part.jobs}
    failed: dict[int, str] = {}
    shared: set[str] = set()  # learners whose runs other processes do first
    if executor is not None and part.folder is not None and grid.out is not None and grid.portable(executor):
        by_name = [job for job in jobs if job.spec is not None and job.spec.by_name]
        shared = {job.name for job in by_name}
        each = shares(grid.protocol, sorted(by_name, key=lambda job: job.seed), executor.workers)
        tasks = [(part.folder, grid, [dataclasses.replace(job, spec=None) for job in share]) for share in each]
        gpus = int(any(job.changed.get("device") == "cuda" for job in by_name))
        if tasks and grid.protocol.shardable:  # more processes than runs: several share one
            tasks = [tasks[i % len(tasks)] for i in range(max(len(tasks), executor.workers))]
        told = [0] * len(each)
        for number, (because, done) in executor.run_tasks(shared_runs, tasks, gpus=gpus):
            failed |= {of: because[name] for of, name in names.items() if name in because and of not in failed}
            more = max(done - told[number % len(each)], 0)  # processes that share a part did the same runs
            told[number % len(each)] += more
            progress(more)
    finished: list[tuple[int, Run]] = []
    for share in shares(grid.protocol, [job for job in jobs if job.place not in failed], 1):
        for job, run, found in runs_of(part.stream, grid, share):
            progress(0 if found or job.name in shared else 1)
            if isinstance(run, Run):
                finished.append((job.place, run))
                keep_run(run)
            else:
                failed.setdefault(job.place, str(run))
    return finished, failed


def stream_of(stream: Any, hashed: bool = False) -> Stream:
    """A stream, or that of a folder. hashed: of one in memory hash the content, so that stored rows are its own. Raises
    BadConfig for anything else."""
    if isinstance(stream, str | Path):
        return Stream.load(stream)
    if not isinstance(stream, Stream):
        expected = "Expected a Stream, or the folder of one; dl.from_arrays and dl.from_table make one of data."
        raise BadConfig(f"The stream is a {type(stream).__name__}.", expected)
    return stream.hashed() if hashed else stream


def several(learners: Any) -> list[Any]:
    """One learner, or each of several."""
    alone = isinstance(learners, str | Learner | type) or hasattr(learners, "fit") or not isinstance(learners, Iterable)
    return [learners] if alone else list(learners)


def numbers_of(seeds: Any) -> list[int]:
    """0 … seeds - 1 for a number. Raises BadConfig for anything else than whole numbers."""

    def whole(number: Any) -> bool:
        return bool(isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= 0)

    each = isinstance(seeds, Iterable) and not isinstance(seeds, str)
    numbers = list(range(seeds)) if whole(seeds) else list(seeds) if each else []
    if not numbers or not all(map(whole, numbers)):
        raise BadConfig(f"seeds is {seeds!r}.", "Expected how many, from 1, or a list of whole numbers from 0.")
    return [int(number) for number in numbers]


def draws_of(folder: Path) -> dict[int, Path]:
    """Seed → stream folder of each draw that `driftline stream compose --seeds` wrote into a folder."""
    folders = {place.parent.name.removeprefix("seed-"): place.parent for place in folder.glob("seed-*/stream.json")}
    return {int(seed): folders[seed] for seed in sorted(filter(str.isdigit, folders), key=int)}


@dataclasses.dataclass(frozen=True)
class Workload:
    """What `evaluate` would do."""

    runs: int
    """in all"""
    finished: int
    """runs that are on disk"""
    left: list[tuple[_Part, list[Job]]]
    """the others"""
    tuned: bool
    """whether settings are chosen: the time is not known"""
    settings: dict[str, str]
    """learner → its settings that are not defaults, and where each comes from"""
    untold: dict[str, str]
    """learner → the part of its code that cannot be read, so that its finished runs are not used again"""
    left_out: str
    """what of a preset's recipe this stream cannot have; "" if nothing"""
    label_time: str
    """whether the protocol uses the stream's label_time; "" for a stream without it"""

    @cached_property
    def seconds(self) -> list[tuple[str, float | None]]:
        """Learner and CPU seconds of each run to come; None: not known. A step of each is timed for it."""
        each: list[tuple[str, float | None]] = []
        for part, jobs in self.left:
            grid, took = part.grid, list[float | None]([None] * len(jobs))
            if not self.tuned:
                past = finished_runs(grid.out / folder_name(grid.name), part.stream) if grid.out else []
                took = core_seconds(part.stream, grid.protocol, grid.name, [job.tried for job in jobs], past)
            each += [(job.name, seconds) for job, seconds in zip(jobs, took, strict=True)]
        return each

    @property
    def core_seconds(self) -> float:
        """Of the runs to come whose time can be estimated."""
        return sum(seconds for _, seconds in self.seconds if seconds is not None)

    @property
    def not_known(self) -> list[str]:
        """Learners of the others."""
        return list(dict.fromkeys(name for name, seconds in self.seconds if seconds is None))


def plan(
    stream: Stream | str | Path | Mapping[int, Path], protocol: AnyProtocol, learners: Sequence[AnyLearner],
    seeds: Sequence[int], settings: Settings | None = None, out: Path | None = None, tune: Grid | None = None,
    preset: str = "", reuse: Reuse = "same",
) -> Workload:  # fmt: skip
    """What `evaluate` would do with the same arguments. Raises as it does, before any work."""
    given: Any = (several(learners), settings or {}, tune or {}, out, preset, reuse)
    streams = _streams(stream, seeds, None, out is not None)
    parts = [part for one in streams for part in _parts_on(*one, protocol, *given)]
    left, shown, untold = list[tuple[_Part, list[Job]]](), dict[str, str](), dict[str, str]()
    for part in parts:
        to_do = []
        for job in part.jobs:
            place: Path | None = None
            with suppress(Exception):  # `evaluate` says why a learner cannot be created
                learner = job.learner()
                identity, place = place_of(part.stream, part.grid, job, learner)
                shown[job.name] = settings_text(learner.settings() | job.tune, job.origin)
                if out is not None and "untold" in identity["code_of"]:
                    untold[job.name] = identity["code_of"]["untold"]
            done = place is not None and is_finished(place, part.grid) and bool(row_files.load(place))
            to_do += [] if done else [job]
        left.append((part, to_do))
    runs = sum(len(part.jobs) for part in parts)
    grid, on = parts[0].grid, parts[0].stream
    late = label_time_note(grid.name, grid.protocol.late_labels, on)
    finished = runs - sum(len(jobs) for _, jobs in left)
    without = left_out(preset, grid.name, on.x_shape)
    return Workload(runs, finished, left, bool(tune), shown, untold, without, late)


TIMED = 256  # samples of the timed step at most; a network takes one batch
OUTSIDE = ("a model", "an address")  # what is not opened for an estimate

Past = Sequence[tuple[Learner, float]]  # finished runs: the learner with its settings, and its CPU seconds


def finished_runs(folder: Path, stream: Stream) -> Past:
    """Of a folder of runs of one protocol, those on this stream whose settings nothing chose."""
    past = []
    for path in sorted(folder.glob("*/run.json")):
        with suppress(Exception):  # a damaged record, a learner that is gone: `evaluate` says so
            about = row_files.record(path.parent)
            if (about["stream"]["name"], about["steps"]) == (stream.name, len(stream.steps)):
                past.append((spec_of(about["learner"])(**about["settings"]), float(about["seconds"])))
    return past


def core_seconds(
    stream: Stream, protocol: Protocol, name: str, makers: Sequence[Callable[..., Learner]], past: Past = ()
) -> list[float | None]:
    """CPU time that each run trains; None where nothing says how long that takes. name: of the protocol. makers: of
    each run's learner, from settings to change. past: finished runs."""
    alike: dict[str, list[float]] = {}
    for earlier, took in past:
        alike.setdefault(_key(earlier), []).append(took)
    sizes, known = protocol.training_sizes(stream), dict[str, float | None]()
    estimates: list[float | None] = []
    for make in makers:
        seconds: float | None = None
        with suppress(Exception):  # a learner that cannot be created: the run says why
            key = _key(learner := make())
            if key not in known and key not in alike:
                each = (
                    protocol.run_seconds(stream, make) if sizes is None else step_seconds(stream, protocol, name, make)
                )
                known[key] = each if each is None or sizes is None else each * learner.samples_trained(sizes)
            seconds = median(alike[key]) if key in alike else known[key]
        estimates.append(seconds)
    return estimates


def step_seconds(stream: Stream, protocol: Protocol, name: str, make: Callable[..., Learner]) -> float | None:
    """CPU seconds for each sample that training processes, by one pass over samples of the first step; None for a
    learner that cannot learn them, or names something outside."""
    names = setting_names(type(make()))
    learner = make(**({"epochs": 1} if "epochs" in names else {}))
    if any(what in OUTSIDE and getattr(learner, key) for key, what in learner.reaches.items()):
        return None
    step = stream.steps[0].visible()
    n = min(len(step["train"]), getattr(learner, "batch", 0) or TIMED)
    part = replace(step, splits={"train": step["train"].part(0, n)})
    with suppress(Exception):  # the run says why
        for _ in range(2):  # the first one loads libraries
            started(protocol, stream, name, learner, seed=0)
            clock = time.process_time()
            learner.learn_sequence([part])
            seconds = time.process_time() - clock
        return seconds / max(learner.samples_trained([n]), 1.0)
    return None


def _key(learner: Learner) -> str:
    return f"{type(learner).__module__}:{type(learner).__qualname__} {sorted(learner.settings().items())}"
