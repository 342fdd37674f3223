"""MoCo v2: a query encoder, a key encoder (its moving average), a queue of keys [He et al. 2020; Chen et al. 2020]."""

import copy
from typing import Any

import timm
import torch
from torch import Tensor, nn

from driftline.curate.pretrain import Recipe


class Moco:
    """The networks `query` and `key` (each with `backbone`, of timm, and `head`, a projection of two layers), and the
    queue: (K, width) unit rows, their images `owner` (K,) int64, and the row `at` for the next keys."""

    def __init__(self, recipe: Recipe, queue: int, seed: int, device: str) -> None:
        """Random weights, and a queue of random unit vectors."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            query = timm.create_model(recipe.network, pretrained=False, num_classes=0)
            width: Any = query.num_features
            head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, recipe.width))
            rows = torch.nn.functional.normalize(torch.randn(queue, recipe.width), dim=1)
        self.recipe, self.at, self.queue = recipe, 0, rows.to(device)
        self.owner = torch.full((queue,), -1, device=device)
        self.query = nn.ModuleDict({"backbone": query, "head": head}).to(device).to(memory_format=torch.channels_last)
        self.key = copy.deepcopy(self.query).requires_grad_(False)

    def loss(self, first: Tensor, second: Tensor, order: Tensor, images: Tensor) -> tuple[Any, Tensor]:
        """(InfoNCE of query and key views (N, 3, S, S) of `images` (N,) int64, keys (N, width)).

        The keys are computed in another order (N,), so that their groups for normalisation differ from the queries'.
        """
        q = self._groups(self.query, first)
        with torch.no_grad():
            k = self._groups(self.key, second[order])[torch.argsort(order)]
        return info_nce(q, k, self.queue, self.recipe.temperature, images[:, None] == self.owner), k

    def keys(self, x: Tensor) -> Tensor:
        """Embeddings (N, width) by the key encoder."""
        return self._groups(self.key, x)

    def _groups(self, network: nn.ModuleDict, x: Tensor) -> Tensor:
        """Embeddings (N, width), unit length; each group of the batch is normalised separately."""
        parts = x.chunk(self.recipe.groups)
        out = torch.cat([network["head"](network["backbone"](part)) for part in parts])
        return torch.nn.functional.normalize(out.float(), dim=1)

    def update_key_encoder(self) -> None:
        """Update the moving average of the weights of the query encoder."""
        with torch.no_grad():
            weights = [p.data for p in self.key.parameters()]
            targets = [p.data for p in self.query.parameters()]
            torch._foreach_lerp_(weights, targets, 1 - self.recipe.key_momentum)

    def enqueue(self, keys: Tensor, images: Tensor) -> None:
        """Replace the oldest keys of the queue by those of `images` (N,) int64."""
        n = min(len(keys), len(self.queue))
        first = min(n, len(self.queue) - self.at)
        for rows, new in ((self.queue, keys), (self.owner, images)):
            rows[self.at : self.at + first] = new[:first]
            rows[: n - first] = new[first:n]
        self.at = (self.at + n) % len(self.queue)


def info_nce(q: Tensor, k: Tensor, queue: Tensor, temperature: float, own: Tensor) -> Tensor:
    """Mean of −log exp(q·k₊/τ) / (exp(q·k₊/τ) + Σ exp(q·k₋/τ)) [He et al. 2020, eq. 1].

    own: (N, K) bool, keys of earlier views of the query's image: they are no negatives. The reference code compares
    with them, which hardly matters when a million images share a queue of 65,536 keys.
    """
    positive = (q * k).sum(1, keepdim=True)
    logits = torch.cat([positive, (q @ queue.T).masked_fill(own, -torch.inf)], 1) / temperature
    return torch.nn.functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device=q.device))
