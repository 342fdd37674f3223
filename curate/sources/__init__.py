"""Metadata sources: anything that lists time-stamped photos → record batches of `curate.metadata.schema.SOURCE`.

A new source is one file here and one line in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from curate.core.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa


class Source(Protocol):
    """A dataclass whose fields are keys of the `collection` section of the configuration."""

    def batches(self, rows: int = 65_536, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield at most `rows` records at a time, in source order, leaving out the first `skip`.

        A record that cannot be read is yielded in its place with `fault` (the reason's name) and `raw`.
        Raises BadInput when the source as a whole is not what it should be.
        """
        ...

    def inputs(self) -> list[Path]:
        """The files and folders whose change makes the table stale."""
        ...


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
)
