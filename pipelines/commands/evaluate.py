"""`driftline eval` and `dl.evaluate`: learners on streams → rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.curate.core.executor import Engine, Executor, default_workers, visible_gpus
from driftline.pipelines.actions.action import Device, Shown, action
from driftline.pipelines.actions.common import executor_of, guarded_out, log_of, next_step
from driftline.pipelines.kinds import Names, Place, Settings, changes_of, path_of, places_of, several

if TYPE_CHECKING:
    from driftline.curate.core.run_log import RunLog
    from driftline.eval.results import Results
    from driftline.eval.run import Workload
    from driftline.eval.settings import Inapplicable
    from driftline.stream_builder.stream import Stream

_Task = tuple[Any, Path | None, Sequence[Any]]  # a stream or its draws, its folder, learners
NAMED = 6  # learners that a line names
FEW_RUNS = 24  # fewer are done in one process: another one takes seconds to start
EVAL = "driftline eval stream --protocol clear-iid --learners er,nap \\\n    --seeds 0-4 --out runs"


def _keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """For the shell: settings of the protocols and learners of the command line."""
    from driftline.eval.experiment.presets import split
    from driftline.eval.learners import LEARNERS
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.settings import setting_names

    kinds = [PROTOCOLS[name] for name in several(ctx.params.get("protocol")) if name in PROTOCOLS]
    names = map(_name, split(",".join(ctx.params.get("learners") or ())))
    kinds += [LEARNERS[name] for name in names if name in LEARNERS]
    keys = dict.fromkeys(key for kind in kinds for key in setting_names(kind))
    return [f"{key}=" for key in keys if key.startswith(incomplete)]


COMPLETES = {"protocol": "protocols", "learners": "learners", "preset": "presets", "settings": _keys}


@action(EVAL, "Evaluate", name="eval", completes=COMPLETES)
def evaluate_all(
    streams: Sequence[Place], *, protocol: Names, learners: Names, out: Place, seeds: str | None = None,
    preset: str | None = None, settings: Settings = (), tune: Names = (),
    reuse: Literal["same", "any"] = "same", control: int | None = None, equal_data: bool = False,
    device: Device = "auto", workers: int | str = "auto", engine: Engine = "local",
) -> Shown[list[Results]]:  # fmt: skip
    """Evaluate learners on one or more streams.

    With several protocols or streams, --json prints a list of documents. Options that take names take several: with
    commas, or repeated.

    streams STREAM…: Streams, or folders of stream compose --seeds.
    protocol NAME,…: Names, or all (driftline list protocols).
    learners NAME,…: Names, also as er(memory=500) or package.module:Name; sets; all (driftline list learners,
        learner-sets).
    out RUNS: Results folder; finished runs in it are skipped.
    seeds N-N: 0-4 or 0,2,5 (default: 0; of a folder of stream compose --seeds, all).
    preset NAME: Hyper-parameters of a paper; --set overrides them (driftline list presets).
    settings KEY=VALUE: A setting of the protocol and of all learners that have it, but in their names; er.memory=500:
        of one. Several values of a protocol's setting (policy=oracle, policy=random_10) run one after the other.
        Repeatable.
    tune KEY=V,V: Candidate values; each learner selects one on the first step, under near-future on the tuning segment.
        Repeatable.
    reuse: Reuse finished runs: only those of the same code version, or any (marked in tables).
    control N: Runs with times permuted, in which nothing can age (default: 20 for closed-form learners that take at
        most a minute; 0: none).
    equal_data: Also train models that all learn equally many newest samples.
    device: For learners with a network.
    workers N|auto: Parallel runs; auto: 1 below 24 runs, else DRIFTLINE_WORKERS, or one for each core or GPU.
    """
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.reporting.exports import scores_text
    from driftline.eval.settings import seeds_of
    from driftline.eval.training.sgd_learner import place
    from driftline.stream_builder.stream import Stream

    folder, paths = guarded_out(path_of(out), "rows"), places_of(streams)
    draws = {path: folders for path in paths if (folders := _draws(path, seeds))}
    loaded = {path: Stream.load(path) for path in paths if path not in draws}
    for where in [*loaded, *(drawn for folders in draws.values() for drawn in folders.values())]:
        Stream.load(where).verify_once(where)
    chosen = _chosen(learners if isinstance(learners, str) else ",".join(learners))
    protocols = list(PROTOCOLS) if "all" in several(protocol) else several(protocol)
    device_name, numbers = place(device), seeds_of(seeds or "0")
    best = default_workers() if device_name == "cpu" else max(1, len(visible_gpus()))
    executor = executor_of(engine, workers, 1 if len(chosen) * len(numbers) < FEW_RUNS else best)
    own = _on(device_name, chosen) | _sets(changes_of(settings), protocols)
    run_log, grid = log_of(folder / "log.jsonl"), _grid([tune] if isinstance(tune, str) else tune)
    work = _Work(numbers, own, folder, grid, executor, run_log, preset or "", reuse, control, equal_data)
    tasks = [(draws.get(path) or loaded[path], path, chosen) for path in paths]
    documents = work.documents(work.parts(tasks, protocols, len(protocols) * len(paths) == 1), announce=True)
    following = next_step("report", folder, "--out", "report") if any(d["results"] for d in documents) else ""
    text = "\n".join([*map(scores_text, documents), following]).rstrip()
    why = " ".join(s["because"] for d in documents for s in d["skipped"])
    problem = None if following else DriftlineError("No learner finished.", why)
    return Shown(documents, text, documents[0] if len(documents) == 1 else documents, problem)


@dataclass(frozen=True)
class _Part:
    """One protocol on one stream, or on its draws."""

    protocol: Any
    on: Stream | Mapping[int, Path]
    """the stream; or seed → folder of each draw"""
    path: Path | None
    """None: of a stream in memory"""
    learners: Sequence[Any]
    settings: dict[str, Any]
    """those that have an effect here"""
    inapplicable: dict[str, Inapplicable]
    """the others, and why"""
    planned: Workload | None
    because: str
    """why the protocol cannot run on this stream; "" if it can"""

    @property
    def name(self) -> str:
        """Of the protocol."""
        return self.protocol if isinstance(self.protocol, str) else str(self.protocol.name)


@dataclass(frozen=True)
class _Work:
    """What is the same for all streams and protocols of one call."""

    seeds: list[int]
    settings: dict[str, Any]
    out: Path | None
    grid: Mapping[str, Sequence[Any]]
    executor: Executor | None
    run_log: RunLog
    preset: str
    reuse: Literal["same", "any"]
    control: int | None
    equal_data: bool

    def parts(
        self, tasks: Sequence[tuple[Any, Path | None, Sequence[Any]]], protocols: Sequence[Any], single: bool
    ) -> list[_Part]:
        """What there is to do. tasks: stream or draws, its folder, and learners. single: raise IncompatibleStream.
        Raises BadConfig for a wrong setting, and for one that no part uses, before any work."""
        from driftline.eval.control import check_draws
        from driftline.eval.settings import unknown_setting

        check_draws(self.control)
        parts = [self._part(protocol, *task, single) for task in tasks for protocol in protocols]
        for key in self.settings:
            errors = [part.inapplicable[key] for part in parts if key in part.inapplicable]
            if len(errors) == len(parts):
                idle = next((error for error in errors if not error.names), None)
                raise idle or unknown_setting(key, {name for error in errors for name in error.names})
        return parts

    def _part(self, protocol: Any, on: Any, path: Path | None, learners: Sequence[Any], single: bool) -> _Part:
        from driftline.eval.run import plan
        from driftline.eval.settings import Inapplicable

        settings, planned, because = dict(self.settings), None, ""
        inapplicable: dict[str, Inapplicable] = {}
        while True:
            try:
                planned = plan(on, protocol, learners, self.seeds, **self._common(settings))
            except IncompatibleStream as error:
                if single:
                    raise
                because = str(error)
            except Inapplicable as error:
                named_so = [key for key in settings if error.key in (key, key.rpartition(".")[2])]
                if not named_so:
                    raise
                inapplicable |= dict.fromkeys(named_so, error)
                settings = {key: value for key, value in settings.items() if key not in named_so}
                continue
            return _Part(protocol, on, path, learners, settings, inapplicable, planned, because)

    def _common(self, settings: dict[str, Any]) -> dict[str, Any]:
        more = {"out": self.out, "tune": self.grid, "preset": self.preset, "reuse": self.reuse}
        return {"settings": settings, **more}

    def documents(self, parts: Sequence[_Part], announce: bool) -> list[Results]:
        """The scores of each part. announce: before the first, say how much there is to do."""
        for part in parts:
            if part.planned is not None and announce:
                self._announce(part.name, part.planned)
        return [self._document(part) for part in parts]

    def _announce(self, protocol: str, planned: Workload) -> None:
        if planned.left_out:
            self.run_log.say(planned.left_out)
        self.run_log.say(_estimate(protocol, planned, self.executor.workers if self.executor is not None else 1))
        if planned.label_time:
            self.run_log.say(f"  {planned.label_time}")
        for learner, text in filter(all, planned.settings.items()):
            self.run_log.say(f"  {learner}: {text}")
        for learner, code in planned.untold.items():
            self.run_log.say(f"  {learner}: finished runs are not used again: {code} cannot be read as a file.")

    def _document(self, part: _Part) -> Results:
        from driftline.eval.control import controlled
        from driftline.eval.results import Results
        from driftline.eval.rows import keep_skipped
        from driftline.eval.run import evaluate
        from driftline.stream_builder.stream import Stream

        if part.planned is None:
            stream = part.on if isinstance(part.on, Stream) else Stream.load(next(iter(part.on.values())))
            about = {"name": stream.name, "sha256": stream.sha256}
            skipped = [{"learner": "all", "because": part.because}]
            if self.out is not None:
                keep_skipped(self.out, part.name, about, ["all"], skipped)
            return Results({"protocol": part.name, "stream": about, "results": [], "skipped": skipped})
        with self.run_log.progress(part.name, part.planned.runs - part.planned.finished, "runs") as tick:
            more: Any = self._common(part.settings) | {"progress": tick, "executor": self.executor}
            results = evaluate(part.on, part.protocol, part.learners, self.seeds, stream_folder=part.path, **more)
        more = {key: more[key] for key in ("settings", "out", "preset", "reuse", "executor")}
        more |= {"control": self.control, "equal_data": self.equal_data, "log": self.run_log}
        return controlled(results, part.learners, stream_folder=part.path, **more)


def _chosen(text: str) -> list[str]:
    """Learners of a text: names with settings, sets, all."""
    from driftline.eval.experiment.presets import expand, split
    from driftline.eval.learners import LEARNERS

    return expand(split(text), list(LEARNERS))


def _on(device: str, learners: Sequence[Any]) -> dict[str, Any]:
    """The setting `device` of the learners that have it and do not have it in their names. Raises UnknownName."""
    from driftline.eval.settings import spec_of

    specs = [spec for spec in map(spec_of, learners) if "device" in spec.settings and spec.instance is None]
    return {f"{_name(spec.name)}.device": device for spec in specs if "device" not in spec.with_name}


def _draws(path: Path, seeds: str | None) -> dict[int, Path]:
    """The draws of a folder that is no stream itself: all, or those of --seeds. Raises BadConfig for a missing one."""
    from driftline.eval.run import draws_of
    from driftline.eval.settings import seeds_of

    draws = {} if (path / "stream.json").is_file() else draws_of(path)
    chosen = seeds_of(seeds) if seeds and draws else list(draws)
    if missing := [seed for seed in chosen if seed not in draws]:
        available = f"It has {', '.join(map(str, draws))}."
        raise BadConfig(
            f"{path} has no stream for seed {missing[0]}.", available, "Compose it with stream compose --seeds."
        )
    return {seed: draws[seed] for seed in chosen}


def _name(learner: str) -> str:
    """`er(memory=500)` → `er`."""
    return learner.partition("(")[0].strip()


def _sets(changes: Sequence[str], protocols: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` of --set → settings; a key with several values has a list of them. Raises BadConfig for one that is
    given twice and is of no protocol."""
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.settings import setting_names
    from driftline.pipelines.config.loader import setting_of

    given: dict[str, list[Any]] = {}
    for key, value in map(setting_of, changes):
        given.setdefault(key, []).append(value)
    own = {
        key
        for name in protocols
        for field in setting_names(PROTOCOLS.resolve(name))
        for key in (field, f"{name}.{field}")
    }
    if several_of := [key for key, values in given.items() if len(values) > 1 and key not in own]:
        key = several_of[0].rpartition(".")[2]
        problem = f"--set {several_of[0]} is given {len(given[several_of[0]])} times."
        way_out = f"Name learners with their own values: er({key}=…),er({key}=…)."
        raise BadConfig(problem, "Expected it once; of a protocol's settings, several values run.", way_out)
    return {key: values if len(values) > 1 else values[0] for key, values in given.items()}


