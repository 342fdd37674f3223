"""`driftline report`, `reproduce`, `age`: what rows, papers and logs say, as pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.actions.action import Answer, Device, Shown, action
from driftline.pipelines.actions.common import admit, context_of_last, executor_of, guarded_out, log_of
from driftline.pipelines.actions.makers import columns_of
from driftline.pipelines.commands.release import NO_UPLOADERS
from driftline.pipelines.kinds import (
    Columns,
    Evaluated,
    Names,
    Place,
    Settings,
    StreamPlaces,
    Table,
    Tables,
    changes_of,
    path_of,
    several,
    streams_of,
)

if TYPE_CHECKING:
    from driftline.eval.reporting.logs import Ages
    from driftline.stream_builder.stream import Stream

CROSSED = 4  # exit code


@action("driftline report runs --out report", "Evaluate", completes={"settings": None})
def report(
    results: Evaluated, out: Place, *, run: Place | None = None, stream: StreamPlaces = (), title: str = "",
    figures: Place | None = None, networks: Names = (), settings: Settings = (), format: Names = (), plugin: Names = (),
) -> Shown[Path]:  # fmt: skip
    """Write an HTML report of evaluation results.

    An overview, a page for each protocol and stream, and the scores as CSV, LaTeX and JSON. Networks: interpolation is
    accuracy between the weights before and after the last step, projection weights on a plane, svcca similarity of
    each block's output to the oracle's, adjacent validation accuracy over the regulariser. All but adjacent need
    --stream.

    results RUNS…: Result folders of driftline eval.
    out DIR: Folder for the pages and the scores (CSV, LaTeX, JSON).
    run DIR: The run that built the benchmark: adds its images, counts and settings.
    title TEXT: Title of the pages.
    figures DIR: Write the charts for paper: SVG, PDF and PNG, 6.8 in wide.
    networks NAME: Plots for --figures of networks that an evaluation by seq-to-final stored: interpolation, projection,
        svcca, adjacent.
    settings KEY=VALUE: Of networks: count=1000 (test images at most); norm=interpolate, or initial as in the
        paper's code (batch normalisation of interpolation). Repeatable.
    format NAME: Scores beside the pages: csv, latex (default: both).
    """
    from driftline.eval.reporting.exports import checked_formats
    from driftline.eval.reporting.pages import charts_of, save_figures
    from driftline.eval.reporting.report import TITLE, answer_of, results_of, write
    from driftline.eval.reporting.report import report as written

    folder = guarded_out(path_of(out), "report")
    drawn = None if figures is None else guarded_out(path_of(figures), option="--figures")
    if drawn is None and (networks or settings):
        raise BadConfig("--networks or --set was given without --figures.", "Expected a folder for the plots.")
    chosen = checked_formats(several(format))
    admit(several(plugin))
    streams = streams_of(stream)
    sources: Any = [results] if isinstance(results, Mapping | str | Path) else results
    if any(isinstance(source, Mapping) for source in sources):  # what `evaluate` returned
        page = written(sources, folder, title or TITLE, streams, drawn, chosen)
        return Shown(page, f"report: {page}")
    paths = list(map(Path, sources))
    documents = results_of(paths, streams)
    if run is None:
        page = write(documents, folder, streams=streams, title=title or TITLE, formats=chosen)
    elif len(streams) != 1 or len(paths) != 1:
        problem = f"--run was given with {len(streams)} --stream and {len(paths)} RUNS folders."
        raise BadConfig(problem, "Expected one of each.")
    else:
        from driftline.curate.release import Release
        from driftline.pipelines.reporting.run_report import journey_report

        context, release = context_of_last(path_of(run), None, True), Release.open(path_of(run))
        page = journey_report(context, release, streams[0], documents, folder, title=title, formats=chosen)
    saved: list[Path] = []
    if drawn is not None:
        saved = _plots(several(networks), paths, streams, drawn, changes_of(settings))
        charts = list(charts_of(documents, streams))
        saved += save_figures(charts, drawn) if charts or not saved else []
    answer = answer_of(documents)
    document = {"out": str(folder), "report": str(page), "answer": answer}
    document |= {"figures": list(map(str, saved))} if saved else {}
    lines = [answer["headline"], answer["sentences"][0]] if answer else []
    lines += [NO_UPLOADERS] if any(d.get("uploaders") == "not known" for d in documents) else []
    text = "\n".join([*lines, f"report: {page}", *(f"figure: {path}" for path in saved)])
    return Shown(page, text, document)


def _plots(
    names: Sequence[str], runs: Sequence[Path], streams: Sequence[Stream], out: Path, sets: Sequence[str]
) -> list[Path]:
    """Plots of what the networks of Seq-to-Final learned."""
    from driftline.eval.plotting.finetuning import DrawSettings, draw
    from driftline.eval.settings import check_settings
    from driftline.pipelines.config.loader import setting_of

    settings = DrawSettings(**check_settings(DrawSettings, dict(map(setting_of, sets)), "report"))
    first, say = next(iter(streams), None), log_of().say
    return [path for name in names for path in draw(name, runs[0], first, out, (), settings, say)]


@action("driftline reproduce seq-to-final --data data --only table-2 --quick\n  --out ours", "Evaluate")
def reproduce(
    paper: Literal["clear", "near-future", "seq-to-final", "ocrr"], *, data: Place, out: Place, only: Names = (),
    quick: bool = False, plan: bool = False, seeds: str | None = None, device: Device = "auto",
    workers: int | str = "auto",
) -> Shown[Answer]:  # fmt: skip
    """Repeat a paper's tables and figures.

    The page has the paper's value, ours, and whether they agree. A stopped run continues; finished runs are not
    repeated.

    paper PAPER: The paper.
    data DIR: Folder with the datasets; --plan names its files.
    out DIR: Folder for page, table, figures, streams and results.
    only ITEM,…: Tables and figures, as in table-2,figure-16.
    quick: A reduced version, at most ten minutes on two cores.
    plan: Only list the items, their data and their cost.
    seeds N-N: As in 0-4 (default: as many as the paper has).
    device: For learners with a network.
    """
    from driftline.eval.settings import seeds_of
    from driftline.eval.training.sgd_learner import place
    from driftline.pipelines.reproduce.items import written
    from driftline.pipelines.reproduce.run import Work, chosen, paper_named
    from driftline.pipelines.reproduce.run import plan as planned

    listed = paper_named(paper)
    items = chosen(listed, several(only))
    if plan:
        document = planned(listed, items, path_of(data))
        return Shown(document, "\n\n".join(map(_text, document["items"])))
    numbers = seeds_of(seeds) if seeds else ()
    folder = guarded_out(path_of(out), "reproduction")
    run_log = log_of(folder / "log.jsonl")
    work = Work(listed, path_of(data), folder, quick, place(device), executor_of("local", workers), run_log, numbers)
    document = work.items(items)
    paths = written(document, folder)
    counts: dict[str, int] = {}
    for row in document["rows"]:
        counts[row["agreement"]] = counts.get(row["agreement"], 0) + 1
    lines = [", ".join(f"{n} {agreement}" for agreement, n in counts.items()), *map(str, paths)]
    return Shown(document, "\n".join(filter(None, lines)))


def _text(item: dict[str, object]) -> str:
    """An item of a plan."""
    needs: list[dict[str, object]] = item["needs"]  # type: ignore[assignment]
    lines = [f"{item['item']}: {item['title']}", f"  cost: {item['cost']}; evaluations: {item['evaluations']}"]
    for need in needs:
        state = "there" if need["there"] else f"missing, from {need['from']}"
        lines.append(f"  needs {need['path']}: {need['what']} ({state})")
    return "\n".join([*lines, *([f"  {item['because']}"] if item["because"] else [])])


@action("driftline age log.parquet --versions versions.csv --out page", "Evaluate")
def age(
    log: Tables, *, out: Place | None = None, versions: Table = None, labels: Tables = (),
    columns: Columns | None = None, period: int | str = "auto", until: int | str | None = None,
    cost_error: float | None = None, cost_retrain: float | None = None, alarm: str | None = None,
) -> Shown[Ages]:  # fmt: skip
    """Show how fast the accuracy of a model in service falls, from its log.

    One row a prediction: time, id, version, prediction; score, label, label_time and group if there are. The last
    row of an id and version counts. Labels may be late or missing for most. In Python, tables may also be
    data frames; the answer has json() and page(OUT).

    log LOG…: Predictions: Parquet, CSV, JSON lines.
    out PAGE: Page with age.json beside it: a folder, or a file that ends with .html.
    versions FILE: Columns version and trained_to.
    labels FILE: Labels that came late: columns id, label, label_time. Repeatable.
    columns YAML: Columns with other names, as in '{time: ts, prediction: answer}'.
    period UNIT: month, week, day, year, N parts; auto: chosen by length and labels.
    until DATE: Use only what was there on this day: predictions and labels.
    cost_error X: Cost of one wrong answer, for the advice.
    cost_retrain Y: Cost of training a version, in the same currency.
    alarm LIMIT: Exit with 4 if the 95 % interval lies beyond it: accuracy, forecast, slope, half_life_days, as in
        'accuracy<0.8'.
    """
    from driftline.eval.reporting.logs import Ages, limit_of, write

    place = None if out is None else guarded_out(path_of(out), "age", ("", ".html"))
    if alarm is not None:
        limit_of(alarm)
    aged = Ages.of(
        log, versions=versions, labels=labels, period=period, until=until, cost_error=cost_error,
        columns=columns if isinstance(columns, Mapping) else columns_of(columns), cost_retrain=cost_retrain,
    )  # fmt: skip
    result = aged.json(alarm)
    text = [f"{result['answer']['headline']}.", *result["answer"]["sentences"], *aged.notes]
    if place is not None:
        page = write(aged, place, alarm)
        result |= {"out": str(place), "page": str(page)}
        text.append(f"page: {page}")
    crossed = alarm is not None and result["alarm"]["crossed"]
    if alarm is not None:
        text.append(f"Alarm: {alarm} is {'' if crossed else 'not '}crossed. {result['alarm']['because']}")
    return Shown(aged, "\n".join(text), result, typer.Exit(CROSSED) if crossed else None)
