"""A run that is killed and started again ends in the same bytes as one that was left alone."""

import os
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from support.console import driftline, start, start_python
from support.helpers import benchmark

from driftline.curate.core.errors import Busy
from driftline.pipelines.run.state import alone


@pytest.mark.proof("kills")
def test_sigkill_at_random_moments_and_resume_gives_the_same_bytes(tmp_path: Path) -> None:
    one = partial(start, "run", "--workers", "1")
    assert driftline("--version").returncode == 0  # the first command waits for imports, which are no part of a run
    found = benchmark("kill_resume").compare(tmp_path, kills=3, seed=1, records=500, run=one)
    assert found["kills"] == 3
    assert found["files"] > 20
    assert found["differ"] == []


@pytest.mark.proof("kills")
def test_the_downloader_dies_with_its_parent(tmp_path: Path) -> None:
    """img2dataset runs in a process of its own, which must not outlive a killed run."""
    with socket.socket() as silent:  # accepts connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        code = (
            "import sys; from pathlib import Path; import pyarrow as pa\n"
            "import pyarrow.parquet as pq\n"
            "from driftline.curate.fetch.run import FetchSettings, fetch\n"
            "from driftline.curate.core.run_log import RunLog\n"
            "rows = pa.table({'id': ['a'], 'row': pa.array([0]), 'url': [sys.argv[1]], "
            "'path': pa.nulls(1, pa.string()), 'uploaded': pa.array([0]), 'until': pa.nulls(1, pa.int64())})\n"
            "out = Path(sys.argv[2])\n"
            "pq.write_table(rows, out / 'part.parquet')\n"
            "rules = FetchSettings(downloader='img2dataset', timeout=60, private_addresses='allow')\n"
            "fetch([out / 'part.parquet'], out / 'a', rules, RunLog(quiet=True))\n"
        )
        run = start_python(code, url, tmp_path)
        assert silent.accept(), "the download has begun"
        job = next(p for p in jobs_of(run.pid))
        run.kill()
        run.wait()
        for _ in range(100):
            if job not in jobs_of(run.pid):
                return
            time.sleep(0.1)
        pytest.fail("the download lived on")


def jobs_of(parent: int) -> list[int]:
    """Processes that run img2dataset for a parent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "driftline.curate.fetch.img2dataset" in words and str(parent) in words:
                found.append(int(entry.name))
    return found


@pytest.mark.proof("processes")
def test_two_runs_on_one_folder_are_refused(tmp_path: Path) -> None:
    here = rf"Another driftline process \(process {os.getpid()} on \S+ since [0-9 :-]+\) is working on"
    with alone(tmp_path), pytest.raises(Busy, match=here), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass
