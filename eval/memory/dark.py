"""A reservoir of samples, labels and the scores that a network gave them."""

from __future__ import annotations

from typing import Any

import numpy as np

ON_STREAMS = 500  # samples in memory where a step is a small batch [Buzzega et al. 2020, table 2: 200, 500, 5,120]


class Dark:
    """Every sample that was ever added is in memory with the same probability [Vitter 1985, algorithm R]."""

    def __init__(self, limit: int, rng: np.random.Generator) -> None:
        self.limit, self.rng, self.seen = limit, rng, 0
        self.x: Any = None
        self.y: Any = None
        self.scores: Any = None

    def __len__(self) -> int:
        return min(self.seen, self.limit)

    def draw(self, n: int) -> tuple[Any, Any, Any]:
        """Up to n different samples: x, labels, scores."""
        import torch

        rows = self.rng.choice(len(self), min(n, len(self)), replace=False)
        at = torch.from_numpy(np.asarray(rows, np.int64)).to(self.y.device)
        return self.x[at], self.y[at], self.scores[at]

    def add(self, x: Any, y: Any, scores: Any) -> None:
        """Tensors x (n, ...), y (n,), scores (n, C), one after the other."""
        import torch

        if not self.limit:
            return
        if self.x is None:
            self.x, self.y, self.scores = (t.new_zeros((self.limit, *t.shape[1:])) for t in (x, y, scores))
        order = self.seen + np.arange(len(y))
        places = np.where(order < self.limit, order, (self.rng.random(len(y)) * (order + 1)).astype(np.int64))
        self.seen += len(y)
        last = {int(place): row for row, place in enumerate(places) if place < self.limit}  # the later one stays
        if last:
            to, of = (torch.tensor(list(part), device=y.device) for part in (last.keys(), last.values()))
            self.x[to], self.y[to], self.scores[to] = x[of].to(self.x.dtype), y[of], scores[of]  # corrections: float32
