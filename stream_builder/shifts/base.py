"""What a shift is, and the two things that several of them need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadArray

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]


class Shift(ABC):
    """A frozen dataclass of parameters with a name.

    acts_on: one of ORDER: shifts of one step are applied in that order, whatever their order in the sequence. A shift
    that came up several times is rendered once, with `times`: two rotations by 30° must not interpolate twice.
    smooth: whether `times` may be a fraction, so that the shift can grow from sample to sample.
    """

    letter: ClassVar[str]
    acts_on: ClassVar[str]
    smooth: ClassVar[bool] = False

    @abstractmethod
    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """x (N, H, W, 3) uint8, y (N,) original labels → new arrays (the input is left alone).

        times: how often this shift has come up to this step; 0 changes nothing.
        """

    def shares(self, times: int, total: int, classes: int, subclasses: int) -> Shares | None:
        """(classes, subclasses) how large a share of the step's draw each has, relative to the others; None: equal.

        times: as for `apply`; total: how often the shift comes up in the whole sequence. Shifts that act on the
        choice of samples answer here and change nothing in `apply`.
        """
        return None


ORDER = ("choice", "noise", "geometry", "colour", "quality", "label")


def check_images(x: npt.NDArray[Any]) -> None:
    """Raise BadArray for any layout or dtype but uint8 (N, H, W, 3); nothing is guessed."""
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[-1] != 3:
        raise BadArray(
            f"Images of dtype {x.dtype} and shape {x.shape}.",
            "Expected uint8 (N, H, W, 3).",
            "Convert grey, RGBA, 16-bit or float images first.",
        )


def rotate(x: Images, degrees: float) -> Images:
    """(N, H, W, 3) uint8, counter-clockwise about the centre, nearest pixel, zero outside, same size.

    Pixels equal torchvision's `rotate(..., NEAREST)`: the same grid in float32, the same rounding (half to even).
    """
    check_images(x)
    if degrees % 360 == 0:
        return x
    height, width = x.shape[1:3]
    angle = np.deg2rad(degrees)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    columns = np.arange(width, dtype=np.float32) + np.float32(0.5 - width / 2)
    rows = np.arange(height, dtype=np.float32) + np.float32(0.5 - height / 2)
    source_x = cos * columns[None, :] - sin * rows[:, None] + np.float32(width / 2 - 0.5)
    source_y = sin * columns[None, :] + cos * rows[:, None] + np.float32(height / 2 - 0.5)
    ix, iy = np.rint(source_x).astype(np.int64), np.rint(source_y).astype(np.int64)
    inside = (ix >= 0) & (ix < width) & (iy >= 0) & (iy < height)
    flat = np.where(inside, iy * width + ix, 0).ravel()
    pixels = np.ascontiguousarray(x).reshape(len(x), height * width * 3).view("V3")  # one move a pixel, not three
    turned = np.take(pixels, flat, axis=1).view(np.uint8).reshape(len(x), height * width * 3)
    # Black corners by a mask of bits: assigning them takes longer than the rotation.
    turned &= np.repeat(np.where(inside.ravel(), 255, 0), 3).astype(np.uint8)
    return turned.reshape(x.shape)
