"""What each bucket of a release consists of, as hashes: equal hashes prove equal buckets of two versions.

BUCKETS.json lists, for each bucket, split and side, a hash of the records (id, class, upload time, SHA-256 of the
image) and, for each kind of features, of the vectors; both in the order of ids, so that tars and rows may be arranged
otherwise. `unlabelled` has a hash for each bucket whose unlabelled images the release holds, of their ids and SHA-256.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.tables import read_parquet

FILE = "BUCKETS.json"
Listed = tuple[str, int, str | None]  # an unlabelled image: id, bucket, SHA-256 of it or, if not held, of its source
SIDES = ("train", "test")
RECORD = ("id", "class", "uploaded", "sha256")  # what a score on an image depends on, besides its features


def unlabelled_of(release: Path, held: bool = False) -> list[Listed]:
    """The unlabelled images that a release folder lists. held: only those that are in its tars."""
    path = release / "unlabelled.parquet"
    if not path.is_file():
        return []
    table = read_parquet(path)
    nothing = [None] * len(table)
    digests = [table[c].to_pylist() if c in table.column_names else nothing for c in ("sha256", "source_sha256")]
    rows = zip(table["id"].to_pylist(), table["bucket"].to_pylist(), *digests, strict=True)
    return [(id_, bucket, own or source) for id_, bucket, own, source in rows if own or not held]


def bucket_identities(
    facts: Mapping[str, Any], table: pa.Table, vectors: Mapping[str, npt.NDArray[Any]], held: Iterable[Listed] = ()
) -> dict[str, Any]:
    """The content of BUCKETS.json. facts: of release.json. table: metadata.parquet, N rows. vectors: name → (N, D).
    held: unlabelled images in the tars."""
    order = np.argsort(np.array(table["id"].to_pylist(), np.str_), kind="stable")
    bucket = table["bucket"].to_numpy()
    records = [_hash(json.dumps(row, ensure_ascii=False).encode()) for row in rows_of(table, *RECORD)]
    kinds = {name: [_hash(np.ascontiguousarray(row).tobytes()) for row in matrix] for name, matrix in vectors.items()}
    sides = {name: np.array(table[name].to_pylist()) for name in facts["splits"]}
    entries = []
    for record in facts["buckets"]:
        rows = order[bucket[order] == record["index"]]

        def of(digests: Sequence[bytes], rows: npt.NDArray[np.int64] = rows) -> dict[str, dict[str, str]]:
            return {
                split: {side: _hash(b"".join(digests[i] for i in rows[of_split[rows] == side])).hex() for side in SIDES}
                for split, of_split in sides.items()
            }

        entry = {name: record[name] for name in ("index", "name", "start", "end")}
        entry |= {"images": len(rows), "splits": of(records), "features": {n: of(d) for n, d in kinds.items()}}
        entries.append(entry)
    pools: dict[str, list[tuple[str, str | None]]] = {}
    for id_, bucket, digest in sorted(held):
        pools.setdefault(str(bucket), []).append((id_, digest))
    hashes = {bucket: _hash(json.dumps(pool, ensure_ascii=False).encode()).hex() for bucket, pool in pools.items()}
    return {"format": 1, "classes": list(facts["classes"]), "buckets": entries, "unlabelled": hashes}


def of_steps(manifest: Mapping[str, Any], features: str) -> list[dict[str, str]]:
    """Name of each bucket, and what training and tests on it are, as short hashes. features: a name of the manifest, or
    what is made of the images, such as pixels:32: there also `unlabelled`, if the step has such images; for the first
    one, those of the buckets before count, too.

    A hash covers all splits, because a protocol may choose any of them.
    """
    pools, numbers = manifest.get("unlabelled", {}), [entry["index"] for entry in manifest["buckets"]]
    steps = []
    for entry in manifest["buckets"]:
        vectors = entry["features"].get(features, {})
        common = [manifest["classes"], entry["start"], entry["end"], features]
        parts = {side: [*common, *_of_side(entry["splits"], side), *_of_side(vectors, side)] for side in SIDES}
        hashes = {side: _hash(json.dumps(part).encode()).hex()[:16] for side, part in parts.items()}
        own = [pools.get(str(entry["index"]))]
        own += [pools[b] for b in sorted(pools) if int(b) < min(numbers)] if entry["index"] == min(numbers) else []
        if any(own) and features.startswith(("pixels:", "images:")):
            hashes["unlabelled"] = _hash(json.dumps(own).encode()).hex()[:16]
        steps.append({"name": str(entry["name"]), **hashes})
    return steps


def _of_side(splits: Mapping[str, Mapping[str, str]], side: str) -> list[str]:
    return [split[side] for _, split in sorted(splits.items())]


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
