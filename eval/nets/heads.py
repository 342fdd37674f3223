"""Networks on features; and any timm model as one block, which can be frozen below its classifier, but has no side
modules."""

from functools import partial
from typing import Any

from torch import nn

from driftline.curate.core.errors import UnknownName, did_you_mean
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


def of_timm(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """Raises UnknownName for a name that timm does not have."""
    import timm

    if not timm.is_model(name):
        from driftline.eval.nets import NETS

        problem = f"Unknown network {name!r}."
        raise UnknownName(problem, did_you_mean(name, NETS), f"Available: {', '.join(NETS)}, and the models of timm.")
    body: Any = partial(timm.create_model, name, num_classes=0)
    return Blocks({"body": body, HEAD: partial(nn.Linear, body().num_features, n_classes)})
