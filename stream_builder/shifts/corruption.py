"""C, noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift, check_images

BLOCK = 1 << 20  # values at a time


@dataclass(frozen=True)
class Corruption(Shift):
    """C: adds to every pixel and channel a draw from {-amount … amount - 1}, once per time [Seq-to-Final, code].

    A covariate shift. Clipped to 0 … 255 after each draw.
    """

    letter: ClassVar[str] = "C"
    acts_on: ClassVar[str] = "noise"
    amount: int = 3  # grey levels, at most 127

    def __post_init__(self) -> None:
        if not 1 <= self.amount <= 127:
            raise ValueError(f"amount {self.amount}: expected 1 to 127")

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        out = x
        for _ in range(int(times)):
            out = self._once(out, rng)
        return out, y

    def _once(self, x: Images, rng: np.random.Generator) -> Images:
        """Every byte of 64-bit draws gives one value: an equal part of 0 … 255 for each; the few beyond are drawn
        again."""
        values = 2 * self.amount
        part = np.uint8(256 // values)
        flat, out = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, np.uint8)
        for low in range(0, len(flat), BLOCK):
            n = min(BLOCK, len(flat) - low)
            drawn = (
                rng.integers(0, 2**64 - 1, -(-n // 8), np.uint64, endpoint=True).astype("<u8").view(np.uint8)[:n]
                // part
            )
            beyond = np.flatnonzero(drawn >= values)
            drawn[beyond] = rng.integers(0, values, len(beyond), dtype=np.uint8)
            noisy = flat[low : low + n].astype(np.int16)
            noisy += drawn
            np.clip(noisy, self.amount, 255 + self.amount, out=noisy)
            out[low : low + n] = noisy - self.amount
        return out.reshape(x.shape)
