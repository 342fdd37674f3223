"""Labelled texts → a stream of one step."""

from __future__ import annotations

import numpy as np

from stream_builder.datasets import Base
from stream_builder.stream import Split, Step, Stream


def from_texts(base: Base) -> Stream:
    """One step with train and test splits, in the files' order."""
    splits = {}
    for side in ("train", "test"):
        of = getattr(base, side)
        splits[side] = Split(of.x, of.y, np.array([f"{side}-{i}" for i in of.index.tolist()]))
    return Stream(base.name, [Step(0, "all", splits)], base.classes, facts={"from": "texts", "base": base.name})
