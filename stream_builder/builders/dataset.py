"""Datasets → streams: one step; portraits, one step a decade."""

import re
from pathlib import Path
from typing import Literal

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.images import IMAGE_SUFFIXES, as_rgb, open_image
from driftline.stream_builder.datasets import Dataset
from driftline.stream_builder.stream import SPLITS, Split, Step, Stream


def from_dataset(dataset: Dataset) -> Stream:
    """One step with train and test splits, in the order of the files."""
    sides = {"train": dataset.train, "test": dataset.test}
    splits = {name: Split(s.x, s.y, np.array([f"{name}-{i}" for i in s.index.tolist()])) for name, s in sides.items()}
    is_text = isinstance(dataset.train.x, np.ndarray) and dataset.train.x.dtype.kind == "U"
    facts = {"from": "texts" if is_text else "dataset", "base": dataset.name}
    return Stream(dataset.name, [Step(0, "all", splits)], dataset.classes, facts=facts)


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
