"""Metadata table → labelled release: sources, filters, fetch, buckets, embedding, concepts, validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from driftline.curate.core.errors import DriftlineError as DriftlineError
    from driftline.curate.encoders import ENCODERS as ENCODERS
    from driftline.curate.export import EXPORTS as EXPORTS
    from driftline.curate.release.format import Release as Release
    from driftline.curate.sources import SOURCES as SOURCES
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "DriftlineError": "driftline.curate.core.errors:DriftlineError",
            "ENCODERS": "driftline.curate.encoders:ENCODERS",
            "EXPORTS": "driftline.curate.export:EXPORTS",
            "Release": "driftline.curate.release.format:Release",
            "SOURCES": "driftline.curate.sources:SOURCES",
        },
    )
