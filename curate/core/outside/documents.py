"""JSON documents from outside, checked against a schema before use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from curate.core.atomic_io import read_json
from curate.core.errors import BadInput

LARGEST = 256 << 20  # bytes of a document


class Schema(BaseModel):
    """Fields that a document must have; it may have more. Types are not converted."""

    model_config = ConfigDict(strict=True, extra="allow", use_attribute_docstrings=True)


def read_document(path: Path, schema: type[Schema], way_out: str) -> dict[str, Any]:
    """The document in a file, as plain data. Raises MissingFile, or BadInput naming file and first bad field."""
    if path.is_file() and path.stat().st_size > LARGEST:
        raise BadInput(f"{path} has {path.stat().st_size:,} bytes.", f"Expected at most {LARGEST:,}.", way_out)
    try:
        document = read_json(path)
        schema.model_validate(document)
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply.", "", way_out) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the document"
        value = repr(first["input"])[:60]
        raise BadInput(f"{path}: {field} is {value}.", f"{first['msg']}.", way_out) from None
    return dict(document)
