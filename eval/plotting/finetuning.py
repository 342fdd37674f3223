"""Figures that explain Seq-to-Final's methods, drawn from the store of a finished evaluation."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream
from driftline.eval import rows as row_files
from driftline.eval.finetuning.objectives import Samples, samples
from driftline.eval.nets.chain import Net
from driftline.eval.plotting.charts import Picture, lines, paths, save_kinds
from driftline.eval.protocols.seq_to_final import analysis
from driftline.eval.protocols.seq_to_final.analysis import WHOLE, Trained
from driftline.stream_builder.stream import Stream

OF_NETWORKS = ("interpolation", "projection", "svcca", "adjacent")
SHARES = (0.5, 0.9)  # shares of the sum of singular values [paper, figure 17]
LINEAR = 0.001  # pulls below it are on a linear axis


@dataclass(frozen=True)
class DrawSettings:
    """Settings of a figure."""

    norm: Literal["interpolate", "initial"] = "interpolate"
    """batch normalisation of interpolation (see `analysis.path`); initial: as in the paper's code"""
    count: Annotated[int, Field(ge=2)] = 1000
    """test images for accuracies and activations, at most"""


def draw(
    kind: str, runs: Path, stream: Stream | None, out: Path, learners: Sequence[str] = (),
    settings: DrawSettings | None = None, report: Callable[[str], None] = lambda text: None,
) -> list[Path]:  # fmt: skip
    """Write a figure of `OF_NETWORKS` into the folder `out` as SVG, PDF and PNG, for projection and svcca also
    one of each block; returns the paths.

    stream: that of the evaluation; only `adjacent` needs none. learners: names; default: all that have networks.
    Raises BadConfig for another figure or without a stream, IncompatibleStream if runs that the figure needs are
    missing.
    """
    if kind not in OF_NETWORKS:
        raise BadConfig(f"The plot of networks is {kind!r}.", f"Expected one of {', '.join(OF_NETWORKS)}.")
    if kind == "adjacent":
        pictures = {"": adjacent(runs)}
    else:
        if stream is None:
            raise BadConfig(f"{kind} was given without --stream.", "Expected the stream of the evaluation.")
        settings = settings or DrawSettings()
        trained = networks(runs, stream, learners, report)
        last = stream.steps[-1]["test"]
        test = samples(last.part(0, min(settings.count, len(last))))
        draws = {"interpolation": lambda: {"": interpolation(trained, test, settings.norm)},
                 "projection": lambda: projection(trained), "svcca": lambda: svcca(trained, test)}  # fmt: skip
        pictures = draws[kind]()
    return [path for part, picture in pictures.items() for path in save_kinds(picture, out, f"{kind}{part}")]


def networks(
    runs: Path, stream: Stream, learners: Sequence[str], report: Callable[[str], None] = lambda text: None
) -> list[Trained]:
    """The networks of every learner's first seed. report: gets a message for each learner that has none, unless
    `learners` names it."""
    by_name: dict[str, Trained] = {}
    found = row_files.find([runs])
    of_stream = [run for run in found if run.about["stream"]["sha256"] == stream.sha256]
    for run in of_stream or found:
        name = run.about["learner"]
        if name in by_name or (learners and name not in learners):
            continue
        try:
            by_name[name] = analysis.trained(run, runs, stream)
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


def projection(trained: Sequence[Trained]) -> dict[str, Picture]:
    """Weights after each step on a plane, seen from the oracle: the whole network, and each block [paper, figure 16].
    Methods with side modules have other weights and are left out."""
    oracle, limited = (analysis.of_learner(trained, name).after for name in ("oracle", "baseline"))
    tuned = [method for method in trained if method.learner in ("ft", "lp-ft")]
    by_history = next((method.before for method in tuned if method.before), None)
    if by_history is None:
        problem = "There is no run of ft, whose first stage gives the direction of history."
        raise IncompatibleStream(problem, "", "Evaluate ft.")
    places: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for method in trained:
        with suppress(IncompatibleStream):
            places[method.learner] = analysis.projections(method.models, oracle, by_history, limited)
    about = "Weights, seen from the oracle: after the first (white) to the last step"
    return _planes(places, oracle.names, "towards ERM on history", "towards the baseline", about)


def svcca(trained: Sequence[Trained], test: Samples) -> dict[str, Picture]:
    """Similarity of outputs to the oracle's after each step: of all blocks together, and of each [paper, figure 17]."""
    oracle = analysis.of_learner(trained, "oracle")
    reference = _directions(oracle, *oracle.models[-1], test)
    places = {}
    for method in trained:
        if method is not oracle:
            of_models = [_directions(method, net, time, test) for net, time in method.models]
            places[method.learner] = {
                name: [tuple(analysis.svcca(reference[name], of[name], share) for share in SHARES) for of in of_models]
                for name in reference
            }
    x_name, y_name = (f"similarity of {share:.0%} of the outputs' singular values" for share in SHARES)
    about = "Outputs, beside the oracle's: after the first (white) to the last step"
    return _planes(places, oracle.after.names, x_name, y_name, about)


def _directions(method: Trained, net: Net, time: int, test: Samples) -> dict[str, analysis.Directions]:
    outputs = analysis.activations(net, test.x, method.rule, time)
    return {name: analysis.directions(output) for name, output in outputs.items()}


def _planes(
    places: Mapping[str, Mapping[str, Sequence[Any]]], names: Sequence[str], x_name: str, y_name: str, about: str
) -> dict[str, Picture]:
    """Ending of a file's name → picture. places: learner → block, or WHOLE → (x, y) after each step."""
    pictures = {}
    for name in (WHOLE, *names):
        series = {learner: tuple(zip(*of[name], strict=True)) for learner, of in places.items()}
        whole = name == WHOLE
        title = f"{about}; {'the whole network' if whole else f'block {name}'}"
        pictures["" if whole else f"-{name}"] = paths(series, x_name, y_name, title)  # type: ignore[arg-type]
    return pictures


def adjacent(runs: Path) -> Picture:
    """Validation accuracy of joint models over the regularisation between adjacent times: the best of each strength."""
    points = analysis.adjacents(runs)
    series = {}
    for name in sorted({net for _, _, net in points}):
        strengths = sorted({float(s) for s, _, net in points if net == name})
        best = [max(float(a) for s, a, net in points if net == name and s == strength) for strength in strengths]
        series[name] = (strengths, best)
    y_name = "validation accuracy on the last step"
    return lines(series, "regularisation between adjacent times", log=LINEAR, dots=True, y_name=y_name)
