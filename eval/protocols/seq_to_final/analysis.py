"""Networks of finished runs, from the store, and the numbers behind the figures: interpolation paths, projections,
SVCCA, the regularisation between adjacent times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadInput, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.finetuning.adapters import remade
from driftline.eval.finetuning.fit import Fitted, accuracy_of
from driftline.eval.finetuning.modes import Rule
from driftline.eval.finetuning.objectives import Samples, shown
from driftline.eval.finetuning.search import Fits
from driftline.eval.nets import build
from driftline.eval.nets.chain import Net, weights_of
from driftline.eval.protocols.seq_to_final.protocol import SeqToFinal
from driftline.eval.rows import Run
from driftline.stream_builder.stream import Stream


@dataclass(frozen=True)
class Trained:
    """The networks of one run."""

    learner: str
    seed: int
    after: Net
    before: Net | None
    """the network before the last step; None: `start`"""
    start: Net
    """the network with its random weights"""
    rule: Rule
    """settings of its evaluation"""
    models: Sequence[tuple[Net, int]]
    """network and time of its model: after the history and each step that it was trained on alone, or of each time of
    a joint model"""


def trained(run: Run, runs: Path, stream: Stream) -> Trained:
    """The networks of a run. runs: the output folder of `driftline eval`.

    Raises IncompatibleStream for a run on another stream or without networks, BadInput for a fit that is missing.
    """
    about = run.about
    if about["stream"]["sha256"] != stream.sha256:
        problem = f"{about['learner']} was run on {about['stream']['name']!r}, not on {stream.name!r}."
        raise IncompatibleStream(problem, "")
    stages = about.get("learner_facts", {}).get("stages", [])
    if about["protocol"] != "seq-to-final" or not stages:
        problem = f"{about['learner']} under {about['protocol']} has no networks in a store."
        raise IncompatibleStream(problem, "", "See `stages`.")
    protocol = SeqToFinal(**about["protocol_settings"])
    rng = rng_for(about["seed"], "to-final", "start", protocol.network)
    start = build(protocol.network, len(stream.classes), stream.x_shape, rng, stored=True)
    store = Fits(runs / "fits")
    last = f"step {len(stream.steps) - 1}"
    names = {stage["fit"]: stage["stage"] for stage in stages}
    ends = {names[fit].partition(",")[0]: fit for fit in about["learner_facts"]["network"]}  # the last fit of each step
    nets = [network(store, fit, start) for fit in ends.values()]
    before = nets[-2] if len(nets) > 1 and last in ends else None
    after = nets[-1]
    models = [(after, t) for t in range(after.times)] if after.times > 1 else [(net, -1) for net in nets]
    rule = protocol.rules(stream).rule
    return Trained(about["learner"], about["seed"], after, before, start, rule, models)


def network(store: Fits, fit: str, start: Net) -> Net:
    """A fit's network with its best weights. Raises BadInput if the store lacks it."""
    stored = store.get(fit)
    if not isinstance(stored, Fitted) or not stored.state:
        problem = f"{store.folder} has no weights of the fit {fit}."
        raise BadInput(problem, "Expected the folder fits next to the runs.", "Evaluate again.")
    identity = read_json(store.place(fit) / "fit.json")["identity"]
    net = remade(start.copy(), identity["made"])
    net.load_state_dict(stored.state)
    return net.to(memory_format=torch.channels_last)


def between(trained: Trained, share: float, norm: str = "interpolate") -> Net:
    """The network at `share` of the path from before the last step to after it [paper, section 4.1].

    Side modules start from nothing: their output is scaled; stems and classifiers change from the old ones to the new.
    A joint model changes from the second last time's model to the last. norm: "interpolate" parameters and statistics
    of normalisation as well; "initial": they (and shortcuts) stay until share is 1, as in the paper's code.
    """
    net = trained.after.copy()
    if share == 1:
        return net
    if any("low rank" in added for added in net.additions):
        problem = f"{trained.learner} adapts by low-rank matrices."
        raise IncompatibleStream(problem, "Expected whole weights or side modules.")
    initial = norm == "initial"
    for name in net.names:
        old, new, sided = _ends(trained, name)
        newest = net.used[name][-1][-1]
        target = net.parts[name][newest]
        if sided:
            net.shares[name, newest] = share
            continue
        with torch.no_grad():
            old_state = old.state_dict()
            mixed = dict(new.state_dict())
            for key, value in new.state_dict().items():
                owner = new.get_submodule(key.rpartition(".")[0])
                fixed = initial and (isinstance(owner, torch.nn.BatchNorm2d) or "shortcut" in key)
                if value.is_floating_point():
                    mixed[key] = old_state[key] if fixed else torch.lerp(old_state[key], value, share)
            target.load_state_dict(mixed)
    return net


def _ends(trained: Trained, name: str) -> tuple[Any, Any, bool]:
    """The block before and after the last step, and whether it is a side module that starts from nothing."""
    net = trained.after
    parts, used = list(net.parts[name]), net.used[name]
    if net.times > 1:
        old, new = used[-2][-1], used[-1][-1]
        return parts[old], parts[new], len(used[-1]) > 1 and old != new
    if len(parts) == 1:
        before = trained.start if trained.before is None else trained.before
        return before.parts[name][-1], parts[-1], False
    return parts[-2], parts[-1], len(used[-1]) > 1


def weights(net: Net, name: str, time: int = -1) -> np.ndarray[Any, Any]:
    """Weights of a block's convolutions and linear layers at a time, as one vector."""
    part = net.parts[name][net.used[name][time][-1]]
    return torch.cat([p.detach().flatten() for p in weights_of(part)]).double().numpy()


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
        problem = "The networks have different weights."
        raise IncompatibleStream(problem, "Expected methods that produce a plain network.")
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
    """Strength of the regularisation between adjacent times, validation accuracy and network of every joint fit in a
    store [paper, figure 9]. Raises IncompatibleStream if there is none."""
    fits = []
    for file in sorted((runs / "fits").glob("*/*/fit.json")):
        about = read_json(file)
        if about["identity"].get("objective") == "joint" and about["identity"].get("pulled") and "accuracy" in about:
            fits.append((float(about["hyper"]["adjacent"]), float(about["accuracy"]), str(about["identity"]["net"])))
    if not fits:
        problem = f"{runs} contains no joint model."
        raise IncompatibleStream(problem, "", "Evaluate jm, with --set adjacents=0/0.01/1/100.")
    return sorted(fits)


def of_learner(networks: Sequence[Trained], name: str) -> Trained:
    """The networks of a learner. Raises IncompatibleStream if there are none."""
    for trained in networks:
        if trained.learner == name:
            return trained
    available = f"Available: {', '.join(trained.learner for trained in networks)}."
    raise IncompatibleStream(f"There is no run of {name}.", available, "Evaluate it.")
