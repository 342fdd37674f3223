"""Documents from outside, checked before use: JSON against a schema, text, lists of checksums."""

import io
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from driftline.curate.core.atomic_io import DOCUMENT, read_json
from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile, shortened

MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
SUM = re.compile(r"^([0-9a-f]{64}) [ *](?:\./)?([^\r\n\ud800-\udfff]+)\r?$", re.MULTILINE)  # of sha256sum


class Schema(BaseModel):
    """Fields that a document must have; it may have more. Types are not converted."""

    model_config = ConfigDict(strict=True, extra="allow")


def read_document(path: Path, schema: type[Schema], way_out: str) -> dict[str, Any]:
    """The document in a file, as plain data. Raises MissingFile, or BadInput naming file and first bad field."""
    document = read_json(path)
    try:
        schema.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the document"
        value = shortened(repr(first["input"]), 60)
        raise BadInput(f"{path}: {field} is {value}.", f"{first['msg']}.", way_out) from None
    return dict(document)


def check_encoding(head: bytes, path: Path) -> None:
    """Raise BadInput for text in UTF-16 or UTF-32, as spreadsheets save it: it begins with a mark, or every second byte
    of Latin letters is zero. head: four bytes or more from the beginning of the file."""
    zeros = head[:1] == head[2:3] == b"\0", head[1:2] == head[3:4] == b"\0"
    seen = next((name for mark, name in MARKS.items() if head.startswith(mark)), None)
    seen = seen or ("UTF-16BE" if zeros[0] else "UTF-16LE" if zeros[1] else None)
    if seen is not None:
        raise BadInput(
            f"{path} is text in {seen}.",
            "Expected UTF-8.",
            f'Save it as "CSV UTF-8", or convert it: iconv -f {seen} -t UTF-8 {path.name} > NEW',
        )


def read_text(path: Path, way_out: str = "") -> str:
    """A file of UTF-8 text. Raises MissingFile, BadInput naming the file and the first byte that is not."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "", way_out)
    if (size := path.stat().st_size) > DOCUMENT:
        raise BadInput(f"{path} has {size:,} bytes.", f"Expected at most {DOCUMENT:,}.", way_out)
    data = path.read_bytes()
    check_encoding(data[:4], path)
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error.reason} at byte {error.start}).", "", way_out) from None


def sums_of(data: bytes, source: str | Path, way_out: str) -> dict[str, str]:
    """File → SHA-256, of the content of a file SHA256SUMS. Raises IntegrityError naming the first line that is none."""
    text = data.decode("utf-8", "surrogateescape")
    parts = SUM.split(text)  # what is between the lines, a digest, a name, and so on
    if "".join(parts[::3]).strip("\n"):
        at, line = next((n, s) for n, s in enumerate(text.split("\n"), 1) if s and not SUM.fullmatch(s))
        raise IntegrityError(f"{source}, line {at}: {line[:100]!r}.", "Expected a SHA-256 and a name.", way_out)
    return dict(zip(parts[2::3], parts[1::3], strict=True))
