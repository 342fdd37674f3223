"""URLs and local files → shards, each row ending as exactly one image or exactly one named miss.

Downloads go through img2dataset, whose hazards (spec: completion order, re-encoding, silent success on HTML,
no retry of misses, shared scratch) are closed here: original bytes, every image decoded and checked, misses
that may pass are tried again in rounds, shards are rewritten in row order. A shard's index is its done mark.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.ground.errors import DriftlineError
from curate.ground.files import TEMPORARY, sha256_bytes, write_parquet
from curate.ground.progress import Journal, Tick
from curate.images import ImageRules, look
from curate.shards import index_path, shard_path, write_tar

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
MAY_PASS = {"timeout", "connection_failed", "truncated_body", "http_429", "http_5xx", "no_result"}


@dataclass(frozen=True)
class FetchRules:
    """shard_size: rows a shard, fixed for the whole run. stop_after: the smallest prefix in row order that
    holds this many images is kept. timeout: seconds for each read. retries: further rounds for misses that may
    pass (time-outs, 429, 5xx, broken connections). backoff: seconds before the first further round, doubling."""

    shard_size: int = 1000
    stop_after: int | None = None
    timeout: float = 10.0
    retries: int = 2
    backoff: float = 1.0
    threads: int = 16
    images: ImageRules = field(default_factory=ImageRules)


@dataclass
class _Got:
    """The outcome of one row so far: bytes, or a fault with detail."""

    data: bytes | None
    fault: str | None = None
    detail: str | None = None


def fetch(rows: pa.Table, out: Path, rules: FetchRules, journal: Journal, workers: int = 1) -> Counter[str]:
    """Fetch every row (columns id, row, url, path, uploaded) into `out`; returns counts by fault ("" = kept).

    Shards whose index exists are not fetched again. Bytes do not depend on `workers`.
    """
    out.mkdir(parents=True, exist_ok=True)
    shards = -(-len(rows) // rules.shard_size)
    waves = [range(s, min(s + 4 * workers, shards)) for s in range(0, shards, 4 * workers)]
    with journal.progress("fetch", len(rows), "photos") as tick:
        for wave in waves:
            if rules.stop_after is not None and _frontier(out, rules.stop_after) is not None:
                break
            todo = [s for s in wave if not index_path(out, s).exists()]
            for s in set(wave) - set(todo):
                tick(pq.read_metadata(index_path(out, s)).num_rows)
            if todo:
                _fetch_wave(
                    {s: rows.slice(s * rules.shard_size, rules.shard_size) for s in todo},
                    out,
                    rules,
                    workers,
                    tick,
                )
    return _close(rows, out, rules, shards)


def _fetch_wave(parts: dict[int, pa.Table], out: Path, rules: FetchRules, workers: int, tick: Tick) -> None:
    """Fetch some shards; each is finished as soon as none of its rows is worth another try."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}fetch-", dir=out))
    try:
        waiting: dict[int, dict[int, _Got]] = {}
        remote = {s: part.filter(pc.is_valid(part["url"])) for s, part in parts.items()}
        order = [s for s in parts if len(remote[s])]
        for s, part in parts.items():
            waiting[s] = _read_local(part)
            if not len(remote[s]):
                _finish(s, part, waiting.pop(s), out, rules)
                tick(len(part))
        if order:
            for row_results in _download([remote[s] for s in order], scratch, rules, workers):
                _absorb(row_results, waiting, parts)
                for s in [s for s in waiting if _settled(waiting[s], parts[s])]:
                    _finish(s, parts[s], waiting.pop(s), out, rules)
                    tick(len(parts[s]))
        for attempt in range(rules.retries):
            if not waiting:
                break
            time.sleep(rules.backoff * 2**attempt)
            again = [_unsettled(waiting[s], remote[s]) for s in sorted(waiting)]
            for row_results in _download([pa.concat_tables(again)], scratch, rules, workers):
                _absorb(row_results, waiting, parts)
        for s in sorted(waiting):
            _finish(s, parts[s], waiting[s], out, rules)
            tick(len(parts[s]))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _read_local(part: pa.Table) -> dict[int, _Got]:
    got: dict[int, _Got] = {}
    for row, path in zip(part["row"].to_pylist(), part["path"].to_pylist(), strict=True):
        if path is not None:
            try:
                got[row] = _Got(Path(path).read_bytes())
            except OSError as error:
                got[row] = _Got(None, "file_unreadable", str(error))
    return got


def _absorb(results: dict[int, _Got], waiting: dict[int, dict[int, _Got]], parts: dict[int, pa.Table]) -> None:
    for s in waiting:
        low, high = parts[s]["row"][0].as_py(), parts[s]["row"][-1].as_py()
        waiting[s].update({row: got for row, got in results.items() if low <= row <= high})


def _settled(got: dict[int, _Got], part: pa.Table) -> bool:
    return len(got) == len(part) and not any(g.fault in MAY_PASS for g in got.values())


def _unsettled(got: dict[int, _Got], part: pa.Table) -> pa.Table:
    done = {row for row, g in got.items() if g.fault not in MAY_PASS}
    return part.filter(pa.array([row not in done for row in part["row"].to_pylist()]))


