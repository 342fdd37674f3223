"""A slow host delays nobody else: its rows end a shard as SLOW, and a pass of their own fetches them after all others.

The pass has shards like others, whose records then take the places of these rows: a kill costs a shard at most.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import remove_tree, sha256_file, write_parquet
from driftline.curate.core.executor import Executor
from driftline.curate.fetch.asking import SLOW_HOSTS
from driftline.curate.fetch.job import COLUMNS, Shard, manifest
from driftline.curate.fetch.outcome import NETWORK_REASONS, SLOW
from driftline.curate.fetch.shard import INDEX, close, counts_of, fetch_shard
from driftline.curate.images.shards import index_path, read_images, shard_path, write_tar
from driftline.curate.store.database import Place, open_store, remove


def ask_last(shards: Sequence[Shard], executor: Executor) -> Iterator[tuple[Shard, Counter[str]]]:
    """Fetch the rows that `shards` left; yield (shard, rows by reason) as these are finished."""
    while left := {shard.number: shard for shard in shards if SLOW in counts_of(index_path(shard.out, shard.number))}:
        first = next(iter(left.values()))
        folder, part = _folder(first.out), _folder(first.out) / "rows.parquet"
        if not part.exists():
            _write_rows(part, list(left.values()))
        places: dict[int, set[int]] = {}  # number of a shard → those that have its rows
        for row, number in enumerate(pq.read_table(part, columns=["shard"])["shard"].to_pylist()):
            places.setdefault(number, set()).add(row // first.settings.shard_size)
        asks = None if first.store is None else replace(first.store, reads=False)  # whatever it has of these rows
        last = [replace(s, others=first.others) for s in manifest([part], folder, first.settings, asks)]
        for _ in executor.run_tasks(fetch_shard, last):
            pass
        tasks = [(left[number], tuple(sorted(numbers))) for number, numbers in places.items() if number in left]
        for i, counts in executor.run_tasks(put_back, tasks):
            yield tasks[i][0], counts
        for shard in last:
            _forget(shard.store, [sha256_file(shard_path(folder, shard.number))])
        remove_tree(folder)


def _write_rows(part: Path, shards: Sequence[Shard]) -> None:
    """The rows of these shards that are SLOW, with the numbers of the shards."""
    tables = []
    for shard in shards:
        slow = pc.equal(pq.read_table(index_path(shard.out, shard.number), columns=["fault"])["fault"], SLOW)
        rows = shard.rows([*COLUMNS, "extra"] if shard.others else COLUMNS).filter(pc.fill_null(slow, False))
        tables.append(rows.append_column("shard", pa.array([shard.number] * len(rows), pa.int32())))
    part.parent.mkdir(exist_ok=True)
    write_parquet(part, pa.concat_tables(tables))


def put_back(task: tuple[Shard, tuple[int, ...]]) -> Counter[str]:
    """Write a shard again, with what the shards of these numbers have of its SLOW rows: tar first, index last."""
    shard, numbers = task
    folder, tar = _folder(shard.out), shard_path(shard.out, shard.number)
    index = pq.read_table(index_path(shard.out, shard.number), schema=INDEX)
    images = dict(read_images(shard.out, index, shard.number))
    fetched: dict[int, dict[str, Any]] = {}
    for number in numbers:
        part = pq.read_table(index_path(folder, number), schema=INDEX)
        part = part.filter(pc.is_in(part["row"], index["row"]))
        images |= read_images(folder, part, number)
        fetched |= {record["row"]: record | {"shard": shard.number} for record in part.to_pylist()}
    records = []
    for record in index.to_pylist():
        if record["fault"] == SLOW:
            earlier, record = record["detail"], fetched[record["row"]]
            if earlier is not None and record["fault"] in NETWORK_REASONS:  # as `shard._without_outages`
                record |= zip(("fault", "detail"), json.loads(earlier), strict=True)
        records.append(record)
    before, digest = sha256_file(tar), hashlib.sha256()
    write_tar(tar, ((record["member"], images[record["id"]]) for record in records if record["member"]), digest)
    close(shard, digest.hexdigest(), records)
    if digest.hexdigest() != before:
        _forget(shard.store, [before])
    return counts_of(index_path(shard.out, shard.number))


def _forget(place: Place | None, tars: Sequence[str]) -> None:
    """Remove those of the tars (SHA-256) whose images are all in other ones by now."""
    if place is not None:
        query = "SELECT f.name FROM images i JOIN files f ON f.number = i.file WHERE f.name = ? LIMIT 1"
        names = [f"{digest}.tar" for digest in tars]
        with open_store(place.folder) as store:
            remove(store, [name for name in names if not store.base.execute(query, (name,)).fetchone()])


def clean(out: Path) -> None:
    """Remove what the last pass needed, when all shards are finished."""
    (out / SLOW_HOSTS).unlink(missing_ok=True)
    remove_tree(_folder(out))


def _folder(out: Path) -> Path:
    return out / "slow"
