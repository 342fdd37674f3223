"""Exports: a release → formats of other libraries, with the same ids, labels and bytes.

A new format is one function in one file here and one line in `EXPORTS`, or an entry point of another package in the
group `driftline.exports`, or any importable function named as `package.module:name`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from driftline.curate.core.registry import Registry

if TYPE_CHECKING:
    from driftline.curate.release.format import Release


class Exporter(Protocol):
    """A function that writes a release in one format; the first line of its docstring describes the format."""

    def __call__(self, release: Release, out: Path) -> dict[str, int]:
        """Write all images and labels into the folder `out` (new; it gets its last name when it is complete).

        Returns counts for the user, among them "images": the number of images.
        """
        ...


EXPORTS = Registry(
    "export format",
    {
        "webdataset": "driftline.curate.export.webdataset:export",
        "huggingface": "driftline.curate.export.huggingface:export",
        "clear": "driftline.curate.export.clear:export",
        "imagefolder": "driftline.curate.export.imagefolder:export",
        "urls": "driftline.curate.export.urls:export",
    },
    group="exports",
)
