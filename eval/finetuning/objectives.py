"""Losses of a network on one batch per domain: ERM, IRM, DRO, and the joint model's weighted sum [spec, section 3].

One of your own is a function `(net, domains, rng) → loss` under the entry point `driftline.objectives`, or
`history=package.module:name`: net(x) gives scores, a domain is one step's batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy, softmax

from driftline.eval.nets.chain import widened

Batch = tuple[Any, Any, Any]  # inputs of the network, labels, weight of each loss or None
Objective = Callable[..., Any]

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
