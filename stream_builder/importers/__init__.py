"""Importers: data sets with dates that people already have → streams, as their authors meant the steps and splits.

A new importer is one file here, one line in `IMPORTERS` and one entry of `OURS` in `pipelines/cli/imports.py`; that of
another package is an entry point `driftline.importers`, and its command `driftline stream from-NAME` is made of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from driftline.curate.core.registry import Registry

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream


class Importer(Protocol):
    """What `IMPORTERS` registers. Its further parameters, each text, a number, a path or a flag, are the options of its
    command; `work` is none: it gets a folder for files that last until the stream is saved."""

    def __call__(self, source: Path) -> Stream:
        """Open the data at `source`; images stay encoded. The stream's facts say where the data is from, its licence
        and what to cite. Raises MissingFile, BadInput and IntegrityError naming the file; BadConfig for an option."""
        ...


IMPORTERS = Registry(
    "importer",
    {
        "clear": "driftline.stream_builder.importers.clear:from_clear",
        "folder-by-time": "driftline.stream_builder.importers.folder_by_time:from_folder_by_time",
        "hub": "driftline.stream_builder.importers.hub:from_hub",
        "tic": "driftline.stream_builder.importers.tic:from_tic",
        "wild-time": "driftline.stream_builder.importers.wild_time:from_wild_time",
        "wilds": "driftline.stream_builder.importers.wilds:from_wilds",
    },
    group="importers",
)
