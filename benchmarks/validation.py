"""Validation and release: answers in and judged, publishing against tar, near copies among many hashes.

    python benchmarks/validation.py [answers] [publish] [copies] [--share 1] [--folder F]

One JSON line a part. Rates are ratios to a peer in the same run; times of answers and hashes are seconds here.
"""

from __future__ import annotations

import argparse
import csv
import gc
import io
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from driftline.curate.core.atomic_io import sha256_bytes, write_parquet
from driftline.curate.core.executor import Executor
from driftline.curate.images.near_duplicates import _pairs_by_all, pairs_by_hash
from driftline.curate.images.shards import write_tar
from driftline.curate.release.packing import FetchedImages, pack
from driftline.curate.release.selection import all_splits, select, split_groups
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.release.writer import write_release
from driftline.curate.validation.answers.answers import read_answers, read_lines
from driftline.curate.validation.answers.verdicts import agreement, tally
from driftline.curate.validation.settings import ValidationSettings

CORES = len(os.sched_getaffinity(0))
ANSWERS, IMAGES, HASHES, JUDGED = 200_000, 100_000, 1_000_000, 125_000
CLASSES = [f"class {i:02d}" for i in range(11)]
PER_SHARD = 10_000


def answers(folder: Path, n_answers: int) -> dict[str, Any]:
    """200,000 answers of 60 workers, a tenth of them careless, read from one CSV and judged by each rule."""
    rng = np.random.default_rng(0)
    items = {f"{i:016x}": f"p{i}" for i in range(n_answers // 3)}
    truth = rng.integers(0, len(CLASSES), len(items))
    path = folder / "results.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "WorkTimeInSeconds", "Input.batch",
                         "Input.item", "Input.image_url", "Answer.labels", "Answer.sensitive"])  # fmt: skip
        for n, item in enumerate(items):
            for worker in rng.choice(60, 3, replace=False).tolist():
                said = truth[n] if rng.random() > (0.5 if worker < 6 else 0.03) else rng.integers(len(CLASSES))
                writer.writerow([item, f"{item}-{worker}", f"W{worker}", "Submitted", 7, "b", item, "https://x.example/i",
                                 CLASSES[said], "no"])  # fmt: skip
    batch = {"batch": "b", "items": items, "concepts": CLASSES}
    asked = [{"id": id_, "bucket": n % 10, "concept": CLASSES[truth[n]]} for n, id_ in enumerate(items.values())]
    clock = time.monotonic()
    table = read_answers(read_lines([path])["b"], batch, "key")
    told: dict[str, Any] = {"answers": len(table), "import_s": round(time.monotonic() - clock, 2)}
    clock = time.monotonic()
    agreement(table)
    told["agreement_s"] = round(time.monotonic() - clock, 2)
    for aggregate in ("votes", "one-coin", "dawid-skene"):
        clock = time.monotonic()
        verdicts = tally(asked, table, ValidationSettings(aggregate=aggregate))  # type: ignore[arg-type]
        told[f"{aggregate}_s"] = round(time.monotonic() - clock, 2)
        told[f"{aggregate}_kept"] = round(verdicts["verdict"].to_pylist().count("kept") / len(asked), 4)
    told["import_and_tally_s"] = round(told["import_s"] + told["agreement_s"] + told["votes_s"], 2)
    return told


