"""Networks of finished runs, from the store: at each step, and on the way through the last one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadInput, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.finetuning.adapters import remade
from driftline.eval.finetuning.fit import Fitted, Rule
from driftline.eval.finetuning.search import Store
from driftline.eval.nets import build
from driftline.eval.nets.chain import Net, weights_of
from driftline.eval.protocols.seq_to_final.protocol import SeqToFinal
from driftline.eval.rows import Run
from driftline.stream_builder.stream import Stream


@dataclass(frozen=True)
class Trained:
    """The networks of one run."""

    learner: str
    """name of the learner"""
    seed: int
    """seed of the run"""
    after: Net
    """the final network"""
    before: Net | None
    """the network before the last step; None: `start`"""
    start: Net
    """the network with its random weights"""
    rule: Rule
    """settings of its evaluation"""
    stages: Sequence[dict[str, Any]]
    """stages in the run's record"""
    models: Sequence[tuple[Net, int]]
    """network and time of its model: after the history and each step that it was trained on alone, or of each time of
    a joint model"""


def trained(run: Run, runs: Path, stream: Stream) -> Trained:
    """The networks of a run. runs: the output folder of `driftline eval`.

    Raises IncompatibleStream for a run on another stream or without networks, BadInput for a fit that is missing.
    """
    about = run.about
    if about["stream"]["sha256"] != stream.sha256:
        raise IncompatibleStream(
            f"{about['learner']} was run on {about['stream']['name']!r}, not on {stream.name!r}.", ""
        )
    stages = about.get("learner_facts", {}).get("stages", [])
    if about["protocol"] != "seq-to-final" or not stages:
        raise IncompatibleStream(
            f"{about['learner']} under {about['protocol']} has no networks in a store.", "", "See `stages`."
        )
    protocol = SeqToFinal(**about["protocol_settings"])
    rng = rng_for(about["seed"], "to-final", "start", protocol.network)
    start = build(protocol.network, len(stream.classes), stream.x_shape, rng, stored=True)
    store = Store(runs / "fits")
    last = f"step {len(stream.steps) - 1}"
    names = {stage["fit"]: stage["stage"] for stage in stages}
    ends = {names[fit].partition(",")[0]: fit for fit in about["learner_facts"]["network"]}  # the last fit of each step
    nets = [network(store, fit, start) for fit in ends.values()]
    before = nets[-2] if len(nets) > 1 and last in ends else None
    after = nets[-1]
    models = [(after, t) for t in range(after.times)] if after.times > 1 else [(net, -1) for net in nets]
    rule = protocol.rules(stream).rule
    return Trained(about["learner"], about["seed"], after, before, start, rule, stages=stages, models=models)


def network(store: Store, fit: str, start: Net) -> Net:
    """A fit's network with its best weights. Raises BadInput if the store lacks it."""
    stored = store.get(fit)
    if not isinstance(stored, Fitted) or not stored.state:
        raise BadInput(
            f"{store.folder} has no weights of the fit {fit}.",
            "Expected the folder fits next to the runs.",
            "Evaluate again.",
        )
    identity = read_json(store.place(fit) / "fit.json")["identity"]
    net = remade(start.copy(), identity.get("made", []))
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
        raise IncompatibleStream(
            f"{trained.learner} adapts by low-rank matrices.", "Expected whole weights or side modules."
        )
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
