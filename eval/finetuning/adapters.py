"""Which blocks of a network learn (phases, surgical orders, searches), and what is added to it: side modules, low-rank
adapters, models of several times."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.engine.linear import seeded
from driftline.eval.finetuning.modes import FROZEN_JOINT, Hyper, groups_of
from driftline.eval.finetuning.objectives import Pull, Samples, shown
from driftline.eval.nets.chain import HEAD, STEM, Net


def check_blocks(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise IncompatibleStream for a block that the network does not have."""
    if unknown := [name for name in wanted if name not in names]:
        raise IncompatibleStream(f"The network has no block {unknown[0]!r}.", f"It has {', '.join(names)}.")


def phases(mode: str, names: Sequence[str]) -> list[list[str]]:
    """Blocks that learn in each phase; a phase starts from the best model of the one before. mode: also the blocks'
    names, joined by +. Raises IncompatibleStream for a block that the network does not have.

    >>> phases("fc-all", ["stem", "1", "fc"])
    [['fc'], ['stem', '1', 'fc']]
    >>> phases("unfreeze-last", ["stem", "1", "fc"])
    [['fc'], ['1', 'fc'], ['stem', '1', 'fc']]
    >>> phases("fc+stem", ["stem", "1", "fc"])
    [['stem', 'fc']]
    """
    every = list(names)
    if mode == "fc":
        return [[HEAD]]
    if mode == "fc-all":
        return [[HEAD], every]
    if mode == "unfreeze-last":
        return [every[k:] for k in range(len(every) - 1, -1, -1)]
    if mode == "unfreeze-first":
        return [every[: k + 1] for k in range(len(every))]
    if mode in ("all", FROZEN_JOINT):
        return [every]
    check_blocks(named := mode.split("+"), every)
    return [[name for name in every if name in named]]


def surgical(net: Net, data: Samples, metric: str, normalise: bool, batch: int) -> list[str]:
    """Blocks, ordered by how much tuning them promises [Lee et al. 2023, Surgical fine-tuning, sec. 5].

    rgn: norm of the gradient over that of the weights. snr: mean over weights of (mean gradient over batches)² over its
    variance.
    """
    net = net.copy()
    net.requires_grad_(True)
    net.eval()
    slopes: dict[str, list[Any]] = {name: [] for name in net.names}
    for low in range(0, len(data), batch):
        net.zero_grad()
        with torch.enable_grad():
            scores = net(shown(data.x[low : low + batch], normalise, False)).float()
            nn.functional.cross_entropy(scores, data.y[low : low + batch]).backward()  # type: ignore[no-untyped-call]
        for name in net.names:
            grads = [p.grad.flatten() for p in net.parts[name].parameters() if p.grad is not None]
            slopes[name].append(torch.cat(grads))
    worth = {}
    for name in net.names:
        stacked = torch.stack(slopes[name])
        if metric == "rgn":
            weights = torch.cat([p.detach().flatten() for p in net.parts[name].parameters()])
            worth[name] = float(stacked.norm(dim=1).mean() / weights.norm())
        else:
            ratio = stacked.mean(0) ** 2 / (stacked.var(0, unbiased=False) + 1e-12)
            worth[name] = float(ratio.mean())
    return sorted(net.names, key=lambda name: -worth[name])


def candidates(mode: str, net: Net, data: Samples, normalise: bool, batch: int) -> list[list[str]]:
    """Sets of blocks for a search: each single block and all of them ("search"), or the first one, two, … of a surgical
    order."""
    if mode == "search":
        return [[name] for name in net.names] + [list(net.names)]
    order = surgical(net, data, mode.removeprefix("surgical-"), normalise, batch)
    return [[name for name in net.names if name in order[: k + 1]] for k in range(len(order))]


