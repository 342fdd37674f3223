"""Networks as chains of named blocks, so that a method can freeze, replace, extend and interpolate single blocks.

A new network is one function `(name, n_classes, x_shape) → Blocks` in a file here and one line in `NETS`.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.registry import Registry
from driftline.eval.engine.linear import seeded

if TYPE_CHECKING:  # without torch, which may be absent, the names are known
    from driftline.eval.nets.chain import Blocks, Net

DEPTHS = {"conv": "conv", "res": "residual", "dense": "dense"}
NETS = Registry(
    "network",
    "driftline.eval.nets.chain",
    {f"{name}-{n}": f":{make}" for name, make in DEPTHS.items() for n in (1, 2, 3, 4)}
    | {"linear": ":linear", "mlp": ":mlp"},
    group="networks",
)


def build(
    name: str, n_classes: int, x_shape: tuple[int, ...], rng: np.random.Generator, stored: bool = False
) -> "Net":  # fmt: skip
    """A network with random weights from `rng`; any timm model is one block and a classifier.

    name: registered, package.module:Name, or a timm model. x_shape: of one sample, (H, W, 3) or (D,). stored: the name
    comes from a file, for which no module is imported. Raises BadConfig for an unknown name and for a network that
    takes other samples.
    """
    from driftline.eval.nets.chain import Net, of_timm

    if ":" in name and not stored:
        NETS.resolve(name)
    make = NETS[name] if name in NETS else partial(of_timm, known=NETS)  # `get` would raise
    blocks: Blocks = make(name, n_classes, x_shape)
    if blocks.features != (len(x_shape) == 1):
        wanted = "features (D,)" if blocks.features else "images (H, W, 3)"
        raise BadConfig(f"{name} takes {wanted}; the samples have shape {x_shape}.", "Choose another network.")
    with seeded(rng):
        return Net(blocks)
