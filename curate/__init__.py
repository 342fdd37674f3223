"""Metadata table → labelled release: sources, filters, fetch, buckets, embedding, concepts, validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from curate.core.errors import DriftlineError as DriftlineError
    from curate.encoders import ENCODERS as ENCODERS
    from curate.export import EXPORTS as EXPORTS
    from curate.release.format import Release as Release
    from curate.sources import SOURCES as SOURCES
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "DriftlineError": "curate.core.errors:DriftlineError",
            "ENCODERS": "curate.encoders:ENCODERS",
            "EXPORTS": "curate.export:EXPORTS",
            "Release": "curate.release.format:Release",
            "SOURCES": "curate.sources:SOURCES",
        },
    )
