"""One shard: every row becomes exactly one image, or is dropped with one reason; the same on every worker."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import NO_ROOM, no_room, sha256_bytes, write_parquet
from curate.core.parsing import rows_of
from curate.fetch.outcome import TEMPORARY_REASONS, Download
from curate.fetch.settings import FetchSettings, mirror_url
from curate.images.checks import check_image
from curate.images.local_files import read_local
from curate.images.shards import index_path, read_images, shard_path, write_tar
from curate.metadata.column_mapping import printable

INDEX = pa.schema(
    [
        ("id", pa.string()),
        ("row", pa.int64()),
        ("uploaded", pa.int64()),
        ("shard", pa.int32()),
        ("member", pa.string()),
        ("sha256", pa.string()),
        ("bytes", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("fault", pa.string()),
        ("detail", pa.string()),
    ]
)
COLUMNS = ["id", "row", "url", "path", "uploaded"]
BROKEN = {"empty_body", "not_an_image", "broken_image", "unsupported_format", "too_few_bytes"}
# The owner or the settings decided, not the state of one address: mirrors are not used.
FINAL = {"opted_out", "too_many_bytes", "private_address", "malformed_url"}


@dataclass(frozen=True)
class Again:
    """Misses that are asked for once more."""

    reasons: frozenset[str]
    """reasons of such misses"""
    earlier: Path
    """folder with shards of the same rows, whose images and other misses are kept"""

    def asks(self, index: pa.Table, rows: pa.Table) -> bool:
        """Whether an earlier shard with this index lacks some of `rows`, or has such a miss."""
        if index["row"].to_pylist() != rows["row"].to_pylist():
            return True
        return not self.reasons.isdisjoint(index["fault"].to_pylist())


@dataclass(frozen=True)
class Shard:
    """What to fetch and where; plain data, so that it can be sent to workers."""

    number: int
    """position among the shards, from 0"""
    pieces: tuple[tuple[Path, int, int], ...]
    """(Parquet part, first row in it, number of rows), in order"""
    out: Path
    """folder of all shards"""
    settings: FetchSettings
    """those of one worker: private_addresses is "auto" only for a collection on the user's own network, rate is its
    share"""
    again: Again | None = None
    """what is asked again; None: nothing, a finished shard is not touched"""

    def rows(self) -> pa.Table:
        """Its rows of the table, columns COLUMNS."""
        tables = [
            pq.read_table(path, columns=COLUMNS).select(COLUMNS).slice(first, count)
            for path, first, count in self.pieces
        ]
        return pa.concat_tables(tables)


class Spool:
    """The bytes of a shard's images until it is written: on disk, because originals do not fit in memory."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  closed with the shard
        self._folder = folder
        self._places: dict[int, tuple[int, int]] = {}
        self.failures: dict[int, Download] = {}
        self.notes: dict[int, str] = {}  # row → detail of an image that a mirror had

    def keep(self, row: int, outcome: Download) -> None:
        """Take the outcome of a row; a later one replaces it."""
        if outcome.data is None:
            # what a server wrote need not be text
            self.failures[row] = replace(outcome, detail=outcome.detail and printable(outcome.detail))
            return
        self.failures.pop(row, None)
        self._places[row] = (self._file.seek(0, 2), len(outcome.data))
        try:
            self._file.write(outcome.data)
            self._file.flush()
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room(error, self._folder / "(images of a shard)", self._places[row][0]) from None
            raise

    def data(self, row: int) -> bytes | None:
        """The bytes of a row, or None."""
        if row not in self._places:
            return None
        start, size = self._places[row]
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        """Delete the file."""
        with suppress(OSError):  # what a full disk did not take is not needed any more
            self._file.close()


def fetch_shard(shard: Shard) -> Counter[str]:
    """Fetch, check and write one shard, unless it exists; returns rows by reason ("": kept).

    Raises DriftlineError if the disk is full; no partial file remains.
    """
    index = index_path(shard.out, shard.number)
    if not index.exists() or (shard.again is not None and shard.again.earlier == shard.out):
        spool = Spool(shard.out)
        try:
            if _linked(shard):
                return _counts(index)
            part = shard.rows()
            todo = _recall(shard, part, spool)
            most = shard.settings.max_bytes
            read_local(todo, most, lambda row, data, fault, detail: spool.keep(row, Download(data, fault, detail)))
            _remote(todo, shard.settings, spool, shard.out)
            _finish(shard, part, spool)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise no_room(error, shard_path(shard.out, shard.number), 0) from None
        finally:
            spool.close()
    return _counts(index)


def _counts(index: Path) -> Counter[str]:
    return Counter(fault or "" for fault in pq.read_table(index, columns=["fault"])["fault"].to_pylist())


def _linked(shard: Shard) -> bool:
    """Take the earlier shard as it is, if nothing of it is asked again; returns whether that was done."""
    if shard.again is None or shard.again.earlier == shard.out:
        return False
    index = index_path(shard.again.earlier, shard.number)
    if not index.exists() or shard.again.asks(pq.read_table(index, columns=["row", "fault"]), shard.rows()):
        return False
    with suppress(OSError):  # no hard links here: the shard is written again from the earlier one
        for path in (shard_path, index_path):
            path(shard.out, shard.number).unlink(missing_ok=True)
            os.link(path(shard.again.earlier, shard.number), path(shard.out, shard.number))
        return True
    return False


