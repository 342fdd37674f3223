"""The networks of Seq-to-Final: three families on images [spec, section 2], two on features; and any timm model."""

from functools import partial
from typing import Any

import torch
from torch import nn

from driftline.curate.core.errors import UnknownName, did_you_mean
from driftline.eval.engine.layers import Conv, Norm
from driftline.eval.nets.chain import (
    HEAD,
    STEM,
    Blocks,
    Make,
    conv_norm,
    depth_of,
    drawn,
    mean_of_places,
    stem,
    strides,
)

WIDTHS = {1: (512,), 2: (128, 512), 3: (128, 256, 512), 4: (64, 128, 256, 512)}  # [Table 7]; also of ResNets


def conv(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A stem, then 1 to 4 convolutions with normalisation."""
    widths = WIDTHS[depth_of(name)]
    shapes = zip((64, *widths[:-1]), widths, strides(len(widths)), strict=True)
    make = {str(i + 1): partial(conv_norm, *shape) for i, shape in enumerate(shapes)}
    head = partial(nn.Linear, widths[-1], n_classes)
    return Blocks({STEM: stem, **make, HEAD: head}, side=dict(make), before_head=mean_of_places)


FAN_OUT = {"mode": "fan_out", "nonlinearity": "relu"}  # initialisation of convolutions, as in torchvision


class Basic(nn.Module):
    """conv-norm-ReLU-conv-norm and a shortcut, with a 1 × 1 convolution if the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(inside, outside, 3, stride, 1)
        self.norm1 = Norm(outside, relu=True)
        self.conv2 = Conv(outside, outside, 3, 1, 1)
        self.norm2 = Norm(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(Conv(inside, outside, 1, stride), Norm(outside))

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) → (N, D, H/stride, W/stride)."""
        return torch.relu(self.norm2(self.conv2(self.norm1(self.conv1(x)))) + self.shortcut(x))


def residual(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A stem, then 1 to 4 pairs of residual blocks; res-4 is ResNet-18."""
    widths = WIDTHS[depth_of(name)]
    shapes = list(zip((64, *widths[:-1]), widths, strides(len(widths)), strict=True))
    whole = {str(i + 1): partial(_pair, *shape) for i, shape in enumerate(shapes)}
    side = {str(i + 1): partial(conv_norm, *shape) for i, shape in enumerate(shapes)}
    make: dict[str, Make] = {
        STEM: lambda: drawn(stem(), **FAN_OUT),
        **whole,
        HEAD: partial(nn.Linear, widths[-1], n_classes),
    }
    return Blocks(make, side=dict(side), before_head=mean_of_places)


def _pair(inside: int, outside: int, stride: int) -> nn.Module:
    return drawn(nn.Sequential(Basic(inside, outside, stride), Basic(outside, outside, 1)), **FAN_OUT)


LAYERS = {1: (16,), 2: (6, 16), 3: (6, 12, 16), 4: (6, 12, 24, 16)}  # [Table 7]
GROWTH, WIDER = 32, 4


class Layer(nn.Module):
    """norm-ReLU-conv 1 × 1-norm-ReLU-conv 3 × 3: the input and 32 new channels."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = Norm(inside, relu=True), Conv(inside, WIDER * GROWTH, 1)
        self.norm2 = Norm(WIDER * GROWTH, relu=True)
        self.conv2 = Conv(WIDER * GROWTH, GROWTH, 3, 1, 1)

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) → (N, C + 32, H, W)."""
        return torch.cat([x, self.conv2(self.norm2(self.conv1(self.norm1(x))))], 1)


def dense(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A stem, then 1 to 4 dense blocks; dense-4 is DenseNet-121.

    A block ends with a transition, which halves channels, height and width; the last one with normalisation and ReLU.
    """
    counts = LAYERS[depth_of(name)]
    whole, side, inside = {}, {}, 64
    for i, count in enumerate(counts):
        last = i == len(counts) - 1
        grown = inside + GROWTH * count
        outside = grown if last else grown // 2
        whole[str(i + 1)] = partial(_block, inside, count, last)
        side[str(i + 1)] = partial(conv_norm, inside, outside, 1 if last else 2)
        inside = outside
    make: dict[str, Make] = {STEM: lambda: drawn(stem()), **whole, HEAD: partial(_head, inside, n_classes)}
    return Blocks(make, side=dict(side), before_head=mean_of_places)


def _block(inside: int, count: int, last: bool) -> nn.Module:
    layers: list[nn.Module] = [Layer(inside + GROWTH * k) for k in range(count)]
    grown = inside + GROWTH * count
    layers.append(Norm(grown, relu=True))
    if not last:
        layers += [Conv(grown, grown // 2, 1), nn.AvgPool2d(2)]
    return drawn(nn.Sequential(*layers))


def _head(inside: int, n_classes: int) -> nn.Module:
    head = nn.Linear(inside, n_classes)
    nn.init.zeros_(head.bias)
    return head


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
