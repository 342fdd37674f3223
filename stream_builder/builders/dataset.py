"""A dataset with training and test samples → a stream of one step, or of two where classes are held out."""

from __future__ import annotations

from typing import Literal

import numpy as np

from driftline.stream_builder.builders.held_out_classes import hold_out_classes
from driftline.stream_builder.datasets import Dataset
from driftline.stream_builder.stream import Split, Step, Stream


def from_dataset(
    dataset: Dataset,
    held_out: int | None = None,
    evaluate: int = 400,
    order: Literal["shuffled", "file"] = "shuffled",
    seed: int = 0,
) -> Stream:
    """One step with train and test splits, in the order of the files. held_out: the number of classes that come later,
    in a second step; then the rest is as in `hold_out_classes`."""
    if held_out is not None:
        return hold_out_classes(dataset, held_out, evaluate, seed, order)
    splits = {}
    for name, samples in (("train", dataset.train), ("test", dataset.test)):
        splits[name] = Split(samples.x, samples.y, np.array([f"{name}-{i}" for i in samples.index.tolist()]))
    is_text = isinstance(dataset.train.x, np.ndarray) and dataset.train.x.dtype.kind == "U"
    facts = {"from": "texts" if is_text else "dataset", "base": dataset.name}
    return Stream(dataset.name, [Step(0, "all", splits)], dataset.classes, facts=facts)
