"""YFCC100M metadata: tab-separated, 23 columns (2014 parts) or 25 (2016 file), plain, .bz2 or .gz."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote_plus

import pyarrow as pa

from curate.ground.errors import BadInput, MissingFile
from curate.table import ID, batch_of

LONGEST_LINE = 1 << 20  # bytes; the longest of 1,000 real lines has 16 kB, all above is damage
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Yfcc:
    """YFCC100M metadata files, 23 or 25 columns, plain or compressed.

    path: one file, or a folder whose `*dataset*` files are read in name order. No header, no quoting, empty
    means absent, free text is plus-encoded. Row numbers count lines over all files, from 0.

    [Thomee et al. 2016; columns as in the 25-column ReadMe: line number first, hash after the id]
    """

    path: Path

    def inputs(self) -> list[Path]:
        """The files, in the order in which they are read."""
        if self.path.is_dir():
            files = sorted(p for p in self.path.iterdir() if p.is_file() and "dataset" in p.name)
            if not files:
                raise MissingFile(
                    f"The folder {self.path} holds no YFCC100M metadata.",
                    "Expected files with 'dataset' in their name (yfcc100m_dataset-0.bz2, …).",
                    "Set collection.path to the file itself.",
                )
            return files
        if not self.path.is_file():
            raise MissingFile(f"There is no file {self.path}.", "Expected YFCC100M metadata.", "Check collection.path.")
        return [self.path]

    def batches(self, rows: int = 65_536, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield records in line order; lines that are no YFCC record keep their place and carry a fault."""
        row = 0
        chunk: list[dict[str, Any]] = []
        for path in self.inputs():
            width = 0  # 23 or 25, fixed by the first line that has either
            for line in _lines(path):
                if row >= skip:
                    record, width = _record(line, row, width)
                    chunk.append(record)
                    if len(chunk) == rows:
                        yield batch_of(chunk)
                        chunk = []
                elif not width:
                    width = _width(line)
                row += 1
            if row == 0:
                raise BadInput(
                    f"The file {path} is empty.", "Expected one YFCC100M record a line.", "Download it again."
                )
            if not width:
                raise BadInput(
                    f"No line of {path} has 23 or 25 tab-separated columns (line 1 has {_columns(path)}).",
                    "Expected YFCC100M metadata: 23 columns, or 25 with line number and hash.",
                    "Use collection.source: delimited for other tables.",
                )
        if chunk:
            yield batch_of(chunk)


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their end; a line longer than LONGEST_LINE is cut, so that memory stays bounded."""
    opener: Callable[[Path, str], IO[bytes]] = {".bz2": bz2.open, ".gz": gzip.open}.get(path.suffix, open)  # type: ignore[assignment]
    count = 0
    try:
        with opener(path, "rb") as stream:
            while line := stream.readline(LONGEST_LINE + 1):
                if not line.endswith(b"\n") and len(line) > LONGEST_LINE:
                    while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                yield line.rstrip(b"\r\n") if len(line) <= LONGEST_LINE + 1 else line
                count += 1
    except (EOFError, OSError) as error:
        raise BadInput(
            f"{path} is damaged or cut off after line {count:,} ({error}).",
            "Expected a whole file.",
            f"Its first {count:,} lines can be read; download the file again to have the rest.",
        ) from None


def _columns(path: Path) -> int:
    return next(_lines(path)).count(b"\t") + 1


def _width(line: bytes) -> int:
    columns = line.count(b"\t") + 1
    return columns if columns in (23, 25) else 0


def _record(line: bytes, row: int, width: int) -> tuple[dict[str, Any], int]:
    """One line → one record of the table, or a record with a fault; and the file's width as known by now."""

    def bad(fault: str) -> tuple[dict[str, Any], int]:
        return {"row": row, "fault": fault, "raw": line[:2000].decode("utf-8", "backslashreplace")}, width

    if len(line) > LONGEST_LINE:
        return bad("line_too_long")
    columns = line.count(b"\t") + 1
    width = width or _width(line)
    if columns != width:
        return bad("wrong_column_count")
    if b"\x00" in line:
        return bad("nul_byte")
    try:
        fields = line.decode("utf-8").split("\t")
    except UnicodeDecodeError:
        return bad("not_utf8")
    if width == 25:
        fields = [fields[1], *fields[3:]]
    (id_, user, nickname, taken, uploaded, camera, title, description, tags, _, lon, lat, _, page, url, licence,
     licence_url, _, _, _, _, _, marker) = fields  # fmt: skip
    if not (ID.fullmatch(id_) and id_.isdigit()):
        return bad("bad_id")
    seconds = _integer(uploaded)
    if uploaded and seconds is None:
        return bad("bad_upload_time")
    if marker not in ("0", "1"):
        return bad("bad_marker")
    return {
        "id": id_,
        "row": row,
        "url": url or None,
        "uploaded": seconds,
        "taken": _local_seconds(taken),
        "user": user or None,
        "nickname": _text(nickname),
        "title": _text(title),
        "description": _text(description),
        "tags": tags or None,  # split at commas before decoding: a tag may hold %2C
        "camera": _text(camera),
        "licence": licence or None,
        "licence_url": licence_url or None,
        "page_url": page or None,
        "media": "photo" if marker == "0" else "video",
        "longitude": _degrees(lon),
        "latitude": _degrees(lat),
    }, width


def _text(field: str) -> str | None:
    return unquote_plus(field, errors="replace").replace("\x00", "\ufffd") or None


def _integer(field: str) -> int | None:
    try:
        value = int(field)
    except ValueError:
        return None
    return value if -(2**62) < value < 2**62 else None


def _local_seconds(field: str) -> int | None:
    """`2012-02-16 09:56:37.0` → seconds, as if the camera's clock showed UTC; null where it does not parse."""
    try:
        return int((datetime.fromisoformat(field[:19]) - EPOCH).total_seconds())
    except (ValueError, TypeError):
        return None


def _degrees(field: str) -> float | None:
    try:
        value = float(field)
    except ValueError:
        return None
    return value if -180 <= value <= 180 else None
