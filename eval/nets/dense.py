"""DenseNets of Seq-to-Final: growth 32, bottleneck 4; dense-4 is DenseNet-121 [spec, section 2; Huang et al. 2017]."""

from functools import partial
from typing import Any

import torch
from torch import nn

from driftline.eval.engine.convolved import Conv
from driftline.eval.engine.normed import Norm
from driftline.eval.nets.chain import HEAD, STEM, Blocks, Make, conv_norm, depth_of, drawn, mean_of_places, stem

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


def blocks(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
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
