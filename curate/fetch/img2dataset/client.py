"""The downloader img2dataset, as the parent uses it: one job process a worker, for many shards, ended if it hangs."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.curate.core.atomic_io import TEMPORARY, sha256_bytes
from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.outside.http import seconds_after
from driftline.curate.core.system.calls import kill_group, need_posix, was_killed
from driftline.curate.fetch.outcome import Download
from driftline.curate.fetch.settings import FetchSettings

START = 120.0  # seconds for its imports on a busy machine
_job: subprocess.Popen[bytes] | None = None


def download(
    rows: Sequence[tuple[int, str]], settings: FetchSettings, keep: Callable[[int, Download], None], scratch: Path,
    contact: str = "",
) -> None:  # fmt: skip
    """Request every (row, url) once through img2dataset; `keep(row, outcome)` is called exactly once for each.

    contact: e-mail or web page in the User-Agent."""
    folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}img2dataset-", dir=scratch))
    try:
        table = pa.table({"url": [u for _, u in rows], "row": pa.array([r for r, _ in rows], pa.int64())})
        with pa.OSFile(str(folder / "input.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        task = {
            "input": str(folder / "input.arrow"),
            "output": str(folder),
            "threads": settings.threads,
            "timeout": settings.timeout,
            "deadline": settings.deadline,
            "shard_size": max(settings.shard_size, 2),
            "max_bytes": settings.max_bytes,
            "private": settings.private_addresses,
            "agent": f"driftline; {contact}" if contact else "driftline",
        }
        # Every image has its own deadline; after their sum the job itself hangs.
        ended = _run(task, START + settings.deadline * (2 + len(rows) / settings.threads))
        answered = _outcomes(folder, keep) if ended else set()
        for row, _ in rows:
            if row not in answered:
                keep(row, Download(None, "no_result", "img2dataset gave no answer for this row"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(task: dict[str, Any], seconds: float) -> bool:
    """Give the job a task and wait; False if it hung or died (the next task starts a new job)."""
    job = _started()
    assert job.stdin is not None  # PIPE
    assert job.stdout is not None
    try:
        job.stdin.write(json.dumps(task).encode() + b"\n")
        job.stdin.flush()
        ready, _, _ = select.select([job.stdout], [], [], seconds)
        line = job.stdout.readline() if ready else b""
    except BrokenPipeError:
        line = b""
    if line:
        return bool(json.loads(line)["ok"])
    stop()
    return False


def _started() -> subprocess.Popen[bytes]:
    global _job
    if _job is None or _job.poll() is not None:
        need_posix("The downloader img2dataset", "Set fetch.downloader: native.")
        if _job is not None and _job.returncode != 0 and not was_killed(_job.returncode):
            raise DriftlineError(
                f"img2dataset ended with code {_job.returncode}.",
                "Expected it to serve shards.",
                "Run `python -m driftline.curate.fetch.img2dataset.worker 0` to see why, or set fetch.downloader: "
                "native.",
            )
        _job = subprocess.Popen(
            [sys.executable, "-P", "-m", "driftline.curate.fetch.img2dataset.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return _job


def stop() -> None:
    """End the job of this process, if it has one."""
    global _job
    if _job is not None:
        if _job.poll() is None:
            kill_group(_job.pid)
        _job.wait()
        for pipe in (_job.stdin, _job.stdout):
            if pipe is not None:
                pipe.close()
        _job = None


def _outcomes(folder: Path, keep: Callable[[int, Download], None]) -> set[int]:
    """Read the job's files; returns the rows that it answered."""
    answered: set[int] = set()
    with (folder / "data").open("rb") as data, (folder / "index.jsonl").open(encoding="utf-8") as index:
        for line in index:
            entry = json.loads(line)
            answered.add(entry["row"])
            if "start" not in entry:
                keep(entry["row"], failure(entry["error"] or ""))
                continue
            data.seek(entry["start"])
            body = data.read(entry["size"])
            if sha256_bytes(body) == entry["sha256"]:
                keep(entry["row"], Download(body))
            else:
                keep(entry["row"], Download(None, "no_result", "the bytes changed on their way through img2dataset"))
    return answered


REASONS = (
    (r"private address", "private_address"),
    (r"placeholder", "placeholder"),
    (r"too many bytes", "too_many_bytes"),
    (r"infinite loop", "redirect_loop"),
    (r"http error 5", "http_5xx"),
    (r"certificate|ssl", "tls_failed"),
    (r"timed out|timeout", "timeout"),
    (r"incompleteread", "truncated_body"),
    (r"use of image disallowed", "opted_out"),
    (r"unknown url type|no host given|invalid url|control characters|nonnumeric port", "malformed_url"),
    (r"refused|reset|unreachable|remote end closed|name or service|resolution|no address", "connection_failed"),
)


def failure(message: str) -> Download:
    """img2dataset's message → a failure with its reason.

    >>> failure("HTTP Error 404: Not Found").fault, failure("HTTP Error 503: x (Retry-After: 3)").retry_after
    ('http_404', 3.0)
    """
    text = message.lower()
    after = re.search(r"\(retry-after: ([^)]*)\)", text)
    wait = seconds_after(after[1]) if after else 0.0
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return Download(None, reason, message[:200], wait)
    code = re.search(r"http error ([0-9]{3})", text)
    return Download(None, f"http_{code[1]}" if code else "download_failed", message[:200], wait)
