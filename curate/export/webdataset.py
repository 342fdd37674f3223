"""WebDataset tars with the data card, for `webdataset`; Hugging Face `datasets` reads them if all pictures have one
format, else export `huggingface`."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

from driftline.curate.core.atomic_io import sha256_file, write_json, write_text, writing
from driftline.curate.core.outside.documents import read_text
from driftline.curate.core.outside.names import inside
from driftline.curate.images.shards import read_tar, write_tar
from driftline.curate.release.data_card import card
from driftline.curate.release.document import AGAIN
from driftline.curate.release.format import Release
from driftline.curate.release.versions.changelog import changes_markdown
from driftline.curate.release.versions.tombstones import FILE as TOMBSTONES
from driftline.curate.release.versions.tombstones import id_of
from driftline.curate.release.writer import facts_of_export, seal, write_croissant


def export(release: Release, out: Path) -> dict[str, int]:
    """WebDataset tars, one or more per bucket, with card, metadata and checksums.

    Tars that hold tombstones are written again without them.
    """
    release.verify()
    sums = release.path / "SHA256SUMS"
    stones = {stone.tar for stone in release.tombstones()}
    for name in release.checksums():
        if name in stones:
            dead = release.dead(name)
            alive = (member for member in read_tar(release.path / name) if id_of(member[0]) not in dead)
            if first := next(alive, None):
                write_tar(out / name, chain([first], alive))
        elif name != TOMBSTONES and not name.startswith("features/"):
            with (release.path / name).open("rb") as source, writing(inside(out, name, sums)) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    tars = {f"shards/{path.name}": sha256_file(path) for path in sorted((out / "shards").glob("*.tar"))}
    if stones:
        facts = facts_of_export(release)
        write_json(out / "release.json", facts)
        if facts["changes"]:
            write_text(out / "CHANGES.md", changes_markdown(facts["changes"], facts["version"]))
        if read_text(release.path / "README.md", AGAIN) == card(release.facts):  # else its template is not here
            write_text(out / "README.md", card(facts))
        write_croissant(out, facts, release.table, tars)
    seal(out, tars)
    return {"images": len(release.table), "shards": len(tars)}
