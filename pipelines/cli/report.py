"""`driftline report`: rows → pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import (
    Plugins,
    Runs,
    Streams,
    admit,
    command,
    context_of_last,
    log_of,
    option,
    show,
)
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.commands.release import NO_UPLOADERS
from driftline.pipelines.kinds import several

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

report_app = typer.Typer()


@command(report_app, "report", "driftline report runs --out report", panel="Evaluate")
def report(
    paths: Runs,
    out: Annotated[Path, option("--out", "DIR", "Folder for the pages and the scores (CSV, Parquet, LaTeX, JSON).")],
    run_folder: Annotated[
        Path | None, option("--run", "DIR", "The run that built the benchmark: adds its images, counts and settings.")
    ] = None,
    stream: Streams = None,
    title: Annotated[str, option("--title", None, "Title of the pages.")] = "",
    figures: Annotated[
        Path | None, option("--figures", "DIR", "Write the charts for paper: SVG, PDF and PNG, column and text width.")
    ] = None,
    networks: Annotated[
        list[str] | None,
        option(
            "--networks",
            "NAME",
            "Plots for --figures of networks that an evaluation by seq-to-final stored: interpolation, projection, "
            "svcca, adjacent.",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        option(
            "--set",
            "KEY=VALUE",
            "Of networks: count=1000 (test images at most); norm=interpolate, recalibrate, or initial as in the "
            "paper's code (batch normalisation of interpolation). Repeatable.",
        ),
    ] = None,
    formats: Annotated[
        list[str] | None, option("--format", "NAME", "Scores beside the pages: csv, latex (default: both).")
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Write a site with tables and figures from rows.

    An overview, a page for each protocol and stream, and the scores as CSV, LaTeX and JSON. Networks: interpolation is
    accuracy between the weights before and after the last step, projection weights on a plane, svcca similarity of
    each block's output to the oracle's, adjacent validation accuracy over the regulariser. All but adjacent need
    --stream.
    """
    from driftline.eval.reporting.files.exports import checked_formats
    from driftline.eval.reporting.files.figures import charts_of, save_figures
    from driftline.eval.reporting.report import TITLE, answer_of, results_of, write
    from driftline.stream_builder.stream import Stream

    guarded_out(out, "report")
    if figures is not None:
        guarded_out(figures, option="--figures")
    elif networks or sets:
        raise BadConfig("--networks or --set was given without --figures.", "Expected a folder for the plots.")
    chosen = checked_formats(several(formats))
    admit(plugins)
    streams = [Stream.load(place) for place in stream or ()]
    documents = results_of(paths, streams)
    if run_folder is None:
        page = write(documents, out, streams=streams, title=title or TITLE, formats=chosen)
    elif len(streams) != 1 or len(paths) != 1:
        raise BadConfig(
            f"--run was given with {len(streams)} --stream and {len(paths)} RUNS folders.", "Expected one of each."
        )
    else:
        from driftline.curate.release import Release
        from driftline.pipelines.reporting.run_report import journey_report

        context = context_of_last(run_folder, None, True)
        page = journey_report(context, Release.open(run_folder), streams[0], paths[0], out, title=title, formats=chosen)
    saved: list[Path] = []
    if figures is not None:
        saved = _plots(several(networks), paths, streams, figures, sets or ())
        charts = list(charts_of(documents, streams))
        saved += save_figures(charts, figures) if charts or not saved else []
    said = answer_of(documents)
    result = {"out": str(out), "report": str(page), "answer": said}
    result |= {"figures": list(map(str, saved))} if saved else {}
    lines = [said["headline"], said["sentences"][0]] if said else []
    lines += [NO_UPLOADERS] if any(d.get("uploaders") == "not known" for d in documents) else []
    show(result, "\n".join([*lines, f"report: {page}", *(f"figure: {path}" for path in saved)]))


def _plots(
    names: Sequence[str], runs: Sequence[Path], streams: Sequence[Stream], out: Path, sets: Sequence[str]
) -> list[Path]:
    """Plots of what the networks of Seq-to-Final learned."""
    from driftline.eval.experiment.settings import check_settings
    from driftline.eval.plotting.finetuning import DrawSettings, draw
    from driftline.pipelines.config.loader import setting_of

    settings = DrawSettings(**check_settings(DrawSettings, dict(map(setting_of, sets)), "report"))
    first, say = next(iter(streams), None), log_of().say
    return [path for name in names for path in draw(name, runs[0], first, out, (), settings, say)]
