"""ResNets of Seq-to-Final: two basic blocks per block; res-4 is ResNet-18 [spec, section 2; He et al. 2016]."""

from functools import partial
from typing import Any

import torch
from torch import nn

from driftline.eval.engine.convolved import Conv
from driftline.eval.engine.normed import Norm
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
from driftline.eval.nets.conv import WIDTHS

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


def blocks(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
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
