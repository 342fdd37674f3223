"""Exports: one release → the layouts that the ecosystem loads. All hold the same ids, labels and bytes.

A new format is one file here and one line in `EXPORTS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from curate.core.registry import Registry

if TYPE_CHECKING:
    from curate.release.format import Release


class Exporter(Protocol):
    """A function release, folder → counts."""

    def __call__(self, release: Release, out: Path) -> dict[str, int]:
        """Write the release's images and labels into `out` (new or empty); returns counts."""
        ...


EXPORTS = Registry(
    "export format",
    {
        "webdataset": "curate.export.webdataset:export",
        "huggingface": "curate.export.huggingface:export",
        "clear": "curate.export.clear:export",
        "imagefolder": "curate.export.imagefolder:export",
        "urls": "curate.export.urls:export",
    },
    group="exports",
)
