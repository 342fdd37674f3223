"""WebDataset tars with the data card, for `webdataset`; Hugging Face `datasets` reads them if all pictures have one
format, else export `huggingface`."""

import shutil
from pathlib import Path

from driftline.curate.core.atomic_io import sha256_file, writing
from driftline.curate.foreign.names import inside
from driftline.curate.release.format import Release
from driftline.curate.release.writer import seal


def export(release: Release, out: Path) -> dict[str, int]:
    """The sharded release: WebDataset tars, one or more per bucket, with card, metadata and checksums."""
    release.verify()
    sums = release.path / "SHA256SUMS"
    for name in release.checksums():
        if not name.startswith("features/"):
            with (release.path / name).open("rb") as source, writing(inside(out, name, sums)) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    tars = {f"shards/{path.name}": sha256_file(path) for path in sorted((out / "shards").glob("*.tar"))}
    seal(out, tars)
    return {"images": len(release.table), "shards": len(tars)}
