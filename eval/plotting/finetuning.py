"""Figures that explain Seq-to-Final's methods, drawn from the store of a finished evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.eval import rows as row_files
from driftline.eval.finetuning import analysis, trained_networks
from driftline.eval.finetuning.samples import Samples, samples
from driftline.eval.finetuning.trained_networks import Trained, between
from driftline.eval.plotting import files
from driftline.eval.plotting.cells import cells
from driftline.eval.plotting.charts import Picture, lines, short
from driftline.eval.plotting.planes import paths
from driftline.stream_builder.stream import Stream

SHARES = (0.5, 0.9)  # shares of the sum of singular values [paper, appendix G.3]
LINEAR = 0.001  # pulls below it are on a linear axis


@dataclass(frozen=True)
class DrawSettings:
    """Settings of a figure."""

    norm: Literal["interpolate", "recalibrate", "initial"] = "interpolate"
    """batch normalisation of interpolation (see `analysis.path`); initial: as in the paper's code"""
    count: Annotated[int, Field(ge=2)] = 1000
    """test images for accuracies and activations, at most"""


def draw(
    kind: str, runs: Path, stream: Stream | None, out: Path, learners: Sequence[str] = (),
    settings: DrawSettings | None = None, report: Callable[[str], None] = lambda text: None,
) -> list[Path]:  # fmt: skip
    """Write a figure of `files.OF_NETWORKS` into the folder `out` as SVG, PDF and PNG; returns the paths.

    stream: that of the evaluation; only `adjacent` needs none. learners: names; default: all that have networks.
    Raises BadConfig for another figure or without a stream, IncompatibleStream if runs that the figure needs are
    missing.
    """
    if kind not in files.OF_NETWORKS:
        raise BadConfig(f"The plot of networks is {kind!r}.", f"Expected one of {', '.join(files.OF_NETWORKS)}.")
    if kind == "adjacent":
        picture = adjacent(runs)
    else:
        if stream is None:
            raise BadConfig(f"{kind} was given without --stream.", "Expected the stream of the evaluation.")
        settings = settings or DrawSettings()
        trained = networks(runs, stream, learners, report)
        last = stream.steps[-1]["test"]
        test = samples(last.part(0, min(settings.count, len(last))))
        draws = {"interpolation": lambda: interpolation(trained, test, settings.norm),
                 "projection": lambda: projection(trained), "svcca": lambda: svcca(trained, test)}  # fmt: skip
        picture = draws[kind]()
    return files.save_widths(picture, out, kind)


def networks(
    runs: Path, stream: Stream, learners: Sequence[str], report: Callable[[str], None] = lambda text: None
) -> list[Trained]:
    """The networks of every learner's first seed. report: gets a message for each learner that has none, unless
    `learners` names it."""
    by_name: dict[str, Trained] = {}
    for run in row_files.find([runs]):
        name = run.about["learner"]
        if name in by_name or (learners and name not in learners):
            continue
        try:
            by_name[name] = trained_networks.trained(run, runs, stream)
        except DriftlineError as error:
            if learners:
                raise
            report(f"{name} is left out: {error}")
    if missing := [name for name in learners if name not in by_name]:
        raise IncompatibleStream(f"There is no run of {missing[0]!r} in {runs}.", "", "Evaluate it first.")
    if not by_name:
        raise IncompatibleStream(f"No run in {runs} has networks.", "", "Evaluate with --protocol seq-to-final.")
    return list(by_name.values())


def interpolation(trained: Sequence[Trained], test: Samples, norm: str) -> Picture:
    """Accuracy on the way from the weights before the last step to those after it."""
    series = {}
    for method in trained:
        try:
            shares, accuracies = analysis.path(method, test, norm=norm)
        except IncompatibleStream:  # low-rank adapters have no path of weights
            continue
        series[method.learner] = (list(map(float, shares)), list(map(float, accuracies)))
    return lines(series, "share of the way through the last step", y_name="accuracy on the last step")


def projection(trained: Sequence[Trained]) -> Picture:
    """Weights on a plane, seen from the oracle: before the last step, half way and after it."""
    oracle, limited = (analysis.of_learner(trained, name).after for name in ("oracle", "baseline"))
    tuned = [method for method in trained if method.learner in ("ft", "lp-ft")]
    by_history = next((method.before for method in tuned if method.before), None)
    if by_history is None:
        raise IncompatibleStream(
            "There is no run of ft, whose first stage gives the direction of history.", "", "Evaluate ft."
        )
    places = {}
    for method in trained:
        try:
            path = [between(method, share) for share in (0.0, 0.5, 1.0)]
            if any(len(net.used[name][-1]) > 1 for net in path for name in net.names):
                continue
            at = np.array([analysis.projection(net, oracle, by_history, limited) for net in path], np.float64)
        except IncompatibleStream:
            continue
        places[method.learner] = (at[:, 0].tolist(), at[:, 1].tolist())
    about = "Weights, seen from the oracle: before (white) and after the last step"
    return paths(places, "towards ERM on history", "towards the baseline", about)


def svcca(trained: Sequence[Trained], test: Samples) -> Picture:
    """Similarity of each block's output to the oracle's: a row for each method, a group of columns for each share of
    the singular values."""
    oracle = analysis.of_learner(trained, "oracle")
    others = [method for method in trained if method.learner != "oracle"]
    reference = analysis.activations(oracle.after, test.x, oracle.rule)
    names = oracle.after.names
    outputs = {method.learner: analysis.activations(method.after, test.x, method.rule) for method in others}
    rows: list[Any] = [
        [learner, name, share, short(float(analysis.svcca(reference[name], output[name], share)))]
        for share in SHARES for learner, output in outputs.items() for name in names
    ]  # fmt: skip
    label = "Similarity to the oracle: " + "; ".join(f"{n}, {b}, {s:.0%}: {v:.2f}" for n, b, s, v in rows)
    tables = {
        f"{share:.0%} of singular values": {
            learner: [v for n, _, s, v in rows if (n, s) == (learner, share)] for learner in outputs
        }
        for share in SHARES
    }
    draw = partial(cells, tables, names, (0.0, 1.0), 2, label=label)
    return Picture(draw, ["learner", "block", "share", "similarity"], rows)


def adjacent(runs: Path) -> Picture:
    """Validation accuracy of joint models over the pull between adjacent times: the best of each strength."""
    points = analysis.adjacents(runs)
    series = {}
    for name in sorted({net for _, _, net in points}):
        strengths = sorted({float(s) for s, _, net in points if net == name})
        best = [max(float(a) for s, a, net in points if net == name and s == strength) for strength in strengths]
        series[name] = (strengths, best)
    y_name = "validation accuracy on the last step"
    return lines(series, "pull between adjacent times", log=LINEAR, dots=True, y_name=y_name)
