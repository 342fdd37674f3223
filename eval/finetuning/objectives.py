"""Losses of a network on one batch per domain: ERM, IRM, DRO, and the joint model's weighted sum [spec, section 3]; and
penalties on the distance of weights to zero or to other weights, added to the gradient after the backward pass.

An objective of one's own is a function `(net, domains, rng) → loss` under the entry point `driftline.objectives`, or
`history=package.module:name`: net(x) gives scores, a domain is one step's batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, softmax

from driftline.eval.finetuning.samples import Samples, shown
from driftline.eval.nets.chain import Net, widened

Batch = tuple[Any, Any, Any]  # inputs of the network, labels, weight of each loss or None

LAST_WEIGHT = 3.0  # weight of the final step's loss in the joint model [paper, appendix D.1]


def erm(net: Any, domains: Sequence[Batch], rng: Any) -> Any:
    """Mean cross-entropy of one pooled domain, weighted if samples have weights."""
    ((x, y, weight),) = domains
    if weight is None:
        return cross_entropy(widened(net(x)), y)
    return (cross_entropy(widened(net(x)), y, reduction="none") * weight).sum() / weight.sum()


def irm(net: Any, domains: Sequence[Batch], rng: Any, penalty: float = 1.0) -> Any:
    """Σ over domains of the mean cross-entropy and λ g₁·g₂, where g are gradients of the losses of two random halves
    in a vector of ones that multiplies the scores [Arjovsky et al. 2019, appendix D; the paper's code, with λ = 1]. A
    batch of one sample has no halves, and no penalty. penalty: λ."""
    total: Any = 0.0
    for x, y, _ in domains:
        scores = widened(net(x))
        order = torch.from_numpy(rng.permutation(len(y))).to(y.device)
        first, second = order[: len(y) // 2], order[len(y) // 2 :]
        total = total + cross_entropy(scores, y)
        if len(first):
            slopes = [scale_gradient(scores[half], y[half]) for half in (first, second)]
            total = total + penalty * (slopes[0] * slopes[1]).sum()
    return total


def scale_gradient(scores: Any, y: Any) -> Any:
    """Gradient of the mean cross-entropy of w ∘ scores in w, at w = 1: mean of (softmax − one-hot) ∘ scores; (C,)."""
    share = softmax(scores, 1)
    share = share - torch.nn.functional.one_hot(y, scores.shape[1])
    return (share * scores).mean(0)


def dro(net: Any, domains: Sequence[Batch], rng: Any) -> Any:
    """The largest of the domains' mean cross-entropies [paper, eq. 9]."""
    losses = [cross_entropy(widened(net(x)), y) for x, y, _ in domains]
    return max(losses, key=lambda loss: float(loss.detach()))


def joint(net: Any, domains: Sequence[Batch], rng: Any, weights: Sequence[float] = ()) -> Any:
    """Σ_t c_t CE_t / (T + 1), each by the model of its time. weights: c; default: 3 at the last time, else 1 [paper,
    eq. 11]."""
    of = weights or [1.0] * (len(domains) - 1) + [LAST_WEIGHT]
    losses = [cross_entropy(widened(net(x, t)), y) * of[t] for t, (x, y, _) in enumerate(domains)]
    return torch.stack(losses).sum() / len(domains)


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
