"""`driftline figure …`: pictures of what Seq-to-Final's methods learned, from the networks that an evaluation kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from curate.core.errors import BadConfig
from pipelines.cli.common import command

figure_app = typer.Typer(no_args_is_help=True, help="Draw what networks learned.", rich_markup_mode=None)
Place = Annotated[Path, typer.Argument(metavar="S", help="The stream that was evaluated.")]
Runs = Annotated[Path, typer.Argument(metavar="RUNS", help="The folder that driftline eval wrote to.")]
Out = Annotated[Path, typer.Option("--out", help="A .png or .svg file.")]
Learners = Annotated[str, typer.Option("--learners", help="Names with commas (default: all that have networks).")]
Count = Annotated[int, typer.Option("--count", min=2, help="Test images at most.")]


@command(figure_app, "interpolation", "driftline figure interpolation S RUNS --out path.svg")
def interpolation(
    path: Place,
    runs: Runs,
    out: Out,
    learners: Learners = "",
    norm: Annotated[
        str,
        typer.Option("--norm", help="Batch normalisation: interpolate, recalibrate, or initial as the paper's code."),
    ] = "interpolate",
    count: Count = 1000,
) -> None:
    """Accuracy on the way from the weights before the last step to those after it."""
    if norm not in ("interpolate", "recalibrate", "initial"):
        raise BadConfig(f"--norm is {norm!r}.", "Expected interpolate, recalibrate or initial.")
    _draw("interpolation", path, runs, out, learners, norm, count)


@command(figure_app, "projection", "driftline figure projection S RUNS --out weights.svg")
def projection(path: Place, runs: Runs, out: Out, learners: Learners = "") -> None:
    """Weights, seen from the oracle's, towards history and towards the last step's few samples."""
    _draw("projection", path, runs, out, learners)


@command(figure_app, "svcca", "driftline figure svcca S RUNS --out svcca.svg")
def svcca(path: Place, runs: Runs, out: Out, learners: Learners = "", count: Count = 1000) -> None:
    """How alike each block's output is to the oracle's."""
    _draw("svcca", path, runs, out, learners, count=count)


@command(figure_app, "adjacent", "driftline figure adjacent S RUNS --out adjacent.svg")
def adjacent(path: Place, runs: Runs, out: Out) -> None:
    """Validation accuracy of joint models over the pull between adjacent times."""
    _draw("adjacent", path, runs, out, "")


def _draw(
    kind: str, path: Path, runs: Path, out: Path, learners: str, norm: str = "interpolate", count: int = 1000
) -> None:
    from eval.experiment.learner_sets import split
    from eval.plotting.finetuning import draw
    from stream_builder.stream import Stream

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    chosen = split(learners) if learners else []
    print(f"figure: {draw(kind, runs, Stream.load(path), out, chosen, norm, count, tell)}")
