"""Importers: data sets with dates that people already have → streams, as their authors meant the steps and splits.

A new importer is one file here, one line in `IMPORTERS` and one command in `pipelines/cli/imports.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from driftline.curate.core.registry import Registry
from driftline.stream_builder.stream import Stream


class Importer(Protocol):
    """What `IMPORTERS` registers. Its further arguments, all with defaults, are its options."""

    def __call__(self, path: Path) -> Stream:
        """Open the data at `path`; images stay encoded. The stream's facts say where the data is from, its licence and
        what to cite. Raises MissingFile, BadInput and IntegrityError naming the file; BadConfig for an option."""
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
)
