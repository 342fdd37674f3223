"""WebDataset tars with the data card, for `webdataset` and Hugging Face `datasets`."""

from __future__ import annotations

import shutil
from pathlib import Path

from curate.core.atomic_io import writing
from curate.core.outside.names import inside
from curate.release.format import Release
from curate.release.writer import seal


def export(release: Release, out: Path) -> dict[str, int]:
    """WebDataset tars, one or more per bucket, with card, metadata and checksums."""
    release.verify()
    sums = release.path / "SHA256SUMS"
    for name in release.checksums():
        if not name.startswith("features/"):
            with (release.path / name).open("rb") as source, writing(inside(out, name, sums)) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    seal(out)
    return {"images": len(release.table), "shards": len(list((out / "shards").glob("*.tar")))}
