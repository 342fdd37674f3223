from functools import partial

from torch import Tensor, nn

from driftline.ext import HEAD, STEM, Blocks


def convolution(channels: int) -> nn.Module:
    """(N, channels, H, W) → (N, 32, H / 2, W / 2)."""
    return nn.Sequential(nn.Conv2d(channels, 32, 3, 2, 1), nn.ReLU())


def mean_of_places(x: Tensor) -> Tensor:
    """(N, 32, H, W) → (N, 32)."""
    return x.mean((2, 3))


def tiny(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A stem and one convolution."""
    block = partial(convolution, 32)
    head = partial(nn.Linear, 32, n_classes)
    return Blocks(
        {STEM: partial(convolution, 3), "1": block, HEAD: head}, side={"1": block}, before_head=mean_of_places
    )
