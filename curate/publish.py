"""Verdicts + shards → release: n images per class and bucket, seeded splits, tars, features, card."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curate.concepts import BACKGROUND, check_enough
from curate.duplicates import report
from curate.ground.files import sha256_file, write_array, write_json, write_parquet, write_text
from curate.ground.rng import name_for, rng_for
from curate.release import FORMAT, METADATA
from curate.shards import write_tar


@dataclass(frozen=True)
class PublishRules:
    """per_class: images per class and bucket (CLEAR: 300); background has as many unless `background` says
    otherwise. short: "fail" raises Shortage with a table; "fewer" publishes what there is.
    test_share, splits: seeded splits, stratified per bucket and class; a user's photos are never on both sides.
    shard_images: images a tar."""

    name: str = "unnamed"
    version: str = "1.0.0"
    per_class: int = 300
    background: int | None = None
    short: Literal["fail", "fewer"] = "fail"
    test_share: float = 0.3
    splits: int = 5
    shard_images: int = 5000


def select(
    accepted: Sequence[Mapping[str, Any]],
    buckets: Sequence[int],
    classes: Sequence[str],
    rules: PublishRules,
    seed: int,
) -> list[Mapping[str, Any]]:
    """accepted: dicts with id, bucket, concept → a random `per_class` of each bucket and class (seeded), in
    release order. Raises Shortage with a table of what lacks; a (bucket, class) with nothing always fails."""
    cells: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in accepted:
        cells[row["bucket"], row["concept"]].append(row)
    wanted = {c: rules.per_class if c != BACKGROUND or rules.background is None else rules.background for c in classes}
    counts = {(str(b), c): len(cells[b, c]) for b in buckets for c in classes}
    floor = wanted if rules.short == "fail" else dict.fromkeys(classes, 1)
    way_out = (
        "Lower release.per_class, raise retrieve.per_class so that more images are asked, drop the class, "
        "or set release.short: fewer."
    )
    check_enough(counts, floor, "Too few accepted images for the release", way_out)
    chosen: list[Mapping[str, Any]] = []
    for b in buckets:
        of_bucket: list[Mapping[str, Any]] = []
        for c in classes:
            cell = sorted(cells[b, c], key=lambda row: row["id"])
            picks = rng_for(seed, "publish", b, c).permutation(len(cell))[: wanted[c]]
            of_bucket.extend(cell[i] for i in sorted(picks.tolist()))
        chosen.extend(sorted(of_bucket, key=lambda row: name_for(seed, "shard order", row["id"])))
    return chosen


def split(rows: Sequence[Mapping[str, Any]], share: float, seed: int, number: int) -> list[str]:
    """rows: dicts with bucket, concept, user → "train" or "test" for each.

    Every (bucket, class) has round(share × n) test images where groups allow it. All photos of a user are on
    one side: users go to the test side, large ones first in seeded order, while no cell overflows.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[f"user:{row['user']}" if row.get("user") else f"image:{row['id']}"].append(i)
    total = Counter((row["bucket"], row["concept"]) for row in rows)
    room = {cell: round(share * n) for cell, n in total.items()}
    names = sorted(groups)
    order = rng_for(seed, "split", number).permutation(len(names))
    shuffled = sorted((names[i] for i in order.tolist()), key=lambda name: -len(groups[name]))
    sides = ["train"] * len(rows)
    for name in shuffled:
        need = Counter((rows[i]["bucket"], rows[i]["concept"]) for i in groups[name])
        if all(room[cell] >= n for cell, n in need.items()):
            for cell, n in need.items():
                room[cell] -= n
            for i in groups[name]:
                sides[i] = "test"
    return sides


