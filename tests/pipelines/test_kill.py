"""A run that is killed and started again ends in the same bytes as one that was left alone."""

import os
from functools import partial
from pathlib import Path

import pytest
from support.console import driftline, start
from support.helpers import benchmark

from driftline.curate.core.errors import Busy
from driftline.pipelines.stages.state import alone


@pytest.mark.proof("kills")
def test_sigkill_at_random_moments_and_resume_gives_the_same_bytes(tmp_path: Path) -> None:
    one = partial(start, "run", "--workers", "1")
    assert driftline("--version").returncode == 0  # the first command waits for imports, which are no part of a run
    found = benchmark("kill_resume").compare(tmp_path, kills=3, seed=1, records=500, run=one)
    assert found["kills"] == 3
    assert found["files"] > 20
    assert found["differ"] == []


@pytest.mark.proof("processes")
def test_two_runs_on_one_folder_are_refused(tmp_path: Path) -> None:
    here = rf"Another driftline process \(process {os.getpid()} on \S+ since [0-9 :-]+\) is working on"
    with alone(tmp_path), pytest.raises(Busy, match=here), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass
