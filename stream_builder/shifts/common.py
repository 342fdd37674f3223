"""Corruptions by torchvision, at severities 1 to 5: what noise, blur, compression and colours of a camera change.

Noise, contrast, `jpeg` and `pixelate` have the constants of CIFAR-10-C [Hendrycks & Dietterich 2019], the others are
our own; lengths are in units of a 32nd of the shorter edge. Each further occurrence raises the severity, up to five.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import Field

from driftline.stream_builder.shifts.base import Images, Labelled, Labels, Shift, check_images

Severity = Annotated[int, Field(ge=1, le=5)]
Work = Callable[[Any, Any, float], Any]  # images (n, 3, H, W) uint8, setting, a 32nd of the shorter edge → the same
BLOCK = 1024  # images at a time


@dataclass(frozen=True)
class Common(Shift):
    """One of the corruptions in `KINDS`."""

    adds: ClassVar[str] = "severity"
    kind: str
    """key of KINDS"""
    severity: Severity = 1
    """severity added each time, up to 5 in total"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self.kind)
        object.__setattr__(self, "acts_on", KINDS[self.kind][0])

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        import torch

        check_images(x)
        level = min(5, int(self.severity * count))
        if level == 0:
            return x, y
        _, work, settings = KINDS[self.kind]
        out = np.empty_like(x)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            for low in range(0, len(x), BLOCK):
                planes = torch.from_numpy(np.array(x[low : low + BLOCK])).permute(0, 3, 1, 2)
                changed = work(planes, settings[level - 1], min(x.shape[1:3]) / 32)
                out[low : low + BLOCK] = changed.permute(0, 2, 3, 1).numpy()
        return out, y


def _functions() -> Any:
    from torchvision.transforms.v2 import functional

    return functional


def _blur(x: Any, sigma: float, unit: float) -> Any:
    sigma *= max(1.0, unit)
    radius = min(ceil(3 * sigma), min(x.shape[2:]) - 1)
    return _functions().gaussian_blur(x, [2 * radius + 1] * 2, [sigma] * 2) if radius else x


def _pixelate(x: Any, share: float, unit: float) -> Any:
    from torchvision.transforms import InterpolationMode

    size = list(x.shape[2:])
    smaller = _functions().resize(x, [max(1, int(edge * share)) for edge in size], antialias=True)
    return _functions().resize(smaller, size, InterpolationMode.NEAREST_EXACT)


def _elastic(x: Any, alpha: float, unit: float) -> Any:
    import torch
    from torchvision.transforms.v2 import ElasticTransform

    return torch.stack([ElasticTransform(alpha * unit, 2.5 * unit)(image) for image in x])


def _shift(kind: str, summary: str) -> Callable[..., Common]:
    """What the registry calls: severity → shift."""

    def make(severity: Severity = 1) -> Common:
        return Common(kind, severity)

    make.__name__, make.__doc__ = kind, summary
    return make


gaussian_noise = _shift("gaussian_noise", "Gaussian noise.")
gaussian_blur = _shift("gaussian_blur", "Gaussian blur.")
brightness = _shift("brightness", "Brighter.")
contrast = _shift("contrast", "Less contrast.")
saturate = _shift("saturate", "More saturated.")
jpeg = _shift("jpeg", "JPEG compression at low quality.")
pixelate = _shift("pixelate", "Fewer pixels, enlarged again.")
elastic_transform = _shift("elastic_transform", "Random smooth displacement of pixels.")

# name → what it acts on, its function, its settings at severity 1 to 5
KINDS: dict[str, tuple[str, Work, tuple[float, ...]]] = {
    "gaussian_noise": ("noise", lambda x, s, _: _functions().gaussian_noise(x, 0.0, s), (0.04, 0.06, 0.08, 0.09, 0.1)),
    "gaussian_blur": ("quality", _blur, (0.4, 0.6, 0.8, 1.0, 1.3)),
    "brightness": ("colour", lambda x, s, _: _functions().adjust_brightness(x, s), (1.1, 1.2, 1.35, 1.5, 1.8)),
    "contrast": ("colour", lambda x, s, _: _functions().adjust_contrast(x, s), (0.75, 0.5, 0.4, 0.3, 0.15)),
    "saturate": ("colour", lambda x, s, _: _functions().adjust_saturation(x, s), (1.3, 1.6, 2.0, 2.6, 3.5)),
    "jpeg": ("quality", lambda x, s, _: _functions().jpeg(x, s), (80, 65, 58, 50, 40)),
    "pixelate": ("quality", _pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "elastic_transform": ("quality", _elastic, (8, 16, 24, 32, 40)),
}
