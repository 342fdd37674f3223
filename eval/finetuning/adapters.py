"""Additions to a network for adaptation: side modules, low-rank adapters, models of several times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.engine.seeded import seeded
from driftline.eval.finetuning.fit import Hyper
from driftline.eval.finetuning.regularisers import Pull
from driftline.eval.nets.chain import HEAD, STEM, Net


def with_sides(net: Net, kind: str, rng: np.random.Generator) -> Net:
    """A copy in which each block between stem and classifier has one more part, a new side module, and stem and
    classifier are new; only the new parts learn [spec, section 3, ST]. kind: "side-1" (one layer) or "side-b" (a whole
    block). Raises IncompatibleStream for a network without such blocks."""
    if not set(net.names) - {STEM, HEAD}:
        raise IncompatibleStream(
            "The network has no blocks between its first and its last layer, as side modules need.",
            "Expected a network with blocks.",
            "Choose one with --set network=conv-1, or mlp for features.",
        )
    out = net.copy()
    with seeded(rng):
        for name in out.names:
            out.parts[name].append(_module(out, name, kind))
            newest = len(out.parts[name]) - 1
            out.used[name] = [[newest]] if name in (STEM, HEAD) else [[*out.used[name][-1], newest]]
    out.additions.append({"sides": kind})
    out.only(out.names)
    return out.to(net.device)


def ends_to_old(net: Net, hyper: Hyper) -> Sequence[Pull]:
    """λ‖Δ‖² between the new stem and classifier and the previous ones."""
    return _pulls([net.parts[name][-2:] for name in net.names if name in (STEM, HEAD)], hyper)


def over_times(net: Net, times: int, kind: str, shared: Sequence[str], rng: np.random.Generator) -> Net:
    """One model for each time in one network, each part with its own random weights. kind: "all" (separate modules; the
    joint model), "side-1" or "side-b" (time t sums the first module and t side modules, also of stem and classifier).
    shared: blocks that all times share. The first time keeps the weights of `net`."""
    if unknown := [name for name in shared if name not in net.names]:
        raise IncompatibleStream(f"The network has no block {unknown[0]!r}.", f"It has {', '.join(net.names)}.")
    out = net.copy()
    with seeded(rng):
        for name in out.names:
            if name in shared:
                out.used[name] = [[0]] * times
                continue
            for _ in range(times - 1):
                whole = kind == "all" or name in (STEM, HEAD)
                out.parts[name].append(out.blocks.make[name]() if whole else _module(out, name, kind))
            out.used[name] = [[t] if kind == "all" else list(range(t + 1)) for t in range(times)]
    out.additions.append({"times": times, "kind": kind, "shared": list(shared)})
    out.requires_grad_(True)
    return out.to(net.device)


def adjacent(net: Net, hyper: Hyper) -> Sequence[Pull]:
    """λ Σ_t ‖w_t − w_{t−1}‖² over all parameters, normalisation included [spec, section 3, JM]."""
    return _pulls([pair for name in net.names for pair in pairwise(net.parts[name])], hyper)


def _pulls(modules: Iterable[Any], hyper: Hyper) -> Sequence[Pull]:
    """The pull between the parameters of pairs of modules (old, new)."""
    pairs = [pair for old, new in modules for pair in zip(new.parameters(), old.parameters(), strict=True)]
    return [Pull(pairs, hyper.adjacent)]


def with_low_rank(net: Net, kind: str, rank: int, rng: np.random.Generator) -> Net:
    """A copy in which each weight W of a convolution or linear layer becomes W + AB ("lowrank-add") or W ∘ AB
    ("lowrank-mul"), A (out, r), B (r, in); these and the biases learn. Its first output equals the network's."""
    out = net.copy()
    out.requires_grad_(False)
    out.additions.append({"low rank": kind, "rank": rank})
    layers = [m for m in out.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    with seeded(rng):
        for layer in layers:
            change = LowRank(layer.weight, rank, kind == "lowrank-mul").to(net.device)
            parametrize.register_parametrization(layer, "weight", change)
            if layer.bias is not None:
                layer.bias.requires_grad_(True)
    for name, p in out.named_parameters():
        if ".original" in name:
            p.requires_grad_(False)
    return out


def remade(net: Net, additions: Sequence[Mapping[str, Any]]) -> Net:
    """The plain network with the additions of another one; its weights must be loaded afterwards."""
    rng = np.random.default_rng(0)
    for added in additions:
        if "sides" in added:
            net = with_sides(net, added["sides"], rng)
        elif "times" in added:
            net = over_times(net, added["times"], added["kind"], added["shared"], rng)
        else:
            net = with_low_rank(net, added["low rank"], added["rank"], rng)
    return net


class LowRank(nn.Module):
    """W → W + AB, or W ∘ AB; A and B are initialised so that W does not change."""

    def __init__(self, weight: Any, rank: int, times: bool) -> None:
        super().__init__()
        rows, columns = weight.shape[0], weight[0].numel()
        self.times = times
        self.a = nn.Parameter(torch.zeros(rows, rank))
        self.b = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        if times:
            with torch.no_grad():
                self.a[:, 0], self.b[0] = 1.0, 1.0

    def forward(self, weight: Any) -> Any:
        """The adapted weight."""
        change = (self.a @ self.b).view_as(weight)
        return weight * change if self.times else weight + change


def _module(net: Net, name: str, kind: str) -> nn.Module:
    if name in (STEM, HEAD) or kind == "side-b":
        make: Callable[[], nn.Module] = net.blocks.make[name]
    elif name in net.blocks.side:
        make = net.blocks.side[name]
    else:
        raise IncompatibleStream(
            f"Block {name!r} of this network has no side module.",
            "Expected a network of driftline's own families (conv, dense, res, mlp).",
            "Choose one with --set network=conv-1.",
        )
    return make()