def publish(
    chosen: Sequence[Mapping[str, Any]],
    images: Mapping[str, tuple[bytes, str]],
    vectors: Mapping[str, npt.NDArray[np.float16]],
    buckets: Sequence[Mapping[str, Any]],
    classes: Sequence[str],
    provenance: Mapping[str, Any],
    out: Path,
    rules: PublishRules,
    seed: int,
    copies: npt.NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Write a release into `out`; returns `release.json`.

    chosen: rows of `select` with all columns of METADATA that come from before. images: id → (bytes, extension).
    vectors: name → (N, D) float16 in the order of `chosen`. copies: group of near copies of each of `chosen` (None: not
    looked for). SHA256SUMS is written last.
    """
    splits = {f"split_{k}": split(chosen, rules.test_share, seed, k) for k in range(rules.splits)}
    rows: list[dict[str, Any]] = []
    shard_of: list[str] = []
    in_bucket: Counter[int] = Counter()
    for row in chosen:
        shard_of.append(f"bucket_{row['bucket']:02d}-{in_bucket[row['bucket']] // rules.shard_images:05d}.tar")
        in_bucket[row["bucket"]] += 1
    members: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for i, row in enumerate(chosen):
        data, extension = images[row["id"]]
        label = classes.index(row["concept"])
        record = {
            **{name: row.get(name) for name in METADATA.names},
            "class": row["concept"],
            "label": label,
            "shard": shard_of[i],
            "member": f"{row['id']}.{extension}",
        }
        rows.append(record)
        # Constant keys, "" not null: HF's webdataset builder infers columns from the first samples of one split.
        side = {
            **{name: record[name] or "" for name in ("id", "class", "licence", "licence_url", "creator", "page_url")},
            "bucket": row["bucket"],
            "label": label,
            "uploaded": row["uploaded"],
            "split": splits["split_0"][i] if splits else "train",
        }
        members[shard_of[i]] += [
            (record["member"], data),
            (f"{row['id']}.cls", str(label).encode()),
            (f"{row['id']}.json", json.dumps(side, sort_keys=True, ensure_ascii=False).encode()),
        ]
    for shard, content in members.items():
        write_tar(out / "shards" / shard, content)
    table = pa.Table.from_pylist(rows, schema=METADATA)
    for name, sides in splits.items():
        table = table.append_column(name, pa.array(sides, pa.string()))
    write_parquet(out / "metadata.parquet", table)
    for name, matrix in vectors.items():
        write_array(out / "features" / f"{name}.npy", matrix)
    known = {"id": [r["id"] for r in rows], "bucket": [r["bucket"] for r in rows], "class": [r["class"] for r in rows]}
    facts = {
        "format": FORMAT,
        "name": rules.name,
        "version": rules.version,
        "images": len(rows),
        "classes": list(classes),
        "buckets": [dict(b) for b in buckets],
        "per_class": {
            str(b["index"]): dict(sorted(Counter(r["class"] for r in rows if r["bucket"] == b["index"]).items()))
            for b in buckets
        },
        "splits": list(splits),
        "test_images": {name: sides.count("test") for name, sides in splits.items()},
        "features": list(vectors),
        "near_copies": None if copies is None else report(copies, known | splits),
        "licences": dict(sorted(Counter(r["licence"] or "not stated" for r in rows).items())),
        "provenance": provenance,
    }
    write_json(out / "release.json", facts)
    write_text(out / "ATTRIBUTION.csv", attribution(rows))
    from curate.card import card

    write_text(out / "README.md", card(facts))
    seal(out)
    return facts


def attribution(rows: Sequence[Mapping[str, Any]]) -> str:
    """Author, source and licence of each image, as Creative Commons licences ask.

    A file for people: cells that a spreadsheet would run as a formula start with an apostrophe.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["id", "title", "creator", "page_url", "licence", "licence_url", "sha256"])
    for row in rows:
        cells = [
            row["id"],
            row["title"],
            row["creator"],
            row["page_url"],
            row["licence"],
            row["licence_url"],
            row["sha256"],
        ]
        writer.writerow(["'" + c if c and c[0] in "=+-@\t\r" else c or "" for c in cells])
    return buffer.getvalue()


def seal(folder: Path) -> None:
    """Write SHA256SUMS over every file of a release."""
    names = sorted(
        p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS"
    )
    write_text(folder / "SHA256SUMS", "".join(f"{sha256_file(folder / name)}  {name}\n" for name in names))