def _recall(shard: Shard, part: pa.Table, spool: Spool) -> pa.Table:
    """Put what an earlier shard of these rows has into the spool; returns the rows that are left to ask for."""
    if shard.again is None or not index_path(shard.again.earlier, shard.number).exists():
        return part
    index = pq.read_table(index_path(shard.again.earlier, shard.number))
    if index["row"].to_pylist() != part["row"].to_pylist():
        return part
    images = dict(read_images(shard.again.earlier, index, shard.number))
    left = []
    for id_, row, fault, detail, member in rows_of(index, "id", "row", "fault", "detail", "member"):
        left.append(fault in shard.again.reasons)
        if member is not None:
            spool.keep(row, Download(images[id_]))
            if detail is not None:
                spool.notes[row] = detail
        elif not left[-1]:
            spool.keep(row, Download(None, fault, detail))
    return part.filter(pa.array(left))


def _remote(part: pa.Table, settings: FetchSettings, spool: Spool, scratch: Path) -> None:
    urls = {
        row: url for row, url in zip(part["row"].to_pylist(), part["url"].to_pylist(), strict=True)
        if url is not None and spool.data(row) is None
    }  # fmt: skip
    _rounds(urls, settings, spool, scratch)
    if settings.mirror is None:
        return
    failures = ((row, _failure(row, settings, spool)) for row in urls)
    dead = {row: failure for row, failure in failures if failure is not None and failure.fault not in FINAL}
    _rounds({row: mirror_url(settings.mirror, urls[row]) for row in dead}, settings, spool, scratch)
    for row, first in dead.items():
        second = _failure(row, settings, spool)
        if second is None:
            spool.notes[row] = f"from the mirror; {first.fault} at its own address"
        else:  # the reason is that of its own address
            detail = f"{first.detail or first.fault}; mirror: {second.detail or second.fault}"
            spool.failures[row] = Download(None, first.fault, detail)


def _failure(row: int, settings: FetchSettings, spool: Spool) -> Download | None:
    """Why there is no image of this row: a failed download, or bytes that are not an image. None for an image of any
    size."""
    if row in spool.failures:
        return spool.failures[row]
    data = spool.data(row) or b""
    if sha256_bytes(data) in settings.placeholders:
        return Download(None, "placeholder", "an image that stands for no image")
    check = check_image(data, settings)
    return Download(None, check.reason, check.detail) if check.reason in BROKEN else None


def _rounds(urls: dict[int, str], settings: FetchSettings, spool: Spool, scratch: Path) -> None:
    """Download all; then, after a pause, again those with a temporary failure."""
    left = dict(urls)
    for attempt in range(settings.retries + 1):
        if attempt:
            # one server that asks to wait for long must not hold the shard
            left = {row: url for row, url in left.items() if spool.failures[row].retry_after <= settings.deadline}
            retry_after = max((spool.failures[row].retry_after for row in left), default=0.0)
            time.sleep(max(retry_after, settings.backoff * 2 ** (attempt - 1)) if left else 0.0)
        _download(list(left.items()), settings, spool, scratch)
        temporary = {row for row, failure in spool.failures.items() if failure.fault in TEMPORARY_REASONS}
        left = {row: url for row, url in left.items() if row in temporary}
        if not left:
            return


def _download(rows: list[tuple[int, str]], settings: FetchSettings, spool: Spool, scratch: Path) -> None:
    if not rows:
        return
    if settings.downloader == "native":
        from curate.fetch import native

        native.download(rows, settings, spool.keep)
    else:
        from curate.fetch.img2dataset import client

        client.download(rows, settings, spool.keep, scratch)


def _finish(shard: Shard, part: pa.Table, spool: Spool) -> None:
    """Check every image and write the shard: tar first, index last."""
    records: list[dict[str, Any]] = []

    def members() -> Iterator[tuple[str, bytes]]:
        for id_, row, uploaded in rows_of(part, "id", "row", "uploaded"):
            record: dict[str, Any] = {"id": id_, "row": row, "uploaded": uploaded, "shard": shard.number}
            records.append(record)
            data = None if row in spool.failures else spool.data(row)
            if data is None:
                failure = spool.failures.get(row) or Download(None, "no_result", "this row was not requested")
                record |= {"fault": failure.fault, "detail": failure.detail}
                continue
            check = check_image(data, shard.settings)
            digest = sha256_bytes(data)
            record |= {"fault": check.reason, "detail": check.detail, "width": check.width, "height": check.height}
            if digest in shard.settings.placeholders:
                record |= {"fault": "placeholder", "detail": f"sha256 {digest}"}
            if record["fault"] is None:
                name = f"{id_}.{check.extension}"
                if check.converted is not None:
                    data, digest = check.converted, sha256_bytes(check.converted)
                record |= {"member": name, "sha256": digest, "bytes": len(data), "detail": spool.notes.get(row)}
                yield name, data

    write_tar(shard_path(shard.out, shard.number), members())
    write_parquet(index_path(shard.out, shard.number), pa.Table.from_pylist(records, schema=INDEX))
