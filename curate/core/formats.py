"""Files of other versions of driftline: opened, or refused with who wrote them and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.core.errors import BadInput

UPGRADE = "Install that version or a later one: pip install --upgrade driftline."


def check_format(path: Path, given: Any, known: int, way_out: str) -> None:
    """Raise BadInput unless the format number of a file is the one that this version reads. way_out: for a file that no
    newer driftline wrote."""
    if given == known:
        return
    if isinstance(given, int) and given > known:
        raise BadInput(
            f"{path} was written by a newer driftline (format {given}); this one reads {known}.", "", UPGRADE
        )
    raise BadInput(f"{path} has the format {given!r}.", f"Expected {known}.", way_out)


def check_version(path: Path, given: str, known: str) -> None:
    """Raise BadInput for a file written by a later release of driftline; patch releases read each other's files.

    >>> check_version(Path("done.json"), "0.1.7", "0.1.0")
    """
    if _release(given) > _release(known):
        raise BadInput(f"{path} was written by driftline {given}; this is {known}.", "", UPGRADE)


def _release(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]
