"""`driftline eval` and `driftline report`: learners on streams → rows → tables and figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from curate.core.executor import Executor, visible_gpus
from curate.core.run_log import RunLog
from pipelines.cli.common import Json, Sets, command, context_of

if TYPE_CHECKING:
    from eval.protocol import Score
    from eval.run import Plan

eval_app = typer.Typer()

FEW_RUNS = 24  # below, one process does them


@command(eval_app, "eval", "driftline eval stream --protocol clear-iid --learners er,nap --seeds 0-4 --out runs")
def evaluate(
    paths: Annotated[list[Path], typer.Argument(metavar="S…", help="Stream folders.")],
    protocol: Annotated[str, typer.Option("--protocol", help="Names with commas (driftline list protocols), or all.")],
    learners: Annotated[
        str,
        typer.Option(
            "--learners", help="Names with commas, er(memory=500), all, clear-table-1 or -4, near-future-samplers."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for rows; finished runs there are not repeated.")],
    seeds: Annotated[str, typer.Option("--seeds", help="0-4 or 0,2,5.")] = "0",
    preset: Annotated[
        str | None, typer.Option("--preset", help="A paper's hyper-parameters; --set goes before them.")
    ] = None,
    sets: Sets = None,
    sort: Annotated[bool, typer.Option("--sort", help="near-future: order the samples by time first.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda, for learners with a network.")] = "auto",
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", metavar="KEY=V,V", help="Candidates, chosen among on the first step; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Runs at a time (default: one a core, or a GPU).")
    ] = None,
    executor: Annotated[str, typer.Option("--engine", help="local, or ray.")] = "local",
    encoders: Annotated[
        str | None,
        typer.Option("--encoders", help="Of texts or images: vectors by each, as ngrams:2048,sentence:DIR."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate learners on a stream; with several protocols --json prints a list of documents."""
    from curate.core.atomic_io import fingerprint
    from curate.core.parsing import value_of
    from eval.experiment.learner_sets import expand, split
    from eval.experiment.presets import fitting
    from eval.learners import LEARNERS
    from eval.protocol import PROTOCOLS
    from eval.rows import keep_skipped
    from eval.run import evaluate as run_grid
    from eval.run import plan, seeds_of
    from pipelines.config.loader import given
    from pipelines.feature_zoo import encoded_at
    from stream_builder.stream import Stream

    streams = {path: Stream.load(path) for path in paths}
    chosen = expand(split(learners), list(LEARNERS))
    protocols = list(PROTOCOLS) if protocol == "all" else [p.strip() for p in protocol.split(",")]
    several = len(protocols) * len(paths) > 1
    for name in protocols:
        PROTOCOLS.resolve(name)
    for name in chosen:
        LEARNERS[name.partition("(")[0].strip()]
    if executor not in ("local", "ray"):
        raise BadConfig(f"--engine is {executor!r}.", "Expected local or ray.")
    place = _device(device)
    cores = len(os.sched_getaffinity(0))
    numbers = seeds_of(seeds)
    few = len(chosen) * len(numbers) < FEW_RUNS  # a process takes seconds to begin
    usual = 1 if few else cores if place == "cpu" else max(1, len(visible_gpus()))
    spread = Executor("ray" if executor == "ray" else "local", workers or usual)
    kinds = dict.fromkeys(name.partition("(")[0].strip() for name in chosen)
    settings: dict[str, Any] = {f"{n}.device": place for n in kinds if hasattr(LEARNERS[n], "device")}
    settings |= {"sort": True} if sort else {}
    settings |= (
        fitting(preset, {p: PROTOCOLS[p] for p in protocols} | {k: LEARNERS[k] for k in kinds}) if preset else {}
    ) | dict(given(change) for change in sets or ())
    grid = {}
    for candidates in tune or ():
        key, equals, values = candidates.partition("=")
        if not equals or not all(v.strip() for v in values.split(",")):
            raise BadConfig(f"--tune is {candidates!r}.", "Expected KEY=VALUE,VALUE, as in lr=0.1,1.")
        grid[key] = [value_of(v) for v in values.split(",")]
    run_log = RunLog(out / "log.jsonl", as_json)
    documents: list[dict[str, Any]] = []
    parts = [(path, chosen) for path in paths]
    if encoders is not None:
        readers = [n for n in chosen if getattr(LEARNERS[n.partition("(")[0].strip()], "reads_texts", False)]
        vectors = [n for n in chosen if n not in readers]
        parts = [(path, readers) for path in paths if readers]
        for stream in streams.values() if vectors else ():
            for told in [part.strip() for part in encoders.split(",")]:
                where = out / "encoders" / fingerprint([stream.sha256, told])[:16]
                encoded_at(stream, stream.sha256, told, told, where, device, run_log)
                parts.append((where, vectors))
    for where, mine in parts:
        stream = streams[where] if where in streams else Stream.load(where)
        for name in protocols:
            try:
                ahead = plan(stream, name, mine, numbers, settings, out, grid)
            except IncompatibleStream as error:
                if not several:
                    raise
                about = {"name": stream.name, "sha256": stream.sha256}
                skipped = [{"learner": "all", "because": str(error)}]
                keep_skipped(out, name, about, ["all"], skipped)
                documents.append({"protocol": name, "stream": about, "results": [], "skipped": skipped})
                continue
            run_log.say(_ahead(name, ahead, spread.workers))
            with run_log.progress(name, len(mine) * len(numbers), "runs") as tick:
                documents.append(run_grid(stream, name, mine, numbers, settings, out, tick, where, spread, grid))
    if as_json:
        print(json.dumps(documents[0] if len(documents) == 1 else documents))
    else:
        for document in documents:
            print(_scores(document))
    if not any(d["results"] for d in documents):
        raise DriftlineError("No learner finished.", " ".join(s["because"] for d in documents for s in d["skipped"]))


