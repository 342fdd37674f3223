"""The numbers behind the figures: interpolation paths, projections, SVCCA, the pull between adjacent times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.finetuning.fit import Rule, accuracy_of
from driftline.eval.finetuning.samples import Samples, shown
from driftline.eval.finetuning.trained_networks import Trained, between, weights
from driftline.eval.nets.chain import Net

Matrix = npt.NDArray[np.float64]


def path(
    trained: Trained, test: Samples, points: int = 21, norm: str = "interpolate"
) -> tuple[list[float], list[float]]:
    """Shares of the path and accuracies on the last step's test [paper, figure 1]. norm: as in `between`, or
    "recalibrate": interpolated, then the statistics are estimated from the test images, without labels."""
    shares = np.linspace(0, 1, points).tolist()
    accuracies = []
    for share in shares:
        net = between(trained, share, "interpolate" if norm == "recalibrate" else norm)
        if norm == "recalibrate":
            recalibrate(net, test, trained.rule)
        accuracies.append(accuracy_of(net, test, trained.rule))
    return shares, accuracies


def recalibrate(net: Net, data: Samples, rule: Rule, batch: int = 500) -> None:
    """Set the statistics of batch normalisation from these images: the mean over batches."""
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    usual = [m.momentum for m in norms]
    for module in norms:
        module.reset_running_stats()
    net.still, net.dropout = False, 0.0
    with torch.no_grad():
        for k, low in enumerate(range(0, len(data), batch)):
            for module in norms:
                module.momentum = 1 / (k + 1)
            net.train()
            net(shown(data.x[low : low + batch], rule.normalise, False))
    for module, before in zip(norms, usual, strict=True):
        module.momentum = before


def projection(net: Net, oracle: Net, history: Net, limited: Net) -> tuple[float, float]:
    """Distance of the weights from the oracle's, towards those of history and those of the last step's few samples:
    ⟨w − w*, d⟩/‖d‖, d = w_H − w* and w_T − w* [paper, eq. 14 and 15; axes are not orthogonal]."""
    w, star, past, few = (
        np.concatenate([weights(each, n) for n in net.names]) for each in (net, oracle, history, limited)
    )
    if not w.shape == star.shape == past.shape == few.shape:
        raise IncompatibleStream(
            "The networks have different weights.", "Expected methods that produce a plain network."
        )
    along = []
    for direction in (past - star, few - star):
        length = np.linalg.norm(direction)
        along.append(float((w - star) @ direction / length) if length else 0.0)
    return along[0], along[1]


def activations(net: Net, x: Any, rule: Rule) -> dict[str, Matrix]:
    """Block → its output for N samples, (N, width), in evaluation mode, of the last time's model."""
    net.eval()
    outputs = {}
    with torch.no_grad():
        out = shown(x, rule.normalise, False)
        for name in net.names:
            out = net.blocks.before_head(out) if name == net.names[-1] else out
            out = net.block(name, out)
            outputs[name] = out.flatten(1).double().numpy()
    return outputs


def svcca(a: Matrix, b: Matrix, share: float) -> float:
    """Mean correlation of two sets of activations (N, ·) in the directions that have `share` of the sum of their
    singular values (not of their squares, as in the paper's code) [Raghu et al. 2017; spec, section 4]."""
    bases = []
    for activation in (a, b):
        left, sizes, _ = np.linalg.svd(activation - activation.mean(0), full_matrices=False)
        sizes = np.where(sizes > 1e-10 * max(sizes[0], 1e-300), sizes, 0)
        components = int(np.searchsorted(np.cumsum(sizes) / max(sizes.sum(), 1e-300), share) + 1)
        bases.append(left[:, :components])
    return float(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False).clip(0, 1).mean())


def adjacents(runs: Path) -> list[tuple[float, float, str]]:
    """Strength of the pull between adjacent times, validation accuracy and network of every joint fit in a store
    [paper, figure 9]. Raises IncompatibleStream if there is none."""
    fits = []
    for file in sorted((runs / "fits").glob("*/*/fit.json")):
        about = read_json(file)
        if about["identity"].get("objective") == "joint" and about["identity"].get("pulled") and "accuracy" in about:
            fits.append((float(about["hyper"]["adjacent"]), float(about["accuracy"]), str(about["identity"]["net"])))
    if not fits:
        raise IncompatibleStream(
            f"{runs} contains no joint model.", "", "Evaluate jm, with --set adjacents=0/0.01/1/100."
        )
    return sorted(fits)


def of_learner(networks: Sequence[Trained], name: str) -> Trained:
    """The networks of a learner. Raises IncompatibleStream if there are none."""
    for trained in networks:
        if trained.learner == name:
            return trained
    available = f"Available: {', '.join(trained.learner for trained in networks)}."
    raise IncompatibleStream(f"There is no run of {name}.", available, "Evaluate it.")
