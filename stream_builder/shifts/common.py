"""Common corruptions at five severities, as ImageNet-C and CIFAR-10-C have them [Hendrycks & Dietterich 2019].

Their published constants, those of CIFAR-10-C for pictures of at most SMALL pixels; `elastic_transform` has its own.
Coming up again raises the severity, up to five. Frost (its photographs cannot be had), snow and glass blur are not
among them. What aged cameras did – blur, JPEG, few pixels – is `gaussian_blur`, `jpeg`, `pixelate`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_builder.shifts.base import Images, Labels, Shift, check_images

SMALL = 64  # pixels of the shorter edge
Floats = npt.NDArray[np.float32]
Work = Callable[[Floats, Any, np.random.Generator], npt.NDArray[Any]]
BLOCK = 1024  # images at a time


@dataclass(frozen=True)
class Common(Shift):
    """A corruption that `KINDS` names, at a severity of 1 to 5 for each time that it came up."""

    kind: str
    severity: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.severity <= 5:
            raise ValueError(f"severity {self.severity}: expected 1 to 5")
        object.__setattr__(self, "letter", self.kind)
        object.__setattr__(self, "acts_on", KINDS[self.kind][0])

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        level = min(5, int(self.severity * times))
        if level == 0:
            return x, y
        _, work, small, large = KINDS[self.kind]
        setting = (small if min(x.shape[1:3]) <= SMALL else large)[level - 1]
        out = np.empty_like(x)
        for low in range(0, len(x), BLOCK):
            part = x[low : low + BLOCK].astype(np.float32) / np.float32(255)
            out[low : low + BLOCK] = np.rint(np.clip(work(part, setting, rng), 0, 1) * 255).astype(np.uint8)
        return out, y


def gaussian_noise(severity: int = 1) -> Common:
    """gaussian_noise: normal noise."""
    return Common("gaussian_noise", severity)


def shot_noise(severity: int = 1) -> Common:
    """shot_noise: Poisson noise, as of few photons."""
    return Common("shot_noise", severity)


def impulse_noise(severity: int = 1) -> Common:
    """impulse_noise: single values black or white."""
    return Common("impulse_noise", severity)


def speckle_noise(severity: int = 1) -> Common:
    """speckle_noise: normal noise in proportion to the pixel."""
    return Common("speckle_noise", severity)


def gaussian_blur(severity: int = 1) -> Common:
    """gaussian_blur: an unfocused lens, smoothly."""
    return Common("gaussian_blur", severity)


def defocus_blur(severity: int = 1) -> Common:
    """defocus_blur: an unfocused lens, by its disk."""
    return Common("defocus_blur", severity)


def motion_blur(severity: int = 1) -> Common:
    """motion_blur: a camera that moved; a random direction each."""
    return Common("motion_blur", severity)


def zoom_blur(severity: int = 1) -> Common:
    """zoom_blur: a camera that came nearer."""
    return Common("zoom_blur", severity)


def fog(severity: int = 1) -> Common:
    """fog: plasma noise over the picture."""
    return Common("fog", severity)


def brightness(severity: int = 1) -> Common:
    """brightness: more light."""
    return Common("brightness", severity)


def contrast(severity: int = 1) -> Common:
    """contrast: less of it."""
    return Common("contrast", severity)


def saturate(severity: int = 1) -> Common:
    """saturate: paler, then more colourful."""
    return Common("saturate", severity)


def jpeg(severity: int = 1) -> Common:
    """jpeg: compressed at low quality."""
    return Common("jpeg", severity)


def pixelate(severity: int = 1) -> Common:
    """pixelate: few pixels, enlarged again."""
    return Common("pixelate", severity)


def elastic_transform(severity: int = 1) -> Common:
    """elastic_transform: stretched here and there."""
    return Common("elastic_transform", severity)


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
    """Every picture and channel with a kernel (k, k), or picture i with kernel[i] (N, k, k); edges are mirrored."""
    import torch
    from torch.nn.functional import conv2d, pad

    n, height, width, _ = x.shape
    kernels = torch.from_numpy(np.broadcast_to(kernel, (n, *kernel.shape[-2:])).copy()).repeat_interleave(3, 0)
    planes = torch.from_numpy(x).permute(0, 3, 1, 2).reshape(1, 3 * n, height, width)
    k = kernel.shape[-1]
    most = min(k // 2, height - 1, width - 1)
    padded = pad(planes, (most,) * 4, mode="reflect")
    padded = pad(padded, (k // 2 - most,) * 4, mode="replicate")
    found = conv2d(padded, kernels[:, None], groups=3 * n)
    return np.asarray(found.reshape(n, 3, height, width).permute(0, 2, 3, 1).numpy())


def _bell(sigma: float, radius: int) -> Floats:
    line = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * max(sigma, 1e-3) ** 2))
    return np.asarray(np.outer(line, line) / line.sum() ** 2, np.float32)


def _gaussian_blur(x: Floats, sigma: float, rng: np.random.Generator) -> Floats:
    return _filtered(x, _bell(sigma, max(1, int(4 * sigma + 0.5))))


def _defocus_blur(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    radius, smooth = setting
    reach = 8 if radius <= 8 else int(radius)
    line = np.arange(-reach, reach + 1)
    disk = np.array((line[:, None] ** 2 + line[None] ** 2) <= radius**2, np.float32)
    edge = 1 if radius <= 8 else 2
    bell = np.pad(_bell(smooth, edge), reach - edge)
    kernel = np.fft.fftshift(np.real(np.fft.ifft2(np.fft.fft2(disk / disk.sum()) * np.fft.fft2(bell))))
    return _filtered(x, np.asarray(kernel / kernel.sum(), np.float32))


def _motion_blur(x: Floats, setting: tuple[int, float], rng: np.random.Generator) -> Floats:
    radius, sigma = setting
    size = 2 * radius + 1
    weights = np.exp(-(np.arange(size) ** 2) / (2 * sigma**2))
    kernels = np.zeros((len(x), size, size), np.float32)
    angle = np.deg2rad(rng.uniform(-45, 45, len(x)))
    for i in range(size):
        row = np.clip(np.rint(radius + i * np.sin(angle)), 0, size - 1).astype(int)
        column = np.clip(np.rint(radius + i * np.cos(angle)), 0, size - 1).astype(int)
        kernels[np.arange(len(x)), row, column] += weights[i]
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
    """(n, size, size) fractal noise from 0 to 1: noise of ever finer grain, each `decay` times weaker."""
    out = np.zeros((n, size, size), np.float32)
    grain, weight = 2, 1.0
    while grain <= size:
        coarse = rng.uniform(-1, 1, (n, grain + 1, grain + 1)).astype(np.float32)
        at = np.linspace(0, grain, size, endpoint=False)
        low, part = at.astype(int), (at % 1).astype(np.float32)
        rows = coarse[:, low] * (1 - part[:, None]) + coarse[:, low + 1] * part[:, None]
        out += weight * (rows[:, :, low] * (1 - part) + rows[:, :, low + 1] * part)
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
    """More value, same hue and saturation: channels keep their ratios."""
    value = x.max(-1, keepdims=True)
    lighter = np.clip(value + amount, 0, 1)
    return np.where(value > 0, x * lighter / np.maximum(value, 1e-6), lighter)


def _contrast(x: Floats, amount: float, rng: np.random.Generator) -> Floats:
    mean = x.mean((1, 2), keepdims=True)
    return (x - mean) * amount + mean


def _saturate(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    factor, more = setting
    value, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    old = (value - least) / np.maximum(value, 1e-6)
    new = np.clip(old * factor + more, 0, 1)
    share = (value - x) / np.maximum(value - least, 1e-6)  # 0: the greatest channel, 1: the least
    return value - share * value * np.where(old > 0, new, 0)


def _each(x: Floats, work: Callable[[Any], Any]) -> Floats:
    from PIL import Image

    pictures = (Image.fromarray(np.rint(p * 255).astype(np.uint8)) for p in x)
    return np.stack([np.asarray(work(p), np.float32) / 255 for p in pictures])


def _jpeg(x: Floats, quality: int, rng: np.random.Generator) -> Floats:
    from PIL import Image

    def again(picture: Any) -> Any:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _each(x, again)


def _pixelate(x: Floats, share: float, rng: np.random.Generator) -> Floats:
    from PIL.Image import Resampling

    height, width = x.shape[1:3]
    few = (max(1, int(width * share)), max(1, int(height * share)))
    return _each(x, lambda p: p.resize(few, Resampling.BOX).resize((width, height), Resampling.BOX))


def _elastic_transform(x: Floats, setting: tuple[float, float], rng: np.random.Generator) -> Floats:
    """alpha, sigma as shares of the shorter edge: every pixel comes from a smooth random way off."""
    import torch
    from torch.nn.functional import grid_sample

    n, height, width, _ = x.shape
    edge = min(height, width)
    alpha, sigma = setting[0] * edge, setting[1] * edge
    way = rng.uniform(-1, 1, (n, height, width, 3)).astype(np.float32)
    smooth = _filtered(way, _bell(sigma, max(1, int(3 * sigma))))[..., :2] * alpha
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    place = np.stack([(columns + smooth[..., 0]) / max(1, width - 1), (rows + smooth[..., 1]) / max(1, height - 1)], -1)
    grid = torch.from_numpy(np.asarray(place * 2 - 1, np.float32))
    planes = torch.from_numpy(x).permute(0, 3, 1, 2)
    found = grid_sample(planes, grid, padding_mode="reflection", align_corners=True)
    return np.asarray(found.permute(0, 2, 3, 1).numpy())


# name → what it acts on, the work, its settings at severity 1 to 5 for small pictures and for others
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
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)), ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom_blur": (
        "quality", _zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    "fog": (
        "quality", _fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "brightness": ("colour", _brightness, (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": ("colour", _contrast, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    "saturate": (
        "colour", _saturate,
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ),
    "jpeg": ("quality", _jpeg, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
    "pixelate": ("quality", _pixelate, (0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25)),
    "elastic_transform": (
        "quality", _elastic_transform,
        ((0.8, 0.08), (1.0, 0.08), (1.2, 0.08), (1.4, 0.07), (1.6, 0.06)),
        ((2.0, 0.08), (2.4, 0.07), (2.8, 0.06), (3.2, 0.05), (3.6, 0.04)),
    ),
}  # fmt: skip
