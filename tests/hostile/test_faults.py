"""Full disks, short writes, EIO and kills at system calls: the same command then gives the same bytes.

`make fuzz` does the same at more calls, and for a whole run.
"""

from pathlib import Path

import pytest
from hostile.faults import KINDS, begun, compiled

pytestmark = pytest.mark.proof("kills")

POINTS = 3  # calls of each job and kind


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = compiled(tmp_path_factory.mktemp("faults"))
    if made is None:
        pytest.skip("there is no C compiler for Linux, and faults.c must be compiled")
    return made


def test_a_fault_of_the_disk_loses_nothing_and_changes_nothing(library: Path) -> None:
    found = list(begun(library, ["ledger", "stream", "rows"], list(KINDS), POINTS))
    assert {(one["job"], one["kind"]) for one in found} == {(j, k) for j in ("ledger", "stream", "rows") for k in KINDS}
    assert [(one["job"], one["kind"], one["problems"]) for one in found if one["problems"]] == []
    assert all(one["points"] == POINTS for one in found)
    assert min(one["calls"] for one in found) >= 15


def test_a_run_goes_on_after_any_fault(library: Path) -> None:
    found = list(begun(library, ["run"], ["kill", "full"], POINTS))
    assert [(one["kind"], one["problems"]) for one in found if one["problems"]] == []
    assert found[0]["calls"] > 200


def test_what_is_done_to_a_run_later_goes_on_after_any_fault(library: Path) -> None:
    jobs = ["grow", "heal", "gc", "withdraw", "forget", "annotate"]
    swept = list(begun(library, jobs, ["kill", "full"], POINTS))
    assert [one["job"] for one in swept[::2]] == jobs
    assert [(one["job"], one["problems"]) for one in swept if one["problems"]] == []
