"""Any timm model as one block and a classifier: it can be frozen below the classifier, but has no side modules."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from driftline.curate.core.errors import UnknownName, did_you_mean
from driftline.eval.nets.chain import HEAD, Blocks


def blocks(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """Raises UnknownName for a name that timm does not have."""
    import timm

    if not timm.is_model(name):
        from driftline.eval.nets import NETS

        problem = f"Unknown network {name!r}."
        raise UnknownName(problem, did_you_mean(name, NETS), f"Available: {', '.join(NETS)}, and the models of timm.")
    body: Any = partial(timm.create_model, name, num_classes=0)
    return Blocks({"body": body, HEAD: partial(nn.Linear, body().num_features, n_classes)})
