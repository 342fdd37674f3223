"""Training data on the device, and as inputs of a network; losses of a network on one batch per domain: ERM, IRM, DRO,
and the joint model's weighted sum [spec, section 3]; and penalties on the distance of weights to zero or to other
weights, added to the gradient after the backward pass.

An objective of one's own is a function `(net, domains, rng) → loss` under the entry point `driftline.objectives`, or
`history=package.module:name`: net(x) gives scores, a domain is one step's batch.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softmax

from driftline.eval.engine.deep import SCALE, SHIFT, augmented, draw
from driftline.eval.nets.chain import Net, widened
from driftline.stream_builder.stream import Split

Order = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Labelled samples on the device."""

    x: Any
    """(N, H, W, 3) uint8 or (N, D) float32"""
    y: Any
    """(N,) int64"""
    digest: str
    """SHA-256 of the content, the same for equal data"""
    weight: Any = None
    """(N,) float32, weights of the samples' losses, or None"""

    def __len__(self) -> int:
        return len(self.y)

    def weighted(self, weight: float) -> "Samples":
        """The same samples with one weight for all."""
        weights = torch.full((len(self),), weight, device=self.y.device)
        return Samples(self.x, self.y, f"{self.digest}*{weight}", weights)


def decoded(x: Any) -> npt.NDArray[Any]:
    """A copy in main memory: images stay uint8, features become float32."""
    array = np.array(x)
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def samples(split: Split, device: str = "cpu") -> Samples:
    """A split, decoded, on the device."""
    x, y = decoded(split.x[:]), np.array(split.y, np.int64)
    digest = hashlib.sha256(f"{x.dtype.str}{x.shape}".encode())
    digest.update(x.tobytes())
    digest.update(y.tobytes())
    return Samples(torch.from_numpy(x).to(device), torch.from_numpy(y).to(device), digest.hexdigest())


def pooled(parts: Sequence[Samples]) -> Samples:
    """All samples, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    weights = [p.weight for p in parts]
    weight = None if any(w is None for w in weights) else torch.cat(weights)
    digest = hashlib.sha256("+".join(p.digest for p in parts).encode()).hexdigest()
    return Samples(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]), digest, weight)


def batches(sizes: Sequence[int], batch: int, rng: np.random.Generator) -> Iterator[list[Order]]:
    """One epoch: for each domain the rows of its next batch. There are as many batches as the largest domain has;
    the others start again, in a new order [Seq-to-Final's code: 48 batches a domain, spec, section 3].

    >>> [[len(rows) for rows in step] for step in batches([5, 2], 2, np.random.default_rng(0))]
    [[2, 2], [2, 2], [1, 2]]
    """
    orders = [rng.permutation(n) for n in sizes]
    used = [0] * len(sizes)
    for _ in range(-(-max(sizes) // batch)):
        step = []
        for d, n in enumerate(sizes):
            if used[d] >= n:
                orders[d], used[d] = rng.permutation(n), 0
            step.append(orders[d][used[d] : used[d] + batch])
            used[d] += batch
        yield step


def shown(
    x: Any, normalise: bool, half: bool, augment: Sequence[str] = (), rng: np.random.Generator | None = None
) -> Any:
    """Images (B, H, W, 3) uint8 → (B, 3, H, W), channels last, normalised, or 0 … 255 as in the paper's code;
    features unchanged. half: bfloat16, which represents all bytes exactly."""
    if x.dtype is not torch.uint8:
        return x
    if augment and rng is not None:
        x = augmented(x, draw(tuple(x.shape), tuple(augment), rng))
    kind = torch.bfloat16 if half else torch.float32
    if normalise:
        scale, shift = (torch.tensor(v, device=x.device) for v in (SCALE, SHIFT))
        return x.float().mul_(scale).add_(shift).to(kind).permute(0, 3, 1, 2)
    return x.to(kind).permute(0, 3, 1, 2)


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
