"""What a shift is, and functions that several shifts need."""

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from driftline.curate.core.errors import BadArray

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
Labelled = tuple[Images, Labels]
ORDER = ("sampling", "noise", "geometry", "colour", "quality", "label")


class Shift:
    """A change of labelled images between two steps: a frozen dataclass whose fields are its settings.

    A field may declare its range, as in `Annotated[int, Field(ge=1)]`; sequences are checked against it. A shift that
    occurs several times is rendered once, with `count`: two rotations by 30° must not interpolate twice. Nor must one
    by 30° and one by 60°: `adds` names the setting that adds up.
    """

    code: ClassVar[str]
    """short name, for names of steps"""
    acts_on: ClassVar[str]
    """one of ORDER: shifts of one step are applied in that order, not in that of the sequence"""
    fractional: ClassVar[bool] = False
    """whether `count` may be a fraction, so that the shift can grow from sample to sample"""
    adds: ClassVar[str] = ""
    """setting whose values add up: n times 1 is once n. Occurrences with different values are then rendered as one.
    Without it they are applied one after the other"""
    by_image: ClassVar[bool] = False
    """whether `apply` changes each image alone and draws no random numbers, so that some images at a time give the same
    as all at once"""

    def after(self, before: int) -> "Shift":
        """This shift where its letter has occurred `before` times with other settings; see `LabelFlip`."""
        return self

    def reference(self) -> "Shift":
        """This shift as the paper's code does it, for fidelity paper-code."""
        return self

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        """x (N, H, W, 3) uint8, y (N,) original labels → new arrays; do not modify the input. Default: both as given.

        count: how often this shift has occurred up to this step; 0 changes nothing.
        """
        return x, y

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares | None:
        """(classes, subclasses or 1) relative shares of the samples to draw; None: equal shares.

        Only shifts that act on "sampling" return shares. count: as for `apply`; total: how often the shift occurs in
        the whole sequence; subclasses: of each class, 0 if the dataset has none.
        """
        return None


def of_classes(shares: npt.NDArray[Any], subclasses: int) -> Shares:
    """(C,) shares of classes → (C, subclasses or 1), the same for each sub-class."""
    return np.repeat(shares.astype(np.float64)[:, None], max(1, subclasses), 1)


def check_images(x: npt.NDArray[Any]) -> None:
    """Raise BadArray for any layout or dtype except uint8 (N, H, W, 3)."""
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[-1] != 3:
        raise BadArray(
            f"Images of dtype {x.dtype} and shape {x.shape}.",
            "Expected uint8 (N, H, W, 3).",
            "Convert grey, RGBA, 16-bit or float images first.",
        )


def rotate(x: Images, degrees: float) -> Images:
    """Rotate (N, H, W, 3) uint8 counter-clockwise about the centre: nearest pixel, zero outside, same size.

    Equals torchvision's `rotate(..., NEAREST)`: same grid in float32, same rounding (half to even). Raises BadArray.
    """
    check_images(x)
    if degrees % 360 == 0:
        return x
    flat, inside = _sources(*x.shape[1:3], degrees)
    pixels = np.ascontiguousarray(x).reshape(len(x), len(flat) * 3).view("V3")  # one copy per pixel, not three
    turned = np.take(pixels, flat, axis=1, mode="clip").view(np.uint8).reshape(len(x), len(flat) * 3)
    turned &= inside  # a bit mask makes the corners black: assignment takes longer than the rotation
    return turned.reshape(x.shape)


@lru_cache(maxsize=8)
def _sources(height: int, width: int, degrees: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Of each pixel of a rotated image: where it is in the original (H·W,), and 255 for each of its channels or 0 if it
    is outside (H·W·3,). Kept, because images are rotated some at a time."""
    angle = np.deg2rad(degrees)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    columns = np.arange(width, dtype=np.float32) + np.float32(0.5 - width / 2)
    rows = np.arange(height, dtype=np.float32) + np.float32(0.5 - height / 2)
    source_x = cos * columns[None, :] - sin * rows[:, None] + np.float32(width / 2 - 0.5)
    source_y = sin * columns[None, :] + cos * rows[:, None] + np.float32(height / 2 - 0.5)
    ix, iy = np.rint(source_x).astype(np.int64), np.rint(source_y).astype(np.int64)
    inside = (ix >= 0) & (ix < width) & (iy >= 0) & (iy < height)
    flat = np.where(inside, iy * width + ix, 0).ravel()
    return flat, np.repeat(np.where(inside.ravel(), 255, 0), 3).astype(np.uint8)


def brighten(x: Images, channel: int, added: int) -> Images:
    """`added` grey levels more, or less, in one channel of (N, H, W, 3) uint8; saturates at 0 and 255. A new array."""
    levels = np.zeros(x.shape[1:], np.uint8)  # of a whole image: a loop over one channel takes three times as long
    levels[..., channel] = min(abs(added), 255)
    if added < 0:
        out: Images = np.maximum(x, levels)
        out -= levels
        return out
    out = np.minimum(x, ~levels)
    out += levels
    return out
