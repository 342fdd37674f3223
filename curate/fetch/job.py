"""img2dataset in a process of its own: `python -m curate.fetch.job`, one JSON task a line on stdin.

Its own process, because its imports cost seconds and hundreds of megabytes, once for many shards; because its
threads must not outlive a killed parent; and because a shard that hangs can be ended.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from curate.ground.workers import die_with_parent


def serve(parent: int) -> None:
    """Answer each task with a line on stdout, when its files are written."""
    die_with_parent(parent)
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks PyPI for a newer version at import
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what img2dataset prints belongs to the log
    from curate.fetch.opener import install

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


def download(task: dict[str, Any]) -> bool:
    """One shard through img2dataset's own downloader: no resizing, no re-encoding, no retries (the caller's)."""
    from img2dataset.downloader import Downloader
    from img2dataset.resizer import Resizer
    from img2dataset.writer import ParquetSampleWriter

    downloader = Downloader(
        sample_writer_class=ParquetSampleWriter,
        resizer=Resizer(256, "no", False, disable_all_reencoding=True),  # original bytes; the caller looks at them
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
        user_agent_token="driftline",
        disallowed_header_directives=task["opt_out"],
    )
    done: bool = downloader((0, task["input"]))[0]
    return done


if __name__ == "__main__":
    serve(int(sys.argv[1]))