def with_sides(net: Net, kind: str, rng: np.random.Generator, new_ends: bool = True) -> Net:
    """A copy in which each block between stem and classifier has one more part, a new side module; only the new parts
    learn [spec, section 3, ST]. kind: "side-1" (one layer) or "side-b" (a whole block). new_ends: stem and classifier
    are replaced; else they have a side module, too. Raises IncompatibleStream for a network without such blocks."""
    if not set(net.names) - {STEM, HEAD}:
        problem = "The network has no blocks between its first and its last layer, as side modules need."
        expected = "Expected a network with blocks."
        raise IncompatibleStream(problem, expected, "Choose one with --set network=conv-1, or mlp for features.")
    out = net.copy()
    with seeded(rng):
        for name in out.names:
            out.parts[name].append(_module(out, name, kind))
            newest = len(out.parts[name]) - 1
            replaced = new_ends and name in (STEM, HEAD)
            out.used[name] = [[newest]] if replaced else [[*out.used[name][-1], newest]]
    out.additions.append({"sides": kind} | ({} if new_ends else {"ends": "side"}))
    out.only(out.names)
    return out.to(net.device)


def ends_to_old(net: Net, hyper: Hyper) -> Sequence[Pull]:
    """λ‖Δ‖² between the new stem and classifier and the previous ones."""
    ends = (net.parts[name][-2:] for name in net.names if name in (STEM, HEAD))
    return [Pull([pair for old, new in ends for pair in _pairs(old, new)], hyper.adjacent)]


def over_times(
    net: Net, times: int, kind: str, shared: Sequence[str], rng: np.random.Generator, new_ends: bool = False
) -> Net:  # fmt: skip
    """One model for each time in one network, each part with its own random weights. kind: "all" (separate modules; the
    joint model), "side-1" or "side-b" (time t sums the first module and t side modules, also of stem and classifier
    unless new_ends). shared: blocks that times share, as in `groups_of`. The first time keeps the weights of `net`."""
    groups = groups_of(shared, times)
    check_blocks(list(groups), net.names)
    out = net.copy()
    with seeded(rng):
        for name in out.names:
            whole, own = kind == "all" or name in (STEM, HEAD), [0]
            for t, first in enumerate(groups.get(name, range(times))):
                if t and first == t:
                    out.parts[name].append(out.blocks.make[name]() if whole else _module(out, name, kind))
                    own.append(len(out.parts[name]) - 1)
                elif t:
                    own.append(own[first])
            alone = kind == "all" or (new_ends and name in (STEM, HEAD))
            out.used[name] = [[own[t]] if alone else list(dict.fromkeys(own[: t + 1])) for t in range(times)]
    ends = {"ends": "new"} if new_ends else {}
    out.additions.append({"times": times, "kind": kind, "shared": list(shared)} | ends)
    out.requires_grad_(True)
    return out.to(net.device)


def beside_frozen(net: Net, start: Net) -> Net:
    """A joint model of two times: the first is `net` and does not learn, the second starts from the weights of `start`
    [paper, table 15]."""
    out = over_times(net, 2, "all", (), np.random.default_rng(0))
    for name in out.names:
        out.parts[name][1].load_state_dict(start.parts[name][-1].state_dict())
    out.only(out.names)
    return out


Importance = Callable[[int], Mapping[int, Any]]  # time → id of a parameter of its model → tensor


def between_times(
    net: Net, hyper: Hyper, kind: str = "previous-l2", importance: Importance | None = None
) -> list[Pull]:  # fmt: skip
    """λ Σ importance · |w_t − w_s|ᵖ over all parameters, normalisation included [spec, section 3, JM]. kind: names what
    s is (the time before, or with "all" each earlier one) and p ("l1": 1, else 2)."""
    pulls = []
    for t in range(1, net.times):
        for s in range(t) if "all" in kind else (t - 1,):
            ends = [(net.used[name][s][-1], net.used[name][t][-1], net.parts[name]) for name in net.names]
            pairs = [pair for old, new, parts in ends if old != new for pair in _pairs(parts[old], parts[new])]
            of = importance(s) if importance else None
            pulls.append(
                Pull(pairs, hyper.adjacent, kind.endswith("l1"), [of[id(p)] for _, p in pairs] if of else None)
            )
    return pulls


def _pairs(old: Any, new: Any) -> list[tuple[Any, Any]]:
    return list(zip(new.parameters(), old.parameters(), strict=True))


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
            net = with_sides(net, added["sides"], rng, "ends" not in added)
        elif "times" in added:
            net = over_times(net, added["times"], added["kind"], added["shared"], rng, "ends" in added)
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
        problem = f"Block {name!r} of this network has no side module."
        expected = "Expected a network of driftline's own families (conv, dense, res, mlp)."
        raise IncompatibleStream(problem, expected, "Choose one with --set network=conv-1.")
    return make()
