"""A classifier on angles as the last layer of a network, so that the whole network is trained with it."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear, normalize


class CosineLayer(nn.Module):
    """Scores σ · cos(x, w), without bias; σ is learned [near-future accuracy, sec. 4.1, CosineFC]."""

    def __init__(self, width: int, n_classes: int) -> None:
        """Weights (n_classes, width), U(±1/√width) from torch's generator; σ = 1."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, width).uniform_(-(width**-0.5), width**-0.5))
        self.sigma = nn.Parameter(torch.ones(()))

    def forward(self, x: Any) -> Any:
        """x (B, D) → (B, C)."""
        return self.sigma * linear(normalize(x), normalize(self.weight))
