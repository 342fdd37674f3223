"""`driftline eval` and `dl.evaluate`: learners on streams → rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.curate.core.executor import Engine, Executor, default_workers, visible_gpus
from driftline.pipelines.cli.action import Device, Shown, action
from driftline.pipelines.cli.common import executor_of, log_of, next_step
from driftline.pipelines.cli.encoding import encoded_all, papers_encoder
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.kinds import Names, Place, Settings, changes_of, path_of, places_of, several

if TYPE_CHECKING:
    from driftline.curate.core.run_log import RunLog
    from driftline.eval.experiment.settings import Inapplicable
    from driftline.eval.results import Results
    from driftline.eval.run import Workload
    from driftline.stream_builder.stream import Stream

NAMED = 6  # learners that a line names
FEW_RUNS = 24  # fewer are done in one process: another one takes seconds to start
EVAL = "driftline eval stream --protocol clear-iid --learners er,nap \\\n    --seeds 0-4 --out runs"


def _keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """For the shell: settings of the protocols and learners of the command line."""
    from driftline.eval.experiment.learner_sets import split
    from driftline.eval.experiment.settings import setting_names
    from driftline.eval.learners import LEARNERS
    from driftline.eval.protocol import PROTOCOLS

    kinds = [PROTOCOLS[name] for name in several(ctx.params.get("protocol")) if name in PROTOCOLS]
    names = map(_name, split(",".join(ctx.params.get("learners") or ())))
    kinds += [LEARNERS[name] for name in names if name in LEARNERS]
    keys = dict.fromkeys(key for kind in kinds for key in setting_names(kind))
    return [f"{key}=" for key in keys if key.startswith(incomplete)]


COMPLETES = {
    "protocol": "protocols", "learners": "learners", "preset": "presets", "settings": _keys, "encoder": "encoders",
}  # fmt: skip


@action(EVAL, "Evaluate", name="eval", completes=COMPLETES)
def evaluate_all(
    streams: Sequence[Place], *, protocol: Names, learners: Names, out: Place, seeds: str | None = None,
    preset: str | None = None, settings: Settings = (), tune: Names = (), encoder: Names = (),
    reuse: Literal["same", "any"] = "same", control: int | None = None, equal_data: bool = False,
    device: Device = "auto", workers: int | str = "auto", engine: Engine = "local",
) -> Shown[list[dict[str, Any]]]:  # fmt: skip
    """Evaluate learners on one or more streams.

    With several protocols or streams, --json prints a list of documents. Options that take names take several: with
    commas, or repeated.

    streams STREAM…: Streams, or folders with draws of one stream.
    protocol NAME,…: Names, or all (driftline list protocols).
    learners NAME,…: Names, also as er(memory=500) or package.module:Name; sets; all (driftline list learners,
        learner-sets).
    out RUNS: Folder for rows; finished runs in it are not repeated.
    seeds N-N: 0-4 or 0,2,5 (default: 0; of a folder with draws, all of them).
    preset NAME: Hyper-parameters of a paper; --set overrides them (driftline list presets).
    settings KEY=VALUE: A setting of the protocol and of all learners that have it, but in their names; er.memory=500:
        of one. Several values of a protocol's setting (policy=oracle, policy=random_10) run one after the other.
        Repeatable.
    tune KEY=V,V: Candidate values; each learner selects one on the first step, under near-future on a prefix.
        Repeatable.
    encoder [NAME=]SPEC: Encode texts or images with each, as in ngrams:2048 or sentence:DIR (driftline list encoders).
    reuse: Finished runs: by the same code, or any (its rows are marked).
    control N: Runs with times permuted: nothing can age (default: 20 of closed forms, if they take a minute; 0: none).
    equal_data: Also models that all learn the newest n samples, n those of the least step.
    device: For learners with a network.
    workers N|auto: Parallel runs; auto: 1 below 24 runs, else DRIFTLINE_WORKERS, or one for each core or GPU.
    """
    from driftline.eval.control import check_draws
    from driftline.eval.experiment.learner_sets import expand, split
    from driftline.eval.experiment.learner_spec import spec_of
    from driftline.eval.experiment.settings import seeds_of
    from driftline.eval.learners import LEARNERS
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.reporting.terminal import scores_text
    from driftline.eval.training import sgd_learner
    from driftline.stream_builder.stream import Stream

    folder, paths = guarded_out(path_of(out), "rows"), places_of(streams)
    check_draws(control)
    draws = {path: folders for path in paths if (folders := _draws(path, seeds))}
    loaded = {path: Stream.load(path) for path in paths if path not in draws}
    for place in [*loaded, *(drawn for folders in draws.values() for drawn in folders.values())]:
        Stream.load(place).verify_once(place)
    chosen = expand(split(learners if isinstance(learners, str) else ",".join(learners)), list(LEARNERS))
    specs = [spec_of(name) for name in chosen]
    protocols = list(PROTOCOLS) if "all" in several(protocol) else several(protocol)
    device_name = sgd_learner.place(device)
    numbers = seeds_of(seeds or "0")
    best = default_workers() if device_name == "cpu" else max(1, len(visible_gpus()))
    best = 1 if len(chosen) * len(numbers) < FEW_RUNS else best
    own: dict[str, Any] = {
        f"{_name(spec.name)}.device": device_name
        for spec in specs
        if "device" in spec.settings and "device" not in spec.with_name
    } | _sets(changes_of(settings), protocols)
    run_log = log_of(folder / "log.jsonl")
    grid, executor = _grid([tune] if isinstance(tune, str) else tune), executor_of(engine, workers, best)
    work = _Work(numbers, own, folder, grid, executor, run_log, preset or "", reuse, control, equal_data)
    tasks, parts = [(path, chosen) for path in paths], []
    encoders = several(encoder) or papers_encoder(preset, loaded.values(), run_log)
    if encoders is not None and draws:
        raise BadConfig(f"--encoder is given and {next(iter(draws))} has draws.", "Expected single streams.")
    if encoders is not None:
        readers = [spec.name for spec in specs if spec.kind.needs.texts]
        others = [name for name in chosen if name not in readers]
        encoded = encoded_all(loaded.values(), encoders, folder, device, run_log) if others else []
        tasks = [(path, readers) for path in paths if readers] + [(path, others) for path in encoded]
    for path, names in tasks:
        folders = draws.get(path, {})
        stream = loaded.get(path) or Stream.load(next(iter(folders.values()), path))
        parts += [work.part(name, path, names, stream, folders, len(protocols) * len(paths) == 1) for name in protocols]
    documents = work.documents(parts)
    following = next_step("report", folder, "--out", "report") if any(d["results"] for d in documents) else ""
    text = "\n".join([*map(scores_text, documents), following]).rstrip()
    why = " ".join(s["because"] for d in documents for s in d["skipped"])
    problem = None if following else DriftlineError("No learner finished.", why)
    return Shown(documents, text, documents[0] if len(documents) == 1 else documents, problem)


@dataclass(frozen=True)
class _Part:
    """One protocol on one stream, or on its draws."""

    protocol: str
    path: Path
    learners: list[str]
    stream: Stream
    draws: Mapping[int, Path]
    settings: dict[str, Any]
    """those that have an effect here"""
    inapplicable: dict[str, Inapplicable]
    """the others, and why"""
    planned: Workload | None
    because: str
    """why the protocol cannot run on this stream; "" if it can"""


@dataclass(frozen=True)
class _Work:
    """What is the same for all streams and protocols of one call."""

    seeds: list[int]
    settings: dict[str, Any]
    out: Path
    grid: dict[str, list[Any]]
    executor: Executor
    run_log: RunLog
    preset: str
    reuse: Literal["same", "any"]
    control: int | None
    equal_data: bool

    def part(
        self, name: str, path: Path, learners: list[str], stream: Stream, draws: Mapping[int, Path], single: bool
    ) -> _Part:
        """What there is to do under one protocol. stream: of `path`, or its first draw. single: raise
        IncompatibleStream. Raises BadConfig for a wrong setting."""
        from driftline.eval.experiment.settings import Inapplicable
        from driftline.eval.run import plan

        settings, planned, because = dict(self.settings), None, ""
        inapplicable: dict[str, Inapplicable] = {}
        while True:
            try:
                planned = plan(draws or stream, name, learners, self.seeds, **self._common(settings))
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
            return _Part(name, path, learners, stream, draws, settings, inapplicable, planned, because)

    def _common(self, settings: dict[str, Any]) -> dict[str, Any]:
        more = {"out": self.out, "tune": self.grid, "preset": self.preset, "reuse": self.reuse}
        return {"settings": settings, **more}

    def documents(self, parts: Sequence[_Part]) -> list[dict[str, Any]]:
        """The scores of each part. Before the first: raises BadConfig for a setting that none uses, and says how much
        there is to do."""
        _check_used(self.settings, parts)
        for part in parts:
            if part.planned is not None:
                self._announce(part.protocol, part.planned)
        return [self._document(part) for part in parts]

    def _announce(self, protocol: str, planned: Workload) -> None:
        if planned.left_out:
            self.run_log.say(planned.left_out)
        self.run_log.say(_estimate(protocol, planned, self.executor.workers))
        if planned.label_time:
            self.run_log.say(f"  {planned.label_time}")
        for learner, text in filter(all, planned.settings.items()):
            self.run_log.say(f"  {learner}: {text}")
        for learner, code in planned.untold.items():
            self.run_log.say(f"  {learner}: finished runs are not used again: {code} cannot be read as a file.")

    def _document(self, part: _Part) -> dict[str, Any]:
        from driftline.eval.control import controlled
        from driftline.eval.rows import keep_skipped
        from driftline.eval.run import evaluate

        name, stream = part.protocol, part.stream
        if part.planned is None:
            about = {"name": stream.name, "sha256": stream.sha256}
            skipped = [{"learner": "all", "because": part.because}]
            keep_skipped(self.out, name, about, ["all"], skipped)
            return {"protocol": name, "stream": about, "results": [], "skipped": skipped}
        with self.run_log.progress(name, part.planned.runs - part.planned.finished, "runs") as tick:
            more: Any = self._common(part.settings) | {"progress": tick, "executor": self.executor}
            results = evaluate(part.draws or stream, name, part.learners, self.seeds, stream_folder=part.path, **more)
        more = {key: more[key] for key in ("settings", "out", "preset", "reuse", "executor")}
        more |= {"control": self.control, "equal_data": self.equal_data, "log": self.run_log}
        return controlled(results, part.learners, stream_folder=part.path, **more)


def _check_used(settings: Mapping[str, Any], parts: Sequence[_Part]) -> None:
    """Raise BadConfig for a setting that no part of the work uses, before the first begins."""
    from driftline.eval.experiment.settings import unknown_setting

    for key in settings:
        errors = [part.inapplicable[key] for part in parts if key in part.inapplicable]
        if len(errors) == len(parts):
            idle = next((error for error in errors if not error.names), None)
            raise idle or unknown_setting(key, {name for error in errors for name in error.names})


def _draws(path: Path, seeds: str | None) -> dict[int, Path]:
    """The draws of a folder that is no stream itself: all, or those of --seeds. Raises BadConfig for a missing one."""
    from driftline.eval.experiment.settings import seeds_of
    from driftline.eval.run import draws_of

    draws = {} if (path / "stream.json").is_file() else draws_of(path)
    chosen = seeds_of(seeds) if seeds and draws else list(draws)
    if missing := [seed for seed in chosen if seed not in draws]:
        available = f"It has {', '.join(map(str, draws))}."
        raise BadConfig(
            f"{path} has no draw for seed {missing[0]}.", available, "Compose it with stream compose --seeds."
        )
    return {seed: draws[seed] for seed in chosen}


def _name(learner: str) -> str:
    """`er(memory=500)` → `er`."""
    return learner.partition("(")[0].strip()


def _sets(changes: Sequence[str], protocols: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` of --set → settings; a key with several values has a list of them. Raises BadConfig for one that is
    given twice and is of no protocol."""
    from driftline.eval.experiment.settings import setting_names
    from driftline.eval.protocol import PROTOCOLS
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
    stream: str | Path | Stream,
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
) -> Results:
    """Run every learner with every seed.

    stream: a stream, its folder, or a folder with draws of one stream, each of which is evaluated with its own seed.
    protocol: a name, `package.module:Name`, a class or an instance. learners: one or several: names, also as
    `er(memory=500)`, learners, scikit-learn classifiers. seeds: their number, or each of them. settings: of the
    protocol and of all learners that have such a setting; `{"er.memory": 500}`: of one. preset: a paper's settings.
    tune: setting → candidates. device: for learners with a network. workers, engine: runs side by side, of a stream's
    folder and with `out`. out: folder for rows; finished runs in it are not repeated. reuse: "any" takes them whatever
    their code. control: runs with times permuted, in which nothing can age (default: 20 of closed forms, if they take
    at most a minute; 0: none). equal_data: also models that all learn equally many newest samples. Shows progress on
    stderr. A learner that cannot run or crashes is a warning, and a row of `frame()`.
    Raises IncompatibleStream and BadConfig before any work.
    """
    import warnings

    from driftline.curate.core.executor import Executor
    from driftline.curate.core.run_log import RunLog
    from driftline.eval import run
    from driftline.eval.control import check_draws, controlled
    from driftline.eval.experiment.inputs import numbers_of, several
    from driftline.eval.experiment.learner_spec import spec_of
    from driftline.eval.training.sgd_learner import place

    check_draws(control)
    chosen = several(learners)
    specs = [spec_of(one) for one in chosen]
    where = place(device)
    mine = [spec for spec in specs if "device" in spec.settings and spec.instance is None]
    own = [spec.name.partition("(")[0] for spec in mine if "device" not in spec.with_name]
    of_device = {f"{name}.device": where for name in own}
    more: dict[str, Any] = {"out": out, "preset": preset, "tune": tune, "reuse": reuse}
    more["executor"] = Executor(engine, workers) if workers > 1 or engine != "local" else None
    settings = {**of_device, **(settings or {})}
    folder = Path(stream) if isinstance(stream, str | Path) else None
    draws = run.draws_of(folder) if folder is not None and not (folder / "stream.json").is_file() else {}
    of_plan: Any = (settings, None if out is None else Path(out), tune, preset, reuse)
    planned = run.plan(draws or stream, protocol, chosen, numbers_of(seeds), *of_plan)
    log = RunLog()
    with log.progress("evaluate", planned.runs - planned.finished, "runs") as more["progress"]:
        results = run.evaluate(draws or stream, protocol, chosen, seeds, settings, **more)
    asked: dict[str, Any] = {"control": control, "equal_data": equal_data, "log": log, "stream_folder": folder}
    asked |= {key: more[key] for key in ("preset", "reuse", "executor")}
    controlled(results, chosen, settings, out, **asked)
    for entry in results["skipped"]:
        warnings.warn(f"{entry['learner']} was skipped: {entry['because']}", stacklevel=2)
    return results
