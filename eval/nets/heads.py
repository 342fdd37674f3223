"""Networks on features."""

from __future__ import annotations

from functools import partial

from torch import nn

from driftline.eval.nets.chain import HEAD, Blocks

HIDDEN = 512


def linear(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """One linear layer."""
    return Blocks({HEAD: partial(nn.Linear, x_shape[0], n_classes)}, features=True)


def mlp(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A hidden layer with ReLU, then a linear layer."""

    def hidden() -> nn.Module:
        return nn.Sequential(nn.Linear(x_shape[0], HIDDEN), nn.ReLU())

    return Blocks({"1": hidden, HEAD: partial(nn.Linear, HIDDEN, n_classes)}, features=True, side={"1": hidden})
