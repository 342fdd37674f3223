"""Layouts of releases: CLEAR's folders, Hugging Face, image folders, a table of URLs, WebDataset tars.

CLEAR's old layout is loaded by `CLEAR(data_name="clear10_neurips2021", dataset_root=OUT, …)` of Avalanche: classes and
buckets are read from the files. The newer layout is not written, because Avalanche 0.6.0 reads all its buckets into
each experience. The loader accepts only four names of features, so the release's first features are also written as
`moco_b0`. For the iid protocol on features, Avalanche 0.6.0 needs the four lines in `docs/studies/avalanche.md`,
because its loader returns lists of tensors instead of tensors.
"""

import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import sha256_file, write_bytes, write_json, write_parquet, write_text, writing
from driftline.curate.core.errors import BadInput
from driftline.curate.core.late import torch
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.documents import read_text
from driftline.curate.foreign.escaping import image_folders_readme
from driftline.curate.foreign.names import RESERVED, inside, one_form
from driftline.curate.release.changes import changes_markdown
from driftline.curate.release.compose import attribution, seal
from driftline.curate.release.croissant import croissant
from driftline.curate.release.data_card import card
from driftline.curate.release.format import AGAIN, Release

LOADABLE = "moco_b0"  # the only name of features that both old data names of Avalanche accept


def clear(release: Release, out: Path) -> dict[str, int]:
    """CLEAR's folders, file lists, splits and feature tensors, for Avalanche's loader."""
    training = out / "training_folder"
    rows = list(rows_of(release.table, "id", "bucket", "class", "label", "member"))
    paths = {id_: f"labeled_images/{b}/{label:03d}/{member}" for id_, b, _, label, member in rows}
    for id_, data in release.images():
        write_bytes(out / paths[id_], data)
    write_text(
        out / "class_names.txt", "\n".join(release.classes)
    )  # the loader would read a final newline as another class
    write_json(training / "bucket_indices.json", [str(b["index"]) for b in release.buckets])
    for bucket in release.buckets:
        name = str(bucket["index"])
        positions = [i for i, row in enumerate(rows) if row[1] == bucket["index"]]

        def listing(chosen: list[int], positions: list[int] = positions) -> str:
            return "".join(f"{paths[rows[positions[i]][0]]} {rows[positions[i]][3]}\n" for i in chosen)

        write_text(training / "filelists" / name / "all.txt", listing(list(range(len(positions)))))
        for k, split in enumerate(release.facts["splits"]):
            sides = np.array(release.table[split].to_pylist())[positions]
            for side in ("train", "test"):
                chosen = np.flatnonzero(sides == side).tolist()
                folder = training / "testset_ratio_0.3" / f"split_{k}" / name
                write_text(folder / f"{side}.txt", listing(chosen))
                write_json(folder / f"{side}_indices.json", chosen)
        labels = [rows[i][3] for i in positions]
        for number, kind in enumerate(release.facts["features"]):
            vectors = torch.from_numpy(np.asarray(release.features(kind)[positions], np.float32))
            buffer = io.BytesIO()
            torch.save((vectors, labels), buffer)
            for alias in {kind, LOADABLE} if number == 0 else {kind}:
                write_bytes(training / "features" / alias / name / "all.pth", buffer.getvalue())
    return {"images": len(rows), "buckets": len(release.buckets)}


IMAGES = 2000  # images per file
GROUP = 100  # images per row group, which streaming readers fetch at once
LEFT_OUT = ("shard", "member", "votes")


