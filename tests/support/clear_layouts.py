"""A small CLEAR-10 in the layouts that its authors publish, made from a release of ours."""

import io
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from support.helpers import release_of

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.seeding import rng_for
from driftline.curate.export.layouts import clear as export
from driftline.curate.release import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.stream_builder.importers.clear_layouts import CLEAR10

PROVENANCE = {
    "driftline": "0", "notice": "", "source": "yfcc", "seed": 0, "encoder": {"model": "m", "fingerprint": "f" * 64},
    "prompts": {}, "validation": {"method": "crowd", "workers": 3, "agree": 2, "rule": "exact"}, "counts": {},
    "judgement": None,
}  # fmt: skip
STARTS = {1: 1176089253, 2: 1206126877, 3: 1230044616}  # clear_10_time.json


def made_release(folder: Path, each: int = 3) -> Release:
    """CLEAR-10's classes in three of its buckets, with its boundaries; a photographer for every two photos."""
    rows, images, vectors = [], {}, []
    for bucket, start in STARTS.items():
        for label, name in enumerate(CLEAR10):
            for i in range(each):
                rng = rng_for(bucket, name, i)
                buffer = io.BytesIO()
                Image.fromarray(rng.integers(0, 256, (12, 16, 3)).astype(np.uint8)).save(buffer, "JPEG")
                id_ = f"{bucket}{label:02d}{i:04d}"
                images[id_] = (buffer.getvalue(), "jpg")
                rows.append(
                    {"id": id_, "bucket": bucket, "concept": name, "user": f"{len(rows) // 2}@N00",
                     "uploaded": start + int(rng.integers(0, 10**6)), "sha256": sha256_bytes(buffer.getvalue())}
                )  # fmt: skip
                vectors.append(rng.normal(0, 1, 8))
    buckets = [{"index": b, "name": str(b), "start": None, "end": None} for b in STARTS]
    rules = ReleaseSettings(splits=5, columns=("user",))
    return release_of(rows, images, np.array(vectors, np.float16), buckets, CLEAR10, PROVENANCE, folder, rules)


def old_layout(release: Release, folder: Path) -> Path:
    """Our own export, and the metadata that CLEAR has beside it."""
    export(release, folder)
    known: Any = defaultdict(lambda: defaultdict(dict))
    for row in release.table.to_pylist():
        known[str(row["bucket"])][row["class"]][row["id"]] = described(row, "jpg")
    write_metadata(folder, known)
    return folder


def new_layout(release: Release, folder: Path) -> Path:
    """train/ and test/ of the first split, as the official clear10-train.zip and clear10-test.zip unpack."""
    data = dict(release.images())
    vectors = torch.from_numpy(np.asarray(release.features(release.facts["features"][0]), np.float32))
    for side in ("train", "test"):
        known: Any = {str(b): {name: {} for name in CLEAR10} for b in STARTS}
        tensors: Any = {str(b): {name: {} for name in CLEAR10} for b in STARTS}
        for position, row in enumerate(release.table.to_pylist()):
            if row["split_0"] == side:
                meta = described(row, "jpg")
                known[str(row["bucket"])][row["class"]][row["id"]] = meta
                tensors[str(row["bucket"])][row["class"]][row["id"]] = vectors[position].clone()
                path = folder / side / meta["IMG_PATH"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data[row["id"]])
        root = folder / side
        write_metadata(root, known)
        (root / "class_names.txt").write_text("\n".join(CLEAR10))
        listed = {b: {c: f"features/moco_b0/{b}/{c}.pth" for c in by_class} for b, by_class in tensors.items()}
        for b, by_class in tensors.items():
            (root / "features" / "moco_b0" / b).mkdir(parents=True, exist_ok=True)
            for c, by_id in by_class.items():
                torch.save(by_id, root / listed[b][c])
        (root / "features" / "moco_b0" / "features.json").write_text(json.dumps(listed))
    return folder


def described(row: dict[str, Any], suffix: str) -> dict[str, Any]:
    """A photo's metadata, as the authors' code writes it."""
    return {
        "ID": row["id"], "USER_ID": row["user"], "DATE_UPLOADED": str(row["uploaded"]), "EXT": suffix,
        "IMG_DIR": "/data3/clear", "IMG_PATH": f"labeled_images/{row['bucket']}/{row['class']}/{row['id']}.{suffix}",
    }  # fmt: skip


def write_metadata(root: Path, known: Any) -> None:
    """labeled_metadata.json and what it names."""
    for bucket, by_class in known.items():
        (root / "labeled_metadata" / bucket).mkdir(parents=True, exist_ok=True)
        for name, records in by_class.items():
            (root / "labeled_metadata" / bucket / f"{name}.json").write_text(json.dumps(records))
    listed = {b: {name: f"labeled_metadata/{b}/{name}.json" for name in by_class} for b, by_class in known.items()}
    (root / "labeled_metadata.json").write_text(json.dumps(listed))


def bare_layout(folder: Path, buckets: Sequence[str], splits: int = 1) -> Path:
    """The old layout of two classes, without metadata; the buckets are listed in this order. A second split tests what
    the first one trains on."""
    training = folder / "training_folder"
    for bucket in buckets:
        paths = [f"labeled_images/{bucket}/{c}/{bucket}{c}{i}.png" for c in ("bus", "car") for i in range(4)]
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            pixels = rng_for(0, path).integers(0, 256, (10, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / path)
        lists = {training / "filelists" / bucket / "all": paths}
        for split in range(splits):
            side = training / "testset_ratio_0.3" / f"split_{split}" / bucket
            lists |= {side / "train": paths[split::2], side / "test": paths[1 - split :: 2]}
        for target, listed in lists.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_suffix(".txt").write_text("".join(f"{path} {int('/car/' in path)}\n" for path in listed))
    (training / "bucket_indices.json").write_text(json.dumps(list(buckets)))
    (folder / "class_names.txt").write_text("bus\ncar")
    return folder
