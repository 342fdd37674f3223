"""`driftline eval` and `driftline report`: learners on streams → rows → tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers, visible_gpus
from driftline.pipelines.cli.common import (
    Device,
    Engine,
    Json,
    Plugins,
    Sets,
    admit,
    comma_separated,
    command,
    context_of_last,
    log_of,
    next_step,
    show,
)
from driftline.pipelines.cli.listing import named

if TYPE_CHECKING:
    from driftline.curate.core.run_log import RunLog
    from driftline.eval.run import Workload
    from driftline.stream_builder.stream import Stream

eval_app = typer.Typer()

FEW_RUNS = 24  # fewer are done in one process: another one takes seconds to start

Protocols = Annotated[str, named("--protocol", "protocols", "Names, separated by commas, or all")]
Learners = Annotated[
    str,
    named(
        "--learners",
        "learners",
        "Separated by commas: names, also as er(memory=500); package.module:Name; all; or the sets clear-table-1, "
        "clear-table-4, near-future-samplers",
    ),
]
RowFolder = Annotated[Path, typer.Option("--out", help="Folder for rows; finished runs in it are not repeated.")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", help="0-4 or 0,2,5 (default: 0; of a folder with draws, all of them).")
]
Preset = Annotated[str | None, named("--preset", "presets", "Hyper-parameters of a paper; --set overrides the preset")]
Tune = Annotated[
    list[str] | None,
    typer.Option("--tune", metavar="KEY=V,V", help="Candidate values, selected on the first step; repeatable."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=256, help="Parallel runs (default: one per core or GPU).")
]
Encoders = Annotated[
    str | None, typer.Option("--encoders", help="Encode texts or images with each, as in ngrams:2048,sentence:DIR.")
]


@command(
    eval_app,
    "eval",
    "driftline eval stream --protocol clear-iid --learners er,nap --seeds 0-4 --out runs",
    panel="Evaluate",
)
def evaluate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="S…", help="Stream folders, or folders with draws of one stream.")
    ],
    protocol: Protocols,
    learners: Learners,
    out: RowFolder,
    seeds: Seeds = None,
    preset: Preset = None,
    sets: Sets = None,
    reuse: Annotated[
        Literal["same", "any"],
        typer.Option("--reuse", help="Finished runs: by the same code, or any (its rows are marked)."),
    ] = "same",
    sort: Annotated[bool, typer.Option("--sort", help="near-future: order the samples by time first.")] = False,
    device: Annotated[Device, typer.Option("--device", help="For learners with a network.")] = "auto",
    tune: Tune = None,
    workers: Workers = None,
    engine: Engine = "local",
    encoders: Encoders = None,
    as_json: Json = False,
) -> None:
    """Evaluate learners on one or more streams.

    With several protocols or streams, --json prints a list of documents.
    """
    from driftline.eval.experiment.learner_sets import expand, split
    from driftline.eval.experiment.learner_spec import spec_of
    from driftline.eval.experiment.settings import seeds_of, setting_names
    from driftline.eval.learners import LEARNERS
    from driftline.eval.protocol import PROTOCOLS
    from driftline.eval.reporting.files.terminal import scores_text
    from driftline.pipelines.config.loader import setting_of
    from driftline.stream_builder.stream import Stream

    draws = {path: folders for path in paths if (folders := _draws(path, seeds))}
    streams = {path: Stream.load(path) for path in paths if path not in draws}
    for folder in [*streams, *(drawn for folders in draws.values() for drawn in folders.values())]:
        Stream.load(folder).verify_once(folder)
    chosen = expand(split(learners), list(LEARNERS))
    kinds = {_name(name): spec_of(name).kind for name in chosen}
    protocols = list(PROTOCOLS) if protocol == "all" else comma_separated(protocol)
    place = _device(device)
    numbers = seeds_of(seeds or "0")
    few = len(chosen) * len(numbers) < FEW_RUNS
    best = 1 if few else default_workers() if place == "cpu" else max(1, len(visible_gpus()))
    settings: dict[str, Any] = {f"{name}.device": place for name in kinds if "device" in setting_names(kinds[name])}
    settings |= {"sort": True} if sort else {}
    settings |= dict(setting_of(change) for change in sets or ())
    run_log = log_of(out / "log.jsonl", as_json)
    work = _Work(
        protocols,
        numbers,
        settings,
        out,
        _grid(tune or ()),
        Executor(engine, workers or best),
        run_log=run_log,
        preset=preset or "",
        reuse=reuse,
    )
    tasks = [(path, chosen) for path in paths]
    if encoders is not None and draws:
        raise BadConfig(f"--encoders is given and {next(iter(draws))} has draws.", "Expected single streams.")
    if encoders is not None:
        readers = [name for name in chosen if kinds[_name(name)].needs.texts]
        others = [name for name in chosen if name not in readers]
        encoded = _encoded(streams.values(), comma_separated(encoders), out, device, run_log) if others else []
        tasks = [(path, readers) for path in paths if readers] + [(path, others) for path in encoded]
    documents: list[dict[str, Any]] = []
    for path, names in tasks:
        folders = draws.get(path, {})
        stream = streams.get(path) or Stream.load(next(iter(folders.values()), path))
        documents += work.documents(path, names, stream, folders, len(protocols) * len(paths) == 1)
    following = next_step("report", out, "--out", "report") if any(d["results"] for d in documents) else ""
    lines = [*map(scores_text, documents), following]
    show(as_json, documents[0] if len(documents) == 1 else documents, "\n".join(lines).rstrip())
    if not following:
        raise DriftlineError("No learner finished.", " ".join(s["because"] for d in documents for s in d["skipped"]))


@dataclass(frozen=True)
class _Work:
    """What is the same for all streams of one call."""

    protocols: list[str]
    seeds: list[int]
    settings: dict[str, Any]
    out: Path
    grid: dict[str, list[Any]]
    executor: Executor
    run_log: RunLog
    preset: str
    reuse: Literal["same", "any"]

    def documents(
        self, path: Path, learners: list[str], stream: Stream, draws: Mapping[int, Path], single: bool
    ) -> Iterator[dict[str, Any]]:
        """The scores by each protocol. stream: of `path`, or its first draw. single: raise IncompatibleStream."""
        from driftline.eval.rows import keep_skipped
        from driftline.eval.run import evaluate, evaluate_draws, plan
        from driftline.stream_builder.stream import Stream

        parts = [(Stream.load(folder), [seed]) for seed, folder in draws.items()] or [(stream, self.seeds)]
        for name in self.protocols:
            common: Any = {"settings": self.settings, "out": self.out, "tune": self.grid}
            common |= {"preset": self.preset, "reuse": self.reuse}
            try:
                planned = [plan(part, name, learners, seeds, **common) for part, seeds in parts]
            except IncompatibleStream as error:
                if single:
                    raise
                about = {"name": stream.name, "sha256": stream.sha256}
                skipped = [{"learner": "all", "because": str(error)}]
                keep_skipped(self.out, name, about, ["all"], skipped)
                yield {"protocol": name, "stream": about, "results": [], "skipped": skipped}
                continue
            self.run_log.say(_estimate(name, planned, self.executor.workers))
            for learner, text in filter(all, planned[0].settings.items()):
                self.run_log.say(f"  {learner}: {text}")
            for learner, part in planned[0].untold.items():
                self.run_log.say(f"  {learner}: finished runs are not used again: {part} cannot be read as a file.")
            with self.run_log.progress(name, sum(part.runs for part in planned), "runs") as tick:
                common |= {"progress": tick, "executor": self.executor}
                if draws:
                    yield evaluate_draws(draws, name, learners, **common)
                else:
                    yield evaluate(stream, name, learners, self.seeds, stream_folder=path, **common)


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


def _encoded(streams: Iterable[Stream], encoders: list[str], out: Path, device: str, run_log: RunLog) -> list[Path]:
    """Folders with each stream as vectors of each encoder."""
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.pipelines.cli.feature_zoo import encoded_at

    folders = []
    for stream in streams:
        for encoder in encoders:
            folder = out / "encoders" / fingerprint([stream.sha256, encoder])[:16]
            encoded_at(stream, stream.sha256, encoder, encoder, folder, device, run_log=run_log, cache=True)
            folders.append(folder)
    return folders


def _estimate(name: str, parts: Sequence[Workload], workers: int) -> str:
    """How many runs are to do, and how long they take."""
    runs = sum(part.runs for part in parts)
    text = f"{name}: {runs - sum(part.finished for part in parts)} of {runs} runs to do"
    seconds = [part.core_seconds for part in parts if part.core_seconds is not None]
    if len(seconds) < len(parts):
        return text
    wall = sum(seconds) / workers
    duration = f"{wall / 3600:.1f} h" if wall > 5400 else f"{wall / 60:.0f} min" if wall > 90 else f"{wall:.0f} s"
    return f"{text}, about {duration} of training on {workers} workers"


def _device(name: Device) -> str:
    """ "auto" → "cuda" if there is one, else "cpu". Raises BadConfig for "cuda" without a GPU."""
    if name == "cpu":  # without importing torch
        return name
    from driftline.eval.training.sgd_learner import place

    return place(name)


@command(eval_app, "compare", "driftline compare photos-v1 photos-v2", panel="Evaluate")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A folder with rows of driftline eval, or a release.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Rows on the same streams, or another version.")],
    out: Annotated[Path, typer.Option("--out", help="Rows: folder for the page.")] = Path("comparison"),
    stream: Annotated[
        list[Path] | None,
        typer.Option("--stream", help="Rows: an evaluated stream; adds names, dates and images; may be repeated."),
    ] = None,
    plugins: Plugins = None,
    as_json: Json = False,
) -> None:
    """Compare two versions of a release, or two sets of runs.

    Releases: says for each bucket which scores on A and B may be compared, and why not the others; exit code 1 if none
    may. Rows: says which learners score higher in B than in A, and which do not differ; writes a report of both.
    """
    from driftline.eval.reporting.two_runs import two_runs
    from driftline.stream_builder.stream import Stream

    releases = [path for path in (first, second) if _is_release(path)]
    if len(releases) == 1:
        other = first if releases[0] == second else second
        raise BadConfig(f"{releases[0]} is a release, and {other} is none.", "Expected two releases, or two of rows.")
    if releases:
        from driftline.curate.release import Release
        from driftline.curate.release.versions.comparison import compare_releases, comparison_text

        comparison = compare_releases(Release.open(first), Release.open(second))
        show(as_json, comparison, comparison_text(comparison))
        if not comparison["comparable"]:
            raise DriftlineError("No score on A may be compared with one on B.", "", "The reasons are above.")
        return
    admit(plugins)
    page, differences = two_runs([first, second], out, [Stream.load(place) for place in stream or ()])
    text = [f"  {e['learner']}: {_shares(e)}" for e in differences]
    show(as_json, {"report": str(page), "differences": differences}, "\n".join([*text, f"report: {page}"]))


def _is_release(path: Path) -> bool:
    return (path / "release.json").is_file() or any(path.glob("stages/*_publish/release/release.json"))


def _shares(entry: dict[str, Any]) -> str:
    """A, B and the p of one learner."""
    from driftline.eval.reporting.compared import p_text

    values = ["–" if entry[side] is None else f"{100 * entry[side]:.1f}" for side in ("a", "b")]
    return f"{entry['score']} {values[0]} → {values[1]}, {p_text(entry['p'])}"


@command(eval_app, "report", "driftline report runs --out report", panel="Evaluate")
def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Folders with rows of driftline eval.")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the pages and the scores (CSV, Parquet, LaTeX, JSON).")
    ],
    run_folder: Annotated[
        Path | None,
        typer.Option("--run", help="The run that built the benchmark: adds its images, counts and settings."),
    ] = None,
    stream: Annotated[
        list[Path] | None,
        typer.Option("--stream", help="An evaluated stream: adds its steps, drift and images; may be repeated."),
    ] = None,
    plugins: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write a site with tables and figures from rows.

    An overview, a page for each protocol, learner and stream, and the scores as CSV, LaTeX and JSON.
    """
    from driftline.eval.reporting.report import results_of, write
    from driftline.stream_builder.stream import Stream

    admit(plugins)
    streams = [Stream.load(place) for place in stream or ()]
    if run_folder is None:
        page = write(results_of(paths, streams), out, streams=streams)
    elif len(streams) != 1 or len(paths) != 1:
        raise BadConfig(
            f"--run was given with {len(streams)} --stream and {len(paths)} RUNS folders.", "Expected one of each."
        )
    else:
        from driftline.curate.release import Release
        from driftline.pipelines.reporting.run_report import journey_report

        context = context_of_last(run_folder, None, True)
        page = journey_report(context, Release.open(run_folder), streams[0], paths[0], out)
    show(as_json, {"report": str(page)}, f"report: {page}")
