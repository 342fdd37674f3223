"""What the pictures show, as numbers: interpolation paths, projections, SVCCA, the pull between adjacent times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from curate.core.atomic_io import read_json
from curate.core.errors import IncompatibleStream
from eval.finetuning.fit import Rule, accuracy_of
from eval.finetuning.samples import Samples, shown
from eval.finetuning.trained_networks import Trained, between, weights
from eval.nets.chain import Net

Matrix = npt.NDArray[np.float64]


def path(one: Trained, test: Samples, points: int = 21, norm: str = "interpolate") -> tuple[list[float], list[float]]:
    """Share of the way and accuracy on the last step's test [paper, figure 1]. norm: as in `between`, or "recalibrate":
    interpolated, then its statistics are taken anew from the test's images without their labels."""
    shares = np.linspace(0, 1, points).tolist()
    found = []
    for share in shares:
        net = between(one, share, "interpolate" if norm == "recalibrate" else norm)
        if norm == "recalibrate":
            recalibrate(net, test, one.rule)
        found.append(accuracy_of(net, test, one.rule))
    return shares, found


def recalibrate(net: Net, data: Samples, rule: Rule, batch: int = 500) -> None:
    """Statistics of normalisation from these images: the mean over batches."""
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
    net.still, net.dropout = False, 0.0
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    usual = [m.momentum for m in norms]
    with torch.no_grad():
        for k, low in enumerate(range(0, len(data), batch)):
            for module in norms:
                module.momentum = 1 / (k + 1)
            net.train()
            net(shown(data.x[low : low + batch], rule.normalise, False))
    for module, before in zip(norms, usual, strict=True):
        module.momentum = before


def projection(
    one: Net, oracle: Net, history: Net, limited: Net, name: str | None = None
) -> tuple[float, float]:  # fmt: skip
    """How far weights lie from the oracle's towards those of history, and towards those of the last step's few samples:
    ⟨w − w*, d⟩/‖d‖, d = w_H − w* and w_T − w* [paper, eq. 14 and 15; axes are not orthogonal]. name: one block."""
    names = one.names if name is None else [name]
    w, star, past, few = (np.concatenate([weights(net, n) for n in names]) for net in (one, oracle, history, limited))
    if not w.shape == star.shape == past.shape == few.shape:
        raise IncompatibleStream(
            "The networks have different weights.", "Expected methods that end in a plain network."
        )
    found = []
    for away in (past - star, few - star):
        length = np.linalg.norm(away)
        found.append(float((w - star) @ away / length) if length else 0.0)
    return found[0], found[1]


def activations(net: Net, x: Any, rule: Rule) -> dict[str, Matrix]:
    """Block → its output for N samples, (N, width), in evaluation mode, of the last time's model."""
    net.eval()
    found = {}
    with torch.no_grad():
        out = shown(x, rule.normalise, False)
        for name in net.names:
            out = net.blocks.before_head(out) if name == net.names[-1] else out
            out = net.block(name, out)
            found[name] = out.flatten(1).double().numpy()
    return found


def svcca(a: Matrix, b: Matrix, share: float) -> float:
    """Mean correlation of two sets of activations (N, ·) in the directions that hold `share` of the sum of their
    singular values (not of their squares, as the paper's code has it) [Raghu et al. 2017; spec, section 4]."""
    bases = []
    for one in (a, b):
        left, sizes, _ = np.linalg.svd(one - one.mean(0), full_matrices=False)
        sizes = np.where(sizes > 1e-10 * max(sizes[0], 1e-300), sizes, 0)
        kept = int(np.searchsorted(np.cumsum(sizes) / max(sizes.sum(), 1e-300), share) + 1)
        bases.append(left[:, :kept])
    return float(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False).clip(0, 1).mean())


def adjacents(runs: Path) -> list[tuple[float, float, str]]:
    """Strength of the pull between adjacent times, validation accuracy and network of every joint fit in a store
    [paper, figure 9]. Raises IncompatibleStream where there is none."""
    found = []
    for file in sorted((runs / "fits").glob("*/*/fit.json")):
        about = read_json(file)
        if about["identity"].get("objective") == "joint" and about["identity"].get("pulled") and "accuracy" in about:
            found.append((float(about["hyper"]["adjacent"]), float(about["accuracy"]), str(about["identity"]["net"])))
    if not found:
        raise IncompatibleStream(f"{runs} holds no joint model.", "", "Evaluate jm, with --set adjacents=0/0.01/1/100.")
    return sorted(found)


def of_learners(all_of: Sequence[Trained], name: str) -> Trained:
    """The one of a learner. Raises IncompatibleStream where there is none."""
    for one in all_of:
        if one.learner == name:
            return one
    raise IncompatibleStream(
        f"There is no run of {name}.", f"There are {', '.join(one.learner for one in all_of)}.", "Evaluate it."
    )
