"""What version 0.1.0 left behind."""

from __future__ import annotations

import tarfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "v0.1.0"


def unpacked(name: str, out: Path) -> Path:
    """A folder as 0.1.0 left it: dates of files matter, so that nothing but `tarfile` may unpack it."""
    with tarfile.open(FIXTURES / f"{name}.tar.gz") as file:
        file.extractall(out, filter="data")
    return out / name
