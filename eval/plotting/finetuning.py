"""Figures that explain Seq-to-Final's methods, drawn from the store of a finished evaluation."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.eval import rows as row_files
from driftline.eval.finetuning import analysis, trained_networks
from driftline.eval.finetuning.samples import Samples, samples
from driftline.eval.finetuning.trained_networks import Trained, between
from driftline.stream_builder.stream import Stream

KINDS = ("interpolation", "projection", "svcca", "adjacent")
SHARES = (0.5, 0.9)  # shares of the sum of singular values [paper, appendix G.3]
LEGEND = {"fontsize": 8, "frameon": False}


def draw(
    kind: str, runs: Path, stream: Stream, out: Path, learners: Sequence[str] = (), norm: str = "interpolate",
    count: int = 1000, report: Callable[[str], None] = lambda text: None,
) -> Path:  # fmt: skip
    """Write a PNG or SVG, by the suffix of `out`. learners: names; default: all that have networks. norm: of
    interpolation (see `analysis.path`). count: test images for accuracies and activations.

    Raises BadConfig for an unknown kind or suffix, IncompatibleStream if runs that the figure needs are missing.
    """
    if kind not in KINDS or out.suffix not in (".png", ".svg"):
        raise BadConfig(f"The figure is {kind!r} in {out.name!r}.", f"Expected {', '.join(KINDS)}, in .png or .svg.")
    if kind == "adjacent":
        _adjacent(runs, out)
        return out
    trained = networks(runs, stream, learners, report)
    last = stream.steps[-1]["test"]
    test = samples(last.part(0, min(count, len(last))))
    {"interpolation": _interpolation, "projection": _projection, "svcca": _svcca}[kind](trained, runs, test, out, norm)
    return out


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


@contextmanager
def _figure(out: Path, wide: float = 6.4, high: float = 3.8) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "driftline"  # reproducible bytes
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, high), layout="constrained")
    yield figure
    data = io.BytesIO()
    metadata = {"Date": None} if out.suffix == ".svg" else {"Software": None}
    figure.savefig(data, format=out.suffix[1:], dpi=110, metadata=metadata)
    write_bytes(out, data.getvalue())


def _interpolation(trained: Sequence[Trained], runs: Path, test: Samples, out: Path, norm: str) -> None:
    with _figure(out) as figure:
        axes = figure.subplots()
        for method in trained:
            try:
                shares, accuracies = analysis.path(method, test, norm=norm)
            except IncompatibleStream:  # low-rank adapters have no path of weights
                continue
            axes.plot(shares, accuracies, label=method.learner, linewidth=1.6)
        axes.set(xlabel="share of the way through the last step", ylabel="accuracy on the last step", ylim=(0, None))
        axes.grid(alpha=0.25)
        axes.legend(**LEGEND, loc="center left", bbox_to_anchor=(1, 0.5))


def _projection(trained: Sequence[Trained], runs: Path, test: Samples, out: Path, norm: str) -> None:
    oracle, limited = (analysis.of_learner(trained, name).after for name in ("oracle", "baseline"))
    tuned = [method for method in trained if method.learner in ("ft", "lp-ft")]
    by_history = next((method.before for method in tuned if method.before), None)
    if by_history is None:
        raise IncompatibleStream(
            "There is no run of ft, whose first stage gives the direction of history.", "", "Evaluate ft."
        )
    with _figure(out, 6.4, 4.6) as figure:
        axes = figure.subplots()
        for method in trained:
            try:
                path = [between(method, share) for share in (0.0, 0.5, 1.0)]
                if any(len(net.used[name][-1]) > 1 for net in path for name in net.names):
                    continue
                points = np.array([analysis.projection(net, oracle, by_history, limited) for net in path])
            except IncompatibleStream:
                continue
            (line,) = axes.plot(*points.T, linewidth=1.2, alpha=0.7)
            axes.plot(*points[0], "o", markerfacecolor="white", color=line.get_color())
            axes.plot(*points[-1], "o", color=line.get_color(), label=method.learner)
        axes.axhline(0, color="#888", linewidth=0.6)
        axes.axvline(0, color="#888", linewidth=0.6)
        axes.set(xlabel="towards ERM on history", ylabel="towards the baseline")
        axes.set(title="Weights, seen from the oracle: before (white) and after the last step")
        axes.title.set_fontsize(9)
        axes.legend(**LEGEND, loc="center left", bbox_to_anchor=(1, 0.5))


def _svcca(trained: Sequence[Trained], runs: Path, test: Samples, out: Path, norm: str) -> None:
    oracle = analysis.of_learner(trained, "oracle")
    others = [method for method in trained if method.learner != "oracle"]
    reference = analysis.activations(oracle.after, test.x, oracle.rule)
    names = oracle.after.names
    outputs = [analysis.activations(method.after, test.x, method.rule) for method in others]
    values = [[[analysis.svcca(reference[n], output[n], s) for n in names] for output in outputs] for s in SHARES]
    with _figure(out, 2.2 + 0.8 * len(names) * len(SHARES), 1.2 + 0.28 * len(others)) as figure:
        panels = figure.subplots(1, len(SHARES), sharey=True, squeeze=False)[0]
        for panel, share, block in zip(panels, SHARES, np.array(values), strict=True):
            panel.imshow(block, vmin=0, vmax=1, cmap="YlGnBu", aspect="auto")
            panel.set_xticks(range(len(names)), names)
            panel.set_yticks(range(len(others)), [method.learner for method in others])
            panel.set_title(f"{share:.0%} of singular values", fontsize=9)
            for i, j in np.ndindex(*block.shape):
                dark = "white" if block[i, j] > 0.6 else "black"
                panel.text(j, i, f"{block[i, j]:.2f}", ha="center", va="center", fontsize=7, color=dark)


def _adjacent(runs: Path, out: Path) -> None:
    points = analysis.adjacents(runs)
    with _figure(out) as figure:
        axes = figure.subplots()
        for name in sorted({net for _, _, net in points}):
            strengths = sorted({s for s, _, net in points if net == name})
            best = [max(a for s, a, net in points if net == name and s == strength) for strength in strengths]
            axes.plot(strengths, best, "o-", label=name, linewidth=1.6)
        axes.set_xscale("symlog", linthresh=0.001)
        axes.set(xlabel="pull between adjacent times", ylabel="validation accuracy, last step")
        axes.grid(alpha=0.25)
        axes.legend(**LEGEND)
