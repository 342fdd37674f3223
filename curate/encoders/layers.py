"""Features of a layer inside a timm network, pooled to one vector: the part `@layer=…,pool=…` of a backbone's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driftline.curate.core.errors import BadConfig, reason

POOLS = ("avg", "max", "cls")
EXPECTED = "Expected NAME@layer=NUMBER,pool=avg, max or cls, as in resnet50@layer=-2,pool=avg."


def parsed(model: str) -> tuple[str, int | None, str]:
    """Name of a network, layer and pooling; None: the network's own features. Raises BadConfig.

    >>> parsed("resnet50"), parsed("resnet50@layer=-2"), parsed("vit_tiny_patch16_224@pool=cls,layer=3")
    (('resnet50', None, 'avg'), ('resnet50', -2, 'avg'), ('vit_tiny_patch16_224', 3, 'cls'))
    """
    name, at, rest = model.partition("@")
    if not at:
        return name, None, "avg"
    pairs = [part.partition("=")[::2] for part in rest.split(",")]
    values = dict(pairs)
    digits = values.get("layer", "-1").removeprefix("-")
    complete = len(values) == len(pairs) and set(values) <= {"layer", "pool"}
    if not complete or not digits.isdecimal() or len(digits) > 3 or values.get("pool", "avg") not in POOLS:
        raise BadConfig(f"The backbone is {model!r}.", EXPECTED)
    return name, int(values.get("layer", "-1")), values.get("pool", "avg")


def create(name: str, size: int, **settings: Any) -> Any:
    """A timm network without its head, for images of `size` pixels. Raises BadConfig if it takes other ones only."""
    import timm
    from timm.models import get_pretrained_cfg

    config = get_pretrained_cfg(name)
    if config is not None and config.fixed_input_size and config.input_size[-1] != size:
        settings["dynamic_img_size"] = True  # a transformer whose positions are interpolated
    try:
        return timm.create_model(name, num_classes=0, **settings)
    except TypeError as error:
        problem = f"The backbone {name} does not take images of {size} pixels ({reason(error)})."
        raise BadConfig(problem, "Expected a network for any size.") from None


def inside(network: Any, name: str, layer: int, pool: str) -> tuple[Callable[[Any], Any], int, str]:
    """The function images (N, 3, H, W) → vectors (N, D) of a layer, D, and the layer as a name. layer: 0 is the first
    block or stage, -1 the last. Its outputs are normalised as the network's own are, if it has a norm for them. Raises
    BadConfig for a layer that the network does not have, and for a class token that it does not have."""
    stages = getattr(network, "feature_info", None) or []
    if not hasattr(network, "forward_intermediates") or not stages:
        raise BadConfig(f"timm does not give layers of {name}.", "Expected another network.", "Leave out @layer.")
    if not -len(stages) <= layer < len(stages):
        raise BadConfig(f"The layer is {layer}; {name} has {len(stages)}.", f"Expected 0 … {len(stages) - 1}, or -1 ….")
    if pool == "cls" and getattr(network, "cls_token", None) is None:
        raise BadConfig(f"The pooling is cls, and {name} has no class token.", "Expected avg or max.")
    number = layer % len(stages)
    prefix = {"return_prefix_tokens": True} if pool == "cls" else {}

    def features(x: Any) -> Any:
        options = {"norm": True, "stop_early": True, "intermediates_only": True, **prefix}
        (output,) = network.forward_intermediates(x, indices=[number], **options)
        if pool == "cls":
            return output[1][:, 0]
        return output.mean((2, 3)) if pool == "avg" else output.amax((2, 3))

    return features, int(stages[number]["num_chs"]), f"{name}@layer={number},pool={pool}"
