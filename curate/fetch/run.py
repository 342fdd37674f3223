"""URLs and local files → shards; every row becomes exactly one image, or is dropped with exactly one reason.

A manifest fixes which rows make which shard; shards are fetched anywhere, in any order, by `shard.fetch_shard`; a
shard's index marks it as done. Two downloaders share everything else: `native` (asyncio) and `img2dataset`.

A slow host delays nobody else: its rows end a shard as SLOW, and a pass of their own fetches them after all others, in
shards like others, whose records then take the places of these rows. A kill costs a shard at most.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import remove_tree, sha256_file, write_parquet, writing
from driftline.curate.core.errors import Unfinished
from driftline.curate.core.executor import Executor
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.fetch.address_guard import mostly_private
from driftline.curate.fetch.asking import SLOW_HOSTS
from driftline.curate.fetch.job import COLUMNS, Again, Shard, manifest, rules_of
from driftline.curate.fetch.outcome import NETWORK_REASONS, SLOW
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.fetch.shard import INDEX, close, counts_of, fetch_shard
from driftline.curate.images.shards import index_path, read_images, shard_path, write_tar
from driftline.curate.store.database import Place, open_store, remove
from driftline.curate.store.photos import Outcome, keep_misses

OUTAGE_SHARDS = 3  # full shards, one after another, that tell an outage before all rows were asked
PATIENCE = 5.0  # seconds an answer: rows of slower hosts are asked for after all others
WAVE = 4  # shards a worker between two checks whether there are enough images
SLOW_FOLDER = "slow"  # of the rows of slow hosts, while they are fetched
ROWS = 65_536  # rows of the joint index that are written at a time


def fetch(
    parts: Sequence[Path],
    out: Path,
    settings: FetchSettings,
    run_log: RunLog,
    executor: Executor | None = None,
    again: Again | None = None,
    store: Place | None = None,
    others: bool = False,
) -> Counter[str]:
    """Fetch every row of `parts` (Parquet, columns COLUMNS) into `out`; returns rows by reason ("": kept).
    others: see `Source.lists_others`.

    Shards whose index exists are not fetched again, except for the misses that `again` names (default: those of shards
    that an outage hit). Raises Unfinished during an outage; what was
    fetched is kept. Bytes do not depend on the executor and the store. Memory does not grow with the number of rows.
    """
    out.mkdir(parents=True, exist_ok=True)
    executor = executor or Executor()
    settings = _of_one_worker(settings, parts, executor.workers)
    if settings.private_addresses == "auto":
        run_log.say("Most URLs of this collection are in a private network: such URLs are allowed.")
    shards = [_to_ask(replace(shard, others=others), again) for shard in manifest(parts, out, settings, store)]
    waves = [shards]
    if settings.stop_after is not None:
        step = WAVE * executor.workers
        waves = [shards[i : i + step] for i in range(0, len(shards), step)]
    frontier = _Frontier(out, settings.stop_after)
    with run_log.progress("fetch", sum(count for s in shards for _, _, count in s.pieces), "photos") as tick:
        for wave in waves:
            if frontier.reached():
                break
            finished = [s for s in wave if s.again is None and index_path(out, s.number).exists()]
            finished = [s for s in finished if SLOW not in counts_of(index_path(out, s.number))]
            tick(sum(count for s in finished for _, _, count in s.pieces))
            todo = [s for s in wave if s not in finished]
            lost: Counter[str] = Counter()  # in a row of shards that an outage hit
            for shard, counts in _finished(todo, executor):
                tick(counts.total())
                run_log.write("shard", shard=shard.number, faults={k or "kept": v for k, v in sorted(counts.items())})
                lost = lost + counts if is_outage(counts, max(settings.outage, 0.5)) else Counter()
                if lost.total() >= OUTAGE_SHARDS * settings.shard_size:
                    raise outage(lost)
        counts = _close(shards, out, frontier, settings)
    (out / SLOW_HOSTS).unlink(missing_ok=True)  # all shards are finished
    remove_tree(out / SLOW_FOLDER)
    if store is not None and not NETWORK_REASONS.isdisjoint(counts):
        _settle(shards, store)
    return counts


def _finished(todo: Sequence[Shard], executor: Executor) -> Iterator[tuple[Shard, Counter[str]]]:
    """Yield (shard, rows by reason) as shards are finished: those with rows of slow hosts after all others."""
    tasks = [replace(shard, patience=PATIENCE) for shard in todo]
    left = []
    for i, counts in executor.run_tasks(fetch_shard, tasks):
        if SLOW in counts:
            left.append(todo[i])
        else:
            yield todo[i], counts
    yield from _ask_last(sorted(left, key=lambda shard: shard.number), executor)


def _ask_last(shards: Sequence[Shard], executor: Executor) -> Iterator[tuple[Shard, Counter[str]]]:
    """Fetch the rows that `shards` left; yield (shard, rows by reason) as these are finished."""
    while left := {shard.number: shard for shard in shards if SLOW in counts_of(index_path(shard.out, shard.number))}:
        first = next(iter(left.values()))
        folder, part = first.out / SLOW_FOLDER, first.out / SLOW_FOLDER / "rows.parquet"
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
        for i, counts in executor.run_tasks(_put_back, tasks):
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


def _put_back(task: tuple[Shard, tuple[int, ...]]) -> Counter[str]:
    """Write a shard again, with what the shards of these numbers have of its SLOW rows: tar first, index last."""
    shard, numbers = task
    folder, tar = shard.out / SLOW_FOLDER, shard_path(shard.out, shard.number)
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
    before = sha256_file(tar)
    digest = write_tar(tar, ((record["member"], images[record["id"]]) for record in records if record["member"]))
    close(shard, digest, records)
    if digest != before:
        _forget(shard.store, [before])
    return counts_of(index_path(shard.out, shard.number))


def _forget(place: Place | None, tars: Sequence[str]) -> None:
    """Remove those of the tars (SHA-256) whose images are all in other ones by now."""
    if place is not None:
        query = "SELECT f.name FROM images i JOIN files f ON f.number = i.file WHERE f.name = ? LIMIT 1"
        names = [f"{digest}.tar" for digest in tars]
        with open_store(place.folder) as store:
            remove(store, [name for name in names if not store.base.execute(query, (name,)).fetchone()])


def _settle(shards: Sequence[Shard], store: Place) -> None:
    """Take the misses of the network into the store, because fetch accepted them: during an outage they say nothing of
    a photo."""
    for shard in shards:
        index = index_path(shard.out, shard.number)
        if not index.exists() or NETWORK_REASONS.isdisjoint(counts_of(index)):
            continue
        urls, rules = dict(rows_of(shard.rows(), "row", "url")), rules_of(shard.settings, shard.others)
        misses = rows_of(pq.read_table(index, columns=["row", "fault", "detail"]), "row", "fault", "detail")
        lasting = [
            (urls[row], Outcome(rules, fault=fault, detail=detail))
            for row, fault, detail in misses
            if fault in NETWORK_REASONS and urls.get(row) is not None
        ]
        with open_store(store.folder) as base:
            keep_misses(base, lasting)


def _to_ask(shard: Shard, again: Again | None) -> Shard:
    """The shard with what is asked again of it, if anything."""
    earlier = shard.out if again is None else again.earlier
    index = index_path(earlier, shard.number)
    if not index.exists():
        return shard
    faults = counts_of(index)
    if again is None and is_outage(faults, shard.settings.outage):
        again = Again(frozenset(NETWORK_REASONS), shard.out)
    elif again is not None and earlier == shard.out and again.reasons.isdisjoint(faults):
        again = None
    return replace(shard, again=again)


def is_outage(counts: Mapping[str, int], share: float) -> bool:
    """Whether the network lost more than `share` of the rows, and most of those that are missing.

    counts: rows by reason ("": kept).

    >>> is_outage({"": 3, "connection_failed": 57}, 0.1), is_outage({"": 50, "http_404": 9, "timeout": 1}, 0.1)
    (True, False)
    """
    network = sum(n for reason, n in counts.items() if reason in NETWORK_REASONS)
    asked = sum(n for reason, n in counts.items() if reason != "surplus")
    return network > share * asked and 2 * network > asked - counts.get("", 0)


def outage(counts: Mapping[str, int]) -> Unfinished:
    """The error that ends fetch during an outage."""
    network = {reason: counts[reason] for reason in sorted(NETWORK_REASONS & counts.keys())}
    return Unfinished(
        f"{sum(network.values()):,} of {sum(counts.values()):,} photos could not be reached "
        f"({', '.join(f'{reason} {n:,}' for reason, n in network.items())}): an outage, not a result.",
        "Everything that was fetched is kept.",
        "The same command asks for the missing photos again. If they are gone for good, add --set fetch.outage=1.",
    )


def _of_one_worker(settings: FetchSettings, parts: Sequence[Path], workers: int) -> FetchSettings:
    """The settings with its share of the rate; "auto" stays for a collection on the user's own network only: the
    first part that has rows decides."""
    private = settings.private_addresses
    if private == "auto":
        first = next((part for part in parts if pq.read_metadata(part).num_rows), None)
        urls = [] if first is None else pq.read_table(first, columns=["url"])["url"].to_pylist()
        private = "auto" if mostly_private(urls) else "refuse"
    rate = None if settings.rate is None else settings.rate / workers
    return settings.model_copy(update={"private_addresses": private, "rate": rate})


class _Frontier:
    """The finished shards before the first unfinished one, and the position of the last wanted image in them."""

    def __init__(self, out: Path, wanted: int | None) -> None:
        self.out, self.wanted = out, wanted
        self.shard = self.images = 0
        self.cut: tuple[int, int] | None = None  # (shard, position in it) of the `wanted`-th image

    def reached(self) -> bool:
        """Whether there are enough images; reads newly finished shards only."""
        while self.wanted is not None and self.cut is None and index_path(self.out, self.shard).exists():
            faults = pq.read_table(index_path(self.out, self.shard), columns=["fault"])["fault"].to_pylist()
            if SLOW in faults:
                break
            for position, fault in enumerate(faults):
                self.images += fault is None
                if self.images == self.wanted:
                    self.cut = (self.shard, position)
                    return True
            self.shard += 1
        return self.cut is not None


def _close(shards: Sequence[Shard], out: Path, frontier: _Frontier, settings: FetchSettings) -> Counter[str]:
    """Join the shards' indexes into one; past the last wanted image every row is `surplus`, fetched or not. Raises
    Unfinished if the network lost too many."""
    cut = frontier.cut if frontier.reached() else None
    last = len(shards) if cut is None else cut[0] + 1
    counts: Counter[str] = Counter()
    waiting: list[pa.Table] = []

    with writing(out / "index.parquet") as file, pq.ParquetWriter(file, INDEX, compression="zstd") as writer:

        def add(table: pa.Table) -> None:
            counts.update(fault or "" for fault in table["fault"].to_pylist())
            waiting.append(table)
            if sum(map(len, waiting)) >= ROWS:
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()

        for shard in shards[:last]:
            index = pq.read_table(index_path(out, shard.number))
            if cut is not None and shard.number == cut[0]:
                index = pa.concat_tables([index.slice(0, cut[1] + 1), _surplus(shard, cut[1] + 1)])
            add(index)
        for shard in shards[last:]:
            add(_surplus(shard, 0))
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
        if is_outage(counts, settings.outage):
            raise outage(counts)
    for shard in shards[last:]:  # after the index: a kill now leaves only files that nothing reads
        index_path(out, shard.number).unlink(missing_ok=True)
        shard_path(out, shard.number).unlink(missing_ok=True)
    return counts


def _surplus(shard: Shard, first: int) -> pa.Table:
    """The rows of a shard from `first` on, as rows that were not needed."""
    rows = shard.rows().slice(first).select(["id", "row", "uploaded", "until"])
    n = len(rows)
    same = {"shard": pa.array([shard.number] * n, pa.int32()), "fault": pa.array(["surplus"] * n, pa.string())}
    columns = [rows[f.name] if f.name in rows.column_names else same.get(f.name, pa.nulls(n, f.type)) for f in INDEX]
    return pa.Table.from_arrays(columns, schema=INDEX)
