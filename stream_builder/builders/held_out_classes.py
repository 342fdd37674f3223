"""A base → a correction stream: some classes are held out of the start, then they are all that comes [OCRR, sec. 2]."""

from __future__ import annotations

from typing import Literal

import numpy as np

from curate.core.errors import BadConfig
from stream_builder.datasets import Base, Side
from stream_builder.stream import Array, Split, Step, Stream, pick


def held_out(
    base: Base,
    classes: int = 10,
    evaluate: int = 400,
    seed: int = 0,
    order: Literal["shuffled", "file"] = "shuffled",
) -> Stream:
    """Two steps. "start": the other classes' training rows; its test split is the evaluation set of original classes.
    "corrections": the held-out classes' training rows in random order, one to be predicted at a time; its test split is
    the evaluation set of novel classes.

    classes: how many are held out. evaluate: samples of an evaluation set at most. order: of the start's rows, "file"
    as the base has them (class after class in most: what a first-in-first-out memory forgets by), or shuffled. Draws
    are those of the reference for the same seed [spec, section 2]. Raises BadConfig where no class would be left.
    """
    present = np.unique(base.train.y)
    if not 1 <= classes < len(present):
        raise BadConfig(
            f"--held-out is {classes}; {base.name} has {len(present)} classes.", "Expected at least one on either side."
        )
    # Classes are drawn by the order of their names: numbers of classes differ from file to file.
    names = sorted(base.classes[c] for c in present.tolist())
    number = {name: i for i, name in enumerate(base.classes)}
    chosen = np.random.default_rng(seed).choice(len(names), size=classes, replace=False)
    novel = np.array([number[names[i]] for i in chosen.tolist()])
    rng = np.random.default_rng(seed)
    is_novel = np.isin(base.train.y, novel), np.isin(base.test.y, novel)
    original = _some(np.flatnonzero(~is_novel[1]), evaluate, rng)
    unseen = _some(np.flatnonzero(is_novel[1]), evaluate, rng)
    stream = rng.permutation(np.flatnonzero(is_novel[0]))
    start = np.flatnonzero(~is_novel[0])
    if order == "shuffled":
        start = rng.permutation(start)
    steps = [
        Step(0, "start", {"train": _split(base.train, start, "train"), "test": _split(base.test, original, "test")}),
        Step(
            1, "corrections", {"train": _split(base.train, stream, "train"), "test": _split(base.test, unseen, "test")}
        ),
    ]
    facts = {"from": "held-out", "base": base.name, "seed": seed, "order": order, "evaluate": evaluate}
    facts["held_out"] = sorted(base.classes[c] for c in novel.tolist())
    return Stream(f"{base.name}-held-out-{classes}", steps, base.classes, facts=facts)


def _some(rows: Array, most: int, rng: np.random.Generator) -> Array:
    return rows if len(rows) <= most else rng.choice(rows, size=most, replace=False)


def _split(side: Side, rows: Array, name: str) -> Split:
    ids = np.array([f"{name}-{i}" for i in side.index[rows].tolist()])
    return Split(pick(side.x, rows), side.y[rows], ids)
