"""Images with texts of a run: what a small CLIP is trained on, and how well it finds those that were held out."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.encoders import Vectors
from driftline.curate.encoders.seen import Seen
from driftline.curate.pretrain.pool import open_pool, seen_of

FEWEST = 200  # different texts: of fewer, a model learns names of photos, and one concept takes every photo
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
    """(N,) caption, label or title; photos of equal text are not negatives of each other"""
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
    """The images with a text, without the tests of every split (see `open_pool`). source: a run whose fetch is done. A
    text is the caption, else the label, else the words of the title.

    Exact copies of an image are dropped. Raises MissingFile, and BadInput for fewer than FEWEST different texts.
    """
    if source.is_dir() and not list(source.glob("stages/*_fetch/index.parquet")):
        raise MissingFile(
            f"{source} is no run with fetched photos.", "", f"First: driftline run {source} --until fetch"
        )
    pool = open_pool(source, None, include_tests)
    texts = _texts(source)
    _check_texts(source, texts.values())  # before the photos are read
    photos = list(pool.images(size, texts.keys()))
    used = [photo for photo, _ in photos]
    _check_texts(source, [texts[photo.id] for photo in used], pool.dropped.total())
    seen = seen_of(used, source, pool.tests)
    images = np.stack([pixels for _, pixels in photos])
    return Captioned(images, [texts[photo.id] for photo in used], pool.dropped, seen, pool.tests)


def _check_texts(source: Path, texts: Collection[str], left_out: int = 0) -> None:
    """left_out: photos that are not learned, because of the tests."""
    different = len({" ".join(text.lower().split()) for text in texts})
    if different < FEWEST:
        without = f"; {left_out:,} photos were left out because of the tests" if left_out else ""
        raise BadInput(
            f"{source} has {different:,} different captions, labels or titles of words{without}.",
            f"Expected at least {FEWEST}, better thousands: with fewer, one concept takes every photo.",
            "Give the photos captions (collection.columns), or copy a model from a machine with internet: driftline "
            "models get RN50:yfcc15m --out rn50.",
        )


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


@dataclass(frozen=True)
class HeldOut:
    """How well a model finds photos that it has not learned."""

    texts: int
    """texts, and photos among which each was looked for"""
    first: int
    """a text finds its photo if that, or one of equal text, is among so many nearest ones"""
    found: float
    """share of the texts that do"""
    chance: float
    """the share in a random order"""

    @property
    def is_better(self) -> bool:
        """Whether that is more than chance, by two standard errors."""
        return self.found - self.chance > 2 * float(np.sqrt(self.chance * (1 - self.chance) / self.texts))


def held_out(images: Vectors, texts: Vectors, words: Sequence[str]) -> HeldOut:
    """images, texts: (N, D) unit vectors of photos and of their texts. words: (N,) these texts."""
    n, first = len(words), max(1, len(words) // 20)
    equal = np.array(words)[:, None] == np.array(words)[None]
    nearest = np.argsort(-(texts @ images.T), axis=1, kind="stable")[:, :first]
    missed = np.prod([(n - equal.sum(1) - i).clip(0) / (n - i) for i in range(first)], axis=0)
    return HeldOut(n, first, float(np.take_along_axis(equal, nearest, 1).any(1).mean()), float(1 - missed.mean()))