def _grid(tune: Sequence[str]) -> dict[str, list[Any]]:
    """`KEY=VALUE,VALUE` of --tune → candidates of each setting. Raises BadConfig."""
    from driftline.curate.core.settings import value_of

    grid = {}
    for candidates in tune:
        key, equals, values = candidates.partition("=")
        if not equals or not all(v.strip() for v in values.split(",")):
            raise BadConfig(f"--tune is {candidates!r}.", "Expected KEY=VALUE,VALUE, as in lr=0.1,1.")
        grid[key] = [value_of(v) for v in values.split(",")]
    return grid


def _estimate(name: str, planned: Workload, workers: int) -> str:
    """How many runs are to do, and how long they take."""
    left, unknown = planned.runs - planned.finished, planned.not_known
    text = f"{name}: {left} of {planned.runs} runs to do"
    others = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
    of_unknown = f"time not known: {', '.join(unknown[:NAMED])}{others}" if unknown else ""
    wall = planned.core_seconds / workers
    duration = f"{wall / 3600:.1f} h" if wall > 5400 else f"{wall / 60:.0f} min" if wall > 90 else f"{wall:.0f} s"
    estimate = f"about {duration} of training on {workers} workers" if wall or not unknown else ""
    return ", ".join([text, "; ".join(filter(None, (estimate, of_unknown)))]) if left else text


