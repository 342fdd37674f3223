"""Exports: one stream → the layouts that the ecosystem loads. A new format is one file here and one line in
`EXPORTS`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from curate.core.registry import Registry

if TYPE_CHECKING:
    from stream_builder.stream import Stream


class Exporter(Protocol):
    """A function stream, folder → counts."""

    def __call__(self, stream: Stream, out: Path) -> dict[str, int]:
        """Write every sample of every step and split into `out` (new or empty); returns counts."""
        ...


EXPORTS = Registry(
    "stream export",
    {
        "arrays": "stream_builder.export.arrays:export",
        "imagefolder": "stream_builder.export.imagefolder:export",
        "filelists": "stream_builder.export.filelists:export",
        "webdataset": "stream_builder.export.webdataset:export",
        "huggingface": "stream_builder.export.huggingface:export",
    },
    group="stream_exports",
)
