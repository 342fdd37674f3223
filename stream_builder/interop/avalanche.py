"""Streams for Avalanche."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.stream_builder.stream import Split, Stream

ROWS = 4096  # images that are measured at once
SQUASHED = 255.0  # the reference's loader of portraits multiplies mean and deviation by it


def prepared(stream: Stream) -> Callable[[npt.NDArray[Any]], torch.Tensor]:
    """What makes inputs of samples: images (n, H, W, 3) uint8 → (n, 3, H, W) float32, normalised by mean and deviation
    of each channel of the first training split if the stream records that, else 0 … 255; features (n, D) → float32."""
    x, how = stream.steps[0]["train"].x, stream.facts.get("loading", {}).get("normalise")
    mean, std = np.zeros(3), np.ones(3)
    if how and np.dtype(x.dtype) == np.uint8:
        blocks = [np.asarray(x[low : low + ROWS], np.float64).reshape(-1, 3) for low in range(0, len(x), ROWS)]
        total = sum(map(len, blocks))
        mean = sum(block.sum(0) for block in blocks) / total
        std = np.sqrt(np.maximum(sum((block**2).sum(0) for block in blocks) / total - mean**2, 1e-12))
    scale = SQUASHED if how == "squashed" else 1.0

    def prepare(images: npt.NDArray[Any]) -> torch.Tensor:
        if images.dtype != np.uint8:
            return torch.from_numpy(np.asarray(images, np.float32))
        normal = ((images - scale * mean) / (scale * std)).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(normal.transpose(0, 3, 1, 2)))

    return prepare


class Inputs(Dataset[tuple[torch.Tensor, int]]):
    """Samples of a split, each prepared when it is asked for."""

    def __init__(self, split: Split, prepare: Callable[[npt.NDArray[Any]], torch.Tensor]) -> None:
        self.split, self.prepare = split, prepare

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        return self.prepare(np.asarray(self.split.x[[position]]))[0], int(self.split.y[position])


def to_avalanche(stream: Stream) -> Any:
    """`benchmark_from_datasets` with a train experience per step, and a test experience per step with a test split.

    Needs the extra `avalanche`; raises BadConfig without it, IncompatibleStream for a stream without test splits.
    """
    try:
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import make_avalanche_dataset
        from avalanche.benchmarks.utils.data_attribute import DataAttribute
    except ImportError:
        raise BadConfig("Avalanche is not installed.", "", "pip install 'driftline[avalanche]'.") from None
    if not any("test" in step.splits for step in stream.steps):
        problem = f"The stream {stream.name!r} has no test split."
        raise IncompatibleStream(problem, "Expected at least one, for Avalanche's test stream.")
    prepare = prepared(stream)

    def dataset(split: Split) -> Any:
        labels = np.asarray(split.y).tolist()
        attributes = [DataAttribute(labels, "targets"), DataAttribute([0] * len(labels), "targets_task_labels", True)]
        return make_avalanche_dataset(Inputs(split, prepare), data_attributes=attributes)

    return benchmark_from_datasets(
        train=[dataset(step["train"]) for step in stream.steps],
        test=[dataset(step["test"]) for step in stream.steps if "test" in step.splits],
    )
