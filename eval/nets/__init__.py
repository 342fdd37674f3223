"""Networks as chains of named blocks, so that a method can freeze, replace, add to and interpolate single blocks.

A new family is one function `(n_classes, shape, setting) → blocks` in a file here and one line in `NETS`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from curate.core.errors import BadConfig
from curate.core.registry import Registry
from eval.nets.chain import Blocks, Net

NETS = Registry(
    "network",
    {
        **{f"conv-{n}": "eval.nets.conv:blocks" for n in (1, 2, 3, 4)},
        **{f"res-{n}": "eval.nets.residual:blocks" for n in (1, 2, 3, 4)},
        **{f"dense-{n}": "eval.nets.dense:blocks" for n in (1, 2, 3, 4)},
        "linear": "eval.nets.heads:linear",
        "mlp": "eval.nets.heads:mlp",
    },
    group="networks",
)


def build(name: str, n_classes: int, x_shape: tuple[int, ...], rng: np.random.Generator) -> Net:
    """A network with random weights from `rng`; any timm model is one block and a classifier.

    x_shape: of one sample, (H, W, 3) or (D,). Raises BadConfig for an unknown name, or one that takes other samples.
    """
    from eval.nets import timm

    of: Callable[..., Blocks] = NETS[name] if name in NETS else timm.blocks  # noqa: SIM401  get raises
    blocks = of(name, n_classes, x_shape)
    if blocks.features != (len(x_shape) == 1):
        wanted = "features (D,)" if blocks.features else "images (H, W, 3)"
        raise BadConfig(f"{name} takes {wanted}, the samples have shape {x_shape}.", "Choose another network.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        return Net(blocks)
