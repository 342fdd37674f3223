"""Networks of finished runs, out of the store: before and after the last step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curate.core.atomic_io import read_json
from curate.core.errors import BadInput, IncompatibleStream
from curate.core.seeding import rng_for
from eval.finetuning.adapters import remade
from eval.finetuning.fit import Fitted, Rule
from eval.finetuning.fit_cache import Store
from eval.nets import build
from eval.nets.chain import Net, weights_of
from eval.protocols.seq_to_final.protocol import SeqToFinal
from eval.rows import Run
from stream_builder.stream import Stream


@dataclass(frozen=True)
class Trained:
    """learner, seed: whose it is. after: as it answers. before: as it was when the last step began, or None where that
    is the random start of this network (`start`). rule: how it is evaluated. stages: of the run's record."""

    learner: str
    seed: int
    after: Net
    before: Net | None
    start: Net
    rule: Rule
    stages: Sequence[dict[str, Any]]


def trained(run: Run, runs: Path, stream: Stream) -> Trained:
    """The networks of a run. runs: the folder that `driftline eval` wrote to.

    Raises IncompatibleStream for a run of another stream or without networks, BadInput for a fit that is missing or
    is of another network or images of another size.
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
    earlier = [one for one in stages if not one["stage"].startswith(last)]
    alone = len(earlier) == len(stages)  # all in one stage: erm, jm
    before = None if alone or not earlier else network(store, earlier[-1]["fit"], start)
    after = network(store, stages[-1]["fit"], start)
    return Trained(about["learner"], about["seed"], after, before, start, protocol.rules(stream).rule, stages)


def network(store: Store, fit: str, start: Net) -> Net:
    """A fit's network with its best weights. Raises BadInput where the store lacks it or it is another network's."""
    found = store.get(fit)
    if not isinstance(found, Fitted):
        raise BadInput(f"{store.folder} has no fit {fit}.", "Expected the folder beside the runs.", "Evaluate again.")
    identity = read_json(store.place(fit) / "fit.json")["identity"]
    net = remade(start.copy(), identity.get("made", []))
    try:
        net.load_state_dict(found.state)
    except RuntimeError as error:
        told = str(error).partition("\n\t")[2].partition("\n")[0]
        raise BadInput(f"The fit {fit} does not fit this network: {told}", "Expected a fit of the same run.") from None
    return net.to(memory_format=torch.channels_last)


def between(one: Trained, share: float, norm: str = "interpolate") -> Net:
    """The network `share` of the way from before the last step to after it [paper, section 4.1].

    Side modules grow from no module: their output is multiplied; stems and classifiers go from the old ones to the new.
    A joint model goes from the last but one time's model to the last. norm: "interpolate" parameters and statistics of
    normalisation as well; "initial": they (and shortcuts) stay until share is 1, as the paper's code has it.
    """
    net = one.after.copy()
    if share == 1:
        return net
    if any("low rank" in added for added in net.made):
        raise IncompatibleStream(
            f"{one.learner} adapts by low-rank matrices.", "Expected whole weights or side modules."
        )
    kept = norm == "initial"
    ends = {name: _ends(one, name) for name in net.names}
    for name, (old, new, sided) in ends.items():
        target = net.parts[name][len(net.parts[name]) - 1]
        if sided:
            net.shares[name, len(net.parts[name]) - 1] = share
            continue
        with torch.no_grad():
            of_old, of_new = old.state_dict(), new.state_dict()
            mixed = {}
            for key, value in of_new.items():
                fixed = kept and (_of_norm(new, key) or "shortcut" in key)
                if not value.is_floating_point():
                    mixed[key] = value
                else:
                    mixed[key] = of_old[key] if fixed else torch.lerp(of_old[key], value, share)
            target.load_state_dict(mixed)
    return net


def _ends(one: Trained, name: str) -> tuple[Any, Any, bool]:
    """The block before and after the last step, and whether it is a side module that grows from nothing."""
    net = one.after
    parts = list(net.parts[name])
    if len(parts) == 1 and net.times > 1:
        return parts[0], parts[0], False
    if len(parts) == 1:
        before = one.start if one.before is None else one.before
        return before.parts[name][-1], parts[-1], False
    if len(net.used[name][-1]) > 1:
        return None, parts[-1], True
    return parts[-2], parts[-1], False


def _of_norm(part: Any, key: str) -> bool:
    owner = part.get_submodule(key.rpartition(".")[0]) if "." in key else part
    return isinstance(owner, torch.nn.BatchNorm2d)


def weights(net: Net, name: str) -> np.ndarray[Any, Any]:
    """Weights of a block's convolutions and linear layers of the last time, in one row."""
    part = net.parts[name][net.used[name][-1][-1]]
    return torch.cat([p.detach().flatten() for p in weights_of(part)]).double().numpy()
