"""Training data on the device, and as inputs of a network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from driftline.eval.engine.augment import augmented, draw
from driftline.eval.engine.deep import SCALE, SHIFT
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

    def weighted(self, weight: float) -> Samples:
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
