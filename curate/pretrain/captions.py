"""Images with texts, from a run or a release: what a small CLIP is trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.errors import BadInput, MissingFile
from curate.core.parsing import rows_of
from curate.images.checks import ImageLimits, check_image
from curate.images.shards import read_images
from curate.pretrain.gather import fit_image

FEWEST = 16  # images, for a model that is more than noise
TEXTS = ("caption", "label", "title")  # columns of the collection, the best first
WORD = re.compile(r"[^\W\d_]{3,}")
NO_WORDS = {"img", "image", "dsc", "dscn", "dscf", "photo", "pxl", "mvi", "pict", "picture", "screenshot", "scan", "wa"}
TEMPLATES = ("a photo of {}", "{}", "a picture of {}", "my {}", "this is {}")


@dataclass(frozen=True)
class Captioned:
    """N images, each with a text."""

    images: npt.NDArray[np.uint8]
    """(N, size, size, 3)"""
    texts: list[str]
    """(N,) caption, or name of the class; photos of equal text are not negatives of each other"""

    def caption(self, i: int, rng: np.random.Generator) -> str:
        """One of the captions of image `i`: its text in a random template."""
        return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(self.texts[i])


def captioned(source: Path, size: int) -> Captioned:
    """The images with a text. source: a release (labelled images, without the test images of its first split: the class
    is the text), or a run whose fetch is done (caption, else label, else the words of the title).

    Raises MissingFile, and BadInput if fewer than FEWEST images have a text.
    """
    if not source.is_dir():
        raise MissingFile(f"There is no folder {source}.", "Expected a run or a release.")
    fetched = next(iter(sorted(source.glob("stages/*_fetch/index.parquet"))), None)
    if (source / "release.json").is_file():
        pairs = _of_release(source)
    elif fetched is not None:
        pairs = _of_run(source, fetched)
    else:
        raise MissingFile(
            f"{source} is no release, and no run with fetched photos.",
            "",
            f"First: driftline run {source} --until fetch",
        )
    images, texts = [], []
    for data, text in pairs:
        if check_image(data, ImageLimits()).reason is None:
            images.append(fit_image(data, size))
            texts.append(text)
    if len(images) < FEWEST:
        raise BadInput(
            f"{source} has {len(images)} images with a caption, label or title of words.",
            f"Expected at least {FEWEST}; thousands make a useful model.",
            "Photos in folders named by what they show: set collection.label to parent.",
        )
    return Captioned(np.stack(images), texts)


def _of_release(source: Path) -> Iterator[tuple[bytes, str]]:
    from curate.release.format import Release

    release = Release.open(source)
    known = rows_of(release.table, "id", "class", "split_0")
    texts = {id_: name.replace("_", " ") for id_, name, side in known if side != "test"}
    yield from ((data, texts[id_]) for id_, data in release.images() if id_ in texts)


def _of_run(source: Path, index: Path) -> Iterator[tuple[bytes, str]]:
    texts: dict[str, str] = {}
    for part in sorted(source.glob("stages/01_ingest/table/*.parquet")):
        for row in pq.read_table(part, columns=["id", *TEXTS]).to_pylist():
            if text := text_of(row):
                texts[row["id"]] = text
    table = pq.read_table(index)
    table = table.filter(pc.is_in(table["id"], value_set=pa.array(list(texts), pa.string())))
    for shard in sorted(set(table["shard"].to_pylist())):
        yield from ((data, texts[id_]) for id_, data in read_images(index.parent, table, shard))


def text_of(row: Mapping[str, Any]) -> str:
    """The caption, else the label, else the words of the title; "" without one.

    >>> text_of({"caption": None, "label": None, "title": "IMG_2012 Red-bus"}), text_of({"title": "IMG_0042"})
    ('Red bus', '')
    """
    for column in TEXTS[:2]:
        if row.get(column):
            return str(row[column]).replace("_", " ")
    words = WORD.findall(row.get("title") or "")
    return " ".join(word for word in words if word.lower() not in NO_WORDS)
