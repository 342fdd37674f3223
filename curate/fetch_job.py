"""One img2dataset run in a process of its own: `python -m curate.fetch_job SPEC.json`.

Its own process, because img2dataset starts processes and threads that must not outlive a killed parent, and
because its imports cost seconds and hundreds of megabytes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main(spec_path: str) -> None:
    """Run img2dataset as the spec says: no resizing, no re-encoding, no retries (rounds are the caller's)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
    if os.getppid() != spec["parent"]:  # the parent died before prctl took effect
        return
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks PyPI for a newer version at import
    import img2dataset

    img2dataset.download(
        url_list=spec["input"],
        input_format="parquet",
        url_col="url",
        save_additional_columns=["row"],  # an integer: a time stamp here would lose every good sample
        output_folder=spec["output"],
        output_format="parquet",
        processes_count=spec["processes"],
        thread_count=spec["threads"],
        number_sample_per_shard=spec["shard_size"],
        resize_mode="no",
        disable_all_reencoding=True,  # original bytes; every image is checked by the caller
        extract_exif=False,
        compute_hash=None,
        timeout=spec["timeout"],
        retries=0,
        user_agent_token="driftline",
        enable_wandb=False,
        incremental_mode="incremental",  # the folder is new; "overwrite" would delete its own scratch
    )


if __name__ == "__main__":
    main(sys.argv[1])
