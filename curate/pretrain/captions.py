"""Images with texts, from a run or a release: what a small CLIP is trained on."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.parsing import rows_of
from driftline.curate.encoders.seen import Seen
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.pretrain.gather import fit_image
from driftline.curate.pretrain.pool import is_release, open_pool, seen_of
from driftline.curate.release.format import Release

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
    dropped: Mapping[str, int]
    """reason → photos with a text that were left out"""
    seen: Seen
    """what a model that learns from them has seen"""
    tests: str
    """"left out" (those of every split), "included" or "unknown\""""

    def caption(self, i: int, rng: np.random.Generator) -> str:
        """One of the captions of image `i`: its text in a random template."""
        return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(self.texts[i])


def captioned(source: Path, size: int, include_tests: bool = False) -> Captioned:
    """The images with a text, without the tests of every split (see `open_pool`). source: a release (labelled images,
    whose class is the text), or a run whose fetch is done (caption, else label, else the words of the title).

    Exact copies of an image are dropped. Raises MissingFile, and BadInput if fewer than FEWEST images have a text or
    all have the same.
    """
    if source.is_dir() and not is_release(source) and not list(source.glob("stages/*_fetch/index.parquet")):
        raise MissingFile(
            f"{source} is no release, and no run with fetched photos.",
            "",
            f"First: driftline run {source} --until fetch",
        )
    pool = open_pool(source, None, include_tests, labelled=True)
    texts = _classes(source) if is_release(source) else _texts(source)
    images, used = [], []
    digests: Counter[bytes] = Counter()
    for photo, data in pool.images(texts.keys()):
        digests[digest := hashlib.sha256(data).digest()] += 1
        if digests[digest] == 1 and check_image(data, ImageLimits()).reason is None and not pool.is_copy(data):
            images.append(fit_image(data, size))
            used.append(photo)
    if len(used) < FEWEST:
        without = f" {pool.dropped.total():,} more were left out because of the tests." if pool.dropped else ""
        raise BadInput(
            f"{source} has {len(used)} images with a caption, label or title of words.{without}",
            f"Expected at least {FEWEST}; thousands make a useful model.",
            "Use more photos, or tests, too: --include-tests."
            if without
            else "Photos in folders named by what they show: set collection.label to parent.",
        )
    if len({texts[photo.id] for photo in used}) == 1:
        raise BadInput(
            f"All {len(used):,} images of {source} have the text {texts[used[0].id]!r}.",
            "Expected at least two texts: a model learns from their differences.",
            "Use photos of several things.",
        )
    seen = seen_of(used, source, pool.tests)
    dropped = pool.dropped + Counter(copy=digests.total() - len(digests))
    return Captioned(np.stack(images), [texts[photo.id] for photo in used], dropped, seen, pool.tests)


def _classes(source: Path) -> dict[str, str]:
    return {id_: name.replace("_", " ") for id_, name in rows_of(Release.open(source).table, "id", "class")}


def _texts(source: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for part in sorted(source.glob("stages/*_ingest/table/*.parquet")):
        for row in pq.read_table(part, columns=["id", *TEXTS]).to_pylist():
            if text := text_of(row):
                texts[row["id"]] = text
    return texts


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
