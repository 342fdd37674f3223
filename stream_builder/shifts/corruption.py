"""C, noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from driftline.stream_builder.shifts.base import Images, Labels, Shift, check_images

Bytes = npt.NDArray[np.uint8]
BLOCK = 1 << 20  # values drawn at a time: another number gives other noise
PART = 1 << 17  # of those, values added at a time: they stay in the cache


@dataclass(frozen=True)
class Corruption(Shift):
    """Adds to every pixel and channel a random integer from {-amount … amount - 1}, `count` times [Seq-to-Final, code].

    A covariate shift. Clipped to 0 … 255 after each draw.
    """

    code: ClassVar[str] = "C"
    acts_on: ClassVar[str] = "noise"
    amount: Annotated[int, Field(ge=1, le=127)] = 3
    """grey levels"""

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        check_images(x)
        out = x
        for _ in range(int(count)):
            out = self._add_noise(out, rng)
        return out, y

    def _add_noise(self, x: Images, rng: np.random.Generator) -> Images:
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
                _shift(flat[low + start : low + stop], drawn[start:stop], amounts, out[low + start : low + stop])
        return out.reshape(x.shape)


def _shift(x: Bytes, drawn: Bytes, amounts: Bytes, out: Bytes) -> None:
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