def evaluate(
    stream: Any,
    protocol: Any,
    learners: Any,
    seeds: int | Sequence[int] = 1,
    *,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    tune: Mapping[str, Sequence[Any]] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int = 1,
    engine: Literal["local", "ray", "slurm"] = "local",
    out: str | Path | None = None,
    reuse: Literal["same", "any"] = "same",
    control: int | None = None,
    equal_data: bool = False,
) -> Any:
    """Run every learner with every seed; returns `Results`, or of several streams or protocols a list of them.

    stream: a stream, its folder, or a folder with draws of one stream, each of which is evaluated with its own seed; or
    several of them. protocol: a name, `package.module:Name`, a class or an instance; several; or "all". learners: one
    or several: names, also as `er(memory=500)`, sets, "all", learners, scikit-learn classifiers. seeds: their number,
    or each of them. settings: of the protocol and of all learners that have such a setting; `{"er.memory": 500}`: of
    one. preset: a paper's settings. tune: setting → candidates. device: for learners with a network. workers, engine:
    runs side by side, of a stream's folder and with `out`. out: folder for rows; finished runs in it are not repeated.
    reuse: "any" takes them whatever their code. control: runs with times permuted, in which nothing can age (default:
    20 of closed forms, if they take at most a minute; 0: none). equal_data: also models that all learn equally many
    newest samples. Shows progress on stderr. A learner that cannot run or crashes is a warning, and a row of `frame()`.
    Raises IncompatibleStream and BadConfig before any work.
    """
    import warnings

    from driftline.curate.core.run_log import RunLog
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.run import numbers_of, several, stream_of
    from driftline.eval.training.sgd_learner import place

    chosen = [one for each in several(learners) for one in (_chosen(each) if isinstance(each, str) else [each])]
    listed = [one for each in (protocol if isinstance(protocol, list | tuple) else [protocol])
              for one in (list(PROTOCOLS) if isinstance(each, str) and each == "all" else [each])]  # fmt: skip
    tasks: list[_Task] = []
    for one in stream if isinstance(stream, list | tuple) else [stream]:
        path = Path(one) if isinstance(one, str | Path) else None
        tasks.append(((path and _draws(path, None)) or stream_of(one, out is not None), path, chosen))
    work = _Work(
        numbers_of(seeds), _on(place(device), chosen) | dict(settings or {}), None if out is None else Path(out),
        tune or {}, Executor(engine, workers) if workers > 1 or engine != "local" else None, RunLog(), preset, reuse,
        control, equal_data,
    )  # fmt: skip
    is_one = len(tasks) * len(listed) == 1
    documents = work.documents(work.parts(tasks, listed, is_one), announce=False)
    for entry in (entry for results in documents for entry in results["skipped"]):
        warnings.warn(f"{entry['learner']} was skipped: {entry['because']}", stacklevel=2)
    return documents[0] if is_one else documents
