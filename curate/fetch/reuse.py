"""What a store knows of a shard's rows: it is used before anything is asked, and it takes what was asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.outside.image_kinds import reads_heic, reads_jxl
from driftline.curate.core.outside.images import PREPARATION
from driftline.curate.core.parsing import rows_of
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.images.shards import index_path
from driftline.curate.store.database import Place, open_store
from driftline.curate.store.photos import Asked, Outcome, images_of, keep_misses, keep_shard, outcomes
from driftline.curate.store.upkeep import remove

NOT_OF_A_PHOTO = {"shard_size", "stop_after"}  # settings that do not decide what a row becomes


def rules_of(settings: FetchSettings, others: bool = False) -> bytes:
    """Fingerprint of what decides what a row becomes. Misses of other rules are asked again."""
    values = {k: v for k, v in settings.identity("fetch").items() if k not in NOT_OF_A_PHOTO}
    return bytes.fromhex(fingerprint([values, reads_heic(), reads_jxl(), PREPARATION, *["others"] * others]))[:8]


def recall(place: Place | None, urls: Sequence[str]) -> dict[str, tuple[Outcome, bytes | None]]:
    """Address → its outcome and the image, or None for a miss; without images that are damaged or forgotten."""
    if place is None or not place.reads or not urls:
        return {}
    with open_store(place.folder) as store:
        stored = outcomes(store, urls)
        images = dict(images_of(store, [o.sha256 for o in stored.values() if o.sha256 is not None]))
    answers = {url: (outcome, images.get(outcome.sha256 or "")) for url, outcome in stored.items()}
    return {url: (outcome, data) for url, (outcome, data) in answers.items() if data is not None or outcome.fault}


def keep(
    place: Place | None, tar: Path, tar_sha256: str, index: pa.Table, asked: Sequence[Asked], taken: Mapping[str, int]
) -> None:
    """Take a shard whose tar is complete. taken: SHA-256 → EXIF date. Misses of the network are taken when the whole
    stage is done: during an outage they say nothing of a photo."""
    if place is not None:
        with open_store(place.folder) as store:
            keep_shard(store, tar, tar_sha256, index, asked, taken)


def forget(place: Place | None, tars: Sequence[str]) -> None:
    """Remove those of the tars (SHA-256) whose images are all in other ones by now."""
    if place is not None:
        query = "SELECT f.name FROM images i JOIN files f ON f.number = i.file WHERE f.name = ? LIMIT 1"
        names = [f"{digest}.tar" for digest in tars]
        with open_store(place.folder) as store:
            remove(store, [name for name in names if not store.base.execute(query, (name,)).fetchone()])


def settle(place: Place, out: Path, number: int, part: pa.Table, rules: bytes, lasting: Collection[str]) -> None:
    """Take the misses of a finished shard that its fetch left out. lasting: their reasons."""
    urls = dict(rows_of(part, "row", "url"))
    misses = [
        Asked(urls[row], rules, None, fault, detail)
        for row, fault, detail in rows_of(pq.read_table(index_path(out, number)), "row", "fault", "detail")
        if fault in lasting and urls.get(row) is not None
    ]
    with open_store(place.folder) as store:
        keep_misses(store, misses)
