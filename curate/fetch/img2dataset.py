"""The downloader img2dataset with its own retries, in a process of its own: a job for many shards, ended if it hangs.

`python -m driftline.curate.fetch.img2dataset PARENT` is the job: one JSON task a line on stdin, one answer a line. It
is a process because img2dataset's imports cost seconds, and because its threads must not outlive a killed parent.
"""

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
from types import ModuleType
from typing import Any

import pyarrow as pa

from driftline.curate.core.atomic_io import TEMPORARY
from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.system import die_with_parent, kill_group, need_posix, was_killed
from driftline.curate.fetch.address_guard import names_private
from driftline.curate.fetch.outcome import OPT_OUT, Download
from driftline.curate.fetch.settings import FetchSettings

START = 120.0  # seconds for its imports on a busy machine
MODULE = "driftline.curate.fetch.img2dataset"
REASONS = (  # words in its messages → reason
    (r"http error 5", "http_5xx"),
    (r"infinite loop", "redirect_loop"),
    (r"certificate|ssl", "tls_failed"),
    (r"timed out|timeout", "timeout"),
    (r"incompleteread", "truncated_body"),
    (r"use of image disallowed", "opted_out"),
    (r"refused|reset|unreachable|remote end closed|name or service|resolution|no address", "connection_failed"),
)
_job: subprocess.Popen[bytes] | None = None


def download(
    rows: Sequence[tuple[int, str]], settings: FetchSettings, keep: Callable[[int, Download], None], scratch: Path
) -> None:  # fmt: skip
    """Request every (row, url) through img2dataset; `keep(row, outcome)` is called exactly once for each."""
    folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}img2dataset-", dir=scratch))
    left = dict(rows)
    try:
        if settings.private_addresses == "refuse":
            for row in [row for row, url in rows if names_private(url)]:
                keep(row, Download(None, "private_address", left.pop(row)[:200]))
        table = pa.table({"url": list(left.values()), "row": pa.array(left, pa.int64())})
        with pa.OSFile(str(folder / "input.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        task = {
            "output_folder": str(folder),
            "thread_count": settings.threads,
            "timeout": settings.timeout,
            "number_sample_per_shard": max(settings.shard_size, 2),
            "retries": settings.retries,
            "user_agent_token": "driftline",
            "disallowed_header_directives": OPT_OUT,
        }
        # Every image has its own deadline; after their sum the job itself hangs.
        rounds = (settings.retries + 1) * (2 + len(left) / settings.threads)
        if left and _run(task, START + settings.deadline * rounds):
            _read(folder, settings.max_bytes, lambda row, outcome: keep(row, outcome) if left.pop(row, None) else None)
        for row in left:
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
        return bool(json.loads(line))
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
                f"Run `python -m {MODULE} 0` to see why, or set fetch.downloader: native.",
            )
        _job = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
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


def _read(folder: Path, max_bytes: int, keep: Callable[[int, Download], None]) -> None:
    """Read the job's files."""
    with (folder / "data").open("rb") as data, (folder / "index.jsonl").open(encoding="utf-8") as index:
        for row, size, error in map(json.loads, index):
            if size is None:
                keep(row, failure(error or ""))
            elif size > max_bytes:
                data.seek(size, os.SEEK_CUR)
                keep(row, Download(None, "too_many_bytes", f"{size:,} bytes"))
            else:
                keep(row, Download(data.read(size)))


def failure(message: str) -> Download:
    """img2dataset's message → a failure with its reason.

    >>> failure("HTTP Error 404: Not Found").fault, failure("something new").fault
    ('http_404', 'download_failed')
    """
    text = message.lower()
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return Download(None, reason, message[:200])
    code = re.search(r"http error ([0-9]{3})", text)
    return Download(None, f"http_{code[1]}" if code else "download_failed", message[:200])


class Writer:
    """Writes img2dataset's samples: the bytes one after another, and [row, size, error] of each."""

    def __init__(self, shard_id: int, output_folder: str, *_: Any) -> None:
        self._data = (Path(output_folder) / "data").open("wb")
        self._lines = (Path(output_folder) / "index.jsonl").open("w", encoding="utf-8")

    def write(self, img_str: bytes | None, key: str, caption: str | None, meta: dict[str, Any]) -> None:
        """Write one sample, or one failure."""
        self._data.write(img_str or b"")
        size = None if img_str is None else len(img_str)
        self._lines.write(json.dumps([meta["row"], size, meta["error_message"]]) + "\n")

    def close(self) -> None:
        """Close both files."""
        self._data.close()
        self._lines.close()


def serve(parent: int) -> None:
    """Answer each task after its files are written: whether img2dataset succeeded."""
    die_with_parent(parent)
    without_baggage()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # img2dataset's own output goes to the log
    from img2dataset.downloader import Downloader
    from img2dataset.resizer import Resizer

    original_bytes = Resizer(256, "no", False, disable_all_reencoding=True)
    same = {"save_caption": False, "extract_exif": False, "compute_hash": None, "verify_hash_type": None}
    for task in map(json.loads, sys.stdin):
        downloader = Downloader(
            Writer, original_bytes, column_list=["url", "row"], oom_shard_count=1, encode_format="jpg", **same, **task
        )
        answers.write(json.dumps(downloader((0, f"{task['output_folder']}/input.arrow"))[0]) + "\n")
        answers.flush()


def without_baggage() -> None:
    """Keep out what img2dataset imports and does not use here: albumentations asks PyPI for a newer version, wandb
    brings opentelemetry, and webdataset brings torch."""
    for name in ("albumentations", "wandb", "webdataset"):
        sys.modules.setdefault(name, ModuleType(name))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