def _ahead(name: str, ahead: Plan, workers: int) -> str:
    """What is to be done, and for how long."""
    text = f"{name}: {ahead.runs - ahead.finished} of {ahead.runs} runs to do"
    if ahead.core_seconds is None:
        return text
    wall = ahead.core_seconds / workers
    told = f"{wall / 3600:.1f} h" if wall > 5400 else f"{wall / 60:.0f} min" if wall > 90 else f"{wall:.0f} s"
    return f"{text}, about {told} of training on {workers} workers"


def _device(name: str) -> str:
    """ "auto" → "cuda" where there is one. Raises BadConfig for a GPU where there is none."""
    if name == "cpu":  # torch need not be asked
        return name
    from eval.training.sgd_learner import place

    return place(name)


def _scores(document: dict[str, Any]) -> str:
    from eval.protocol import scores_of

    lines, scores = [f"{document['protocol']} on {document['stream']['name']}"], scores_of(document)
    if document["results"]:
        wide = max(14, *(len(r["learner"]) + 2 for r in document["results"]))
        lines.append(f"  {'learner':<{wide}}" + "".join(f"{score.name:>18}" for score in scores))
    lines += [
        f"  {r['learner']:<{wide}}" + "".join(f"{_cell(score, r):>18}" for score in scores) for r in document["results"]
    ]
    reasons: dict[str, list[str]] = {}
    for one in document["skipped"]:
        reasons.setdefault(one["because"], []).append(one["learner"])
    lines += [f"  {', '.join(names)}: skipped, because {because}" for because, names in reasons.items()]
    return "\n".join(lines)


def _cell(score: Score, result: dict[str, Any]) -> str:
    return "never" if score.mean(result) is None else score.spread(result)


@command(eval_app, "report", "driftline report runs --out report")
def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Folders with rows of driftline eval.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for index.html, scores.csv, scores.tex.")],
    run_folder: Annotated[
        Path | None,
        typer.Option("--run", help="The run that built the benchmark: adds pictures, counts, settings."),
    ] = None,
    stream: Annotated[
        list[Path] | None,
        typer.Option("--stream", help="An evaluated stream: its page shows steps, drift, pictures; may be repeated."),
    ] = None,
    plugins: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="MODULE:NAME", help="A protocol of your own that rows name; may be repeated."),
    ] = None,
) -> None:
    """Turn rows into a site: an overview, a page for each protocol, learner and stream; CSV, LaTeX and JSON beside."""
    from eval.protocol import protocol_named
    from eval.reporting.report import results_of, write
    from stream_builder.stream import Stream

    for plugin in plugins or ():
        protocol_named(protocol_named(plugin)[1])  # rows name the class or, from a command line, package.module:Name
    known = [Stream.load(place) for place in stream or ()]
    if run_folder is None:
        print(f"report: {write(results_of(paths), out, streams=known)}")
        return
    if len(known) != 1 or len(paths) != 1:
        raise BadConfig("--run was given.", "Expected one --stream and one RUNS folder with it.")
    from curate.release import Release
    from pipelines.reporting.run_report import journey_report

    context = context_of(run_folder, None, True)
    print(f"report: {journey_report(context, Release.open(run_folder), known[0], paths[0], out)}")
