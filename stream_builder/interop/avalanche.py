"""A stream as an Avalanche benchmark, for Avalanche's own strategies (extra `avalanche`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.stream_builder.interop.torch_loader import Policy, policy_of
from driftline.stream_builder.stream import Split, Stream


def to_avalanche(stream: Stream, policy: Policy | None = None) -> Any:
    """`benchmark_from_datasets` with a train experience per step, and a test experience per step with a test split.

    policy: preprocessing of images (default: the stream's own, without augmentation). Raises BadConfig if Avalanche is
    not installed, IncompatibleStream for a stream without test splits.
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
