"""Leak search: test samples that are in a given index of hashes or vectors, as of the data that an encoder saw."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadInput, MissingFile
from curate.core.outside.arrays import mapped
from curate.release import Release
from stream_builder.stream import Stream

BLOCK = 1 << 22  # pairs that are compared at a time
EXAMPLES = 20  # findings that are listed
EXPECTED = (
    "Expected another release; a .npy file of vectors (N, D) or of perceptual hashes (N,) uint64; or a .txt file with "
    "a SHA-256 or a perceptual hash (16 hexadecimal digits) a line."
)
Array = npt.NDArray[Any]


def leaks(
    audited: Release | Stream, index: Path, hashes: Callable[[], Array], bits: int = 4, cosine: float = 0.95
) -> dict[str, Any]:
    """The test samples of a release or a stream of vectors that are in an index.

    index: a file of vectors by the encoder of the samples, which are compared by cosine; of perceptual hashes, which
    may differ in `bits` of 64; or of SHA-256, which must be equal. hashes: perceptual hashes of a release's images.
    Raises MissingFile, and BadInput for another file, for hashes and a stream, and for vectors of another width.
    """
    if not index.is_file():
        raise MissingFile(f"{index} is no index.", EXPECTED)
    if index.suffix == ".npy":
        entries = mapped(index, "Check --against.")
        kind = "vectors" if entries.ndim == 2 and entries.dtype.kind == "f" else "perceptual hashes"
        if kind != "vectors" and (entries.ndim != 1 or entries.dtype != np.uint64):
            raise BadInput(f"{index} has shape {entries.shape} and dtype {entries.dtype}.", EXPECTED)
    elif index.suffix == ".txt":
        kind, entries = _listed(index)
    else:
        raise BadInput(f"{index} is no index.", EXPECTED)
    ids, buckets, rows = _tests(audited)
    if kind == "vectors":
        found = _nearest_cosines(_vectors(audited, rows, index, entries), entries)
        hit, size = found >= cosine, found.round(4)
    elif isinstance(audited, Stream):
        problem = f"{index} holds {kind}; {audited.name!r} is a stream, which has no image files."
        raise BadInput(problem, "Expected vectors (N, D) by the stream's encoder.", "Audit the release instead.")
    elif kind == "SHA-256":
        given = np.array(audited.table["sha256"].to_pylist())[rows]
        hit = np.isin(given, entries)
        size = np.zeros(len(given))
    else:
        size = _nearest_bits(hashes()[rows], entries)
        hit = size <= bits
    order = np.argsort(-size if kind == "vectors" else size, kind="stable")
    listed = [k for k in order.tolist() if hit[k]][:EXAMPLES]
    name = "cosine" if kind == "vectors" else "bits"
    return {
        "index": index.name,
        "kind": kind,
        "entries": len(entries),
        "tests": len(ids),
        "found": int(hit.sum()),
        "by_bucket": {str(b): int(hit[buckets == b].sum()) for b in np.unique(buckets).tolist()},
        "examples": [{"id": str(ids[k]), "bucket": int(buckets[k]), name: float(size[k])} for k in listed],
    }


def sentence(found: dict[str, Any]) -> str:
    """The finding in a line."""
    return (
        f"leaks: {found['found']:,} of {found['tests']:,} test samples are in {found['index']} "
        f"({found['entries']:,} {found['kind']})"
    )


def _listed(index: Path) -> tuple[str, Array]:
    """Kind and entries of a text file. Raises BadInput naming the line."""
    lines = [line.strip().lower() for line in index.read_text(encoding="utf-8", errors="replace").splitlines()]
    full = [line for line in lines if line]
    width = len(full[0]) if full else 0
    for number, line in enumerate(lines, 1):
        if line and (len(line) != width or not re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{64}", line)):
            raise BadInput(f"{index}, line {number}: {line[:70]!r} is no hash like those before it.", EXPECTED)
    if width == 16:
        return "perceptual hashes", np.array([int(line, 16) for line in full], np.uint64)
    return "SHA-256", np.array(full, np.str_)


def _tests(audited: Release | Stream) -> tuple[Array, Array, Array]:
    """Ids and buckets of test samples, and their rows in a release's table (for a stream: none)."""
    if isinstance(audited, Stream):
        parts = [(step.index, step.splits["test"]) for step in audited.steps if "test" in step.splits]
        ids = np.concatenate([split.ids for _, split in parts] or [np.zeros(0, np.str_)])
        return ids, np.repeat([i for i, _ in parts], [len(split) for _, split in parts]).astype(np.int64), ids[:0]
    table = audited.table
    first = next(iter(audited.facts["splits"]), None)
    rows = np.arange(len(table)) if first is None else np.flatnonzero(np.array(table[first].to_pylist()) == "test")
    return np.array(table["id"].to_pylist())[rows], np.array(table["bucket"].to_pylist())[rows], rows


def _vectors(audited: Release | Stream, rows: Array, index: Path, entries: Array) -> Array:
    """(n, D) of the test samples, by the features that have the index's width."""
    if isinstance(audited, Stream):
        splits = [step.splits["test"].x for step in audited.steps if "test" in step.splits]
        known = {"the stream": np.concatenate([np.asarray(x) for x in splits]) if splits else np.zeros((0, 0))}
    else:
        known = {name: audited.features(name) for name in audited.facts["features"]}
    for x in known.values():
        if x.ndim == 2 and x.shape[1] == entries.shape[1]:
            return np.asarray(x if isinstance(audited, Stream) else x[rows], np.float32)
    widths = ", ".join(f"{name}: {x.shape[1:]}" for name, x in known.items()) or "none"
    problem = (
        f"{index} holds vectors of {entries.shape[1]} numbers; {audited.name!r} has none of this width ({widths})."
    )
    raise BadInput(problem, "Expected vectors by the encoder of its features.")


def _nearest_cosines(x: Array, entries: Array) -> Array:
    """(n,) the largest cosine of each row of x with an entry; -1 without entries."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    best, step = np.full(len(x), -1.0), max(1, BLOCK // max(1, len(x)))
    for low in range(0, len(entries), step):
        part = np.asarray(entries[low : low + step], np.float32)
        part = part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12)
        best = np.maximum(best, (x @ part.T).max(1))
    return best


def _nearest_bits(hashed: Array, entries: Array) -> Array:
    """(n,) the fewest bits in which each hash differs from an entry; 65 without entries."""
    best, step = np.full(len(hashed), 65), max(1, BLOCK // max(1, len(hashed)))
    for low in range(0, len(entries), step):
        off = np.bitwise_count(hashed[:, None] ^ np.asarray(entries[low : low + step])[None])
        best = np.minimum(best, off.min(1).astype(np.int64))
    return best
