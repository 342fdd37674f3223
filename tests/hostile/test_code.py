"""Code of a submission: 70 attacks as root's and as a user's, each in an enclosure of its own. None gets anything,
nothing outside changes, and no process is left."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hostile.attacked import BOUNDS, SUBREAPER, attacked, enclosed_work, left
from support.prisoners import ATTACKS
from support.users import USERS, as_user, open_folder

from driftline.curate.core.system import enclosure
from driftline.curate.core.system.enclosure import Enclosed, NotEnclosed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
LASTING = {"never_end", "outlive_the_judge", "print_without_end"}


@pytest.fixture(scope="module", params=[*USERS, "without namespaces"])
def results(request: pytest.FixtureRequest) -> Any:
    user = USERS.get(request.param, USERS["user"])
    # From a process without pytest's memory: 150 forks of a large one take five times as long.
    with open_folder() as place, ProcessPoolExecutor(1, get_context("spawn")) as small:
        return small.submit(as_user, user, partial(attacked, place, request.param not in USERS)).result()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_nothing_and_changes_nothing(name: str, results: dict[str, dict[str, Any]]) -> None:
    result = results[name]
    assert result["got"] == "" or result["got"].startswith(("[null, ", "[[], ", "[[[[["))
    assert result["changed"] == []
    assert not result["left"]
    assert result["late"] >= (name in LASTING)
    assert result["seconds"] < 10


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_nothing_outlives_a_judge_that_is_killed(user: int) -> None:
    def killed() -> list[bool]:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        end, mine = os.pipe()
        if not (judge := os.fork()):
            Enclosed(partial(enclosed_work, "outlive_the_judge", {}), BOUNDS, [])
            os.write(mine, b"begun")
            time.sleep(60)
        begun = os.read(end, 5) == b"begun"
        os.kill(judge, signal.SIGKILL)
        return [begun, left()]

    assert as_user(user, killed) == [True, False]


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_a_library_of_the_judge_finds_its_open_file_in_each_fork(user: int) -> None:
    def answered() -> str:
        file = os.open(__file__, os.O_RDONLY)
        facts = os.fstat(file)

        def find() -> None:  # Arrow aborts if its pipe is closed, once it has handled signals
            with suppress(OSError):
                if os.path.samestat(os.fstat(file), facts):
                    return
            os._exit(1)

        os.register_at_fork(after_in_child=find)
        with Enclosed(_echo, BOUNDS, []) as code:
            code.send(b"asked")
            return code.receive(5).decode()

    assert as_user(user, answered) == "asked"


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_a_system_without_a_part_refuses_and_names_it(user: int, tmp_path: Path) -> None:
    def refusals() -> list[str]:
        answers = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(enclosure.os, "access", lambda path, mode: False)
            answers.append(_refusal())
        os.setgroups([]) if os.getuid() == 0 else None
        ctypes.CDLL(None).unshare(0x10000000)  # a user of nowhere, who may have no namespaces
        return [*answers, _refusal()]

    unreadable, forbidden = as_user(user, refusals)
    assert "cannot be read by the user" in unreadable
    assert "namespaces (unshare): Operation not permitted" in forbidden


def _echo(requests: Any, answers: Any) -> None:
    answers.write(requests.read(5))


def _refusal() -> str:
    try:
        Enclosed(partial(enclosed_work, "fork", {}), BOUNDS, [])
    except NotEnclosed as error:
        return str(error)
    return ""
