"""`driftline eval`: learners on streams → rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.curate.core.executor import Engine as EngineName
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers, visible_gpus
from driftline.pipelines.cli.common import (
    Device,
    command,
    executor_of,
    log_of,
    next_step,
    option,
    show,
)
from driftline.pipelines.cli.encoding import encoded_all, papers_encoder
from driftline.pipelines.cli.listing import named
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.kinds import several

if TYPE_CHECKING:
    from driftline.curate.core.run_log import RunLog
    from driftline.eval.experiment.settings import Inapplicable
    from driftline.eval.run import Workload
    from driftline.stream_builder.stream import Stream

eval_app = typer.Typer()

NAMED = 6  # learners that a line names
FEW_RUNS = 24  # fewer are done in one process: another one takes seconds to start


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


what = partial(named, rich_help_panel="Learners and protocols")
how = partial(typer.Option, rich_help_panel="Learners and protocols")
place = partial(typer.Option, rich_help_panel="Processes")

Streams = Annotated[list[Path], typer.Argument(metavar="STREAM…", help="Streams, or folders with draws of one stream.")]
Protocols = Annotated[list[str], what("--protocol", "protocols", "Names, or all", metavar="NAME,…")]
Learners = Annotated[
    list[str],
    what(
        "--learners",
        "learners",
        "Names, also as er(memory=500) or package.module:Name; sets; all",
        also="learner-sets",
        metavar="NAME,…",
    ),
]
RowFolder = Annotated[Path, option("--out", "RUNS", "Folder for rows; finished runs in it are not repeated.")]
Reuse = Annotated[
    Literal["same", "any"], option("--reuse", None, "Finished runs: by the same code, or any (its rows are marked).")
]
Seeds = Annotated[
    str | None, how("--seeds", metavar="N-N", help="0-4 or 0,2,5 (default: 0; of a folder with draws, all of them).")
]
Preset = Annotated[str | None, what("--preset", "presets", "Hyper-parameters of a paper; --set overrides them")]
Settings = Annotated[
    list[str] | None,
    how(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the protocol and of all learners that have it, but in their names; er.memory=500: of one. "
        "Several values of a protocol's setting (policy=oracle, policy=random_10) run one after the other. Repeatable.",
        autocompletion=_keys,
    ),
]
Tune = Annotated[
    list[str] | None,
    how(
        "--tune",
        metavar="KEY=V,V",
        help="Candidate values; each learner selects one on the first step, under near-future on a prefix. Repeatable.",
    ),
]
Encoders = Annotated[
    list[str] | None,
    what(
        "--encoder",
        "encoders",
        "Encode texts or images with each, as in ngrams:2048 or sentence:DIR",
        metavar="[NAME=]SPEC",
    ),
]
CONTROL = "Runs with times permuted: nothing can age (default: 20 of closed forms, if they take a minute; 0: none)."
Control = Annotated[int | None, how("--control", metavar="N", help=CONTROL)]
EqualData = Annotated[
    bool, how("--equal-data", help="Also models that all learn the newest n samples, n those of the least step.")
]
Workers = Annotated[
    str,
    place(
        "--workers",
        metavar="N|auto",
        help=f"Parallel runs; auto: 1 below {FEW_RUNS} runs, else DRIFTLINE_WORKERS, or one for each core or GPU.",
    ),
]
Engine = Annotated[
    EngineName, place("--engine", help="ray: the cluster of RAY_ADDRESS, or this machine; slurm: one job a task.")
]


@command(
    eval_app,
    "eval",
    "driftline eval stream --protocol clear-iid --learners er,nap \\\n    --seeds 0-4 --out runs",
    panel="Evaluate",
)
def evaluate(
    paths: Streams,
    protocol: Protocols,
    learners: Learners,
    out: RowFolder,
    seeds: Seeds = None,
    preset: Preset = None,
    sets: Settings = None,
    tune: Tune = None,
    encoders: Encoders = None,
    reuse: Reuse = "same",
    control: Control = None,
    equal_data: EqualData = False,
    device: Annotated[Device, place("--device", help="For learners with a network.")] = "auto",
    workers: Workers = "auto",
    engine: Engine = "local",
) -> None:
    """Evaluate learners on one or more streams.

    With several protocols or streams, --json prints a list of documents. Options that take names take several: with
    commas, or repeated.
    """
    from driftline.eval.control import check_draws
    from driftline.eval.experiment.learner_sets import expand, split
    from driftline.eval.experiment.learner_spec import spec_of
    from driftline.eval.experiment.settings import seeds_of
    from driftline.eval.learners import LEARNERS
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.reporting.files.terminal import scores_text
    from driftline.eval.training import sgd_learner
    from driftline.stream_builder.stream import Stream

    guarded_out(out, "rows")
    check_draws(control)
    draws = {path: folders for path in paths if (folders := _draws(path, seeds))}
    streams = {path: Stream.load(path) for path in paths if path not in draws}
    for folder in [*streams, *(drawn for folders in draws.values() for drawn in folders.values())]:
        Stream.load(folder).verify_once(folder)
    chosen = expand(split(",".join(learners)), list(LEARNERS))
    specs = [spec_of(name) for name in chosen]
    kinds = {_name(spec.name): spec.kind for spec in specs}
    protocols = several(protocol)
    protocols = list(PROTOCOLS) if "all" in protocols else protocols
    device_name = sgd_learner.place(device)
    numbers = seeds_of(seeds or "0")
    few = len(chosen) * len(numbers) < FEW_RUNS
    best = 1 if few else default_workers() if device_name == "cpu" else max(1, len(visible_gpus()))
    settings: dict[str, Any] = {
        f"{_name(spec.name)}.device": device_name
        for spec in specs
        if "device" in spec.settings and "device" not in spec.with_name
    }
    settings |= _sets(sets or (), protocols)
    run_log = log_of(out / "log.jsonl")
    same = run_log, preset or "", reuse, control, equal_data
    work = _Work(numbers, settings, out, _grid(tune or ()), executor_of(engine, workers, best), *same)
    tasks = [(path, chosen) for path in paths]
    encoders = encoders or papers_encoder(preset, streams.values(), run_log)
    if encoders is not None and draws:
        raise BadConfig(f"--encoder is given and {next(iter(draws))} has draws.", "Expected single streams.")
    if encoders is not None:
        readers = [name for name in chosen if kinds[_name(name)].needs.texts]
        others = [name for name in chosen if name not in readers]
        encoded = encoded_all(streams.values(), several(encoders), out, device, run_log) if others else []
        tasks = [(path, readers) for path in paths if readers] + [(path, others) for path in encoded]
    parts = []
    for path, names in tasks:
        folders = draws.get(path, {})
        stream = streams.get(path) or Stream.load(next(iter(folders.values()), path))
        parts += [work.part(name, path, names, stream, folders, len(protocols) * len(paths) == 1) for name in protocols]
    documents = work.documents(parts)
    following = next_step("report", out, "--out", "report") if any(d["results"] for d in documents) else ""
    lines = [*map(scores_text, documents), following]
    show(documents[0] if len(documents) == 1 else documents, "\n".join(lines).rstrip())
    if not following:
        raise DriftlineError("No learner finished.", " ".join(s["because"] for d in documents for s in d["skipped"]))


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
