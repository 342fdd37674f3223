"""Texts as hashed counts of their letters: vectors without a model, the same on every machine."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LENGTHS = (3, 4, 5)  # letters


def letters(texts: Sequence[str], width: int) -> npt.NDArray[np.float32]:
    """N texts → (N, width) of unit length: runs of three to five letters of each word, counted by the checksum of their
    UTF-8, square roots taken.

    >>> a, b, c = letters(["my card", "My CARD", "a loan"], 64)
    >>> bool((a == b).all()), bool((a == c).all())
    (True, False)
    """
    found = np.zeros((len(texts), width), np.float32)
    for row, text in zip(found, texts, strict=True):
        for word in unicodedata.normalize("NFKC", text).casefold().split():
            framed = f" {word} "
            for n in LENGTHS:
                for i in range(max(1, len(framed) - n + 1)):
                    row[zlib.crc32(framed[i : i + n].encode("utf-8", "surrogatepass")) % width] += 1
    np.sqrt(found, out=found)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12), np.float32)
