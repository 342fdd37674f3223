"""A folder of photos: the date is the camera's own (EXIF), a sidecar's, or one in the path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from curate.core.errors import BadInput, MissingFile
from curate.images.phone_formats import HEIC_NEEDS, HEIC_SUFFIXES, reads_heic
from curate.metadata.column_mapping import is_utf8, printable, seconds_of
from curate.metadata.schema import batch_of, safe_id
from curate.sources.base import HERE, FileSource, Workplace

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".avif"} | HEIC_SUFFIXES
EPOCH = datetime(1970, 1, 1)
EXIF_IFD, ORIGINAL, DIGITIZED, OFFSET, MODEL = 0x8769, 0x9003, 0x9004, 0x9011, 0x0110
# 2012-05-01, 20120501_100000, 2012/05/01, "Screenshot 2012-05-01 at 9.00.00 AM": years 1800-2099, real months and days
DATE_IN_PATH = re.compile(
    r"(?<!\d)(1[89]\d\d|20\d\d)([-_./]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])"
    r"(?:(?: at |[ T_-])([01]\d|2[0-3]|\d(?=[.:]))[-_.:]?([0-5]\d)[-_.:]?([0-5]\d)(?:\d{3})?(?:\s?([AP])M)?)?(?!\d)"
)
MONTH_IN_PATH = re.compile(r"(?<!\d)(1[89]\d\d|20\d\d)(?:[-_.](0[1-9]|1[0-2])(?![-_.]?\d)|/(0[1-9]|1[0-2])/)")
# A folder that is a year or begins with one; a number in the photo's own name may be a counter.
YEAR_IN_PATH = re.compile(r"(?:^|/)(1[89]\d\d|20\d\d)(?:[ _-]+[^\d/][^/]*)?(?=/)")
DATE_IN_XMP = re.compile(
    r"(?:exif:DateTimeOriginal|photoshop:DateCreated|xmp:CreateDate)(?:=[\"']|>\s*)"
    r"(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?)"
)
PRECISIONS = {4: "year", 7: "month", 10: "day"}  # of an ISO date, by its length
LARGEST_SIDECAR = 1 << 20  # bytes
# time on the camera's clock (seconds), its offset from UTC (seconds), precision: year, month, day or second
Date = tuple[int, int, str]


class Folder(FileSource):
    """All photos below a folder, in path order; HEIC needs the extra `heic`. Where a photo's date may be:

    - `exif`: DateTimeOriginal, else DateTimeDigitized (DateTime, the last edit, is not used);
    - `sidecar`: PHOTO.json (Google Takeout's photoTakenTime, or `date`) or PHOTO.xmp beside the photo;
    - `path`: a date in the name or its folders (2012-05-01, IMG_20120501_100000), a month (1941-07_…, 1941/07/…), or
    the
      year of a folder (1905/…, 1905 harbour/…): their first second counts;
    - `file`: the time of the file, which changes when the file is copied.

    The column `extra` keeps where a date was found and its precision (year, month, day, second). If the UTC offset is
    known, `uploaded` is exact; else the local clock counts as UTC.
    """

    label: Literal["none", "parent"] = "none"
    """parent: the name of a photo's folder is its known label"""
    dates: tuple[Literal["exif", "sidecar", "path", "file"], ...] = ("exif", "sidecar", "path")
    """where to look for a photo's date: the first that has one counts"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The folder itself."""
        folder = at.path(self.path)
        if not folder.is_dir():
            raise MissingFile(
                f"There is no folder {folder.resolve()}.", "Expected a folder of photos.", "Check collection.path."
            )
        return [folder]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a photo file; a file that is not an image keeps its place and carries a fault."""
        (root,) = self.inputs(at)
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
        if not is_utf8(name):
            return {"id": safe_id(printable(name)), "row": row, "fault": "not_utf8", "raw": printable(name)}
        if path.suffix.lower() in HEIC_SUFFIXES and not reads_heic():
            return {"id": safe_id(name), "row": row, "fault": "needs_heic_extra", "raw": f"{name}: {HEIC_NEEDS}"}
        try:
            exif, camera = _exif(path)
        except Exception as error:  # Pillow raises many kinds for damaged files
            return {"id": safe_id(name), "row": row, "fault": "unreadable_image", "raw": f"{name}: {error}"}
        dates = ((place, exif if place == "exif" else DATES[place](path, name)) for place in self.dates)
        place, date = next(((place, date) for place, date in dates if date is not None), ("", None))
        taken, offset, precision = date or (None, 0, "")
        return {
            "id": safe_id(name),
            "row": row,
            "path": str(path.resolve()),
            "uploaded": None if taken is None else taken - offset,
            "taken": taken,
            "title": path.stem,
            "camera": camera,
            "media": "photo",
            "extra": None if date is None else json.dumps({"date_from": place, "date_precision": precision}),
            "label": path.parent.name if self.label == "parent" and path.parent != root else None,
        }


def _exif(path: Path) -> tuple[Date | None, str | None]:
    """Capture time with its offset, camera model."""
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
        return (taken, _offset(str(details.get(OFFSET, ""))), "second"), model
    return None, model


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


def _from_sidecar(path: Path, name: str) -> Date | None:
    """PHOTO.jpg.json, PHOTO.json, PHOTO.jpg.xmp, PHOTO.xmp: the first that holds a date."""
    for sidecar in (path.with_name(path.name + ".json"), path.with_suffix(".json")):
        try:
            value = json.loads(_small(sidecar))
            date = value.get("photoTakenTime", value.get("date"))
            seconds = seconds_of(date["timestamp"] if isinstance(date, dict) else date)
            return seconds, 0, PRECISIONS.get(len(date), "second") if isinstance(date, str) else "second"
        except (OSError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
    for sidecar in (path.with_name(path.name + ".xmp"), path.with_suffix(".xmp")):
        try:
            found = DATE_IN_XMP.search(_small(sidecar))
            if found:
                moment = datetime.fromisoformat(found[1])
                offset = int((moment.utcoffset() or timedelta()).total_seconds())
                precision = PRECISIONS.get(len(found[1]), "second")
                return int((moment.replace(tzinfo=None) - EPOCH).total_seconds()), offset, precision
        except (OSError, ValueError):
            continue
    return None


def _small(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(LARGEST_SIDECAR).decode("utf-8", "replace")


def _from_path(path: Path, name: str) -> Date | None:
    """The last date in the path, because it is the nearest to the photo's own name; else the last month, else year.

    >>> _from_path(Path("x"), "2011/trip/IMG_20120501_100000.jpg"), _from_path(Path("x"), "1970 harbour/a.jpg")
    ((1335866400, 0, 'second'), (0, 0, 'year'))
    """
    for found in reversed(list(DATE_IN_PATH.finditer(name))):
        year, _, month, day, hour, minute, second, half = found.groups()
        hours = int(hour or 0) % 12 + 12 * (half == "P") if half else int(hour or 0)
        try:
            moment = datetime(int(year), int(month), int(day), hours, int(minute or 0), int(second or 0))
        except ValueError:  # 30 February
            continue
        return int((moment - EPOCH).total_seconds()), 0, "day" if hour is None else "second"
    for found in reversed(list(MONTH_IN_PATH.finditer(name))):
        moment = datetime(int(found[1]), int(found[2] or found[3]), 1)
        return int((moment - EPOCH).total_seconds()), 0, "month"
    for found in reversed(list(YEAR_IN_PATH.finditer(name))):
        return int((datetime(int(found[1]), 1, 1) - EPOCH).total_seconds()), 0, "year"
    return None


def _from_file(path: Path, name: str) -> Date | None:
    return int(path.stat().st_mtime), 0, "second"


DATES: Mapping[str, Callable[[Path, str], Date | None]] = {
    "exif": lambda path, name: _exif(path)[0],
    "sidecar": _from_sidecar,
    "path": _from_path,
    "file": _from_file,
}
