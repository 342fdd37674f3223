"""`driftline figure …`: the charts of a report as files, and plots of what Seq-to-Final's methods learned, from the
networks that an evaluation stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from driftline.pipelines.cli.common import Json, command, log_of, show
from driftline.pipelines.cli.listing import named

figure_app = typer.Typer(
    no_args_is_help=True, help="Save a report's charts; plot what networks learned.", rich_markup_mode=None
)
Stream = Annotated[Path, typer.Argument(metavar="S", help="The stream of the evaluation.")]
Runs = Annotated[Path, typer.Argument(metavar="RUNS", help="The --out folder of driftline eval.")]
Out = Annotated[Path, typer.Option("--out", help="A .svg, .pdf or .png file.")]
Learners = Annotated[str, named("--learners", "learners", "Separated by commas; default: all with stored networks")]
Count = Annotated[int, typer.Option("--count", min=2, help="Maximum number of test images.")]


@command(figure_app, "save", "driftline figure save RUNS cost-against-accuracy --out figures")
def save(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A folder with rows of driftline eval.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Title of a chart, as in retention; default: all")] = "",
    stream: Annotated[
        list[Path] | None,
        typer.Option("--stream", help="An evaluated stream: adds names and dates; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the charts of a report as SVG, PDF and PNG."""
    from driftline.eval.reporting.files.figures import save_figures
    from driftline.eval.reporting.report import results_of
    from driftline.stream_builder.stream import Stream

    streams = [Stream.load(path) for path in stream or ()]
    written = save_figures(results_of([runs], streams), out, name, streams)
    text = "\n".join(f"figure: {path}" for path in written)
    show(as_json, {"figures": [str(path) for path in written], "out": str(out)}, text)


@command(figure_app, "interpolation", "driftline figure interpolation S RUNS --out path.svg")
def interpolation(
    path: Stream,
    runs: Runs,
    out: Out,
    learners: Learners = "",
    norm: Annotated[
        Literal["interpolate", "recalibrate", "initial"],
        typer.Option("--norm", help="Batch normalisation on the path; initial: as in the paper's code."),
    ] = "interpolate",
    count: Count = 1000,
    as_json: Json = False,
) -> None:
    """Accuracy between the weights before and after the last step."""
    _draw("interpolation", path, runs, out, as_json, learners, norm=norm, count=count)


@command(figure_app, "projection", "driftline figure projection S RUNS --out weights.svg")
def projection(path: Stream, runs: Runs, out: Out, learners: Learners = "", as_json: Json = False) -> None:
    """Weights on a plane: oracle, history, the last step's samples."""
    _draw("projection", path, runs, out, as_json, learners)


@command(figure_app, "svcca", "driftline figure svcca S RUNS --out svcca.svg")
def svcca(
    path: Stream, runs: Runs, out: Out, learners: Learners = "", count: Count = 1000, as_json: Json = False
) -> None:
    """Similarity of each block's output to the oracle's (SVCCA)."""
    _draw("svcca", path, runs, out, as_json, learners, count=count)


@command(figure_app, "adjacent", "driftline figure adjacent S RUNS --out adjacent.svg")
def adjacent(path: Stream, runs: Runs, out: Out, as_json: Json = False) -> None:
    """Validation accuracy of joint models over their regulariser."""
    _draw("adjacent", path, runs, out, as_json)


def _draw(
    kind: str,
    path: Path,
    runs: Path,
    out: Path,
    as_json: bool,
    learners: str = "",
    norm: str = "interpolate",
    count: int = 1000,
) -> None:
    from driftline.eval.experiment.learner_sets import split
    from driftline.eval.plotting.finetuning import draw
    from driftline.stream_builder.stream import Stream

    stream = Stream.load(path)
    written = draw(kind, runs, stream, out, split(learners), norm, count=count, report=log_of(None, as_json).say)
    show(as_json, {"figure": str(written)}, f"figure: {written}")
