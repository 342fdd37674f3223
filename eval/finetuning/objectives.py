"""Losses of a network on one batch per domain: ERM, IRM, DRO, and the joint model's weighted sum [spec, section 3].

A new objective is one function here and one line in `OBJECTIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy, softmax

from driftline.eval.nets.chain import widened

Batch = tuple[Any, Any, Any]  # inputs of the network, labels, weight of each loss or None
Objective = Callable[[Any, Sequence[Batch], Any], Any]

IRM_STRENGTH = 1.0  # λ, fixed in the paper's code
LAST_WEIGHT = 3.0  # weight of the final step's loss in the joint model [paper, appendix D.1]


def erm(net: Any, domains: Sequence[Batch], halves: Any) -> Any:
    """Mean cross-entropy of one pooled domain, weighted if samples have weights."""
    ((x, y, weight),) = domains
    if weight is None:
        return cross_entropy(widened(net(x)), y)
    return (cross_entropy(widened(net(x)), y, reduction="none") * weight).sum() / weight.sum()


def irm(net: Any, domains: Sequence[Batch], halves: Any) -> Any:
    """Σ over domains of the mean cross-entropy and λ g₁·g₂, where g are gradients of the losses of two random halves
    in a vector of ones that multiplies the scores [Arjovsky et al. 2019, appendix D; the paper's code]. A batch of one
    sample has no halves, and no penalty."""
    total: Any = 0.0
    for x, y, _ in domains:
        scores = widened(net(x))
        order = torch.from_numpy(halves.permutation(len(y))).to(y.device)
        first, second = order[: len(y) // 2], order[len(y) // 2 :]
        total = total + cross_entropy(scores, y)
        if len(first):
            penalty = (scale_gradient(scores[first], y[first]) * scale_gradient(scores[second], y[second])).sum()
            total = total + IRM_STRENGTH * penalty
    return total


def scale_gradient(scores: Any, y: Any) -> Any:
    """Gradient of the mean cross-entropy of w ∘ scores in w, at w = 1: mean of (softmax − one-hot) ∘ scores; (C,)."""
    share = softmax(scores, 1)
    share = share - torch.nn.functional.one_hot(y, scores.shape[1])
    return (share * scores).mean(0)


def dro(net: Any, domains: Sequence[Batch], halves: Any) -> Any:
    """The largest of the domains' mean cross-entropies [paper, eq. 9]."""
    losses = [cross_entropy(widened(net(x)), y) for x, y, _ in domains]
    return max(losses, key=lambda loss: float(loss.detach()))


def joint(net: Any, domains: Sequence[Batch], halves: Any) -> Any:
    """Σ_t c_t CE_t / (T + 1), each by the model of its time; c is 3 at the last time, else 1 [spec, section 3, JM]."""
    last = len(domains) - 1
    losses = [cross_entropy(widened(net(x, t)), y) * (LAST_WEIGHT if t == last else 1.0) for t, (x, y, _) in
              enumerate(domains)]  # fmt: skip
    return torch.stack(losses).sum() / len(domains)


OBJECTIVES: dict[str, Objective] = {"erm": erm, "irm": irm, "dro": dro, "joint": joint}
