"""A folder of photos: the date is the camera's own (EXIF)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from curate.ground.errors import BadInput, MissingFile
from curate.table import batch_of, safe_id

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".heic", ".heif"}
EPOCH = datetime(1970, 1, 1)
EXIF_IFD, ORIGINAL, DIGITIZED, OFFSET, MODEL = 0x8769, 0x9003, 0x9004, 0x9011, 0x0110


@dataclass(frozen=True)
class Folder:
    """All photos below a folder, in path order, dated by EXIF DateTimeOriginal.

    The time of the file and EXIF DateTime (last edit) are not used: both change when a photo is copied or
    edited. Where the camera recorded its UTC offset, `uploaded` is exact; else the local clock counts as UTC.
    label: "parent" takes the name of the folder a photo lies in as its known label.
    """

    path: Path
    label: Literal["none", "parent"] = "none"

    def inputs(self) -> list[Path]:
        """The folder itself."""
        if not self.path.is_dir():
            raise MissingFile(
                f"There is no folder {self.path}.", "Expected a folder of photos.", "Check collection.path."
            )
        return [self.path]

    def batches(self, rows: int = 65_536, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield one record a photo file; a file that is no image keeps its place and carries a fault."""
        (root,) = self.inputs()
        files = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not files:
            raise BadInput(
                f"The folder {root} holds no photos.",
                f"Expected files ending in {', '.join(sorted(SUFFIXES))}.",
                "Check collection.path.",
            )
        for start in range(skip, len(files), rows):
            chunk = files[start : start + rows]
            yield batch_of([self._record(root, path, start + i) for i, path in enumerate(chunk)])

    def _record(self, root: Path, path: Path, row: int) -> dict[str, Any]:
        name = path.relative_to(root).as_posix()
        try:
            taken, offset, camera = _exif(path)
        except Exception as error:  # Pillow raises many kinds for damaged files
            return {"id": safe_id(name), "row": row, "fault": "unreadable_image", "raw": f"{name}: {error}"}
        return {
            "id": safe_id(name),
            "row": row,
            "path": str(path.resolve()),
            "uploaded": None if taken is None else taken - offset,
            "taken": taken,
            "title": path.stem,
            "camera": camera,
            "media": "photo",
            "label": path.parent.name if self.label == "parent" and path.parent != root else None,
        }


def _exif(path: Path) -> tuple[int | None, int, str | None]:
    """Capture time (local seconds), UTC offset in seconds (0 if unknown), camera model."""
    from PIL import Image

    with Image.open(path) as image:
        exif = image.getexif()
    details = exif.get_ifd(EXIF_IFD)
    model = str(exif.get(MODEL) or "").replace("\x00", "").strip() or None
    for tag in (ORIGINAL, DIGITIZED):
        try:
            text = str(details.get(tag, "")).strip("\x00 ")
            taken = int((datetime.strptime(text, "%Y:%m:%d %H:%M:%S") - EPOCH).total_seconds())
        except ValueError:
            continue
        return taken, _offset(str(details.get(OFFSET, ""))), model
    return None, 0, model


def _offset(text: str) -> int:
    """`+02:00` → 7200; anything else → 0.

    >>> _offset("+02:00"), _offset("-09:30"), _offset("?")
    (7200, -34200, 0)
    """
    try:
        moment = datetime.strptime(text.strip("\x00 "), "%z")
    except ValueError:
        return 0
    return int((moment.utcoffset() or timedelta()).total_seconds())
