"""Metadata sources: anything that lists photos with a time → record batches of `curate.metadata.schema.SOURCE`.

A new source is one file here, with a class derived from `Source`, and one line in `SOURCES`; in a package of your own
it is an entry point in the group `driftline.sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from curate.core.errors import DriftlineError
from curate.core.registry import Registry
from curate.core.settings import keys_of
from curate.sources.base import DEFAULTS_OF_0_1, FileSource, Source, Workplace

SOURCES = Registry(
    "source",
    {
        "yfcc": "curate.sources.yfcc:Yfcc",
        "folder": "curate.sources.folder:Folder",
        "delimited": "curate.sources.delimited:Delimited",
        "parquet": "curate.sources.parquet:Parquet",
        "huggingface": "curate.sources.huggingface:HuggingFace",
        "flickr": "curate.sources.flickr:Flickr",
    },
    group="sources",
    base="curate.sources.base:Source",
)


def source_of(values: Any) -> Any:
    """The section `collection` as its source reads it. Raises ValidationError, naming the key."""
    if not isinstance(values, Mapping):
        return values
    name = values.get("source")
    try:
        kind = SOURCES.resolve(str(name))
    except DriftlineError as error:
        unusable = PydanticCustomError("unknown_name", "{error}", {"error": str(error)})
        details = InitErrorDetails(type="missing" if name is None else unusable, loc=("source",), input=values)
        raise ValidationError.from_exception_data("collection", [details]) from None
    own = keys_of(kind)
    return kind.model_validate({k: v for k, v in values.items() if k in own or v != DEFAULTS_OF_0_1.get(k, ...)})


__all__ = ["SOURCES", "FileSource", "Source", "Workplace", "source_of"]