def picture(rng: np.random.Generator) -> bytes:
    """A JPEG of about 20 kB, without anything to strip, as Flickr's resized files are."""
    buffer = io.BytesIO()
    base = np.asarray(Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8)).resize((330, 330)), np.int16)
    noise = np.clip(base + rng.normal(0, 9, base.shape), 0, 255).astype(np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG", quality=72)
    return buffer.getvalue()


def published(folder: Path, images: int) -> dict[str, Any]:
    """From shards as fetch leaves them to a sealed release, against copying the same files with tar (tar | tar), and
    against tar putting them into one archive."""
    rng = np.random.default_rng(0)
    pictures = [picture(rng) for _ in range(200)]
    sums = [sha256_bytes(p) for p in pictures]
    fetched, loose = folder / "fetch", folder / "loose"
    loose.mkdir()
    rows, members = [], []
    for shard in range(-(-images // PER_SHARD)):
        numbers = range(shard * PER_SHARD, min(images, (shard + 1) * PER_SHARD))
        write_tar(fetched / f"{shard:05d}.tar", ((f"{n:08d}.jpg", pictures[n % 200]) for n in numbers))
        index = [
            {"id": f"{n:08d}", "shard": shard, "member": f"{n:08d}.jpg", "sha256": sums[n % 200],
             "bytes": len(pictures[n % 200]), "fault": None}
            for n in numbers
        ]  # fmt: skip
        write_parquet(fetched / f"{shard:05d}.parquet", pa.Table.from_pylist(index))
        members += index
        for n in numbers:
            (loose / f"{n:08d}.jpg").write_bytes(pictures[n % 200])
            rows.append(
                {"id": f"{n:08d}", "bucket": n % 10, "concept": CLASSES[n // 10 % 11], "user": f"u{n % 5000}",
                 "uploaded": n, "licence": "Attribution License", "title": f"picture {n}",
                 "creator": f"user {n % 5000}", "width": 330, "height": 330, "score": 0.3}
            )  # fmt: skip
    write_parquet(folder / "members.parquet", pa.Table.from_pylist(members))
    size = sum(p.stat().st_size for p in loose.iterdir())
    del members
    gc.collect()
    os.sync()
    tar_s, copy_s, seconds = [], [], []
    for turn in range(3):
        clock = time.monotonic()
        subprocess.run(["tar", "-cf", str(folder / "copy.tar"), "-C", str(loose), "."], check=True)
        with (folder / "copy.tar").open("rb") as file:
            os.fsync(file.fileno())  # what we write is on disk, too
        tar_s.append(time.monotonic() - clock)
        (folder / "copy.tar").unlink()
        (folder / "copy").mkdir()
        clock = time.monotonic()
        pipe = f"tar -cf - -C {loose} . | tar -xf - -C {folder / 'copy'}"
        subprocess.run(pipe, shell=True, check=True)
        copy_s.append(time.monotonic() - clock)
        shutil.rmtree(folder / "copy")
        clock = time.monotonic()
        release(folder, rows, images, turn)
        seconds.append(time.monotonic() - clock)
        shutil.rmtree(folder / f"release{turn}")
    ours, peer, copied = sorted(seconds)[1], sorted(tar_s)[1], sorted(copy_s)[1]
    return {
        "images": images,
        "bytes_each": size // images,
        "publish_s": round(ours, 2),
        "tar_copy_s": round(copied, 2),
        "share_of_tar_copy": round(copied / ours, 3),
        "tar_create_s": round(peer, 2),
        "share_of_tar_create": round(peer / ours, 3),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "workers": CORES,
    }


def release(folder: Path, accepted: list[dict[str, Any]], images: int, turn: int) -> None:
    """What the stage publish does with accepted images."""
    rules = ReleaseSettings(per_class=images, short="fewer")
    out = folder / f"release{turn}"
    rows = [dict(r) for r in select(accepted, range(10), CLASSES, rules, 0)]
    splits = all_splits(rows, split_groups(rows), rules, 0)
    for i, row in enumerate(rows):
        row |= {"class": row["concept"], "label": CLASSES.index(row["concept"]), "split": splits["split_0"][i]}
    fetched = FetchedImages.open(folder / "fetch", folder / "members.parquet", {row["id"] for row in rows})
    packed = pack(rows, fetched, out / "shards", folder / f"records{turn}", 5000, True, Executor(workers=CORES))
    buckets = [{"index": b, "name": str(b), "start": None, "end": None} for b in range(10)]
    provenance = {
        "driftline": "0", "notice": "", "source": "yfcc", "seed": 0, "encoder": {"model": "m", "fingerprint": "f" * 64},
        "prompts": {c: [c] for c in CLASSES}, "counts": {}, "judgement": None,
        "validation": {"method": "crowd", "workers": 3, "agree": 2, "rule": "exact"},
    }  # fmt: skip
    write_release(packed, {}, buckets, CLASSES, splits, provenance, out, rules)


def copies(most: int) -> dict[str, Any]:
    """All pairs of 66,000 hashes, and of `most` by parts; a tenth of them have a near copy."""
    told: dict[str, Any] = {}
    for n in (66_000, most):
        rng = np.random.default_rng(n)
        of = rng.integers(0, 2**64, n, np.uint64)
        for i in range(n // 10):
            of[i] = of[n - 1 - i]
            for b in rng.integers(0, 64, 3).tolist():
                of[i] ^= np.uint64(1) << np.uint64(b)
        clock = time.monotonic()
        pairs = pairs_by_hash(of, 4)
        told[f"pairs_of_{n}_s"] = round(time.monotonic() - clock, 2)
        told[f"pairs_of_{n}"] = len(pairs)
        if n > 100_000:  # recall against all-against-all, on a part of it
            some = np.unique(of[np.r_[0:20_000, n - 20_000 : n]])
            exact = {tuple(p) for p in _pairs_by_all(some, 4).tolist()}
            place = {int(v): i for i, v in enumerate(some.tolist())}
            by = {tuple(sorted((place.get(int(of[a]), -1), place.get(int(of[b]), -1)))) for a, b in pairs.tolist()}
            told["recall"] = len(exact & by) / len(exact)
            told["recall_of"] = len(exact)
    return told


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["answers", "publish", "copies"])
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of answers, images and hashes")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        for part in given.parts:
            made = {
                "answers": lambda: answers(Path(name), int(ANSWERS * given.share)),
                "publish": lambda: published(Path(name), int(IMAGES * given.share)),
                "copies": lambda: copies(int(HASHES * given.share)),
            }[part]()
            print(json.dumps({"part": part, **made}), flush=True)


if __name__ == "__main__":
    main()
