"""The release: format, verification, and everything that writes one. Other packages import only what is named here."""

from __future__ import annotations

from curate.release.format import Release

__all__ = ["Release"]
