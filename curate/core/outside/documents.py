"""Documents from outside, checked before use: JSON against a schema, text, lists of checksums."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile, shortened
from driftline.curate.core.outside.limits import DOCUMENT

SUM = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?([^\r\ud800-\udfff]+)\r?")  # a line of sha256sum


class Schema(BaseModel):
    """Fields that a document must have; it may have more. Types are not converted."""

    model_config = ConfigDict(strict=True, extra="allow", use_attribute_docstrings=True)


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


def read_text(path: Path, way_out: str = "") -> str:
    """A file of UTF-8 text. Raises MissingFile, BadInput naming the file and the first byte that is not."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "", way_out)
    if (size := path.stat().st_size) > DOCUMENT:
        raise BadInput(f"{path} has {size:,} bytes.", f"Expected at most {DOCUMENT:,}.", way_out)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error.reason} at byte {error.start}).", "", way_out) from None


def sums_of(data: bytes, source: str | Path, way_out: str) -> dict[str, str]:
    """File → SHA-256, of the content of a file SHA256SUMS. Raises IntegrityError naming the first line that is none."""
    sums = {}
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), 1):
        if entry := SUM.fullmatch(line):
            sums[entry[2]] = entry[1]
        elif line:
            raise IntegrityError(f"{source}, line {number}: {line[:100]!r}.", "Expected a SHA-256 and a name.", way_out)
    return sums


@contextmanager
def known_form(what: str, way_out: str = "") -> Iterator[None]:
    """Around, or as a decorator of, work on answers of a service: one of another form is one sentence (BadInput)."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        fault = f"{type(error).__name__}: {shortened(str(error), 80)}"
        raise BadInput(f"{what} has another form ({fault}).", "Expected that of the documentation.", way_out) from None
