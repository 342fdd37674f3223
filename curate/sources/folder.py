"""A folder of photos: the date is the camera's own (EXIF), a sidecar's, or one in the path."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.outside.image_kinds import missing_extra
from driftline.curate.core.times.dates import Date, Tags, exif, from_exif, shown_date
from driftline.curate.core.times.path_dates import DATES
from driftline.curate.images import camera_raw
from driftline.curate.images.folder_files import SUFFIXES, Files, counts_text, files_below, is_raw
from driftline.curate.metadata.column_mapping import is_utf8, printable
from driftline.curate.metadata.columns import safe_id
from driftline.curate.sources.base import HERE, FileSource, Workplace

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = 5  # photos that a warning names


class Folder(FileSource):
    """All photos below a folder, in path order, by their first bytes; HEIC needs the extra `heic`, JPEG XL `jxl`. Of a
    RAW file the camera's JPEG preview is used. Left out, and counted by kind, are companions of photos (sidecars,
    AppleDouble files, thumbnail folders, files of the system, RAW files beside a photo of the same name, since they
    show the same) and what is no photo. Where a photo's date may be:

    - `exif`: DateTimeOriginal, else DateTimeDigitized (DateTime, the last edit, is not used);
    - `sidecar`: PHOTO.json beside the photo (Google Takeout's photoTakenTime under all its names, or `date`) or
      PHOTO.xmp (DateTimeOriginal, else DateCreated, else DateTimeDigitized, else CreateDate);
    - `path`: a date in the name or its folders (2012-05-01, IMG_20120501_100000, 25.12.2005, milliseconds since 1970),
      a month (1941-07_…, 1941/07/…), or a year (1905/…, 1905 harbour/…, Summer '98);
    - `file`: the time of the file, which changes when the file is copied.

    The column `extra` keeps where a date was found (`date_from`), its precision (`date_precision`: year, month, day,
    minute, second), the clock's offset from UTC in seconds if it is recorded or follows from the time of GPS
    (`date_offset`), EXIF's values that are no date (`date_refused`), and the dates that contradict it by more than
    zones explain (`date_contradicted`): of later places, of GPS, and of an edit before the capture. A year, month or
    day is an interval: `uploaded` is its first second, `until` its last. If the offset is known, `uploaded` is exact;
    else the local clock counts as UTC.
    """

    label: Literal["none", "parent"] = "none"
    """parent: the name of a photo's folder is its known label"""
    dates: tuple[Literal["exif", "sidecar", "path", "file"], ...] = ("exif", "sidecar", "path")
    """where to look for a photo's date: the first that has one counts"""
    links: bool = False
    """read photos outside of the folder that links in it lead to; else they are left out, as `link_outside`"""
    records_version: ClassVar[int] = 3

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The folder itself, and its XMP sidecars: named, so that runs that took a scan's date from them read again."""
        folder = self._root(at)
        return [folder, *(sorted(folder.rglob("*.xmp")) if "sidecar" in self.dates else [])]

    def _root(self, at: Workplace) -> Path:
        folder = at.path(self.path)
        if not folder.is_dir():
            raise MissingFile(
                f"There is no folder {folder.resolve()}.", "Expected a folder of photos.", "Check collection.path."
            )
        return folder

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a photo file; a file that is not an image keeps its place and carries a fault."""
        files = self._photos(at)
        for start in range(skip, len(files.photos), rows):
            yield self._records(files, range(start, min(start + rows, len(files.photos))), at)

    def spread(self, most: int, at: Workplace = HERE) -> tuple[pa.RecordBatch, Files]:
        """At most `most` records, evenly spread over all, and every file below the folder."""
        files = self._photos(at)
        n = len(files.photos)
        return self._records(files, range(0, n, -(-n // most)), at), files

    def _photos(self, at: Workplace) -> Files:
        """Every file below the folder. Raises BadInput if none is a photo."""
        files = files_below(root := self._root(at), self.links)
        if not files.photos:
            there = counts_text(files.counts())
            raise BadInput(
                f"The folder {root} holds no photos{f', but {there}' if there else ''}.",
                f"Expected files such as {', '.join(sorted(SUFFIXES))}.",
                "Check collection.path.",
            )
        return files

    def _records(self, files: Files, rows: range, at: Workplace) -> pa.RecordBatch:
        from driftline.curate.metadata.schema import batch_of

        root, photos = self._root(at), list(files.photos.items())
        beside = {path.parent for path in files.others if path.suffix.lower() in (".json", ".xmp")}
        warned: dict[str, list[str]] = {}
        records = [self._record(root, *photos[i], i, photos[i][0].parent in beside, warned) for i in rows]
        for text, names in warned.items():
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            warnings.warn(f"{', '.join(names[:NAMED])}{more}: {text}", stacklevel=2)
        return batch_of(records)

    def own_ids(self) -> bool:
        """They are paths."""
        return False

    def left_out(self, at: Workplace = HERE) -> list[dict[str, Any]]:
        """id, fault and raw of every file that is no record."""
        root, files = self._root(at), files_below(self._root(at), self.links)
        names = {path: printable(path.relative_to(root).as_posix()) for path in files.others}
        return [
            {"id": safe_id(names[path]), "fault": why, "raw": f"{names[path]} ({suffix})"}
            for path, (why, suffix) in files.others.items()
        ]

    def _record(
        self, root: Path, path: Path, kind: str | None, row: int, sidecars: bool, warned: dict[str, list[str]]
    ) -> dict[str, Any]:
        """warned: warning of Pillow → names of photos, which it extends."""
        name = path.relative_to(root).as_posix()
        if not is_utf8(name):
            return {"id": safe_id(printable(name)), "row": row, "fault": "not_utf8", "raw": printable(name)}
        if (missing := missing_extra(kind)) is not None:
            return {"id": safe_id(name), "row": row, "fault": missing[0], "raw": f"{name}: {missing[1]}"}
        try:
            tags = _exif(path, kind)
        except Exception as error:  # Pillow raises many kinds for damaged files
            return {"id": safe_id(name), "row": row, "fault": "unreadable_image", "raw": f"{name}: {error}"}
        for text in tags.warned:
            warned.setdefault(text, []).append(name)
        witnesses = self._witnesses(path, name, tags, sidecars)
        place, date = next(iter(witnesses.items()), ("", None))
        extra: dict[str, Any] = {}
        if date is not None:
            extra |= {"date_from": place, "date_precision": date.precision}
            extra |= {} if date.offset is None else {"date_offset": date.offset}
            others = dict(tags.contradicted) if place == "exif" else {}
            others |= {where: shown_date(other) for where, other in witnesses.items() if other.contradicts(date)}
            extra |= {"date_contradicted": others} if others else {}
        extra |= {"date_refused": tags.refused} if tags.refused and "exif" in self.dates else {}
        return {
            "id": safe_id(name),
            "row": row,
            "path": str(path.resolve()),
            "uploaded": None if date is None else date.utc,
            "until": None if date is None or date.until == date.utc else date.until,
            "taken": None if date is None else date.taken,
            "title": path.stem,
            "camera": tags.model,
            "media": "photo",
            "extra": json.dumps(extra) if extra else None,
            "label": path.parent.name if self.label == "parent" and path.parent != root else None,
        }

    def _witnesses(self, path: Path, name: str, tags: Tags, sidecars: bool) -> dict[str, Date]:
        """Place → its date; the first counts. The time of the file is asked only if there is no other. sidecars:
        whether there may be one, because looking for each of its names takes longer than reading the photo's own."""
        witnesses: dict[str, Date] = {}
        for place in self.dates:
            if (place == "file" and witnesses) or (place == "sidecar" and not sidecars):
                continue
            date = tags.date if place == "exif" else DATES[place](path, name)
            witnesses |= {} if date is None else {place: date}
        return witnesses


def _exif(path: Path, kind: str | None) -> Tags:
    if not is_raw(path, kind) and (kind is not None or path.suffix.lower() in SUFFIXES):
        return exif(path)
    with path.open("rb") as file:
        tags = camera_raw.details(file)
    return Tags(None, None, {}, {}) if tags is None else from_exif(tags)
