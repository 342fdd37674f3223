"""The shifts of Seq-to-Final, by its letters: C, R, r, T, t, L, s and p."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from numpy.random import Generator
from pydantic import Field

from driftline.curate.core.errors import IncompatibleStream

from .base import Images, Labelled, Labels, Shares, Shift, brighten, check_images, of_classes, rotate

Bytes = npt.NDArray[np.uint8]
BLOCK = 1 << 20  # values drawn at a time: another number gives other noise
PART = 1 << 17  # of those, values added at a time: they stay in the cache
TABLE = ((1 / 2, 1 / 2, 0, 0, 0), (1 / 3, 1 / 3, 1 / 3, 0, 0), (0, 1 / 3, 1 / 3, 1 / 3, 0), (0, 0, 1 / 3, 1 / 3, 1 / 3))


@dataclass(frozen=True)
class Corruption(Shift):
    """Adds to every pixel and channel a random integer from {-amount … amount - 1}, `count` times [Seq-to-Final, code].

    A covariate shift. Clipped to 0 … 255 after each draw.
    """

    code: ClassVar[str] = "C"
    acts_on: ClassVar[str] = "noise"
    amount: Annotated[int, Field(ge=1, le=127)] = 3
    """grey levels"""

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        check_images(x)
        out = x
        for _ in range(int(count)):
            out = self._add_noise(out, rng)
        return out, y

    def _add_noise(self, x: Images, rng: Generator) -> Images:
        """Each byte of 64-bit draws gives one value. Bytes beyond the largest multiple of the number of values are
        drawn again, so that all values are equally likely."""
        values = 2 * self.amount
        bytes_per_value = np.uint8(256 // values)
        flat, out = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, np.uint8)
        amounts = np.full(PART, self.amount, np.uint8)
        for low in range(0, len(flat), BLOCK):
            n = min(BLOCK, len(flat) - low)
            words = rng.integers(0, 2**64 - 1, -(-n // 8), np.uint64, endpoint=True)
            drawn = words.astype("<u8", copy=False).view(np.uint8)
            drawn //= bytes_per_value
            drawn[n:] = 0
            beyond = _few(drawn >= values)
            drawn[beyond] = rng.integers(0, values, len(beyond), dtype=np.uint8)
            for start in range(0, n, PART):
                stop = min(start + PART, n)
                _add(flat[low + start : low + stop], drawn[start:stop], amounts, out[low + start : low + stop])
        return out.reshape(x.shape)


def _add(x: Bytes, drawn: Bytes, amounts: Bytes, out: Bytes) -> None:
    """out = x + drawn - amount, clipped to 0 … 255, in bytes alone, which are quicker than 16-bit numbers: x is first
    brought to where the sum stays in range. amounts: all the same; with one number NumPy takes ten times as long."""
    amounts = amounts[: len(x)]
    most = np.maximum(drawn, amounts)
    np.maximum(x, most - drawn, out=out)
    most -= amounts
    np.minimum(out, np.invert(most, out=most), out=out)
    out += drawn
    out -= amounts


def _few(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Positions of what is True in (8·n,), as `np.flatnonzero` has them. It first looks at 8 values at a time, which
    takes half as long if few are True."""
    words = mask.view(np.uint64)
    some = np.flatnonzero(words != 0)
    within = np.flatnonzero(words[some].view(np.bool_))
    return some[within >> 3] * 8 + (within & 7)


@dataclass(frozen=True)
class Rotation(Shift):
    """Rotates counter-clockwise by `degrees` × count, nearest pixel, black corners [Seq-to-Final, sec. 2.2].

    A covariate shift. Rendered once from the original image, so that 3 × 30° does not cut corners twice.
    """

    code: ClassVar[str] = "R"
    acts_on: ClassVar[str] = "geometry"
    fractional: ClassVar[bool] = True
    adds: ClassVar[str] = "degrees"
    by_image: ClassVar[bool] = True
    degrees: float = 30.0
    """angle, counter-clockwise"""

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        return rotate(x, self.degrees * count), y


class ConditionalRotation(Rotation):
    """Rotates even classes counter-clockwise and odd ones clockwise by `degrees` × count [Seq-to-Final, sec. 2.2].

    A conditional shift: P(X | Y) moves differently for different Y. Classes are those before any label flip.
    """

    code: ClassVar[str] = "r"

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        check_images(x)
        out, even = np.empty_like(x), y % 2 == 0
        out[even], out[~even] = rotate(x[even], self.degrees * count), rotate(x[~even], -self.degrees * count)
        return out, y


