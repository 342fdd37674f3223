"""Vectors of length 1, and texts → vectors of hashed character n-gram counts: no model, the same on every machine."""

import unicodedata
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LENGTHS = (3, 4, 5)  # characters


def unit(x: npt.NDArray[Any], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """x (N, D) or (D,), scaled to length 1 in its own precision, as `dtype`; vectors of zeros stay zero.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]), np.float64).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(x, axis=None if x.ndim == 1 else 1, keepdims=True)
    return np.asarray(x / np.maximum(lengths, 1e-12), dtype)


def hashed_ngrams(texts: Sequence[str], width: int) -> npt.NDArray[np.float32]:
    """N texts → (N, width) float32, unit length.

    Counts the n-grams of 3 to 5 characters of each word, hashed by the CRC-32 of their UTF-8, and takes square roots.

    >>> a, b, c = hashed_ngrams(["my card", "My CARD", "a loan"], 64)
    >>> bool((a == b).all()), bool((a == c).all())
    (True, False)
    """
    counts = np.zeros((len(texts), width), np.float32)
    for row, text in zip(counts, texts, strict=True):
        for word in unicodedata.normalize("NFKC", text).casefold().split():
            framed = f" {word} "
            for n in LENGTHS:
                for i in range(max(1, len(framed) - n + 1)):
                    row[zlib.crc32(framed[i : i + n].encode("utf-8", "surrogatepass")) % width] += 1
    np.sqrt(counts, out=counts)
    return unit(counts)
