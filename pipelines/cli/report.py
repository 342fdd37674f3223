"""`driftline report` and `compare`: rows → pages; two versions of a release, or two folders of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.pipelines.cli.common import (
    Plugins,
    Runs,
    Streams,
    admit,
    command,
    context_of_last,
    log_of,
    option,
    several,
    show,
)
from driftline.pipelines.cli.out import guarded_out

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

report_app = typer.Typer()
NO_UPLOADERS = "Uploaders are not known here: p and intervals count every sample alone. Give --stream."


@command(report_app, "compare", "driftline compare photos-v1 photos-v2", panel="Release")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A folder with rows of driftline eval, or a release.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Rows on the same streams, or another version.")],
    out: Annotated[Path | None, option("--out", "DIR", "Rows: folder for the page (default: comparison).")] = None,
    stream: Streams = None,
    title: Annotated[str, option("--title", None, "Rows: title of the pages.")] = "",
    plugins: Plugins = None,
) -> None:
    """Compare two versions of a release, or two sets of runs.

    Releases: says for each bucket which scores on A and B may be compared, and why not the others; exit code 1 if none
    may. Rows: says which learners score higher in B than in A, and which do not differ, on the seeds that both have,
    and which settings differ; writes a report of both.
    """
    from driftline.eval.reporting.two_runs import two_runs, what_differs
    from driftline.stream_builder.stream import Stream

    releases = [path for path in (first, second) if _is_release(path)]
    if len(releases) == 1:
        other = first if releases[0] == second else second
        raise BadConfig(f"{releases[0]} is a release, and {other} is none.", "Expected two releases, or two of rows.")
    if releases:
        if out is not None or stream or title or plugins:
            options_given = "--out, --stream, --title or --plugin was given for releases."
            raise BadConfig(options_given, "Expected them with rows only.")
        from driftline.curate.release import Release
        from driftline.curate.release.versions.comparison import compare_releases, comparison_text

        comparison = compare_releases(Release.open(first), Release.open(second))
        show(comparison, comparison_text(comparison))
        if not comparison["comparable"]:
            raise DriftlineError("No score on A may be compared with one on B.", "", "The reasons are above.")
        return
    out = guarded_out(out or Path("comparison"), "report")
    admit(plugins)
    page, differences = two_runs([first, second], out, [Stream.load(place) for place in stream or ()], title)
    text = [", ".join(filter(None, (f"  {e['learner']}: {_shares(e)}", what_differs(e)))) for e in differences]
    show(
        {"out": str(out), "report": str(page), "differences": differences},
        "\n".join(
            [
                *text,
                *([NO_UPLOADERS] if any(e["uploaders"] == "not known" for e in differences) else []),
                f"report: {page}",
            ]
        ),
    )


def _is_release(path: Path) -> bool:
    return (path / "release.json").is_file() or any(path.glob("stages/*_publish/release/release.json"))


def _shares(entry: dict[str, Any]) -> str:
    """A, B and the p of one learner."""
    from driftline.eval.reporting.text import p_text

    values = ["–" if entry[side] is None else f"{100 * entry[side]:.1f}" for side in ("a", "b")]
    return f"{entry['score']} {values[0]} → {values[1]}, {p_text(entry['p'])}"


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
