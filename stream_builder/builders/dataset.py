"""Datasets → streams: one step, or two where classes come later [OCRR, sec. 2]; portraits, one step a decade."""

import re
from pathlib import Path
from typing import Literal

import numpy as np

from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.images import IMAGE_SUFFIXES, as_rgb, open_image
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.stream import SPLITS, Array, Split, Step, Stream, pick


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


FIRST, LAST = 1930, 2013
FOLDERS = ("M", "F")  # class 0, class 1
SHARES = (0.8, 0.2)  # train, val of all steps except the last
FINAL = (0.4, 0.1, 0.5)  # train, val, test of the last step


def portraits(
    folder: Path, size: int = 32, seed: int = 0, fidelity: Literal["clean", "paper-code"] = "clean"
) -> Stream:
    """folder: M/ and F/ with files YEAR_….png; years before 1930 are ignored, 2000 to 2013 are one step.

    Images are resized, not cropped, to size × size, uint8, with three equal channels. fidelity "paper-code" records
    what the reference's loader did: images in [0, 1] normalised with 255 × mean and 255 × standard deviation, which
    reduces contrast to a hundredth. Raises MissingFile, and BadInput naming a file without a year.
    """
    decades: dict[int, list[tuple[str, int, Path]]] = {}  # decade → file name, label, path
    for label, name in enumerate(FOLDERS):
        if not (folder / name).is_dir():
            raise MissingFile(f"{folder} has no folder {name}.", "Expected M and F with files YEAR_….png.")
        for path in (path for path in (folder / name).iterdir() if path.suffix.lower() in IMAGE_SUFFIXES):
            if (year := re.match(r"\d{4}", path.name)) is None:
                raise BadInput(f"{path} does not begin with a year.", "Expected YEAR_….png.")
            if FIRST <= int(year[0]) <= LAST:
                decades.setdefault(min(int(year[0]) // 10 * 10, 2000), []).append((path.name, label, path))
    if not decades:
        raise MissingFile(f"{folder} has no portraits from {FIRST} to {LAST}.", "Expected files such as M/1935_….png.")
    steps = []
    for t, decade in enumerate(sorted(decades)):
        rows = sorted(decades[decade])
        ids, y = np.array([file for file, _, _ in rows]), np.array([label for _, label, _ in rows], np.int64)
        order = rng_for(seed, "portraits", decade).permutation(len(rows))
        shares = FINAL if t == len(decades) - 1 else SHARES
        parts = np.split(order, np.cumsum([int(s * len(rows) + 1e-9) for s in shares[:-1]]))
        splits = {
            name: Split(np.stack([_read(rows[i][2], size) for i in part.tolist()]), y[part], ids[part])
            for name, part in zip(SPLITS, parts, strict=False)
            if len(part)
        }
        steps.append(Step(t, f"{decade}s", splits))
    loading = {"normalise": True, "augment": []} if fidelity == "clean" else {"normalise": "squashed", "augment": []}
    facts = {"from": "portraits", "seed": seed, "fidelity": fidelity, "loading": loading}
    return Stream("portraits", steps, ["male", "female"], facts=facts)


def _read(path: Path, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    from PIL import Image

    with open_image(path, path) as image:
        grey = np.asarray(as_rgb(image).convert("L").resize((size, size), Image.Resampling.BILINEAR))
    return np.repeat(grey[..., None], 3, -1)
