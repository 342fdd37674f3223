"""Wild-Time's pickled data sets (yearbook, FMoW, HuffPost, arXiv) → a stream with a step per year [NeurIPS 2022].

A file holds {year: {0: training samples, 1: test samples, 2: both}}. It is read without running code (`pickles`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile, UnknownName
from driftline.curate.core.seeding import time_order
from driftline.curate.foreign.limits import CLASSES
from driftline.stream_builder.importers.dated import images_of
from driftline.stream_builder.importers.pickles import read_pickle
from driftline.stream_builder.stream import Array, Split, Step, Stream, pick
from driftline.stream_builder.ties import drawn
from driftline.stream_builder.validate import check


class Kind(NamedTuple):
    """One of Wild-Time's data sets: keys of samples and labels, class names, what gives the year with a key."""

    x: str
    y: str
    licence: str
    classes: tuple[str, ...] = ()
    first: int = 0


KINDS = {
    "yearbook": Kind("images", "labels", "MIT", ("male", "female")),
    "fmow": Kind("image_idxs", "labels", "FMoW Challenge Public License", first=2002),
    "huffpost": Kind(
        "headline", "category", "CC0",
        ("BLACK VOICES", "BUSINESS", "COMEDY", "CRIME", "ENTERTAINMENT", "IMPACT", "QUEER VOICES", "SCIENCE", "SPORTS",
         "TECH", "TRAVEL"),
    ),
    "arxiv": Kind("title", "category", "CC0"),
}  # fmt: skip
SIDES = {"train": 0, "test": 1}


def from_wild_time(path: Path, root: Path | None = None, size: int = 224, seed: int = 0) -> Stream:
    """Read a pickled data set of Wild-Time safely.

    Code in it is never run. The steps and splits are its authors'; the order within a year is drawn. Drug and MIMIC are
    not read: regression, and patients' data that needs a licence.

    path FILE.pkl: yearbook, fmow, huffpost or arxiv.
    root DIR: Folder of FMoW's images (default: fmow_v1.1/images beside the file).

    Raises MissingFile, UnknownName for another data set, BadInput.
    """
    name = path.name.partition(".")[0].partition("_")[0]
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", f"Expected {', '.join(f'{kind}.pkl' for kind in KINDS)}.")
    if name not in KINDS:
        raise UnknownName(f"{path} is no data set of Wild-Time that is read.", "", f"Available: {', '.join(KINDS)}.")
    kind = KINDS[name]
    content = read_pickle(path)
    if not isinstance(content, Mapping) or not content or not all(isinstance(key, int) for key in content):
        raise BadInput(f"{path} is no Wild-Time file.", "Expected a dictionary whose keys are years.")
    steps = []
    for index, key in enumerate(sorted(content)):
        year = key + (kind.first if key < 1000 else 0)
        splits = {}
        for side, mode in SIDES.items():
            what = f"{path}, year {year}, {side}"
            try:
                samples, labels = content[key][mode][kind.x], np.asarray(content[key][mode][kind.y])
            except (KeyError, TypeError):
                raise BadInput(f"{what}: no {kind.x} and {kind.y}.", "Expected a file of Wild-Time 1.") from None
            x = _samples(samples, name, root or path.parent / "fmow_v1.1" / "images", size, path, what)
            if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) != len(x):
                raise BadInput(f"{what}: {len(x)} samples and labels {labels.dtype} {labels.shape}.", "Expected (N,).")
            if not len(labels):
                continue
            check(np.zeros((len(labels), 1), np.float32), labels, len(kind.classes) or CLASSES, what)
            ids = np.array([f"{year}-{side}-{i}" for i in range(len(labels))])
            time = np.full(len(labels), np.datetime64(str(year), "s").astype(np.int64))
            order = time_order(time, ids, seed)
            splits[side] = Split(pick(x, order), labels[order].astype(np.int64), ids[order], time)
        steps.append(Step(index, str(year), splits))
    top = max((int(split.y.max()) for step in steps for split in step.splits.values()), default=-1)
    classes = list(kind.classes) or [str(c) for c in range(top + 1)]
    facts = {
        "from": "wild-time",
        "source": "https://github.com/huaxiuyao/Wild-Time",
        "licence": kind.licence,
        "cite": "Yao et al.: Wild-Time: A Benchmark of in-the-Wild Distribution Shift over Time. NeurIPS 2022",
        **drawn(seed),
    }
    return Stream(f"wild-time-{name}", steps, classes, facts=facts)


def _samples(values: Any, name: str, root: Path, size: int, source: Path, what: str) -> Any:
    """Texts, uint8 images, or lazy images of FMoW. Raises BadInput."""
    array: Array = np.asarray(values)
    if name == "fmow":
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise BadInput(f"{what}: image_idxs is {array.dtype}.", "Expected integers.")
        return images_of(root, [f"rgb_img_{i}.png" for i in array.tolist()], size, source)
    if name != "yearbook":
        if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.ravel()):
            array = array.astype(np.str_)
        if array.dtype.kind != "U" or array.ndim != 1:
            raise BadInput(f"{what}: samples are {array.dtype}.", "Expected texts.")
        return array
    if array.dtype.kind != "f" or array.ndim not in (3, 4) or not (array.min() >= 0 and array.max() <= 1):
        raise BadInput(f"{what}: images are {array.dtype} {array.shape}.", "Expected numbers from 0 to 1.")
    pixels = np.rint(array * 255).astype(np.uint8)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    return np.repeat(pixels, 3, -1) if pixels.shape[-1] == 1 else pixels
