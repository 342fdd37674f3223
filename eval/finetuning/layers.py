"""Selection and order of the blocks that learn: phases, surgical orders, searches."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.finetuning.modes import FROZEN_JOINT
from driftline.eval.finetuning.samples import Samples, shown
from driftline.eval.nets.chain import HEAD, Net


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
