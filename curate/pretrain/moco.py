"""MoCo v2: a query encoder, a key encoder that follows it, a queue of keys [He et al. 2020; Chen et al. 2020]."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from curate.pretrain import Recipe


@dataclass
class Moco:
    """query, key: networks of timm with a projection of two layers as their head. queue: (K, width), unit rows.
    at: where the next keys go."""

    recipe: Recipe
    query: Any
    key: Any
    queue: Any
    at: int = 0

    @classmethod
    def new(cls, recipe: Recipe, queue: int, seed: int, device: str) -> Moco:
        """Random weights, a queue of random directions."""
        import timm
        import torch
        from torch import nn

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            query = timm.create_model(recipe.network, pretrained=False, num_classes=0)
            width: Any = query.num_features
            head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, recipe.width))
            rows = torch.nn.functional.normalize(torch.randn(queue, recipe.width), dim=1)
        whole = nn.ModuleDict({"backbone": query, "head": head}).to(device).to(memory_format=torch.channels_last)
        key = copy.deepcopy(whole).requires_grad_(False)
        return cls(recipe, whole, key, rows.to(device))

    def loss(self, first: Any, second: Any, mixed: Any) -> tuple[Any, Any]:
        """InfoNCE of query and key views (N, 3, S, S), and the keys. The keys go through in another order, `mixed`
        (N,), so that the parts that are normalised together are not those of the queries."""
        import torch

        q = self._groups(self.query, first)
        with torch.no_grad():
            back = torch.argsort(mixed)
            k = self._groups(self.key, second[mixed])[back]
        return contrast(q, k, self.queue, self.recipe.temperature), k

    def keys(self, x: Any) -> Any:
        """Embeddings by the key encoder."""
        return self._groups(self.key, x)

    def _groups(self, network: Any, x: Any) -> Any:
        """Embeddings (N, width) of unit length; each of the batch's groups is normalised by itself."""
        import torch

        parts = x.chunk(self.recipe.groups)
        out = torch.cat([network["head"](network["backbone"](part)) for part in parts])
        return torch.nn.functional.normalize(out.float(), dim=1)

    def follow(self) -> None:
        """The key encoder moves a little towards the query encoder."""
        import torch

        with torch.no_grad():
            weights = [p.data for p in self.key.parameters()]
            towards = [p.data for p in self.query.parameters()]
            torch._foreach_lerp_(weights, towards, 1 - self.recipe.key_momentum)

    def enqueue(self, keys: Any) -> None:
        """The oldest keys make room for the newest."""
        n = min(len(keys), len(self.queue))
        first = min(n, len(self.queue) - self.at)
        self.queue[self.at : self.at + first] = keys[:first]
        self.queue[: n - first] = keys[first:n]
        self.at = (self.at + n) % len(self.queue)


def contrast(q: Any, k: Any, queue: Any, temperature: float) -> Any:
    """Mean of −log exp(q·k₊/τ) / (exp(q·k₊/τ) + Σ exp(q·k₋/τ)) [He et al. 2020, eq. 1]."""
    import torch

    positive = (q * k).sum(1, keepdim=True)
    logits = torch.cat([positive, q @ queue.T], 1) / temperature
    return torch.nn.functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device=q.device))
