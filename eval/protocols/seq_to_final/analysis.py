"""The numbers behind the figures: interpolation paths, projections, SVCCA, the pull between adjacent times."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.finetuning.fit import Rule, accuracy_of
from driftline.eval.finetuning.objectives import Samples, shown
from driftline.eval.nets.chain import Net
from driftline.eval.protocols.seq_to_final.trained_networks import Trained, between, weights

Matrix = npt.NDArray[np.float64]


def path(
    trained: Trained, test: Samples, points: int = 21, norm: str = "interpolate"
) -> tuple[list[float], list[float]]:
    """Shares of the path and accuracies on the last step's test [paper, figure 1]. norm: as in `between`."""
    shares = np.linspace(0, 1, points).tolist()
    return shares, [accuracy_of(between(trained, share, norm), test, trained.rule) for share in shares]


WHOLE = "all"  # the whole network, beside its blocks


def projections(
    models: Sequence[tuple[Net, int]], oracle: Net, history: Net, limited: Net
) -> dict[str, list[tuple[float, float]]]:
    """Block, or WHOLE → for each model (network, time) the distance of its weights from the oracle's, towards those of
    history and those of the last step's few samples: ⟨w − w*, d⟩/‖d‖, d = w_H − w* and w_T − w* [paper, eq. 14 and 15,
    figure 16; axes are not orthogonal]. Raises IncompatibleStream for networks with other weights."""
    ends = [(oracle, -1), (history, -1), (limited, -1)]
    vectors = [{name: weights(net, name, time) for name in oracle.names} for net, time in (*ends, *models)]
    for of_model in vectors:
        of_model[WHOLE] = np.concatenate(list(of_model.values()))
    if len({tuple(vector.shape for vector in of_model.values()) for of_model in vectors}) > 1 or any(
        len(net.used[name][time]) > 1 for net, time in models for name in net.names
    ):
        raise IncompatibleStream(
            "The networks have different weights.", "Expected methods that produce a plain network."
        )
    star, past, few = vectors[:3]
    return {
        name: [
            (along(of_model[name] - star[name], past[name] - star[name]),
             along(of_model[name] - star[name], few[name] - star[name]))
            for of_model in vectors[3:]
        ]
        for name in star
    }  # fmt: skip


def along(away: Matrix, direction: Matrix) -> float:
    """⟨away, d⟩/‖d‖; 0 without a direction."""
    length = np.linalg.norm(direction)
    return float(away @ direction / length) if length else 0.0


def activations(net: Net, x: Any, rule: Rule, time: int = -1) -> dict[str, Matrix]:
    """Block → its output for N samples, (N, width), in evaluation mode, of the model of a time; WHOLE → all of them."""
    net.eval()
    outputs = {}
    with torch.no_grad():
        out = shown(x, rule.normalise, False)
        for name in net.names:
            out = net.blocks.before_head(out) if name == net.names[-1] else out
            out = net.block(name, out, time)
            outputs[name] = out.flatten(1).double().numpy()
    return outputs | {WHOLE: np.concatenate(list(outputs.values()), axis=1)}


Directions = tuple[Matrix, Matrix]  # orthonormal directions of activations (N, k), and their singular values (k,)


def directions(activation: Matrix) -> Directions:
    """Of activations (N, ·), centred."""
    left, sizes, _ = np.linalg.svd(activation - activation.mean(0), full_matrices=False)
    return left, np.where(sizes > 1e-10 * max(sizes[0], 1e-300), sizes, 0)


def svcca(a: Directions, b: Directions, share: float) -> float:
    """Mean correlation of two sets of activations in the directions that have `share` of the sum of their singular
    values (not of their squares, as in the paper's code) [Raghu et al. 2017; spec, section 4]."""
    bases = []
    for left, sizes in (a, b):
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
