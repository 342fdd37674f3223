"""`driftline figure save`: the charts of a report, and plots of what Seq-to-Final's methods learned, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, MissingFile
from driftline.pipelines.cli.common import Json, Streams, command, group_app, log_of, option, several, show
from driftline.pipelines.cli.listing import named
from driftline.pipelines.cli.out import guarded_out

if TYPE_CHECKING:
    from driftline.eval.reporting.files.figures import Chart
    from driftline.stream_builder.stream import Stream

figure_app = group_app(
    "Save a report's charts; plot what networks learned.", "driftline figure save runs --out figures"
)  # fmt: skip


@command(figure_app, "save", "driftline figure save runs cost-against-accuracy --out figures")
def save(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="A folder with rows of driftline eval, or with an audit.")
    ],
    out: Annotated[Path, option("--out", "DIR", "Folder for the files.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…",
            help="Titles of charts, as in retention (default: all), or interpolation, projection, svcca, adjacent: "
            "drawn from the networks that an evaluation by seq-to-final stored.",
        ),
    ] = None,
    width: Annotated[str, option("--width", None, "column (3.3 in) or text (6.8 in); default: both.")] = "",
    title: Annotated[str, option("--title", None, "Title above each chart (default: none).")] = "",
    against: Annotated[
        Path | None, option("--against", "RUNS", "More rows: the charts of driftline compare with both.")
    ] = None,
    run_folder: Annotated[
        Path | None, option("--run", "DIR", "The run that built the benchmark: adds its photos over time.")
    ] = None,
    stream: Streams = None,
    learners: Annotated[
        list[str] | None, named("--learners", "learners", "Of networks; default: all with stored ones")
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
    as_json: Json = False,
) -> None:
    """Write charts for paper as SVG, PDF and PNG: of a page, or by name.

    Each chart has a file for a column and one for the whole width, with text of 7 to 8 pt, and its lines differ without
    colours, too. interpolation: accuracy between the weights before and after the last step. projection: weights on a
    plane: oracle, history, the last step's samples. svcca: similarity of each block's output to the oracle's. adjacent:
    validation accuracy of joint models over their regulariser. All but adjacent need --stream.
    """
    from driftline.eval.plotting.files import OF_NETWORKS, sheet_of
    from driftline.eval.reporting.files.figures import save_figures
    from driftline.stream_builder.stream import Stream

    guarded_out(out)
    chosen, widths = several(names), [width] if width else []
    for one in widths:
        sheet_of(one)
    titles, networks = ([name for name in chosen if (name in OF_NETWORKS) == drawn] for drawn in (False, True))
    if (sets or learners) and not networks:
        raise BadConfig("--set or --learners was given.", f"Expected one of {', '.join(OF_NETWORKS)} with it.")
    streams, written = [Stream.load(path) for path in stream or ()], []
    if titles or not chosen:
        written = save_figures(_charts(runs, against, run_folder, streams), out, titles, widths, title)
    if networks:
        from driftline.eval.experiment.learner_sets import split
        from driftline.eval.experiment.settings import check_settings
        from driftline.eval.plotting.finetuning import DrawSettings, draw
        from driftline.pipelines.config.loader import setting_of

        settings = DrawSettings(**check_settings(DrawSettings, dict(map(setting_of, sets or ())), "figure save"))
        shown, say = split(",".join(learners or ())), log_of(None, as_json).say
        for name in networks:
            written += draw(name, runs, next(iter(streams), None), out, shown, settings, say, widths, title)
    text = "\n".join(f"figure: {path}" for path in written)
    show(as_json, {"out": str(out), "figures": [str(path) for path in written]}, text)


def _charts(runs: Path, against: Path | None, run_folder: Path | None, streams: Sequence[Stream]) -> list[Chart]:
    """The charts of the pages of a report, a comparison or an audit, and of a run."""
    from driftline.eval.reporting.files.figures import charts_of, letters

    charts: list[Chart] = []
    if run_folder is not None:
        from driftline.pipelines.reporting.run_report import over_time
        from driftline.pipelines.run.state import folder_of

        bucketed = folder_of(run_folder, "bucket")
        if not (bucketed / "members.parquet").is_file():
            raise MissingFile(f"{run_folder} has no buckets.", "Expected a run until bucket.", "Check --run.")
        figure = over_time(bucketed)
        name = letters(figure.title.lower())
        charts.append((name, name, figure))
    if (findings := runs / "audit.json").is_file():
        from driftline.pipelines.reporting.audit_page import figures

        return charts + [(name, name, figure) for name, figure in figures(read_json(findings)).items()]
    if against is not None:
        from driftline.eval.reporting.two_runs import documents_of_both

        return charts + list(charts_of(documents_of_both([runs, against], streams)[0], streams))
    from driftline.eval.reporting.report import results_of

    return charts + list(charts_of(results_of([runs], streams), streams))
