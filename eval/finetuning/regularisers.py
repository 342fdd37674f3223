"""Penalties on the distance of weights to zero or to other weights, added to the gradient after the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from driftline.eval.finetuning.samples import Samples, shown
from driftline.eval.nets.chain import Net


@dataclass(frozen=True)
class Pull:
    """strength · Σ importance · |weight − target|ᵖ, p = 2 (l1: 1)."""

    pairs: Sequence[tuple[Any, Any]]
    """(weight, target); a target is a tensor, or a parameter, which is pulled as well"""
    strength: float
    """factor of the sum"""
    l1: bool = False
    """p = 1 instead of 2"""
    importance: Sequence[Any] | None = None
    """a tensor for each pair; None: ones"""

    def add(self) -> None:
        """Add its gradient to the gradients of the weights (and of targets that learn)."""
        for k, (weight, target) in enumerate(self.pairs):
            away = weight.detach() - target.detach()
            slope = away.sign() if self.l1 else away.mul_(2)
            if self.importance is not None:
                slope = slope * self.importance[k]
            for param, sign in ((weight, 1.0), (target, -1.0)):
                if isinstance(param, nn.Parameter) and param.requires_grad:
                    param.grad = torch.zeros_like(param) if param.grad is None else param.grad
                    param.grad.add_(slope, alpha=sign * self.strength)


def fisher(
    net: Net, data: Samples, params: Sequence[Any], normalise: bool, batch: int, whole: bool, time: int = -1
) -> list[Any]:  # fmt: skip
    """Diagonal of the Fisher information of the model of a time at the true labels, in eval mode.

    whole: Σ over batches of (gradient of the summed loss)² / N, as in the paper's code, which grows with the batch;
    else the mean over samples of the squared gradient of one sample.
    """
    net.eval()
    totals = [torch.zeros_like(p) for p in params]
    step = batch if whole else 1
    for low in range(0, len(data), step):
        with torch.enable_grad():
            scores = net(shown(data.x[low : low + step], normalise, False), time).float()
            loss = nn.functional.cross_entropy(scores, data.y[low : low + step], reduction="sum")
        for total, slope in zip(totals, torch.autograd.grad(loss, list(params)), strict=True):
            total.addcmul_(slope, slope, value=1 / len(data))
    return totals
