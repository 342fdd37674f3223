"""The img2dataset way, seen from the parent: one job process a worker, kept for many shards, ended when it hangs."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.core.atomic_io import TEMPORARY, sha256_bytes
from curate.core.errors import DriftlineError
from curate.fetch.rules import OPT_OUT, FetchRules, Got, seconds_after

START = 120.0  # seconds that its imports may take on a busy machine
_job: subprocess.Popen[bytes] | None = None


def download(
    rows: Sequence[tuple[int, str]], rules: FetchRules, keep: Callable[[int, Got], None], scratch: Path
) -> None:
    """Ask for every (row, url) once through img2dataset; `keep(row, outcome)` is called exactly once for each."""
    folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}img2dataset-", dir=scratch))
    try:
        table = pa.table({"url": [u for _, u in rows], "row": pa.array([r for r, _ in rows], pa.int64())})
        with pa.OSFile(str(folder / "input.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        task = {
            "input": str(folder / "input.arrow"),
            "output": str(folder),
            "threads": rules.threads,
            "timeout": rules.timeout,
            "deadline": rules.deadline,
            "shard_size": max(rules.shard_size, 2),
            "max_bytes": rules.images.max_bytes,
            "private": rules.private,
            "opt_out": list(OPT_OUT),
        }
        # Every image has its own deadline; past their sum the job itself hangs.
        answered = _run(task, START + rules.deadline * (2 + len(rows) / rules.threads))
        known = _outcomes(folder, keep) if answered else set()
        for row, _ in rows:
            if row not in known:
                keep(row, Got(None, "no_result", "img2dataset gave no answer for this row"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(task: dict[str, Any], seconds: float) -> bool:
    """Give the job a task and wait; False where it hung or died (a new job is started for the next task)."""
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
        if _job is not None and _job.returncode not in (0, -signal.SIGKILL):
            raise DriftlineError(
                f"img2dataset ended with code {_job.returncode}.",
                "Expected it to serve shards.",
                "Run `python -m curate.fetch.img2dataset.worker 0` to see why, or set fetch.way: native.",
            )
        _job = subprocess.Popen(
            [sys.executable, "-m", "curate.fetch.img2dataset.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return _job


def stop() -> None:
    """End the job of this process, if there is one."""
    global _job
    if _job is not None:
        if _job.poll() is None:
            os.killpg(_job.pid, signal.SIGKILL)
        _job.wait()
        for pipe in (_job.stdin, _job.stdout):
            if pipe is not None:
                pipe.close()
        _job = None


def _outcomes(folder: Path, keep: Callable[[int, Got], None]) -> set[int]:
    """Read what the job wrote; returns the rows that it answered for."""
    answered: set[int] = set()
    with (folder / "data").open("rb") as data, (folder / "index.jsonl").open(encoding="utf-8") as index:
        for line in index:
            known = json.loads(line)
            answered.add(known["row"])
            if "start" not in known:
                keep(known["row"], miss(known["error"] or ""))
                continue
            data.seek(known["start"])
            body = data.read(known["size"])
            if sha256_bytes(body) == known["sha256"]:
                keep(known["row"], Got(body))
            else:
                keep(known["row"], Got(None, "no_result", "the bytes changed on their way through img2dataset"))
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


def miss(message: str) -> Got:
    """img2dataset's message → a named reason.

    >>> miss("HTTP Error 404: Not Found").fault, miss("HTTP Error 503: x (Retry-After: 3)").retry_after
    ('http_404', 3.0)
    """
    text = message.lower()
    after = re.search(r"\(retry-after: ([^)]*)\)", text)
    wait = seconds_after(after[1]) if after else 0.0
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return Got(None, reason, message[:200], wait)
    code = re.search(r"http error ([0-9]{3})", text)
    return Got(None, f"http_{code[1]}" if code else "download_failed", message[:200], wait)
