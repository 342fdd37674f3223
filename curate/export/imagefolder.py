"""ImageFolder: bucket_BB/CLASS/ID.EXT, as torchvision reads it."""

from __future__ import annotations

from pathlib import Path

from curate.core.atomic_io import write_bytes
from curate.release.format import Release


def export(release: Release, out: Path) -> dict[str, int]:
    """One folder a bucket, one folder a class: torchvision `ImageFolder`."""
    where = {
        id_: out / f"bucket_{bucket:02d}" / _folder(name) / member
        for id_, bucket, name, member in zip(
            *(release.table[c].to_pylist() for c in ("id", "bucket", "class", "member")), strict=True
        )
    }
    for id_, data in release.images():
        write_bytes(where[id_], data)
    return {"images": len(where)}


def _folder(name: str) -> str:
    """A class name as a folder name: no separators, no leading dot."""
    return name.replace("/", "_").replace("\\", "_").lstrip(".") or "_"
