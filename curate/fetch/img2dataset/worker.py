"""img2dataset in its own process: `python -m driftline.curate.fetch.img2dataset.worker`, one JSON task a line on stdin.

It has its own process because its imports cost seconds and hundreds of megabytes, once for many shards; because its
threads must not outlive a killed parent; and because a shard that hangs can be ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from driftline.curate.core.system.calls import die_with_parent


def serve(parent: int) -> None:
    """Answer each task with a line on stdout after its files are written."""
    die_with_parent(parent)
    without_baggage()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # img2dataset's own output goes to the log
    from driftline.curate.fetch.img2dataset.opener import install

    installed: tuple[Any, ...] = ()
    for line in sys.stdin:
        task = json.loads(line)
        limits = (task["max_bytes"], task["deadline"], task["private"])
        if limits != installed:
            install(*limits)
            installed = limits
        ok = download(task)
        answers.write(json.dumps({"ok": ok}) + "\n")
        answers.flush()


def without_baggage() -> None:
    """Keep out what img2dataset imports and this module does not use: albumentations asks PyPI for a newer version,
    wandb brings opentelemetry, and webdataset brings torch: three quarters of a job's start."""
    for name in ("albumentations", "wandb", "webdataset"):
        sys.modules.setdefault(name, ModuleType(name))


class Writer:
    """Writes img2dataset's samples: the bytes one after another, and a line about each.

    Its own writers keep a shard in memory (parquet) or lose samples whose columns they cannot write (webdataset).
    """

    def __init__(self, shard_id: int, output_folder: str, *_: Any) -> None:
        self._data = (Path(output_folder) / "data").open("wb")
        self._lines = (Path(output_folder) / "index.jsonl").open("w", encoding="utf-8")

    def write(self, img_str: bytes | None, key: str, caption: str | None, meta: dict[str, Any]) -> None:
        """Write one sample, or one failure."""
        entry = {"row": meta["row"], "error": meta["error_message"]}
        if img_str is not None:
            entry |= {"start": self._data.tell(), "size": len(img_str), "sha256": meta["sha256"]}
            self._data.write(img_str)
        self._lines.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        """Close both files."""
        self._data.close()
        self._lines.close()


def download(task: dict[str, Any]) -> bool:
    """One shard through img2dataset's own downloader: no resizing, no re-encoding, no retries (the caller's)."""
    from img2dataset.downloader import Downloader
    from img2dataset.resizer import Resizer

    downloader = Downloader(
        sample_writer_class=Writer,
        resizer=Resizer(256, "no", False, disable_all_reencoding=True),  # original bytes; the caller checks them
        thread_count=task["threads"],
        save_caption=False,
        extract_exif=False,
        output_folder=task["output"],
        column_list=["url", "row"],  # no times: a time stamp here would lose every good sample
        timeout=task["timeout"],
        number_sample_per_shard=task["shard_size"],
        oom_shard_count=1,
        compute_hash="sha256",
        verify_hash_type=None,
        encode_format="jpg",
        retries=0,
        user_agent_token=task["agent"],
        disallowed_header_directives=None,  # the opener decides
    )
    done: bool = downloader((0, task["input"]))[0]
    return done


if __name__ == "__main__":
    serve(int(sys.argv[1]))
