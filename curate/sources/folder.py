"""A folder of photos: the date is the camera's own (EXIF), a sidecar's, or one in the path."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.files import code_of, is_utf8, joined, keep, recall, walk
from driftline.curate.core.late import pa
from driftline.curate.core.times.dates import Date, Tags, exif, from_exif, shown_date, sidecar_names
from driftline.curate.core.times.path_dates import DATES
from driftline.curate.foreign.images import missing_extra
from driftline.curate.foreign.names import one_form
from driftline.curate.images import camera_raw
from driftline.curate.images.local_files import SUFFIXES, Files, counts_text, files_below, is_raw, suffix_of
from driftline.curate.metadata.columns import printable, safe_id
from driftline.curate.sources.base import HERE, FileSource, Workplace

NAMED = 5  # photos that a warning names
READ = {"uploaded": int, "until": int, "taken": int, "camera": str, "extra": str}
"""columns that need the bytes of a photo and its sidecars"""


class Folder(FileSource):
    """All photos below a folder, in path order, by their first bytes; HEIC needs the extra `heic`, JPEG XL `jxl`. Of a
    RAW file the camera's JPEG preview is used. Left out, and counted by kind, are companions of photos (sidecars,
    AppleDouble files, thumbnail folders, files of the system, RAW files beside a photo of the same name, since they
    show the same) and what is no photo. Where a photo's date may be:

    - `exif`: DateTimeOriginal, else DateTimeDigitized (DateTime, the last edit, is not used);
    - `sidecar`: PHOTO.json beside the photo (Google Takeout's photoTakenTime under all its names, or `date`) or
      PHOTO.xmp (DateTimeOriginal, else DateCreated, else DateTimeDigitized, else CreateDate);
    - `path`: a date in the name or its folders (2012-05-01, IMG_20120501_100000, 25.12.2005, milliseconds since 1970),
      a month (1941-07_…, 1941/07/…), or a year (1905/…, 1905 harbour/…);
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
        stamps = walk(folder).stamps if "sidecar" in self.dates else {}
        return [folder, *(folder / name for name, stamp in stamps.items() if name.endswith(".xmp") and stamp)]

    def _root(self, at: Workplace) -> Path:
        folder = at.path(self.path)
        if not folder.is_dir():
            raise MissingFile(
                f"There is no folder {folder.resolve()}.", "Expected a folder of photos.", "Check collection.path."
            )
        return folder

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> "Iterator[pa.RecordBatch]":
        """Yield one record a photo file; a file that is not an image keeps its place and carries a fault."""
        files = self._photos(at)
        for start in range(skip, len(files.photos), rows):
            yield self._records(files, range(start, min(start + rows, len(files.photos))), at)

    def spread(self, most: int, at: Workplace = HERE) -> "tuple[pa.RecordBatch, Files]":
        """At most `most` records, evenly spread over all, and every file below the folder."""
        files = self._photos(at)
        n = len(files.photos)
        return self._records(files, range(0, n, -(-n // most)), at), files

    def _photos(self, at: Workplace) -> Files:
        """Every file below the folder. Raises BadInput if none is a photo."""
        files = files_below(root := self._root(at), self.links, at.memory)
        if not files.photos:
            there = counts_text(files.counts())
            raise BadInput(
                f"The folder {root} holds no photos{f', but {there}' if there else ''}.",
                f"Expected files such as {', '.join(sorted(SUFFIXES))}.",
                "Check collection.path.",
            )
        return files

    def _records(self, files: Files, rows: range, at: Workplace) -> "pa.RecordBatch":
        from driftline.curate.metadata.schema import batch_of

        root, photos = self._root(at), list(files.photos.items())
        real, sidecars = os.fspath(root.resolve()), _sidecars(files) if "sidecar" in self.dates else {}
        stamps = self._stamps(real, [photos[i][0] for i in rows], files, sidecars)
        stored = recall(at.memory, "records", stamps.values())
        warned: dict[str, list[str]] = {}
        records, fresh = [], []
        for i in rows:
            (name, kind), (place, stamp) = photos[i], stamps[photos[i][0]]
            record, texts = self._record(root, name, kind, stored.get(place), _parent(name) in sidecars)
            for text in texts:
                warned.setdefault(text, []).append(name)
            if "fault" not in record:
                if stamp and place not in stored and not texts:
                    fresh.append((place, stamp, json.dumps([record[key] for key in READ])))
                link = name in files.below.links
                record["path"] = os.fspath((root / name).resolve()) if link else os.path.join(real, name)
            records.append({**record, "row": i})
        keep(at.memory, "records", fresh)
        for text, names in warned.items():
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            warnings.warn(f"{', '.join(names[:NAMED])}{more}: {text}", stacklevel=2)
        return batch_of(records)

    def _stamps(
        self, root: str, names: Sequence[str], files: Files, sidecars: Mapping[str, Mapping[str, Sequence[str]]]
    ) -> dict[str, tuple[str, str]]:
        """Photo → its absolute path, and a stamp of all that decides what is read of it: its file, its sidecars, the
        code. The stamp is "" for a link, whose target may be another one."""
        import PIL

        edition = fingerprint([code_of(("curate",)), PIL.__version__, self.dates])[:16]
        stamps = {}
        for name in names:
            own, beside = files.below.stamps[name], sidecars.get(_parent(name), {})
            may_be = map(_any_form, chain(*sidecar_names(name[name.rfind("/") + 1 :]))) if beside else ()
            there = [stamp for place in dict.fromkeys(may_be) for stamp in beside.get(place, ())]
            if name in files.below.links or not own:
                stamp = ""
            else:
                stamp = joined([own, *there], edition) if there else f"{edition} {own}"
            stamps[name] = f"{root}/{name}", stamp
        return stamps

    def own_ids(self) -> bool:
        """They are paths."""
        return False

    def left_out(self, at: Workplace = HERE) -> list[dict[str, Any]]:
        """id, fault and raw of every file that is no record."""
        files = files_below(self._root(at), self.links, at.memory)
        return [
            {"id": safe_id(printable(name)), "fault": why, "raw": f"{printable(name)} ({suffix})"}
            for name, (why, suffix) in files.others.items()
        ]

    def _record(
        self, root: Path, name: str, kind: str | None, stored: str | None, sidecars: bool
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """A record without row and path, and what Pillow warned of. stored: the values of READ as JSON, if they were
        read before. sidecars: whether the folder has any."""
        if not is_utf8(name):
            return {"id": safe_id(printable(name)), "fault": "not_utf8", "raw": printable(name)}, ()
        if (missing := missing_extra(kind)) is not None:
            return {"id": safe_id(name), "fault": missing[0], "raw": f"{name}: {missing[1]}"}, ()
        texts: Sequence[str] = ()
        try:
            if (read := _as_read(stored)) is None:
                read, texts = self._read(root / name, name, kind, sidecars)
        except Exception as error:  # Pillow raises many kinds for damaged files
            return {"id": safe_id(name), "fault": "unreadable_image", "raw": f"{name}: {error}"}, ()
        folder, _, file = name.rpartition("/")
        return {
            "id": safe_id(name),
            "title": file.removesuffix(suffix_of(file)),
            "media": "photo",
            "label": folder.rpartition("/")[2] if self.label == "parent" and folder else None,
            **read,
        }, texts

    def _read(self, path: Path, name: str, kind: str | None, sidecars: bool) -> tuple[dict[str, Any], Sequence[str]]:
        """The columns of READ, and what Pillow warned of."""
        tags = _exif(path, kind)
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
            "uploaded": None if date is None else date.utc,
            "until": None if date is None or date.until == date.utc else date.until,
            "taken": None if date is None else date.taken,
            "camera": tags.model,
            "extra": json.dumps(extra) if extra else None,
        }, tags.warned

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
    if not is_raw(path.name, kind) and (kind is not None or path.suffix.lower() in SUFFIXES):
        return exif(path)
    with path.open("rb") as file:
        tags = camera_raw.details(file)
    return Tags(None, None, {}, {}) if tags is None else from_exif(tags)


def _as_read(stored: str | None) -> dict[str, Any] | None:
    """The columns of READ from their values as JSON; None for what is not such."""
    try:
        read = dict(zip(READ, json.loads(stored or ""), strict=True))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = all(value is None or type(value) is READ[key] for key, value in read.items())
    return read if kinds and all(abs(read[key] or 0) < 1 << 62 for key in ("uploaded", "until", "taken")) else None


def _sidecars(files: Files) -> dict[str, dict[str, list[str]]]:
    """Folder with sidecars → `_any_form` of their names → name and stamp of each."""
    sidecars: dict[str, dict[str, list[str]]] = {}
    for name in files.others:
        if suffix_of(name).lower() in (".json", ".xmp"):
            file = name[name.rfind("/") + 1 :]
            beside = sidecars.setdefault(_parent(name), {}).setdefault(_any_form(file), [])
            beside.append(f"{file} {files.below.stamps[name] or '0 0'}")
    return sidecars


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _any_form(name: str) -> str:
    """One form of the names that some file systems take for the same."""
    return one_form(name).casefold()
