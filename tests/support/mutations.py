"""Damaged copies of a folder: one mutation of one file each, from a seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SECONDS = float(os.environ.get("DRIFTLINE_FUZZ_SECONDS", "2"))  # of each fuzz test, at least
FEWEST = 40  # mutations
NASTY = (
    b"\xff",
    b"\x00",
    b"{",
    b"[" * 3000,
    b"../",
    b"-1",
    b"null",
    b"1e999",
    b"9" * 40,
    b'"',
    b"NaN",
    b"\xed\xa0\x80",
)


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """One change: a byte, a cut, a piece doubled or removed, something nasty inside, a number replaced."""
    kind, at = int(rng.integers(6)), int(rng.integers(max(1, len(data))))
    length = int(rng.integers(1, 40))
    if kind == 0:
        return data[:at] + bytes([int(rng.integers(256))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at : at + length] + data[at:]
    if kind == 3:
        return data[:at] + data[at + length :]
    nasty = NASTY[int(rng.integers(len(NASTY)))]
    if kind == 4:
        return data[:at] + nasty + data[at:]
    digits = [i for i in range(min(len(data), 5000)) if 48 <= data[i] < 58]
    place = digits[int(rng.integers(len(digits)))] if digits else at
    return data[:place] + nasty + data[place + 1 :]


def damaged(folder: Path, suffixes: tuple[str, ...], seed: int = 0) -> Iterator[tuple[Path, bytes, bytes]]:
    """For SECONDS, and FEWEST times: a file of the folder, its content, and its damaged content, which is in the file
    until the next."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name.endswith(suffixes))
    rng = np.random.default_rng(seed)
    end, tried = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or tried < FEWEST:
        path = files[int(rng.integers(len(files)))]
        before = path.read_bytes()
        after = mutate(before, rng)
        if after == before:
            continue
        tried += 1
        path.unlink()  # it may be a hard link
        path.write_bytes(after)
        try:
            yield path, before, after
        finally:
            path.write_bytes(before)
