"""Leak search: test samples that are in a given index of hashes or vectors, as of the data that an encoder saw."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.outside.arrays import mapped
from driftline.curate.core.vectors import unit
from driftline.curate.release import Release
from driftline.stream_builder.stream import Stream, pick

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
    """The test samples of a release or a stream of vectors that are in an index: those that any split tests, counted
    for each split, too.

    index: a file of vectors by the encoder of the samples, which are compared by cosine; of perceptual hashes, which
    may differ in `bits` of 64; or of SHA-256, of files as they were fetched or as they were published, which must be
    equal. hashes: perceptual hashes of a release's images. Raises MissingFile, and BadInput for another file, for
    hashes and a stream, and for vectors of another width.
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
    parts, buckets, sides = _tests(audited)
    ids = np.concatenate([ids for ids, _ in parts] or [np.zeros(0, np.str_)])
    if kind == "vectors":
        cosines = _nearest_cosines(_vectors(audited, [rows for _, rows in parts], index, entries), entries)
        hit, size = cosines >= cosine, cosines.round(4)
    elif isinstance(audited, Stream):
        problem = f"{index} holds {kind}; {audited.name!r} is a stream, which has no image files."
        raise BadInput(problem, "Expected vectors (N, D) by the stream's encoder.", "Audit the release instead.")
    elif kind == "SHA-256":
        digests = (audited.table[name].to_pylist() for name in ("sha256", "source_sha256"))
        hit = np.any([np.isin(np.array([d or "" for d in column], np.str_), entries) for column in digests], 0)
        hit = hit[parts[0][1]]
        size = np.zeros(len(ids))
    else:
        size = _nearest_bits(hashes()[parts[0][1]], entries)
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
        "splits": {n: {"tests": int(side.sum()), "found": int((hit & side).sum())} for n, side in sides.items()},
        "by_bucket": {str(b): int(hit[buckets == b].sum()) for b in np.unique(buckets).tolist()},
        "examples": [{"id": str(ids[k]), "bucket": int(buckets[k]), name: float(size[k])} for k in listed],
    }


def sentence(leak: dict[str, Any]) -> str:
    """The finding in a line."""
    each = ", ".join(f"{split['found']:,} in {name}" for name, split in leak["splits"].items())
    return (
        f"leaks: {leak['found']:,} of {leak['tests']:,} test samples of {len(leak['splits'])} splits are in "
        f"{leak['index']} ({leak['entries']:,} {leak['kind']}): {each}"
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


def _tests(audited: Release | Stream) -> tuple[list[tuple[Array, Array]], Array, dict[str, Array]]:
    """Ids and rows of the samples that any split tests, for each part of a stream and for a release as a whole; their
    buckets (n,); and split → (n,) whether it tests them."""
    if isinstance(audited, Stream):
        splits = [(step.index, name, split) for step in audited.steps for name, split in step.splits.items()]
        published = [split.test_in for *_, split in splits if split.test_in is not None]
        several = len(published) == len(splits)
        sides = published if several else [np.full((len(split), 1), name == "test") for _, name, split in splits]
        names = [f"split_{k}" for k in range(sides[0].shape[1])] if several else ["test"]
        rows = [np.flatnonzero(side.any(1)) for side in sides]
        parts = [(split.ids[chosen], chosen) for (*_, split), chosen in zip(splits, rows, strict=True)]
        buckets = np.repeat([index for index, *_ in splits], [len(chosen) for chosen in rows])
    else:
        table, names = audited.table, list(audited.facts["splits"])
        whole = np.stack([np.array(table[name].to_pylist()) == "test" for name in names], 1) if names else None
        sides = [np.ones((len(table), 1), bool) if whole is None else whole]
        names = names or ["all images"]
        rows = [np.flatnonzero(sides[0].any(1))]
        parts = [(np.array(table["id"].to_pylist(), np.str_)[rows[0]], rows[0])]
        buckets = table["bucket"].to_numpy()[rows[0]]
    tested = np.concatenate([side[chosen] for side, chosen in zip(sides, rows, strict=True)])
    return parts, buckets.astype(np.int64), {name: tested[:, k] for k, name in enumerate(names)}


def _vectors(audited: Release | Stream, rows: list[Array], index: Path, entries: Array) -> Array:
    """(n, D) of the test samples, by the features that have the index's width. rows: of each part."""
    if isinstance(audited, Stream):
        splits = [split.x for step in audited.steps for split in step.splits.values()]
        tests = [np.asarray(pick(x, chosen)) for x, chosen in zip(splits, rows, strict=True)]
        blocks = {"the stream": np.concatenate(tests)}
    else:
        blocks = {name: audited.features(name)[rows[0]] for name in audited.facts["features"]}
    for x in blocks.values():
        if x.ndim == 2 and x.shape[1] == entries.shape[1]:
            return np.asarray(x, np.float32)
    widths = ", ".join(f"{name}: {x.shape[1:]}" for name, x in blocks.items()) or "none"
    problem = (
        f"{index} holds vectors of {entries.shape[1]} numbers; {audited.name!r} has none of this width ({widths})."
    )
    raise BadInput(problem, "Expected vectors by the encoder of its features.")


def _nearest_cosines(x: Array, entries: Array) -> Array:
    """(n,) the largest cosine of each row of x with an entry; -1 without entries."""
    x = unit(x, x.dtype)
    best, step = np.full(len(x), -1.0), max(1, BLOCK // max(1, len(x)))
    for low in range(0, len(entries), step):
        part = unit(np.asarray(entries[low : low + step], np.float32))
        best = np.maximum(best, (x @ part.T).max(1))
    return best


def _nearest_bits(hashed: Array, entries: Array) -> Array:
    """(n,) the fewest bits in which each hash differs from an entry; 65 without entries."""
    best, step = np.full(len(hashed), 65), max(1, BLOCK // max(1, len(hashed)))
    for low in range(0, len(entries), step):
        off = np.bitwise_count(hashed[:, None] ^ np.asarray(entries[low : low + step])[None])
        best = np.minimum(best, off.min(1).astype(np.int64))
    return best
