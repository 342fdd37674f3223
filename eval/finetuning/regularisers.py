"""Pulls of weights towards zero, other weights or earlier ones, added to the gradient after the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from eval.finetuning.samples import Samples, shown
from eval.nets.chain import Net


@dataclass(frozen=True)
class Pull:
    """strength · Σ importance · |weight − target|ᵖ, p = 2 (l1: 1). target: a tensor, or a parameter that is pulled as
    well. importance: a tensor for each pair, or None for ones."""

    pairs: Sequence[tuple[Any, Any]]
    strength: float
    l1: bool = False
    importance: Sequence[Any] | None = None

    def add(self) -> None:
        """Add its gradient to those of the weights (and of targets that learn)."""
        for k, (weight, target) in enumerate(self.pairs):
            away = weight.detach() - target.detach()
            slope = away.sign() if self.l1 else away.mul_(2)
            if self.importance is not None:
                slope = slope * self.importance[k]
            for one, sign in ((weight, 1.0), (target, -1.0)):
                if isinstance(one, nn.Parameter) and one.requires_grad:
                    one.grad = torch.zeros_like(one) if one.grad is None else one.grad
                    one.grad.add_(slope, alpha=sign * self.strength)


def fisher(net: Net, data: Samples, params: Sequence[Any], normalise: bool, batch: int, whole: bool) -> list[Any]:
    """Diagonal of the Fisher information at the true labels, in eval mode.

    whole: Σ over batches of (gradient of the summed loss)² / N, as the paper's code has it: grows with the batch. Else
    the mean over samples of one sample's squared gradient.
    """
    net.eval()
    found = [torch.zeros_like(p) for p in params]
    step = batch if whole else 1
    for low in range(0, len(data), step):
        with torch.enable_grad():
            scores = net(shown(data.x[low : low + step], normalise, False)).float()
            loss = nn.functional.cross_entropy(scores, data.y[low : low + step], reduction="sum")
        for total, slope in zip(found, torch.autograd.grad(loss, list(params)), strict=True):
            total.addcmul_(slope, slope, value=1 / len(data))
    return found
