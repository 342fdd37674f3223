"""Exports: a stream → layouts that other libraries load.

A new format is one file here and one line in `EXPORTS`, or an entry point `driftline.stream_exports`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from driftline.curate.core.registry import Registry

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream


class Exporter(Protocol):
    """What `EXPORTS` registers: a function (stream, folder) → counts."""

    def __call__(self, stream: Stream, out: Path) -> dict[str, int]:
        """Write all samples of all steps and splits into `out` (new; renamed when complete); returns kind → number.
        Its further parameters are settings: `stream export --set`."""
        ...


EXPORTS = Registry(
    "stream export",
    {
        "arrays": "driftline.stream_builder.export.arrays:export",
        "imagefolder": "driftline.stream_builder.export.imagefolder:export",
        "filelists": "driftline.stream_builder.export.filelists:export",
        "webdataset": "driftline.stream_builder.export.webdataset:export",
        "huggingface": "driftline.stream_builder.export.huggingface:export",
        "codabench": "driftline.eval.leaderboard.codabench:export",  # by name only: it needs the loop of eval
    },
    group="stream_exports",
)