def huggingface(release: Release, out: Path) -> dict[str, int]:
    """Parquet files that `datasets.load_dataset` opens without arguments, with card and Croissant."""
    features = _features_of(release)
    schema = pa.schema(
        [
            pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            *(pa.field(n, pa.int64() if n == "label" else release.table[n].type) for n in features if n != "image"),
        ],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    files = []
    for bucket in release.buckets:
        rows = release.table.filter(pa.compute.equal(release.table["bucket"], bucket["index"])).to_pylist()
        split = f"bucket_{bucket['index']:02d}"
        parts = -(-len(rows) // IMAGES)
        images = release.images(bucket["index"])
        for part in range(parts):
            path = out / "data" / f"{split}-{part:05d}-of-{parts:05d}.parquet"
            with writing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
                in_file = rows[part * IMAGES : (part + 1) * IMAGES]
                for low in range(0, len(in_file), GROUP):
                    writer.write_table(_group(in_file[low : low + GROUP], images, schema))
            files.append((f"data/{path.name}", sha256_file(path), path.stat().st_size))
    facts = {**release.facts, "features": [], "unlabelled": None}  # what is not written here is not said here
    write_text(out / "README.md", card(facts, "parquet"))
    columns = {field.name: str(field.type) for field in schema}
    write_json(out / "croissant.json", croissant(facts, columns, files, facts["provenance"].get("url")))
    write_json(out / "release.json", facts)
    write_text(out / "ATTRIBUTION.csv", attribution(release.table.to_pylist()))
    write_text(out / "WITHDRAWN.csv", read_text(release.path / "WITHDRAWN.csv", AGAIN))
    if facts["changes"]:
        write_text(out / "CHANGES.md", changes_markdown(facts["changes"], facts["version"]))
    seal(out)
    return {"images": len(release.table), "files": len(files)}


def _features_of(release: Release) -> dict[str, dict[str, Any]]:
    """Column → feature, in the format of `datasets`."""
    features: dict[str, dict[str, Any]] = {
        "image": {"_type": "Image"},
        "label": {"names": release.classes, "_type": "ClassLabel"},
    }
    dtypes = {"string": "string", "int32": "int32", "int64": "int64", "float": "float32"}
    for field in release.table.schema:
        if field.name not in (*LEFT_OUT, "label"):
            features[field.name] = {"dtype": dtypes[str(field.type)], "_type": "Value"}
    return features


def _group(rows: list[dict[str, Any]], images: Iterator[tuple[str, bytes]], schema: pa.Schema) -> pa.Table:
    """A row group with image bytes; `images` is in the order of the rows."""
    for row in rows:
        id_, data = next(images)
        assert id_ == row["id"]  # Release.images yields in the order of its table
        row["image"] = {"bytes": data, "path": row["member"]}
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


UNSAFE = re.compile(r'^\.|^_(?=_)|[\x00-\x1f\x7f/\\<>:"|?*]|[. ]\Z|%(?=[0-9A-Fa-f]{2})')


def imagefolder(release: Release, out: Path) -> dict[str, int]:
    """One folder per bucket and in it one per class, for torchvision's `ImageFolder`. Raises BadInput for names that
    are one name on some disks."""
    paths = {
        id_: out / f"bucket_{bucket:02d}" / _folder(name) / member
        for id_, bucket, name, member in rows_of(release.table, "id", "bucket", "class", "member")
    }
    _check_distinct([*release.classes, *(path.relative_to(out).as_posix() for path in paths.values())])
    for id_, data in release.images():
        write_bytes(paths[id_], data)
    folders = {path.relative_to(out).parts[0] for path in paths.values()}
    write_text(out / "README.md", image_folders_readme({name: name for name in folders}))
    return {"images": len(paths)}


def _check_distinct(names: Iterable[str]) -> None:
    spellings: dict[str, str] = {}
    for name in names:
        if (other := spellings.setdefault(one_form(name).lower(), name)) != name:
            raise BadInput(
                f"{other!r} and {name!r} are one name on disks that ignore case or Unicode form (Windows, macOS).",
                "Expected classes and ids that differ in more.",
                "Export the release as huggingface or webdataset.",
            )


def _folder(name: str) -> str:
    """A class name as a folder name; `urllib.parse.unquote` gives the class name back, so no two classes share a
    folder.

    Percent-encoded are separators, a leading dot, two leading underscores (`datasets` skips such folders), the percent
    sign of an apparent escape, and what names on Windows must not have or be.

    >>> _folder("tea & cake"), _folder("a/b"), _folder(".."), _folder("100%25"), _folder("con")
    ('tea & cake', 'a%2Fb', '%2E%2E', '100%2525', '%63on')
    """
    folder = UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    return f"%{ord(folder[0]):02X}{folder[1:]}" if RESERVED.fullmatch(folder) else folder


def urls(release: Release, out: Path) -> dict[str, int]:
    """The metadata table without image bytes: ids, URLs, labels, splits, checksums."""
    write_parquet(out / "urls.parquet", release.table.drop_columns(["shard", "member"]))
    write_json(out / "release.json", {**release.facts, "features": [], "unlabelled": None})
    with_url = sum(url is not None for url in release.table["url"].to_pylist())
    return {"images": len(release.table), "with_url": with_url}


def webdataset(release: Release, out: Path) -> dict[str, int]:
    """The sharded release: WebDataset tars, one or more per bucket, with card, metadata and checksums."""
    release.verify()
    sums = release.path / "SHA256SUMS"
    for name in release.checksums():
        if not name.startswith("features/"):
            with (release.path / name).open("rb") as source, writing(inside(out, name, sums)) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    tars = {f"shards/{path.name}": sha256_file(path) for path in sorted((out / "shards").glob("*.tar"))}
    seal(out, tars)
    return {"images": len(release.table), "shards": len(tars)}
