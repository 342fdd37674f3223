"""A package of somebody else: one of everything that driftline can be extended with. Tests copy it out of the
repository and install it by its metadata alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from curate.release import Release
from eval.learner import Array, Labels, Learner, Task
from stream_builder.shifts.base import Images, Shift, check_images

WIDTH = 12


class Colours:
    """Encoder: the mean colours of the four quarters of an image."""

    device, precision, width = "cpu", "float32", WIDTH

    def __init__(
        self,
        model: str,
        weights: str | None = None,
        device: str = "cpu",
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        self.fingerprint = f"colours-{model}"

    def prepare(self, image: Any) -> Any:
        """A PIL image → uint8 (3, 2, 2)."""
        return np.asarray(image.convert("RGB").resize((2, 2))).transpose(2, 0, 1).copy()

    def images(self, batch: Any) -> Any:
        """Prepared inputs → (N, 12) float32, unit length."""
        return unit(np.asarray(batch, np.float32).reshape(len(batch), -1) + 1)

    def texts(self, texts: Sequence[str]) -> Any:
        """N texts → (N, 12) float32, unit length."""
        rows = [np.frombuffer(hashlib.sha256(text.encode()).digest()[:WIDTH], np.uint8) for text in texts]
        return unit(np.stack(rows).astype(np.float32) + 1)

    def cut(self, text: str) -> str:
        """Nothing is cut."""
        return ""


def unit(x: Any) -> Any:
    """Rows of length 1."""
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@dataclass(frozen=True)
class Invert(Shift):
    """invert: light becomes dark, half of the way each time."""

    letter: ClassVar[str] = "invert"
    acts_on: ClassVar[str] = "colour"

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        share = min(count, 2) / 2
        return np.rint(x * (1 - share) + (255 - x.astype(float)) * share).astype(np.uint8), y


@dataclass
class Prototype(Learner):
    """Learner: the nearest class mean, where newer samples weigh more."""

    weight: float = 0.5
    """of the old mean"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """No means."""
        self.means = np.zeros((task.n_classes, int(np.prod(task.x_shape))), np.float32)

    def learn(self, x: Array, y: Labels) -> None:
        """Move each class's mean."""
        flat = np.asarray(x, np.float32).reshape(len(x), -1)
        for c in np.unique(y):
            new = flat[y == c].mean(0)
            self.means[c] = new if not self.means[c].any() else self.weight * self.means[c] + (1 - self.weight) * new

    def predict(self, x: Array) -> Labels:
        """The nearest mean."""
        flat = np.asarray(x, np.float32).reshape(len(x), -1)
        return ((flat[:, None] - self.means[None]) ** 2).sum(2).argmin(1)


def listing(release: Release, out: Path) -> dict[str, int]:
    """Export: the names of all images, one a line."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "images.txt").write_text("\n".join(release.table["id"].to_pylist()))
    return {"images": len(release.table)}


def centres(a: Any, b: Any, seed: int = 0) -> float:
    """Measure: the distance of the two means."""
    return float(np.linalg.norm(np.asarray(a, float).mean(0) - np.asarray(b, float).mean(0)))
