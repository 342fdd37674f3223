"""A network as a chain of named blocks, each a sum of parts, which Seq-to-Final's methods train, freeze or extend; the
paper's three families on images [spec, section 2], two networks on features, and any timm model."""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from driftline.curate.core.errors import UnknownName, did_you_mean
from driftline.curate.core.late import timm
from driftline.eval.engine.layers import Conv, Norm

STEM, HEAD = "stem", "fc"
Make = Callable[[], nn.Module]


@dataclass
class Blocks:
    """The definition of a network."""

    make: dict[str, Make]
    """name → function that makes the block with random weights, in the order of the pass; the last is the classifier"""
    features: bool = False
    """takes features (N, D) instead of images"""
    side: dict[str, Make] = field(default_factory=dict)
    """name of a block → function that makes a module of one layer with the same input and output shapes"""
    before_head: Callable[[Any], Any] = lambda x: x
    """function between the last block and the classifier, without parameters"""


class Net(nn.Module):
    """parts: block → its parts; used: block → for each time, which of them are summed. A plain network has one part per
    block and one time. Dropout follows the stem and each block between it and the classifier.

    Frozen parts keep their parameters; `still` decides whether they also keep their statistics.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.blocks = blocks
        self.parts: Any = nn.ModuleDict({name: nn.ModuleList([make()]) for name, make in blocks.make.items()})
        self.used: dict[str, list[list[int]]] = {name: [[0]] for name in blocks.make}
        self.additions: list[dict[str, Any]] = []  # additions to the plain network, to rebuild it
        self.fits: list[str] = []  # keys of the stored fits that made its weights, in their order
        self.shares: dict[tuple[str, int], float] = {}  # factors of parts' outputs, if not 1
        self.dropout = 0.0
        self.still = True
        self.masks: Callable[[Any, float], Any] = lambda x, p: nn.functional.dropout(x, p)

    @property
    def names(self) -> list[str]:
        """Blocks in the order of the pass."""
        return list(self.used)

    @property
    def device(self) -> Any:
        """Device of its weights."""
        return next(self.parameters()).device

    @property
    def times(self) -> int:
        """Number of models in it: one, or one for each time."""
        return len(next(iter(self.used.values())))

    def forward(self, x: Any, time: int = -1) -> Any:
        """x (N, 3, H, W) or (N, D) → scores (N, C) of the model of one time."""
        for name in self.names:
            if name == HEAD:
                x = widened(self.blocks.before_head(x))
            x = self.block(name, x, time)
            if self.training and self.dropout and name != HEAD:
                x = x * self.masks(x, self.dropout)
        return x

    def block(self, name: str, x: Any, time: int = -1) -> Any:
        """Output of one block, without dropout."""
        total: Any = None
        for k in self.used[name][time]:
            output = self.parts[name][k](x)
            output = output * self.shares[name, k] if (name, k) in self.shares else output
            total = output if total is None else total + output
        return total

    def train(self, mode: bool = True) -> "Net":
        """Training mode, except for frozen parts if they are to keep their statistics."""
        super().train(mode)
        if mode and self.still:
            for part in self.each():
                params = list(part.parameters())
                if params and not any(p.requires_grad for p in params):
                    part.eval()
        return self

    def each(self) -> list[nn.Module]:
        """All parts of all blocks."""
        return [part for parts in self.parts.values() for part in parts]

    def newest(self, time: int = -1) -> list[Any]:
        """Parameters of each block's newest part at a time, in the order of the pass."""
        return [p for name in self.names for p in self.parts[name][self.used[name][time][-1]].parameters()]

    def only(self, names: Sequence[str]) -> None:
        """Freeze everything except the newest parts of these blocks."""
        for name in self.names:
            for k, part in enumerate(self.parts[name]):
                part.requires_grad_(name in names and k == len(self.parts[name]) - 1)

    def copy(self) -> "Net":
        """A copy that further training does not touch."""
        return copy.deepcopy(self)


def weights_of(module: nn.Module) -> list[Any]:
    """Weights and biases of convolutions and linear layers, not of normalisation: those that the paper's code
    decays."""
    weights = []
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            weights += [p for p in (part.weight, part.bias) if p is not None]
    return weights


def counted(net: nn.Module) -> int:
    """Number of parameters in convolutions and linear layers without shortcuts, as in Table 7."""
    shortcuts = {id(p) for name, p in net.named_parameters() if ".shortcut." in name}
    return sum(p.numel() for p in weights_of(net) if id(p) not in shortcuts)


def widened(x: Any) -> Any:
    """bfloat16 → float32; others unchanged."""
    return x.float() if x.dtype is torch.bfloat16 else x


def mean_of_places(x: Any) -> Any:
    """(N, C, H, W) → (N, C)."""
    return widened(x).mean((2, 3))


def stem() -> nn.Module:
    """[spec, section 2] conv 7 × 7 / 2, normalisation, ReLU, pooling 3 × 3 / 2: (N, 3, H, W) → (N, 64, H/4, W/4)."""
    return nn.Sequential(Conv(3, 64, 7, 2, 3), Norm(64, pool=True))


def drawn(part: nn.Module, **how: Any) -> nn.Module:
    """Convolutions initialised as in torchvision: normal, scaled by fan-in; how: of torch's kaiming_normal_."""
    for module in part.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, **how)
    return part


def conv_norm(inside: int, outside: int, stride: int) -> nn.Module:
    """conv 3 × 3 without bias, and normalisation: a block of ConvNets, and the one-layer side module."""
    return nn.Sequential(Conv(inside, outside, 3, stride, 1), Norm(outside))


WIDTHS = {1: (512,), 2: (128, 512), 3: (128, 256, 512), 4: (64, 128, 256, 512)}  # [Table 7]; also of ResNets


def shapes_of(name: str) -> list[tuple[int, int, int]]:
    """Channels in and out, and stride of each block, as of `res-3`: the last three halve height and width."""
    widths = WIDTHS[int(name[-1])]
    return [(*pair, 2 if i >= len(widths) - 3 else 1) for i, pair in enumerate(pairwise((64, *widths)))]


def conv(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A stem, then 1 to 4 convolutions with normalisation."""
    shapes = shapes_of(name)
    make = {str(i + 1): partial(conv_norm, *shape) for i, shape in enumerate(shapes)}
    head = partial(nn.Linear, shapes[-1][1], n_classes)
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
    shapes = shapes_of(name)
    whole = {str(i + 1): partial(_pair, *shape) for i, shape in enumerate(shapes)}
    side = {str(i + 1): partial(conv_norm, *shape) for i, shape in enumerate(shapes)}
    make: dict[str, Make] = {
        STEM: lambda: drawn(stem(), **FAN_OUT),
        **whole,
        HEAD: partial(nn.Linear, shapes[-1][1], n_classes),
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
    counts = LAYERS[int(name[-1])]
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


def of_timm(name: str, n_classes: int, x_shape: tuple[int, ...], known: Collection[str] = ()) -> Blocks:
    """Raises UnknownName for a name that timm does not have."""
    if not timm.is_model(name):
        problem = f"Unknown network {name!r}."
        raise UnknownName(problem, did_you_mean(name, known), f"Available: {', '.join(known)}, and the models of timm.")
    body: Any = partial(timm.create_model, name, num_classes=0)
    return Blocks({"body": body, HEAD: partial(nn.Linear, body().num_features, n_classes)})
