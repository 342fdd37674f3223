"""One shard: its rows → exactly one image or one named miss each. The same on every worker and every engine."""

from __future__ import annotations

import errno
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import sha256_bytes, write_parquet
from curate.core.errors import DriftlineError
from curate.fetch.rules import MAY_PASS, FetchRules, Got, mirror_url
from curate.images.checks import check_image
from curate.images.local_files import read_local
from curate.images.shards import index_path, shard_path, write_tar

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
# What the owner or the rules decided, not the state of one address: no mirror is asked.
FINAL = {"opted_out", "too_many_bytes", "private_address", "malformed_url"}


@dataclass(frozen=True)
class Shard:
    """number: of the shard. pieces: (Parquet part, first row in it, rows) that make it up, in order."""

    number: int
    pieces: tuple[tuple[Path, int, int], ...]
    out: Path
    rules: FetchRules

    def rows(self) -> pa.Table:
        """Its rows of the table, columns COLUMNS."""
        tables = [
            pq.read_table(path, columns=COLUMNS).select(COLUMNS).slice(first, count)
            for path, first, count in self.pieces
        ]
        return pa.concat_tables(tables)


class Spool:
    """The bytes of a shard's images until it is written: on disk, for originals do not fit in memory."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  closed with the shard
        self._where: dict[int, tuple[int, int]] = {}
        self.faults: dict[int, Got] = {}
        self.notes: dict[int, str] = {}  # row → what is to be said of an image that was found after all

    def keep(self, row: int, got: Got) -> None:
        """Take the outcome of a row; a later one replaces it."""
        if got.data is None:
            self.faults[row] = got
            return
        self.faults.pop(row, None)
        self._where[row] = (self._file.seek(0, 2), len(got.data))
        self._file.write(got.data)

    def data(self, row: int) -> bytes | None:
        """The bytes of a row, or None."""
        if row not in self._where:
            return None
        start, size = self._where[row]
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        """Forget everything."""
        self._file.close()


def fetch_shard(shard: Shard) -> Counter[str]:
    """Fetch, check and write one shard, if it is not there; returns rows by fault ("" = kept).

    Raises DriftlineError where the disk is full; nothing half is left.
    """
    index = index_path(shard.out, shard.number)
    if not index.exists():
        spool = Spool(shard.out)
        try:
            part = shard.rows()
            read_local(part, lambda row, data, fault, detail: spool.keep(row, Got(data, fault, detail)))
            _remote(part, shard.rules, spool, shard.out)
            _finish(shard, part, spool)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DriftlineError(
                f"The disk of {shard.out} is full.",
                "Expected room for the shard in hand.",
                "Make room and run the same command again: finished shards are kept.",
            ) from None
        finally:
            spool.close()
    return Counter(f or "" for f in pq.read_table(index, columns=["fault"])["fault"].to_pylist())


def _remote(part: pa.Table, rules: FetchRules, spool: Spool, scratch: Path) -> None:
    urls = {
        row: url for row, url in zip(part["row"].to_pylist(), part["url"].to_pylist(), strict=True)
        if url is not None and spool.data(row) is None
    }  # fmt: skip
    _rounds(urls, rules, spool, scratch)
    if rules.mirror is None:
        return
    dead = {row: miss for row in urls if (miss := _miss(row, rules, spool)) is not None and miss.fault not in FINAL}
    _rounds({row: mirror_url(rules.mirror, urls[row]) for row in dead}, rules, spool, scratch)
    for row, was in dead.items():
        told = f"{was.fault} at its own address"
        also = _miss(row, rules, spool)
        if also is None:
            spool.notes[row] = f"from the mirror; {told}"
        else:  # the miss of its own address is the one to tell
            spool.faults[row] = Got(None, was.fault, f"{was.detail or was.fault}; mirror: {also.detail or also.fault}")


def _miss(row: int, rules: FetchRules, spool: Spool) -> Got | None:
    """Why there is no image of this row: a fault of the answer, or bytes that are none. A small image is an image."""
    if row in spool.faults:
        return spool.faults[row]
    data = spool.data(row) or b""
    if sha256_bytes(data) in rules.placeholders:
        return Got(None, "placeholder", "a picture that stands for no picture")
    check = check_image(data, rules.images)
    return Got(None, check.reason, check.detail) if check.reason in BROKEN else None


def _rounds(urls: dict[int, str], rules: FetchRules, spool: Spool, scratch: Path) -> None:
    """Ask for all; then, after a pause, again for those whose miss may pass."""
    left = dict(urls)
    for attempt in range(rules.retries + 1):
        if attempt:
            asked = max(spool.faults[row].retry_after for row in left)
            time.sleep(max(asked, rules.backoff * 2 ** (attempt - 1)))
        _download(list(left.items()), rules, spool, scratch)
        left = {row: url for row, url in left.items() if row in spool.faults and spool.faults[row].fault in MAY_PASS}
        if not left:
            return


def _download(rows: list[tuple[int, str]], rules: FetchRules, spool: Spool, scratch: Path) -> None:
    if not rows:
        return
    if rules.way == "native":
        from curate.fetch import native

        native.download(rows, rules, spool.keep)
    else:
        from curate.fetch.img2dataset import client

        client.download(rows, rules, spool.keep, scratch)


def _finish(shard: Shard, part: pa.Table, spool: Spool) -> None:
    """Check every image and write the shard: tar first, index last."""
    records: list[dict[str, Any]] = []

    def members() -> Iterator[tuple[str, bytes]]:
        for id_, row, uploaded in zip(*(part[c].to_pylist() for c in ("id", "row", "uploaded")), strict=True):
            record: dict[str, Any] = {"id": id_, "row": row, "uploaded": uploaded, "shard": shard.number}
            records.append(record)
            data = None if row in spool.faults else spool.data(row)
            if data is None:
                got = spool.faults.get(row) or Got(None, "no_result", "nobody asked for this row")
                record |= {"fault": got.fault, "detail": got.detail}
                continue
            check = check_image(data, shard.rules.images)
            digest = sha256_bytes(data)
            record |= {"fault": check.reason, "detail": check.detail, "width": check.width, "height": check.height}
            if digest in shard.rules.placeholders:
                record |= {"fault": "placeholder", "detail": f"sha256 {digest}"}
            if record["fault"] is None:
                name = f"{id_}.{check.extension}"
                record |= {"member": name, "sha256": digest, "bytes": len(data), "detail": spool.notes.get(row)}
                yield name, data

    write_tar(shard_path(shard.out, shard.number), members())
    write_parquet(index_path(shard.out, shard.number), pa.Table.from_pylist(records, schema=INDEX))
