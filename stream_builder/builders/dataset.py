"""A dataset with training and test samples → a stream of one step; of two where classes come later [OCRR, sec. 2]."""

from typing import Literal

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.stream import Array, Split, Step, Stream, pick


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
    parts = (("train", dataset.train), ("test", dataset.test))
    splits = {name: _split(samples, slice(None), name) for name, samples in parts}
    is_text = isinstance(dataset.train.x, np.ndarray) and dataset.train.x.dtype.kind == "U"
    facts = {"from": "texts" if is_text else "dataset", "base": dataset.name}
    return Stream(dataset.name, [Step(0, "all", splits)], dataset.classes, facts=facts)


def hold_out_classes(
    dataset: Dataset,
    classes: int = 10,
    evaluate: int = 400,
    seed: int = 0,
    order: Literal["shuffled", "file"] = "shuffled",
) -> Stream:
    """Two steps. "start": training samples of the other classes; its test split evaluates original classes.
    "corrections": training samples of the held-out classes in random order, to be predicted one at a time; its test
    split evaluates novel classes.

    classes: number of held-out classes. evaluate: test samples of each step, at most. order: of the start's training
    samples, shuffled or as in the dataset's files (usually class by class, which is hard for a first-in-first-out
    memory). Draws equal those of the reference for the same seed [spec, section 2]. Raises BadConfig if fewer than one
    class is held out or left.
    """
    present = np.unique(dataset.train.y)
    if not 1 <= classes < len(present):
        raise BadConfig(
            f"--held-out is {classes}; {dataset.name} has {len(present)} classes.",
            f"Expected 1 to {len(present) - 1}.",
        )
    # Draw from sorted class names, because class numbers differ between files.
    names = sorted(dataset.classes[c] for c in present.tolist())
    number = {name: i for i, name in enumerate(dataset.classes)}
    chosen = np.random.default_rng(seed).choice(len(names), size=classes, replace=False)
    novel = np.array([number[names[i]] for i in chosen.tolist()])
    rng = np.random.default_rng(seed)
    novel_train, novel_test = np.isin(dataset.train.y, novel), np.isin(dataset.test.y, novel)
    start_test = _at_most(evaluate, np.flatnonzero(~novel_test), rng)
    corrections_test = _at_most(evaluate, np.flatnonzero(novel_test), rng)
    corrections = rng.permutation(np.flatnonzero(novel_train))
    start = np.flatnonzero(~novel_train)
    if order == "shuffled":
        start = rng.permutation(start)
    steps = [
        Step(t, name, {"train": _split(dataset.train, train, "train"), "test": _split(dataset.test, test, "test")})
        for t, (name, train, test) in enumerate(
            (("start", start, start_test), ("corrections", corrections, corrections_test))
        )
    ]
    facts = {"from": "held-out", "base": dataset.name, "seed": seed, "order": order, "evaluate": evaluate}
    facts["held_out"] = sorted(dataset.classes[c] for c in novel.tolist())
    return Stream(f"{dataset.name}-held-out-{classes}", steps, dataset.classes, facts=facts)


def _at_most(n: int, rows: Array, rng: np.random.Generator) -> Array:
    return rows if len(rows) <= n else rng.choice(rows, size=n, replace=False)


def _split(samples: Samples, rows: Array | slice, name: str) -> Split:
    ids = np.array([f"{name}-{i}" for i in samples.index[rows].tolist()])
    return Split(pick(samples.x, rows), samples.y[rows], ids)
