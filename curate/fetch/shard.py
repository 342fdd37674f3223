"""One shard: every row becomes exactly one image, or is dropped with one reason; the same on every worker."""

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import NO_ROOM, no_room, sha256_bytes, write_parquet
from driftline.curate.core.parsing import rows_of
from driftline.curate.fetch.asking import ask_all
from driftline.curate.fetch.job import Shard, rules_of
from driftline.curate.fetch.outcome import GONE, LIMIT_REASONS, NETWORK_REASONS, SLOW, SMALLER, Download
from driftline.curate.fetch.settings import FetchSettings, mirror_url
from driftline.curate.images.changes import NONE, joined
from driftline.curate.images.checks import ImageCheck, check_image, shown_as
from driftline.curate.images.local_files import read_local
from driftline.curate.images.shards import index_path, read_images, shard_path, write_tar
from driftline.curate.metadata.columns import printable
from driftline.curate.store.database import Place, open_store
from driftline.curate.store.photos import Asked, Outcome, images_of, keep_shard, outcomes

INDEX = pa.schema(
    [
        ("id", pa.string()),
        ("row", pa.int64()),
        ("uploaded", pa.int64()),
        ("until", pa.int64()),
        ("shard", pa.int32()),
        ("member", pa.string()),
        ("sha256", pa.string()),
        ("source_sha256", pa.string()),  # of the bytes as fetched
        ("changes", pa.string()),  # what was done to them
        ("shown", pa.string()),  # what is done to the stored pixels wherever the picture is read
        ("bytes", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("fault", pa.string()),
        ("detail", pa.string()),
    ]
)
IN_MEMORY = 256 * 2**20  # bytes of a shard; twice a default shard of YFCC's, so that it is written only once
BROKEN = {"empty_body", "not_an_image", "broken_image", "unsupported_format", "needs_heic_extra", "needs_jxl_extra",
          "too_few_bytes", "not_rgb"}  # fmt: skip
# The owner or the settings decided, not the state of one address: mirrors are not used.
FINAL = {"opted_out", "too_many_bytes", "private_address", "malformed_url", SLOW}


class Spool:
    """The bytes of a shard's images until it is written: in memory, and on disk if there are more than IN_MEMORY."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(folder))  # noqa: SIM115  closed with the shard
        self._places: dict[int, tuple[int, int]] = {}
        self.failures: dict[int, Download] = {}
        self.notes: dict[int, str] = {}  # row → detail of an image that a mirror had
        self.sizes: dict[int, str] = {}  # row → record of the size in which another address had it
        self.known: dict[int, Outcome] = {}  # row → what is known of its image, which was fetched before
        self.misses: dict[int, Download] = {}  # row → its last answer, if it is asked again

    def keep(self, row: int, outcome: Download) -> None:
        """Take the outcome of a row; a later one replaces it."""
        if outcome.data is None:
            # what a server wrote need not be text
            self.failures[row] = replace(outcome, detail=outcome.detail and printable(outcome.detail))
            return
        self.failures.pop(row, None)
        self._places[row] = (self._file.seek(0, 2), len(outcome.data))
        self._file.write(outcome.data)
        self._file.flush()

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
                return counts_of(index)
            part = shard.rows()
            rules = rules_of(shard.settings, shard.others)
            todo = _recall(shard, part, spool)
            most = shard.settings.max_bytes
            read_local(todo, most, lambda row, data, fault, detail: spool.keep(row, Download(data, fault, detail)))
            urls = _from_store(shard, todo, rules, spool)
            _remote(urls, shard, spool)
            _without_outages(urls, spool)
            _finish(shard, part, spool, urls, rules)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise no_room(error, shard_path(shard.out, shard.number), 0) from None
        finally:
            spool.close()
    return counts_of(index)


def counts_of(index: Path) -> Counter[str]:
    """Rows by reason ("": kept) of a finished shard."""
    return Counter(fault or "" for fault in pq.read_table(index, columns=["fault"])["fault"].to_pylist())


def _linked(shard: Shard) -> bool:
    """Take the earlier shard as it is, if nothing of it is asked again; returns whether that was done."""
    if shard.again is None or shard.again.earlier == shard.out:
        return False
    path = index_path(shard.again.earlier, shard.number)
    index = pq.read_table(path, columns=["row", "fault"]) if path.exists() else None
    if index is None or not shard.again.reasons.isdisjoint(index["fault"].to_pylist()):
        return False
    if index["row"].to_pylist() != shard.rows()["row"].to_pylist():
        return False
    with suppress(OSError):  # no hard links here: the shard is written again from the earlier one
        for place in (shard_path, index_path):
            place(shard.out, shard.number).unlink(missing_ok=True)
            os.link(place(shard.again.earlier, shard.number), place(shard.out, shard.number))
        return True
    return False


def _recall(shard: Shard, part: pa.Table, spool: Spool) -> pa.Table:
    """Put what an earlier shard of these rows has into the spool; returns the rows that are left to ask for."""
    if shard.again is None or not index_path(shard.again.earlier, shard.number).exists():
        return part
    index = pq.read_table(index_path(shard.again.earlier, shard.number), schema=INDEX)
    if index["row"].to_pylist() != part["row"].to_pylist():
        return part
    images = dict(read_images(shard.again.earlier, index, shard.number))
    left = []
    columns = ("id", "row", "fault", "detail", "member", "source_sha256", "changes")
    for id_, row, fault, detail, member, source, changes in rows_of(index, *columns):
        left.append(fault in shard.again.reasons)
        if member is not None:
            spool.keep(row, Download(images[id_]))
            spool.known[row] = Outcome(b"", detail=detail, source_sha256=source, changes=changes)
        elif not left[-1]:
            spool.keep(row, Download(None, fault, detail))
        else:
            spool.misses[row] = Download(None, fault, detail)
    return part.filter(pa.array(left))


def _from_store(shard: Shard, part: pa.Table, rules: bytes, spool: Spool) -> dict[int, str]:
    """Put what the store has into the spool; returns row → address of those that must be asked."""
    urls = {row: url for row, url in rows_of(part, "row", "url") if url is not None and spool.data(row) is None}
    again = frozenset[str]() if shard.again is None else shard.again.reasons
    stored = _recall_urls(shard.store, list(urls.values()))
    asked: dict[int, str] = {}
    for row, url in urls.items():
        outcome, data = stored.get(url, (None, None))
        if outcome is None or (data is None and (outcome.rules != rules or outcome.fault in again)):
            asked[row] = url
            if outcome is not None and (outcome.rules == rules or outcome.fault not in LIMIT_REASONS):
                spool.misses[row] = Download(None, outcome.fault, outcome.detail)
            continue
        spool.keep(row, Download(data, outcome.fault, outcome.detail))
        if data is not None:
            spool.known[row] = replace(outcome, source_sha256=outcome.source_sha256 or outcome.sha256)
    return asked


def _recall_urls(place: Place | None, urls: Sequence[str]) -> dict[str, tuple[Outcome, bytes | None]]:
    """Address → its outcome and the image, or None for a miss; without images that are damaged or forgotten."""
    if place is None or not place.reads or not urls:
        return {}
    with open_store(place.folder) as store:
        stored = outcomes(store, urls)
        images = dict(images_of(store, [o.sha256 for o in stored.values() if o.sha256 is not None]))
    answers = {url: (outcome, images.get(outcome.sha256 or "")) for url, outcome in stored.items()}
    return {url: (outcome, data) for url, (outcome, data) in answers.items() if data is not None or outcome.fault}


def _without_outages(urls: dict[int, str], spool: Spool) -> None:
    """Give misses that were asked again, and that nobody answered, their reason back: an outage says nothing of them.
    They leave `urls`, because nothing new is known of them. What is SLOW keeps its reason for the last pass."""
    for row, miss in spool.misses.items():
        fault = spool.failures[row].fault if row in spool.failures else None
        if miss.fault in NETWORK_REASONS or fault not in NETWORK_REASONS | {SLOW}:
            continue
        urls.pop(row, None)
        spool.failures[row] = Download(None, SLOW, json.dumps([miss.fault, miss.detail])) if fault == SLOW else miss


def _remote(urls: dict[int, str], shard: Shard, spool: Spool) -> None:
    """Ask the rows' own addresses, then others of those that gave no image."""
    settings = shard.settings
    asyncio.run(ask_all(urls, shard, spool.failures, spool.keep))
    if shard.others:
        refused = ((row, _refusal(row, settings, spool)) for row in urls)
        gone = {row: failure for row, failure in refused if failure is not None and failure.fault in GONE}
        extras = rows_of(shard.rows(["row", "extra"]), "row", "extra") if gone else ()
        others = {row: json.loads(extra) for row, extra in extras if row in gone and "other_url" in (extra or "")}
        addresses = {row: other["other_url"] for row, other in others.items()}
        for row in _instead(addresses, gone, SMALLER, shard, spool):
            spool.sizes[row] = others[row]["other_size"]
    if settings.mirror is not None:
        failures = ((row, _failure(row, settings, spool)) for row in urls)
        dead = {row: failure for row, failure in failures if failure is not None and failure.fault not in FINAL}
        _instead({row: mirror_url(settings.mirror, urls[row]) for row in dead}, dead, "mirror", shard, spool)


def _instead(
    addresses: dict[int, str], failures: dict[int, Download], name: str, shard: Shard, spool: Spool
) -> list[int]:
    """Ask other addresses of rows whose own gave no image; returns the rows that have one now. failures: of their own
    addresses. name: of the others, for people."""
    asyncio.run(ask_all(addresses, shard, spool.failures, spool.keep))
    rescued = []
    for row in addresses:
        first, second = failures[row], _failure(row, shard.settings, spool)
        if second is None:
            spool.notes[row] = f"from the {name}; {first.fault} at its own URL"
            rescued.append(row)
        elif second.fault != SLOW:  # the reason is that of its own address
            detail = f"{first.detail or first.fault}; {name}: {second.detail or second.fault}"
            spool.failures[row] = Download(None, first.fault, detail)
    return rescued


def _refusal(row: int, settings: FetchSettings, spool: Spool) -> Download | None:
    """The failed download of this row, also an image that stands for no image; None: bytes of whatever kind."""
    if row in spool.failures:
        return spool.failures[row]
    if sha256_bytes(spool.data(row) or b"") in settings.placeholders:
        return Download(None, "placeholder", "an image that stands for no image")
    return None


def _failure(row: int, settings: FetchSettings, spool: Spool) -> Download | None:
    """Why there is no image of this row: a failed download, or bytes that are not an image. None for an image of any
    size."""
    if (refusal := _refusal(row, settings, spool)) is not None:
        return refusal
    check = check_image(spool.data(row) or b"", settings)
    return Download(None, check.reason, check.detail) if check.reason in BROKEN else None


def _finish(shard: Shard, part: pa.Table, spool: Spool, urls: dict[int, str], rules: bytes) -> None:
    """Check every image and write the shard: tar first, index last. urls: of the rows that were asked."""
    records: list[dict[str, Any]] = []

    def members() -> Iterator[tuple[str, bytes]]:
        for id_, row, *times in rows_of(part, "id", "row", "uploaded", "until"):
            record: dict[str, Any] = {"id": id_, "row": row, "shard": shard.number}
            record |= zip(("uploaded", "until"), times, strict=True)
            records.append(record)
            data = None if row in spool.failures else spool.data(row)
            if data is None:
                failure = spool.failures.get(row) or Download(None, "no_result", "this row was not requested")
                record |= {"fault": failure.fault, "detail": failure.detail}
                continue
            digest, known = sha256_bytes(data), spool.known.get(row)
            check = _check(data, digest, shard.settings, known if known and known.rules == rules else None)
            record |= {"fault": check.reason, "detail": check.detail, "width": check.width, "height": check.height}
            if digest in shard.settings.placeholders:
                record |= {"fault": "placeholder", "detail": f"sha256 {digest}"}
            if record["fault"] is None:
                name, changes = f"{id_}.{check.extension}", joined(spool.sizes.get(row), check.changes)
                source, changes = (known.source_sha256, known.changes) if known else (digest, changes)
                if check.converted is not None:
                    data, digest = check.converted, sha256_bytes(check.converted)
                record |= {"source_sha256": source, "changes": changes, "shown": check.shown}
                record["detail"] = spool.notes.get(row, known and known.detail)
                record |= {"member": name, "sha256": digest, "bytes": len(data)}
                yield name, data

    digest = write_tar(shard_path(shard.out, shard.number), members())
    asked = [
        (urls[r["row"]], Outcome(
            rules, fault=r["fault"], detail=r["detail"], sha256=r.get("sha256"),
            source_sha256=r.get("source_sha256"), changes=r.get("changes") or NONE,
        ))
        for r in records
        if r["row"] in urls and r["fault"] not in NETWORK_REASONS | {SLOW}
    ]  # fmt: skip
    close(shard, digest, records, asked)


def close(shard: Shard, digest: str, records: list[dict[str, Any]], asked: Asked = ()) -> None:
    """Write the index of a shard whose tar is complete; the store takes the tar. digest: of the tar."""
    index = pa.Table.from_pylist(records, schema=INDEX)
    if shard.store is not None:
        with open_store(shard.store.folder) as store:
            keep_shard(store, shard_path(shard.out, shard.number), digest, index, asked)
    write_parquet(index_path(shard.out, shard.number), index)


def _check(data: bytes, digest: str, limits: FetchSettings, earlier: Outcome | None) -> ImageCheck:
    """The check of an image; one that passed it before, under the same rules, is not checked again."""
    if earlier is None or earlier.sha256 != digest:
        return check_image(data, limits)
    return ImageCheck(None, None, earlier.suffix, earlier.width, earlier.height, shown=shown_as(data))
