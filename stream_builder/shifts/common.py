"""Common corruptions of ImageNet-C and CIFAR-10-C at five severities [Hendrycks & Dietterich 2019].

Constants as published: those of CIFAR-10-C for images of at most SMALL pixels, else those of ImageNet-C. Some are our
own, so that each severity changes images more than the one before it: `elastic_transform`, severities 1 and 2 of
`saturate` (published: less saturated), and severity 4 of `motion_blur` (small images) and of `fog` (large ones). Each
further occurrence raises the severity, up to five. No corruption moves the picture. Missing: frost (its photographs are
not available), snow and glass blur. For the look of old cameras use `gaussian_blur`, `jpeg` and `pixelate`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from driftline.stream_builder.shifts.base import Images, Labels, Shift, check_images

SMALL = 64  # pixels of the shorter edge
Floats = npt.NDArray[np.float32]
Severity = Annotated[int, Field(ge=1, le=5)]
Work = Callable[[Floats, Any, np.random.Generator], npt.NDArray[Any]]
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

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        check_images(x)
        level = min(5, int(self.severity * count))
        if level == 0:
            return x, y
        _, work, small, large = KINDS[self.kind]
        setting = (small if min(x.shape[1:3]) <= SMALL else large)[level - 1]
        out = np.empty_like(x)
        for low in range(0, len(x), BLOCK):
            part = x[low : low + BLOCK].astype(np.float32) / np.float32(255)
            out[low : low + BLOCK] = np.rint(np.clip(work(part, setting, rng), 0, 1) * 255).astype(np.uint8)
        return out, y


def _shift(kind: str, summary: str) -> Callable[..., Common]:
    """What the registry calls: severity → shift."""

    def make(severity: Severity = 1) -> Common:
        return Common(kind, severity)

    make.__name__, make.__doc__ = kind, summary
    return make


gaussian_noise = _shift("gaussian_noise", "Gaussian noise.")
shot_noise = _shift("shot_noise", "Poisson noise, as from few photons.")
impulse_noise = _shift("impulse_noise", "Single values become black or white.")
speckle_noise = _shift("speckle_noise", "Gaussian noise in proportion to the pixel.")
gaussian_blur = _shift("gaussian_blur", "Gaussian blur.")
defocus_blur = _shift("defocus_blur", "Disk-shaped blur, as from an unfocused lens.")
motion_blur = _shift("motion_blur", "Motion blur, in a random direction for each image.")
zoom_blur = _shift("zoom_blur", "Radial blur, as from a camera that moves closer.")
fog = _shift("fog", "Plasma noise over the image.")
brightness = _shift("brightness", "Brighter.")
contrast = _shift("contrast", "Less contrast.")
saturate = _shift("saturate", "More saturated.")
jpeg = _shift("jpeg", "JPEG compression at low quality.")
pixelate = _shift("pixelate", "Fewer pixels, enlarged again.")
elastic_transform = _shift("elastic_transform", "Random smooth displacement of pixels.")


def _gaussian_noise(x: Floats, scale: float, rng: np.random.Generator) -> Floats:
    return x + scale * rng.standard_normal(x.shape, np.float32)


def _shot_noise(x: Floats, photons: float, rng: np.random.Generator) -> npt.NDArray[Any]:
    return rng.poisson(x * photons) / photons


def _impulse_noise(x: Floats, amount: float, rng: np.random.Generator) -> Floats:
    hit, white = rng.random(x.shape, np.float32) < amount, rng.random(x.shape, np.float32) < 0.5
    return np.where(hit, white.astype(np.float32), x)


def _speckle_noise(x: Floats, scale: float, rng: np.random.Generator) -> Floats:
    return x + x * scale * rng.standard_normal(x.shape, np.float32)


def _filtered(x: Floats, kernel: Floats) -> Floats:
    """Filter all images and channels with one kernel (k, k), or image i with kernel[i] (N, k, k); edges are
    mirrored."""
    import torch
    from torch.nn.functional import conv2d, pad

    n, height, width, _ = x.shape
    kernels = torch.from_numpy(np.broadcast_to(kernel, (n, *kernel.shape[-2:])).copy()).repeat_interleave(3, 0)
    planes = torch.from_numpy(x).permute(0, 3, 1, 2).reshape(1, 3 * n, height, width)
    k = kernel.shape[-1]
    mirrored = min(k // 2, height - 1, width - 1)  # reflect cannot pad more than the image has
    padded = pad(planes, (mirrored,) * 4, mode="reflect")
    padded = pad(padded, (k // 2 - mirrored,) * 4, mode="replicate")
    filtered = conv2d(padded, kernels[:, None], groups=3 * n)
    return np.asarray(filtered.reshape(n, 3, height, width).permute(0, 2, 3, 1).numpy())


def _gaussian_kernel(sigma: float, radius: int) -> Floats:
    line = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * max(sigma, 1e-3) ** 2))
    return np.asarray(np.outer(line, line) / line.sum() ** 2, np.float32)


def _gaussian_blur(x: Floats, sigma: float, rng: np.random.Generator) -> Floats:
    return _filtered(x, _gaussian_kernel(sigma, max(1, int(4 * sigma + 0.5))))


def _defocus_blur(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    from scipy.signal import convolve2d

    radius, sigma = setting
    reach = 8 if radius <= 8 else int(radius)
    line = np.arange(-reach, reach + 1)
    disk = np.array((line[:, None] ** 2 + line[None] ** 2) <= radius**2, np.float32)
    edge = 1 if radius <= 8 else 2
    kernel = convolve2d(disk, _gaussian_kernel(sigma, edge), mode="same")
    return _filtered(x, np.asarray(kernel / kernel.sum(), np.float32))


def _motion_blur(x: Floats, setting: tuple[int, float], rng: np.random.Generator) -> Floats:
    """One half of a Gaussian along a line, as published, moved so that its centre of mass stays at the pixel."""
    radius, sigma = setting
    along = np.arange(2 * radius + 1)
    weights = np.exp(-(along**2) / (2 * sigma**2))
    offsets = along - (along * weights).sum() / weights.sum()
    angle = np.deg2rad(rng.uniform(-45, 45, len(x)))
    reach = int(np.ceil(np.abs(offsets).max()))
    kernels = np.zeros((len(x), 2 * reach + 1, 2 * reach + 1), np.float32)
    images = np.arange(len(x))
    for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
        row, column = reach + offset * np.sin(angle), reach + offset * np.cos(angle)
        top, left = np.floor(row).astype(int), np.floor(column).astype(int)
        for down in (0, 1):  # a weight between four cells is divided among them
            for right in (0, 1):
                share = np.abs(1 - down - (row - top)) * np.abs(1 - right - (column - left))
                at = np.minimum(top + down, 2 * reach), np.minimum(left + right, 2 * reach)
                kernels[images, *at] += np.float32(weight) * share
    return _filtered(x, kernels / kernels.sum((1, 2), keepdims=True))


def _zoom_blur(x: Floats, factors: tuple[float, float], rng: np.random.Generator) -> Floats:
    import torch
    from torch.nn.functional import affine_grid, grid_sample

    planes = torch.from_numpy(x).permute(0, 3, 1, 2)
    steps = np.arange(1, *factors)
    total = planes.clone()
    for zoom in steps.tolist():
        matrix = torch.tensor([[1 / zoom, 0, 0], [0, 1 / zoom, 0]], dtype=torch.float32).expand(len(x), 2, 3)
        grid = affine_grid(matrix, list(planes.shape), align_corners=False)
        total += grid_sample(planes, grid, padding_mode="border", align_corners=False)
    return np.asarray((total / (len(steps) + 1)).permute(0, 2, 3, 1).numpy())


def _plasma(n: int, size: int, decay: float, rng: np.random.Generator) -> Floats:
    """(n, size, size) fractal noise from 0 to 1: ever finer grains, each `decay` times weaker."""
    out = np.zeros((n, size, size), np.float32)
    grain, weight = 2, 1.0
    while grain <= size:
        coarse = rng.uniform(-1, 1, (n, grain + 1, grain + 1)).astype(np.float32)
        position = np.linspace(0, grain, size, endpoint=False)
        low, fraction = position.astype(int), (position % 1).astype(np.float32)
        rows = coarse[:, low] * (1 - fraction[:, None]) + coarse[:, low + 1] * fraction[:, None]
        out += weight * (rows[:, :, low] * (1 - fraction) + rows[:, :, low + 1] * fraction)
        grain, weight = grain * 2, weight / decay
    least = out.min((1, 2), keepdims=True)
    return (out - least) / (out.max((1, 2), keepdims=True) - least)


def _fog(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    amount, decay = setting
    height, width = x.shape[1:3]
    cloud = _plasma(len(x), max(height, width), decay, rng)[:, :height, :width, None]
    brightest = x.max((1, 2, 3), keepdims=True)
    return (x + amount * cloud) * brightest / (brightest + amount)


def _brightness(x: Floats, amount: float, rng: np.random.Generator) -> Floats:
    """Raises the HSV value; hue and saturation stay: channels keep their ratios."""
    value = x.max(-1, keepdims=True)
    brighter = np.clip(value + amount, 0, 1)
    return np.where(value > 0, x * brighter / np.maximum(value, 1e-6), brighter)


def _contrast(x: Floats, amount: float, rng: np.random.Generator) -> Floats:
    mean = x.mean((1, 2), keepdims=True)
    return (x - mean) * amount + mean


def _saturate(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    factor, offset = setting
    value, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    old = (value - least) / np.maximum(value, 1e-6)
    new = np.clip(old * factor + offset, 0, 1)
    share = (value - x) / np.maximum(value - least, 1e-6)  # 0: the largest channel, 1: the smallest
    return value - share * value * np.where(old > 0, new, 0)


def _each(x: Floats, transform: Callable[[Any], Any]) -> Floats:
    """Transform each image as a PIL image."""
    from PIL import Image

    images = (Image.fromarray(np.rint(pixels * 255).astype(np.uint8)) for pixels in x)
    return np.stack([np.asarray(transform(image), np.float32) / 255 for image in images])


def _jpeg(x: Floats, quality: int, rng: np.random.Generator) -> Floats:
    from PIL import Image

    def recompress(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _each(x, recompress)


def _pixelate(x: Floats, share: float, rng: np.random.Generator) -> Floats:
    from PIL.Image import Resampling

    height, width = x.shape[1:3]
    smaller = (max(1, int(width * share)), max(1, int(height * share)))
    return _each(x, lambda image: image.resize(smaller, Resampling.BOX).resize((width, height), Resampling.BOX))


def _elastic_transform(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    """setting: strain, and smoothness as a share of the shorter edge. Every pixel moves by a smooth random displacement
    with mean zero in each image.

    Neighbouring pixels move by at most `strain` < 1 of their distance against each other, so that nothing folds.
    """
    import torch
    from torch.nn.functional import grid_sample

    n, height, width, _ = x.shape
    if min(height, width) < 2:
        return x
    strain, sigma = setting[0], setting[1] * min(height, width)
    noise = rng.uniform(-1, 1, (n, height, width, 3)).astype(np.float32)
    moved = _filtered(noise, _gaussian_kernel(sigma, max(1, int(3 * sigma))))[..., :2]
    moved -= moved.mean((1, 2), keepdims=True)
    across, down = np.abs(np.diff(moved, axis=2)), np.abs(np.diff(moved, axis=1))
    of_cells = np.maximum(across[:, 1:], across[:, :-1]) + np.maximum(down[:, :, 1:], down[:, :, :-1])
    largest = np.maximum(of_cells.max((1, 2, 3)), np.float32(1e-12))
    moved *= (strain / largest)[:, None, None, None]
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    source = np.stack([(columns + moved[..., 0]) / max(1, width - 1), (rows + moved[..., 1]) / max(1, height - 1)], -1)
    grid = torch.from_numpy(np.asarray(source * 2 - 1, np.float32))
    planes = torch.from_numpy(x).permute(0, 3, 1, 2)
    warped = grid_sample(planes, grid, padding_mode="reflection", align_corners=True)
    return np.asarray(warped.permute(0, 2, 3, 1).numpy())


# name → what it acts on, its function, its settings at severity 1 to 5 for small images and for others
KINDS: dict[str, tuple[str, Work, tuple[Any, ...], tuple[Any, ...]]] = {
    "gaussian_noise": ("noise", _gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.1), (0.08, 0.12, 0.18, 0.26, 0.38)),
    "shot_noise": ("noise", _shot_noise, (500, 250, 100, 75, 50), (60, 25, 12, 5, 3)),
    "impulse_noise": ("noise", _impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27)),
    "speckle_noise": ("noise", _speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2), (0.15, 0.2, 0.35, 0.45, 0.6)),
    "gaussian_blur": ("quality", _gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1), (1, 2, 3, 4, 6)),
    "defocus_blur": (
        "quality", _defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)), ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "motion_blur": (
        "quality", _motion_blur,
        ((6, 1), (6, 1.5), (6, 2), (8, 2.25), (9, 2.5)), ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom_blur": (
        "quality", _zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    "fog": (
        "quality", _fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), ((1.5, 2), (2, 2), (2.5, 1.7), (2.75, 1.55), (3, 1.4)),
    ),
    "brightness": ("colour", _brightness, (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": ("colour", _contrast, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    "saturate": (
        "colour", _saturate,
        ((1.2, 0), (1.35, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), ((1.3, 0), (1.6, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ),
    "jpeg": ("quality", _jpeg, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
    "pixelate": ("quality", _pixelate, (0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25)),
    "elastic_transform": (
        "quality", _elastic_transform,
        ((0.19, 0.08), (0.36, 0.08), (0.54, 0.08), (0.72, 0.08), (0.9, 0.08)),
        ((0.19, 0.08), (0.36, 0.08), (0.54, 0.08), (0.72, 0.08), (0.9, 0.08)),
    ),
}  # fmt: skip
