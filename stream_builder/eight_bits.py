"""Vectors in 8 bits a number: whole numbers, and one scale for each vector.

A scale belongs to its vector alone: no statistic of later samples is in what an earlier one becomes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import write_array
from driftline.curate.core.errors import BadArray, IntegrityError
from driftline.curate.core.outside.arrays import open_array

Codes = npt.NDArray[np.int8]
Scales = npt.NDArray[np.float32]
BLOCK = 65_536  # vectors at once
LARGEST = 127  # code of the largest number of a vector, or its negative


def check_vectors(x: Any) -> None:
    """Raise BadArray for images, texts and features of more dimensions."""
    if x.ndim != 2 or x.dtype not in (np.float16, np.float32):
        kind = "texts" if x.dtype.kind == "U" else f"{x.dtype} arrays of shape {x.shape[1:]}"
        raise BadArray(f"The samples are {kind}.", "Expected vectors: only these are stored in 8 bits.")


def coded(x: npt.NDArray[Any]) -> tuple[Codes, Scales]:
    """Vectors (N, D) float16 or float32 → codes (N, D) and scales (N,): x ≈ codes · scales, each number within half a
    scale. Raises BadArray for images and texts."""
    check_vectors(x)
    codes, scales = np.empty(x.shape, np.int8), np.empty(len(x), np.float32)
    for low in range(0, len(x), BLOCK):
        rows = np.asarray(x[low : low + BLOCK], np.float32)
        part = np.abs(rows).max(1, initial=0) / LARGEST
        scales[low : low + BLOCK] = part
        codes[low : low + BLOCK] = np.rint(rows / np.where(part > 0, part, 1)[:, None])
    return codes, scales


def decoded(codes: Codes, scales: Scales, dtype: str) -> npt.NDArray[Any]:
    """Codes (N, D) and scales (N,) → vectors (N, D), in memory. dtype: float16 or float32."""
    x = np.empty(codes.shape, dtype)
    for low in range(0, len(x), BLOCK):
        x[low : low + BLOCK] = codes[low : low + BLOCK] * scales[low : low + BLOCK, None]
    return x


def least_cosine(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
    """The smallest cosine between a row of x and the same row of y, both (N, D); 1 for rows of zeros and no rows."""
    least = 1.0
    for low in range(0, len(x), BLOCK):
        a, b = (np.asarray(part[low : low + BLOCK], np.float64) for part in (x, y))
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines = np.where(lengths > 0, (a * b).sum(1) / np.where(lengths > 0, lengths, 1), 1)
        least = min(least, float(cosines.min(initial=1)))
    return least


def write_coded(x: npt.NDArray[Any], stem: Path) -> npt.NDArray[Any]:
    """Write vectors in 8 bits; returns them as they will be read."""
    codes, scales = coded(x)
    write_array(stem.with_name(f"{stem.name}_x.npy"), codes)
    write_array(stem.with_name(f"{stem.name}_scale.npy"), scales)
    return decoded(codes, scales, x.dtype.name)


def open_coded(stem: Path, n: int, dtype: str, way_out: str) -> npt.NDArray[Any]:
    """Vectors in 8 bits, decoded. Raises IntegrityError for other arrays, and for scales that no vector has."""
    path = stem.with_name(f"{stem.name}_scale.npy")
    codes = open_array(stem.with_name(f"{stem.name}_x.npy"), "i", (n, None), way_out)
    scales = np.asarray(open_array(path, "f", (n,), way_out), np.float32)
    if codes.dtype != np.int8 or not (np.isfinite(scales) & (scales >= 0)).all():
        raise IntegrityError(f"{path} and its vectors were changed.", "Expected int8, and finite scales.", way_out)
    return decoded(codes, scales, dtype)
