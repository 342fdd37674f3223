"""Any model of timm as one block and a classifier: it can be frozen below the classifier, but has no side modules."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from curate.core.errors import BadConfig
from eval.nets.chain import HEAD, Blocks, Make


def blocks(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """Raises BadConfig for a name that timm does not have."""
    import timm

    if not timm.is_model(name):
        from eval.nets import NETS

        raise BadConfig(f"network is {name!r}.", f"Expected {', '.join(NETS)}, or a model that timm knows.")
    width: Any = timm.create_model(name, num_classes=0).num_features
    make: dict[str, Make] = {
        "body": partial(timm.create_model, name, num_classes=0),
        HEAD: partial(nn.Linear, width, n_classes),
    }
    return Blocks(make)