def _download(parts: list[pa.Table], scratch: Path, rules: FetchRules, workers: int) -> Iterator[dict[int, _Got]]:
    """Run img2dataset over the rows of `parts`; yield the outcome of its shards as they finish."""
    rows = pa.concat_tables(parts).select(["url", "row"])
    if not len(rows):
        return
    folder = Path(tempfile.mkdtemp(dir=scratch))
    pq.write_table(rows, folder / "input.parquet")
    output = folder / "output"
    spec: dict[str, Any] = {
        "input": str(folder / "input.parquet"),
        "output": str(output),
        "processes": workers,
        "threads": rules.threads,
        "shard_size": rules.shard_size,
        "timeout": rules.timeout,
        "parent": os.getpid(),
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    log = folder / "log.txt"
    # Each read may take `timeout`, and a drip-feeding server never times out: past this, the job is ended.
    deadline = time.monotonic() + 60 + 3 * rules.timeout * (1 + len(rows) / (rules.threads * workers))
    with log.open("wb") as sink:
        job = subprocess.Popen(
            [sys.executable, "-m", "curate.fetch_job", str(folder / "spec.json")],
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    seen: set[str] = set()
    try:
        while True:
            ended = job.poll() is not None
            for stats in sorted(output.glob("*_stats.json")):
                number = stats.name.removesuffix("_stats.json")
                if number not in seen:
                    seen.add(number)
                    yield _outcomes(output / f"{number}.parquet")
            if ended:
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    if not seen and job.returncode not in (0, -signal.SIGKILL):
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise DriftlineError(
            f"img2dataset ended with code {job.returncode}: {' | '.join(tail)}",
            "",
            "See docs/troubleshooting.md.",
        )


def _outcomes(path: Path) -> dict[int, _Got]:
    got: dict[int, _Got] = {}
    table = pq.read_table(path, columns=["row", "jpg", "error_message"])
    for row, data, message in zip(*(table[c].to_pylist() for c in table.column_names), strict=True):
        if data is not None:
            got[row] = _Got(data)
        else:
            got[row] = _Got(None, miss(message or ""), (message or "")[:200])
    return got


def miss(message: str) -> str:
    """img2dataset's message → a named reason.

    >>> miss("HTTP Error 404: Not Found"), miss("HTTP Error 503: x"), miss("<urlopen error timed out>")
    ('http_404', 'http_5xx', 'timeout')
    """
    text = message.lower()
    if "http error" in text:
        code = text.partition("http error")[2].strip(" :")[:3]
        if "redirect" in text and "infinite loop" in text:
            return "redirect_loop"
        return "http_5xx" if code.startswith("5") else f"http_{code}"
    if "timed out" in text or "timeout" in text:
        return "timeout"
    if "incompleteread" in text:
        return "truncated_body"
    if "robots" in text or "use of image disallowed" in text:
        return "opted_out"
    if any(
        word in text
        for word in ("refused", "reset", "unreachable", "remote end closed", "name or service", "resolution")
    ):
        return "connection_failed"
    return "download_failed"


def _finish(shard: int, part: pa.Table, got: dict[int, _Got], out: Path, rules: FetchRules) -> None:
    """Check every image and write the shard: tar first, index last."""
    records: list[dict[str, Any]] = []
    members: list[tuple[str, bytes]] = []
    for id_, row, uploaded in zip(*(part[c].to_pylist() for c in ("id", "row", "uploaded")), strict=True):
        outcome = got.get(row) or _Got(None, "no_result", "the downloader gave no answer for this row")
        record: dict[str, Any] = {"id": id_, "row": row, "uploaded": uploaded, "shard": shard}
        if outcome.data is None:
            record |= {"fault": outcome.fault, "detail": outcome.detail}
        else:
            seen = look(outcome.data, rules.images)
            record |= {"fault": seen.fault, "detail": seen.detail, "width": seen.width, "height": seen.height}
            if seen.fault is None:
                name = f"{id_}.{seen.extension}"
                record |= {"member": name, "sha256": sha256_bytes(outcome.data), "bytes": len(outcome.data)}
                members.append((name, outcome.data))
        records.append(record)
    write_tar(shard_path(out, shard), members)
    write_parquet(index_path(out, shard), pa.Table.from_pylist(records, schema=INDEX))


def _frontier(out: Path, wanted: int) -> tuple[int, int] | None:
    """(shard, position in it) of the `wanted`-th image in row order, from the unbroken run of finished shards."""
    found = shard = 0
    while index_path(out, shard).exists():
        faults = pq.read_table(index_path(out, shard), columns=["fault"])["fault"].to_pylist()
        for position, fault in enumerate(faults):
            found += fault is None
            if found == wanted:
                return shard, position
        shard += 1
    return None


def _close(rows: pa.Table, out: Path, rules: FetchRules, shards: int) -> Counter[str]:
    """Join the shards' indexes into one; past the N-th image everything is `surplus`, fetched or not."""
    cut = _frontier(out, rules.stop_after) if rules.stop_after is not None else None
    last = shards if cut is None else cut[0] + 1
    tables = [pq.read_table(index_path(out, s)) for s in range(last)]
    index = pa.concat_tables(tables) if tables else INDEX.empty_table()
    if cut is not None:
        keep = cut[0] * rules.shard_size + cut[1] + 1
        beyond = rows.slice(keep)
        surplus = pa.Table.from_pydict(
            {
                "id": beyond["id"],
                "row": beyond["row"],
                "uploaded": beyond["uploaded"],
                "shard": pa.array([(keep + i) // rules.shard_size for i in range(len(beyond))], pa.int32()),
                **{name: pa.nulls(len(beyond), INDEX.field(name).type) for name in INDEX.names[4:] if name != "fault"},
                "fault": pa.array(["surplus"] * len(beyond), pa.string()),
            }
        ).select(INDEX.names)
        index = pa.concat_tables([index.slice(0, keep), surplus])
    write_parquet(out / "index.parquet", index)
    for s in range(last, shards):  # after the index: a kill here leaves only files that nothing reads
        index_path(out, s).unlink(missing_ok=True)
        shard_path(out, s).unlink(missing_ok=True)
    return Counter(f or "" for f in index["fault"].to_pylist())
