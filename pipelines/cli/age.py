"""`driftline age`: the log of a model in service → how fast its accuracy falls, and staleness."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from driftline.pipelines.cli.common import command, option, show
from driftline.pipelines.cli.makers import columns_of
from driftline.pipelines.cli.out import guarded_out

age_app = typer.Typer()
CROSSED = 4  # exit code
Out = Annotated[
    Path | None, option("--out", "PAGE", "Page with age.json beside it: a folder, or a file that ends with .html.")
]
Versions = Annotated[
    Path | None,
    option("--versions", "FILE", "Columns version and trained_to; deployed_from, deployed_to, accuracy if known."),
]
Labels = Annotated[
    list[Path] | None,
    option("--labels", "FILE", "Labels that came late: columns id, label, label_time. Repeatable."),
]
Alarm = Annotated[
    str | None,
    option(
        "--alarm",
        "LIMIT",
        "Exit with 4 if the 95 % interval lies beyond it: accuracy, forecast, slope, half_life_days, as in "
        "'accuracy<0.8'.",
    ),
]
Runs = Annotated[Path | None, option("--runs", "DIR", "Write each version as a run, which compare and report read.")]


@command(age_app, "age", "driftline age log.parquet --versions versions.csv --out page", panel="Evaluate")
def age(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG…", help="Predictions: Parquet, CSV, JSON lines.")],
    out: Out = None,
    versions: Versions = None,
    labels: Labels = None,
    columns: Annotated[
        str | None, option("--columns", "YAML", "Columns with other names, as in '{time: ts, prediction: answer}'.")
    ] = None,
    period: Annotated[
        str, option("--period", "UNIT", "month, week, day, year, N parts; auto: chosen by length and labels.")
    ] = "auto",
    until: Annotated[
        str | None, option("--until", "DATE", "Use only what was there on this day: predictions and labels.")
    ] = None,
    cost_error: Annotated[
        float | None, option("--cost-error", "X", "Cost of one wrong answer, for the advice.", min=0)
    ] = None,
    cost_retrain: Annotated[
        float | None, option("--cost-retrain", "Y", "Cost of training a version, in the same currency.", min=0)
    ] = None,
    alarm: Alarm = None,
    runs: Runs = None,
) -> None:
    """Say how fast accuracy of a model in service falls, from its log.

    One row a prediction: time, id, version, prediction; score, label, label_time and group if there are. Of rows with
    one id and version the last counts. Labels may be late or missing for most.
    """
    from driftline.eval.logs.age import aged as aged_of
    from driftline.eval.reporting.logs.document import document, limit_of
    from driftline.eval.reporting.logs.page import write
    from driftline.eval.reporting.logs.runs import write_runs

    if out is not None:
        guarded_out(out, "age", ("", ".html"))
    if runs is not None:
        guarded_out(runs, "rows", option="--runs")
    if alarm is not None:
        limit_of(alarm)
    aged = aged_of(
        logs, versions=versions, labels=labels or (), columns=columns_of(columns), period=period,
        until=until, cost_error=cost_error, cost_retrain=cost_retrain,
    )  # fmt: skip
    result = document(aged, alarm)
    text = [f"{result['answer']['headline']}.", *result["answer"]["sentences"], *aged.notes]
    if out is not None:
        page = write(aged, out, alarm)
        result |= {"out": str(out), "page": str(page)}
        text.append(f"page: {page}")
    if runs is not None:
        folders = [str(folder) for folder in write_runs(aged, runs)]
        result["runs"] = folders
        text.append(f"runs: {', '.join(folders)}")
    crossed = alarm is not None and result["alarm"]["crossed"]
    if alarm is not None:
        text.append(f"Alarm: {alarm} is {'' if crossed else 'not '}crossed. {result['alarm']['because']}")
    show(result, "\n".join(text))
    if crossed:
        raise typer.Exit(CROSSED)
