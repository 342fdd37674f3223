"""`driftline eval` and `dl.evaluate`: learners on streams → rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.curate.core.executor import Engine, default_workers, visible_gpus
from driftline.pipelines.actions.action import Device, Shown, action
from driftline.pipelines.actions.common import executor_of, guarded_out, log_of, next_step
from driftline.pipelines.kinds import (
    Candidates,
    Learners,
    Place,
    Protocols,
    Seeds,
    Settings,
    StreamPlaces,
    kind_of,
    path_of,
    several,
)

if TYPE_CHECKING:
    from driftline.curate.core.run_log import RunLog
    from driftline.eval.results import Results
    from driftline.eval.run import Workload
    from driftline.eval.settings import Inapplicable
    from driftline.stream_builder.stream import Stream

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


@action(EVAL, "Evaluate", name="eval", completes=COMPLETES, arguments=1, required=("out",))
def evaluate(
    stream: StreamPlaces, protocol: Protocols, learners: Learners, seeds: Seeds | None = None, *,
    out: Place | None = None, preset: str | None = None, settings: Settings = (), tune: Candidates = (),
    reuse: Literal["same", "any"] = "same", control: int | None = None, equal_data: bool = False,
    device: Device = "auto", workers: int | str = "auto", engine: Engine = "local",
) -> Shown[Any]:  # fmt: skip
    """Evaluate learners on one or more streams.

    With several protocols or streams, --json prints a list of documents. Options that take names take several: with
    commas, or repeated. In Python, all may also be objects; the answer is Results, or a list of them; a learner that
    cannot run or crashes is a warning, and a row of frame().

    stream STREAM…: Streams, or folders of stream compose --seeds.
    protocol NAME,…: Names, or all (driftline list protocols).
    learners NAME,…: Names, also as er(memory=500) or package.module:Name; sets; all (driftline list learners,
        learner-sets).
    seeds N-N: 0-4 or 0,2,5 (default: 0; of a folder of stream compose --seeds, all). In Python also their number.
    out RUNS: Results folder; finished runs in it are skipped.
    preset NAME: Hyper-parameters of a paper; --set overrides them (driftline list presets).
    settings KEY=VALUE: A setting of the protocol and of all learners that have it (a value in a learner's name wins);
        er.memory=500: of er only. Several values of a protocol's setting (policy=oracle, policy=random_10) run one
        after the other. Repeatable.
    tune KEY=V,V: Candidate values; each learner selects one on the first step, under near-future on the tuning segment.
        Repeatable.
    reuse: Reuse finished runs: only those of the same code version, or any (marked in tables).
    control N: Runs with times permuted, in which nothing can age (default: 20 for closed-form learners that take at
        most a minute; 0: none).
    equal_data: Also train models that all learn equally many newest samples.
    device: For learners with a network.
    workers N|auto: Parallel runs; auto: 1 below 24 runs, else DRIFTLINE_WORKERS, or one for each core or GPU.
    """
    from driftline.eval.control import check_draws
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.reporting.exports import scores_text
    from driftline.eval.run import numbers_of, stream_of
    from driftline.eval.run import several as each_of
    from driftline.eval.settings import seeds_of
    from driftline.eval.training.sgd_learner import place
    from driftline.stream_builder.stream import Stream

    check_draws(control)
    folder = None if out is None else guarded_out(path_of(out), "rows")
    numbers = None if seeds is None else seeds_of(seeds) if isinstance(seeds, str) else numbers_of(seeds)
    tasks: list[tuple[Any, Path | None]] = []  # a stream or its draws, and its folder
    for one in stream if isinstance(stream, list | tuple) else [stream]:
        path = Path(one) if isinstance(one, str | Path) else None
        draws = {} if path is None else _draws(path, numbers)
        tasks.append((draws or stream_of(one, out is not None), path))
        for where in draws.values() or filter(None, [path]):
            Stream.load(where).verify_once(where)
    chosen = _chosen(each_of(learners))
    named = [one for each in each_of(protocol) for one in (several(each) if isinstance(each, str) else [each])]
    protocols = list(PROTOCOLS) if "all" in named else named
    device_name, numbers = place(device), numbers or [0]
    best = default_workers() if device_name == "cpu" else max(1, len(visible_gpus()))
    executor = executor_of(engine, workers, 1 if len(chosen) * len(numbers) < FEW_RUNS else best)
    own = _on(device_name, chosen) | (dict(settings) if isinstance(settings, Mapping) else _sets(settings, protocols))
    grid = tune if isinstance(tune, Mapping) else _grid([tune] if isinstance(tune, str) else tune)
    given = {"out": folder, "tune": grid, "preset": preset or "", "reuse": reuse}
    parts = [
        _part(one, *task, chosen, numbers, own, given, alone=len(tasks) * len(protocols) == 1)
        for task in tasks
        for one in protocols
    ]
    for key in own:
        _check_used(key, [part.inapplicable[key] for part in parts if key in part.inapplicable], len(parts))
    run_log = log_of(None if folder is None else folder / "log.jsonl")
    for part in parts:
        if part.planned is not None:
            _announce(part.name, part.planned, executor.workers or 1, run_log)
    more = {"control": control, "equal_data": equal_data, "log": run_log}
    documents = [_document(part, chosen, numbers, given | {"executor": executor}, more) for part in parts]
    skipped = [entry for document in documents for entry in document["skipped"]]
    is_done = any(document["results"] for document in documents)
    following = [next_step("report", folder, "--out", "report")] if is_done and folder is not None else []
    text = "\n".join([*map(scores_text, documents), *following]).rstrip()
    why = " ".join(entry["because"] for entry in skipped)
    return Shown(
        documents[0] if len(documents) == 1 else documents, text,
        problem=None if is_done else DriftlineError("No learner finished.", why),
        warnings=[f"{entry['learner']} was skipped: {entry['because']}" for entry in skipped],
    )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """One protocol on one stream, or on its draws."""

    protocol: Any
    on: Stream | Mapping[int, Path]
    """the stream; or seed → folder of each draw"""
    path: Path | None
    """None: of a stream in memory"""
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


def _part(
    protocol: Any, on: Any, path: Path | None, learners: Sequence[Any], seeds: list[int], settings: dict[str, Any],
    given: Mapping[str, Any], alone: bool,
) -> _Part:  # fmt: skip
    """What there is to do. alone: raise IncompatibleStream. Raises BadConfig for a wrong setting, before any work."""
    from driftline.eval.run import plan
    from driftline.eval.settings import Inapplicable

    planned, because = None, ""
    inapplicable: dict[str, Inapplicable] = {}
    while planned is None and not because:
        try:
            planned = plan(on, protocol, learners, seeds, settings, **given)
        except IncompatibleStream as error:
            if alone:
                raise
            because = str(error)
        except Inapplicable as error:
            named_so = [key for key in settings if error.key in (key, key.rpartition(".")[2])]
            if not named_so:
                raise
            inapplicable |= dict.fromkeys(named_so, error)
            settings = {key: value for key, value in settings.items() if key not in named_so}
    return _Part(protocol, on, path, settings, inapplicable, planned, because)


def _check_used(key: str, errors: Sequence[Inapplicable], parts: int) -> None:
    """Raise BadConfig for a setting that no part uses. errors: of the parts that do not."""
    from driftline.eval.settings import unknown_setting

    if len(errors) == parts:
        idle = next((error for error in errors if not error.names), None)
        raise idle or unknown_setting(key, {name for error in errors for name in error.names})


def _announce(protocol: str, planned: Workload, workers: int, run_log: RunLog) -> None:
    """How much there is to do, and what each learner does."""
    lines = [planned.left_out, _estimate(protocol, planned, workers), planned.label_time and f"  {planned.label_time}"]
    lines += [f"  {learner}: {text}" for learner, text in planned.settings.items() if learner and text]
    lines += [f"  {learner}: finished runs are not used again: {code} cannot be read as a file."
              for learner, code in planned.untold.items()]  # fmt: skip
    for line in filter(None, lines):
        run_log.say(line)


def _document(
    part: _Part, learners: Sequence[Any], seeds: list[int], given: dict[str, Any], more: dict[str, Any]
) -> Results:
    """The scores of a part. more: `control`, `equal_data` and `log` of `controlled`."""
    from driftline.eval.control import controlled
    from driftline.eval.results import Results
    from driftline.eval.rows import keep_skipped
    from driftline.eval.run import evaluate
    from driftline.stream_builder.stream import Stream

    if part.planned is None:
        stream = part.on if isinstance(part.on, Stream) else Stream.load(next(iter(part.on.values())))
        about = {"name": stream.name, "sha256": stream.sha256}
        skipped = [{"learner": "all", "because": part.because}]
        if given["out"] is not None:
            keep_skipped(given["out"], part.name, about, ["all"], skipped)
        return Results({"protocol": part.name, "stream": about, "results": [], "skipped": skipped})
    given = given | {"settings": part.settings, "stream_folder": part.path}
    with more["log"].progress(part.name, part.planned.runs - part.planned.finished, "runs") as tick:
        results = evaluate(part.on, part.protocol, learners, seeds, progress=tick, **given)
    del given["tune"]
    return controlled(results, learners, **given, **more)


def _chosen(learners: Sequence[Any]) -> list[Any]:
    """The learners; of texts, which may be names with settings, sets and all, those that they stand for, each once."""
    from driftline.eval.experiment.presets import expand, split
    from driftline.eval.learners import LEARNERS

    if all(isinstance(one, str) for one in learners):
        return list(expand(split(",".join(learners)), list(LEARNERS)))
    return [each for one in learners for each in (_chosen([one]) if isinstance(one, str) else [one])]


def _on(device: str, learners: Sequence[Any]) -> dict[str, Any]:
    """The setting `device` of the learners that have it and do not have it in their names. Raises UnknownName."""
    from driftline.eval.settings import spec_of

    specs = [spec for spec in map(spec_of, learners) if "device" in spec.settings and spec.instance is None]
    return {f"{_name(spec.name)}.device": device for spec in specs if "device" not in spec.with_name}


def _draws(path: Path, seeds: Sequence[int] | None) -> dict[int, Path]:
    """The draws of a folder of them: all, or those of some seeds; {} of another one. Raises BadConfig for a missing
    one."""
    from driftline.eval.run import draws_of

    draws = draws_of(path) if kind_of(path) == "draws" else {}
    if missing := [seed for seed in seeds or () if draws and seed not in draws]:
        available = f"It has {', '.join(map(str, draws))}."
        raise BadConfig(
            f"{path} has no stream for seed {missing[0]}.", available, "Compose it with stream compose --seeds."
        )
    return {seed: draws[seed] for seed in seeds or draws} if draws else {}


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