@dataclass(frozen=True)
class Tint(Shift):
    """Adds `amount` × count to the red channel, saturating at 255 [Seq-to-Final, sec. 2.2]. A covariate shift."""

    code: ClassVar[str] = "T"
    acts_on: ClassVar[str] = "colour"
    fractional: ClassVar[bool] = True
    adds: ClassVar[str] = "amount"
    by_image: ClassVar[bool] = True
    amount: int = 30
    """grey levels"""

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        check_images(x)
        return brighten(x, 0, round(self.amount * count)), y


class ConditionalTint(Tint):
    """Adds `amount` × count to red, green or blue if the label mod 3 is 0, 1 or 2 [Seq-to-Final, code only].

    A conditional shift, saturating at 255.
    """

    code: ClassVar[str] = "t"

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        check_images(x)
        out, added = np.empty_like(x), round(self.amount * count)
        for channel in range(3):
            rows = y % 3 == channel
            out[rows] = brighten(x[rows], channel, added)
        return out, y


@dataclass(frozen=True)
class LabelFlip(Shift):
    """Flips labels alternately: y → C − 1 − y, then y → (y + moved) mod C [Seq-to-Final, code]. Changes P(Y | X).

    The code always moves by `step`, so that a fourth flip restores the source labels, for any step. Here the second
    flip moves by `step`, the fourth by twice as much, and so on: three flips are the code's, and none of the first ten
    restores the labels of ten classes.
    """

    code: ClassVar[str] = "L"
    acts_on: ClassVar[str] = "label"
    step: Annotated[int, Field(ge=1)] = 2
    """classes that the second flip moves on"""
    schedule: Literal["growing", "paper"] = "growing"
    """growing: each second flip moves by `step` more than the one before; paper: by the same"""
    before: int = field(default=0, init=False)
    """flips with other settings, earlier in the sequence"""

    def after(self, before: int) -> "LabelFlip":
        """Flips are counted together, whatever their settings: a first one with another step is the second flip."""
        shift = replace(self)
        object.__setattr__(shift, "before", before)
        return shift

    def reference(self) -> "LabelFlip":
        return replace(self, schedule="paper")

    def apply(self, x: Images, y: Labels, count: float, n_classes: int, rng: Generator) -> Labelled:
        """x as given; new labels."""
        for flip in range(self.before, self.before + int(count)):
            moved = self.step * (1 if self.schedule == "paper" else flip // 2 + 1)
            y = (n_classes - 1 - y) if flip % 2 == 0 else (y + moved) % n_classes
        return x, y


@dataclass(frozen=True)
class LabelShift(Shift):
    """Even classes lose `percent` % of an equal share each time; odd classes gain what they lose, in equal parts
    [Seq-to-Final, code only].

    Changes P(Y). With other shifts of the sampling, or natural class frequencies, the factors multiply. With the
    reference's 30 % it can occur three times: at the fourth, even classes have less than nothing.
    """

    code: ClassVar[str] = "p"
    acts_on: ClassVar[str] = "sampling"
    adds: ClassVar[str] = "percent"
    percent: Annotated[float, Field(ge=0, lt=100)] = 30.0
    """percent of an equal share"""

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        """Even classes: 1 − percent × count of an equal share. Raises IncompatibleStream if they have no share left."""
        even = (classes + 1) // 2
        if classes < 2:
            raise IncompatibleStream(
                "p moves shares between classes; the dataset has one class.", "Expected two or more."
            )
        moved = self.percent / 100 * count
        if moved >= 1:
            raise IncompatibleStream(
                f"p takes {moved:.0%} of the even classes' share.",
                "Expected less than 100 %.",
                "Shorten the sequence or lower the percentage, as in p(10).",
            )
        by_class = np.where(np.arange(classes) % 2 == 0, 1 - moved, 1 + moved * even / (classes - even))
        return of_classes(by_class, subclasses)


@dataclass(frozen=True)
class Subpopulation(Shift):
    """Which sub-classes a class consists of: two of five, then three that move on [Seq-to-Final, sec. 2.2; code].

    ½ ½ 0 0 0 → ⅓ ⅓ ⅓ 0 0 → 0 ⅓ ⅓ ⅓ 0 → 0 0 ⅓ ⅓ ⅓, in the dataset's order of sub-classes. A covariate shift within
    classes.
    """

    code: ClassVar[str] = "s"
    acts_on: ClassVar[str] = "sampling"

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        """Row `count` of the table. Raises IncompatibleStream after its end, and for datasets without five sub-classes
        per class."""
        if subclasses != 5:
            raise IncompatibleStream(
                f"s samples from five sub-classes; the dataset has {subclasses or 'none'} per class.",
                "Expected a dataset like CIFAR-100 with coarse labels.",
                "Use --base cifar100 --labels coarse.",
            )
        if count >= len(TABLE):
            raise IncompatibleStream(
                f"s occurs {count:g} times.", f"The table ends after {len(TABLE) - 1}.", "Shorten the sequence."
            )
        return np.tile(np.array(TABLE[int(count)]), (classes, 1))
