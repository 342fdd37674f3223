"""Streams for torch, in loaders whose batches do not depend on the number of workers, and for Avalanche."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.stream import Split, Stream

PAD = 4  # pixels of padding before a random crop
MAX_ANGLE = 10.0  # degrees
SQUASH = 255.0


@dataclass(frozen=True)
class Policy:
    """Preprocessing of images for a network."""

    augment: tuple[str, ...] = ()
    """any of flip, crop, rotate"""
    mean: tuple[float, float, float] | None = None
    """mean of each channel in [0, 1]; None: raw values from 0 to 255"""
    std: tuple[float, float, float] | None = None
    """standard deviation of each channel in [0, 1]; None: raw values from 0 to 255"""
    squash: bool = False
    """multiply mean and std by 255 first, as the reference's loader of portraits does"""

    def apply(self, x: npt.NDArray[Any], rng: np.random.Generator | None) -> torch.Tensor:
        """(n, H, W, 3) uint8 → (n, 3, H, W) float32; features (n, D) → float32. rng: None for no augmentation."""
        if x.dtype != np.uint8:
            return torch.from_numpy(np.asarray(x, np.float32))
        if rng is not None and self.augment:
            x = augmented(x, self.augment, rng)
        planes = torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2).float()
        if self.mean is None or self.std is None:
            return planes
        scale = SQUASH if self.squash else 1.0
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) * scale for v in (self.mean, self.std))
        return (planes / 255 - mean) / std


def policy_of(stream: Stream) -> Policy:
    """The stream's recorded augmentations; mean and standard deviation are those of its first training split."""
    loading: Mapping[str, Any] = stream.facts.get("loading", {})
    augment = tuple(loading.get("augment", ()))
    if not loading.get("normalise") or np.dtype(stream.steps[0]["train"].x.dtype) != np.uint8:
        return Policy(augment)
    mean, std = statistics(stream.steps[0]["train"].x)
    return Policy(augment, mean, std, loading["normalise"] == "squashed")


def statistics(x: Any, rows: int = 4096) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation of each channel in [0, 1], computed in blocks of `rows` images."""
    total, squares, n = np.zeros(3), np.zeros(3), 0
    for low in range(0, len(x), rows):
        part = np.asarray(x[low : low + rows], np.float64) / 255
        total += part.sum((0, 1, 2))
        squares += (part**2).sum((0, 1, 2))
        n += part.shape[0] * part.shape[1] * part.shape[2]
    mean = total / n
    std = np.sqrt(np.maximum(squares / n - mean**2, 1e-12))
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(std[0]), float(std[1]), float(std[2]))


def augmented(x: npt.NDArray[np.uint8], kinds: tuple[str, ...], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Random flips, crops after padding with PAD black pixels, rotations by at most MAX_ANGLE degrees (bilinear)."""
    n, height, width, _ = x.shape
    if "flip" in kinds:
        mirrored: npt.NDArray[np.bool_] = np.asarray(rng.random(n) < 0.5)
        x = np.where(mirrored[:, None, None, None], x[:, :, ::-1], x)
    if "crop" in kinds:
        padded = np.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
        down, right = rng.integers(0, 2 * PAD + 1, (2, n, 1))
        rows, columns = down + np.arange(height), right + np.arange(width)
        x = padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]
    if "rotate" in kinds:
        from torch.nn.functional import affine_grid, grid_sample

        angle = np.deg2rad(rng.uniform(-MAX_ANGLE, MAX_ANGLE, n))
        cos, sin, zero = np.cos(angle), np.sin(angle), np.zeros(n)
        matrix = torch.from_numpy(
            np.stack([cos, -sin * height / width, zero, sin * width / height, cos, zero], 1).reshape(n, 2, 3)
        ).float()
        planes = torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2).float()
        grid = affine_grid(matrix, list(planes.shape), align_corners=False)
        rotated = grid_sample(planes, grid, align_corners=False).round().clamp(0, 255)
        x = rotated.permute(0, 2, 3, 1).numpy().astype(np.uint8)
    return x


class SplitDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A split as a torch dataset of whole batches: an index is a list of positions.

    Augmentation depends on the seed, the epoch and the batch's first position, not on workers.
    """

    def __init__(self, split: Split, policy: Policy, seed: int = 0, epoch: int | None = None) -> None:
        self.split, self.policy, self.seed, self.epoch = split, policy, seed, epoch

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, positions: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """positions: a list or array → (n, …) float32, (n,) int64; one position → one sample."""
        if isinstance(positions, int | np.integer):
            x, y = self[[int(positions)]]
            return x[0], y[0]
        rows = np.asarray(positions)
        rng = None if self.epoch is None else rng_for(self.seed, "augment", self.epoch, int(rows[0]))
        return self.policy.apply(self._take(rows), rng), torch.from_numpy(np.asarray(self.split.y[rows]))

    def _take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        if isinstance(self.split.x, LazyImages):
            return self.split.x[rows]
        order = np.argsort(rows, kind="stable")  # read neighbours in a file together
        taken = np.asarray(self.split.x[rows[order]])
        out = np.empty_like(taken)
        out[order] = taken
        return out


def loader(
    split: Split, policy: Policy | None = None, batch: int = 100, seed: int = 0, epoch: int = 0, shuffle: bool = True,
    augment: bool = True, workers: int = 0,
) -> DataLoader[Any]:  # fmt: skip
    """Batches of a split, in a random order that depends on `seed` and `epoch`, or in the split's own order.

    The batches are the same for any number of workers.
    """
    order = rng_for(seed, "order", epoch).permutation(len(split)) if shuffle else np.arange(len(split))
    batches = [order[low : low + batch] for low in range(0, len(order), batch)]
    data = SplitDataset(split, policy or Policy(), seed, epoch if augment else None)
    # batch_size=None: an item of the sampler has the positions of a whole batch.
    return DataLoader(data, batch_size=None, sampler=batches, num_workers=workers)


def to_avalanche(stream: Stream, policy: Policy | None = None) -> Any:
    """`benchmark_from_datasets` with a train experience per step, and a test experience per step with a test split.

    policy: preprocessing of images (default: the stream's own, without augmentation). Needs the extra `avalanche`;
    raises BadConfig without it, IncompatibleStream for a stream without test splits.
    """
    try:
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import make_avalanche_dataset
        from avalanche.benchmarks.utils.data_attribute import DataAttribute
    except ImportError:
        raise BadConfig("Avalanche is not installed.", "", "pip install 'driftline[avalanche]'.") from None
    policy = policy or policy_of(stream)
    if not any("test" in step.splits for step in stream.steps):
        raise IncompatibleStream(
            f"The stream {stream.name!r} has no test split.", "Expected at least one, for Avalanche's test stream."
        )

    def dataset(split: Split) -> Any:
        labels = np.asarray(split.y).tolist()
        tensors = TensorDataset(policy.apply(np.asarray(split.x), None), torch.tensor(labels))
        attributes = [DataAttribute(labels, "targets"), DataAttribute([0] * len(labels), "targets_task_labels", True)]
        return make_avalanche_dataset(tensors, data_attributes=attributes)

    return benchmark_from_datasets(
        train=[dataset(step["train"]) for step in stream.steps],
        test=[dataset(step["test"]) for step in stream.steps if "test" in step.splits],
    )
