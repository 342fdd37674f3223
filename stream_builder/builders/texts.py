"""Labelled texts → a stream of one step."""

from __future__ import annotations

import numpy as np

from driftline.stream_builder.datasets import Dataset
from driftline.stream_builder.stream import Split, Step, Stream


def from_texts(dataset: Dataset) -> Stream:
    """One step with train and test splits, in the order of the files."""
    splits = {}
    for name, samples in (("train", dataset.train), ("test", dataset.test)):
        splits[name] = Split(samples.x, samples.y, np.array([f"{name}-{i}" for i in samples.index.tolist()]))
    facts = {"from": "texts", "base": dataset.name}
    return Stream(dataset.name, [Step(0, "all", splits)], dataset.classes, facts=facts)
