"""Random views of images as in MoCo v2, in batches, on the training device.

Crop, resize, flip and blur are separable, so a view is A·X·Bᵀ for each channel; colour changes are one affine map of
the channels. Two matrix products and one of 3 × 3 replace six passes of PIL over each image. Differences to
torchvision: values are clamped once at the end, and the order of the colour changes is fixed (hue, saturation,
brightness, contrast).
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from driftline.curate.encoders.backbone import MEAN, STD

Numbers = npt.NDArray[np.float64]
JITTER, JITTERED, HUE = 0.4, 0.8, 0.1
GREY, BLURRED, SIGMA = 0.2, 0.5, (0.1, 2.0)  # sigma in pixels of a view with edge 224
AREA, RATIO = (0.2, 1.0), (3 / 4, 4 / 3)
LUMA = np.array([0.299, 0.587, 0.114])
TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])


@dataclass(frozen=True)
class ViewParameters:
    """The random parameters of N views; (N,) each unless stated otherwise."""

    left: Numbers
    """of the crop, in pixels"""
    top: Numbers
    """of the crop, in pixels"""
    width: Numbers
    """of the crop, in pixels"""
    height: Numbers
    """of the crop, in pixels"""
    flip: Numbers
    """1: mirrored; 0: not"""
    sigma: Numbers
    """of the blur, in pixels of the view; 0: no blur"""
    colours: Numbers
    """(N, 3, 3) matrix of the channels"""
    contrast: Numbers
    """factor; 1: unchanged"""

    def part(self, start: int, stop: int) -> "ViewParameters":
        """Views [start, stop)."""
        return ViewParameters(*(getattr(self, f.name)[start:stop] for f in fields(self)))


def draw_views(n: int, size: int, room: int, rng: np.random.Generator) -> ViewParameters:
    """Random parameters of one view of each of n images."""
    left, top, width, height = random_crops(n, room, rng)
    flip = (rng.random(n) < 0.5).astype(np.float64)
    sigma = np.where(rng.random(n) < BLURRED, rng.uniform(*SIGMA, n), 0.0) * size / 224
    jittered = rng.random(n) < JITTERED
    bright, contrast, full = (np.where(jittered, rng.uniform(1 - JITTER, 1 + JITTER, n), 1.0) for _ in range(3))
    turn = np.where(jittered, rng.uniform(-HUE, HUE, n), 0.0) * 2 * np.pi
    grey = rng.random(n) < GREY
    hues = hue_rotations(np.where(grey, 0.0, turn))
    colours = bright[:, None, None] * saturation_matrices(np.where(grey, 0.0, full)) @ hues
    return ViewParameters(left, top, width, height, flip=flip, sigma=sigma, colours=colours, contrast=contrast)


def random_crops(n: int, room: int, rng: np.random.Generator) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """left, top, width, height of random crops, as torchvision's RandomResizedCrop: area uniform, ratio log-uniform;
    the complete image after ten failures."""
    area = rng.uniform(*AREA, (n, 10)) * room * room
    ratio = np.exp(rng.uniform(np.log(RATIO[0]), np.log(RATIO[1]), (n, 10)))
    widths, heights = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (widths <= room) & (heights <= room)
    any_fits, first = fits.any(1), (np.arange(n), fits.argmax(1))
    width, height = np.where(any_fits, widths[first], room), np.where(any_fits, heights[first], room)
    return np.floor(rng.random(n) * (room - width + 1)), np.floor(rng.random(n) * (room - height + 1)), width, height


def saturation_matrices(factors: Numbers) -> Numbers:
    """(N, 3, 3): a blend of each image with its grey values."""
    return factors[:, None, None] * np.eye(3) + (1 - factors)[:, None, None] * LUMA[None, None, :]


def hue_rotations(angles: Numbers) -> Numbers:
    """(N, 3, 3): rotations of the hue in YIQ, by angles in radians."""
    cos, sin, zero, one = np.cos(angles), np.sin(angles), np.zeros_like(angles), np.ones_like(angles)
    turn = np.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], 1).reshape(-1, 3, 3)
    return np.asarray(np.linalg.inv(TO_YIQ) @ turn @ TO_YIQ)


def resampling_matrices(starts: torch.Tensor, lengths: torch.Tensor, size: int, room: int) -> torch.Tensor:
    """(N, size, room): bilinear resampling of [start, start + length) of `room` pixels to `size`, with the
    antialiasing of PIL (a triangle filter as wide as the scale). Rows sum to 1."""
    scale = (lengths / size).clamp(min=1.0)[:, None, None]
    places = torch.arange(size, device=starts.device, dtype=starts.dtype) + 0.5
    pixels = torch.arange(room, device=starts.device, dtype=starts.dtype)
    centres = starts[:, None] + places * (lengths / size)[:, None]
    weights = (1.0 - (pixels + 0.5 - centres[:, :, None]).abs() / scale).clamp_(min=0.0)
    weights *= ((pixels >= starts[:, None]) & (pixels < (starts + lengths)[:, None]))[:, None, :]
    return weights / weights.sum(2, keepdim=True)


def blur_matrices(sigmas: torch.Tensor, size: int) -> torch.Tensor:
    """(N, size, size): Gaussian blur along an axis, renormalised at the edges; sigma 0: unchanged."""
    pixels = torch.arange(size, device=sigmas.device, dtype=sigmas.dtype)
    bell = torch.exp(-0.5 * pixels**2 / sigmas.clamp(min=1e-3)[:, None] ** 2)
    weights = bell[:, (pixels[:, None] - pixels).abs().long()]
    return weights / weights.sum(2, keepdim=True)


def render_views(x: torch.Tensor, parameters: ViewParameters, size: int) -> torch.Tensor:
    """x: (N, 3, room, room) float tensor, 0 … 255 → (N, 3, size, size), normalised, on the same device."""
    left, top, width, height, flip, sigma, colours, contrast = (
        torch.from_numpy(np.ascontiguousarray(getattr(parameters, f.name), np.float32)).to(x.device)
        for f in fields(parameters)
    )
    n, room = len(x), x.shape[-1]
    rows, columns = resampling_matrices(top, height, size, room), resampling_matrices(left, width, size, room)
    columns = torch.where(flip[:, None, None] > 0, columns.flip(1), columns)
    if bool((sigma > 0).any()):
        blur = blur_matrices(sigma, size)
        rows, columns = blur @ rows, blur @ columns
    resized = torch.bmm(rows / 255, x.permute(0, 2, 1, 3).reshape(n, room, 3 * room))  # all channels in one product
    y = torch.bmm(resized.view(n, size * 3, room), columns.transpose(1, 2)).view(n, size, 3, size)
    y = y.permute(0, 2, 1, 3).reshape(n, 3, size * size)
    luma = torch.tensor(LUMA, dtype=y.dtype, device=y.device)
    grey = torch.einsum("c,ncd,nd->n", luma, colours, y.mean(2))  # mean luma after the change of colours
    shift = ((1 - contrast) * grey)[:, None, None].expand(n, 3, 1)
    y = torch.baddbmm(shift, contrast[:, None, None] * colours, y).clamp_(0, 1).view(n, 3, size, size)
    means, stds = (torch.tensor(v, dtype=y.dtype, device=y.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    return y.sub_(means).div_(stds)
