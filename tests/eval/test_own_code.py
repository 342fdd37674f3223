"""Submissions with the code of their learners: run only on request, enclosed, and marked on the board."""

from __future__ import annotations

import json
import os
import socket
import sys
import zipfile
from pathlib import Path

import pytest
from support.console import driftline
from support.helpers import drifting
from support.submissions import members_of, written

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.system import enclosure
from driftline.curate.core.system.enclosure import NotEnclosed, enclose
from driftline.eval.leaderboard.board import board
from driftline.eval.leaderboard.isolation import isolated
from driftline.eval.leaderboard.submission import pack
from driftline.eval.leaderboard.verification import Verdict, verify
from driftline.eval.run import evaluate

MODULE = "our_own_learner_of_a_test"
SOURCE = '''
from dataclasses import dataclass

import numpy as np

from driftline.eval.learner import Learner


@dataclass
class Last(Learner):
    """Answers with the label that it saw last, plus a number."""

    plus: int = 0

    def begin(self, task, rng):
        self.last, self.n = 0, task.n_classes

    def learn(self, x, y):
        self.last = int(y[-1])

    def predict(self, x):
        return np.full(len(x), (self.last + self.plus) % self.n)
'''
linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stream, a submission of a learner of its own, and that learner's module."""
    here = tmp_path_factory.mktemp("own")
    (here / f"{MODULE}.py").write_text(SOURCE)
    stream = drifting(drift=0.2).save(here / "S")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(here))
        evaluate(stream, "clear-iid", [f"{MODULE}:Last(plus=1)", "majority"], [0], out=here / "runs")
    pack([here / "runs"], "ours", here / "ours.zip", code=[here / f"{MODULE}.py"])
    return here


def checked(verdict: Verdict) -> dict[str, str]:
    """The column `checked` of the board, by learner."""
    lines = [line.split(" | ") for line in board([verdict]).splitlines() if line.startswith("| ")]
    return {cells[0].removeprefix("| "): cells[-2] for cells in lines if cells[0] != "| learner"}


def test_it_is_not_run_unless_that_is_said(made: Path) -> None:
    verdict = verify(made / "ours.zip", [made / "S"], again=2)
    assert verdict.holds
    assert not verdict.unverified
    because = {run["learner"]: run["because"] for run in verdict.not_again}
    assert because == {f"{MODULE}:Last(plus=1)": "its learner is code of the submission, which only --run-code runs"}
    assert list(checked(verdict).values()).count("not re-run, own code") == 1
    assert "a program may contain its answers" in board([verdict])


@linux
def test_on_request_it_is_run_and_marked(made: Path) -> None:
    verdict = verify(made / "ours.zip", [made / "S"], again=2, run_code=True)
    assert verdict.problems == []
    assert len(verdict.again) == 2
    assert sorted(checked(verdict).values()) == ["1 of 1 re-run", "1 of 1 re-run, own code"]


@linux
def test_code_that_gives_other_answers_is_caught(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    members[f"code/{MODULE}.py"] = SOURCE.replace("self.plus)", "self.plus + 1)").encode()
    verdict = verify(written(tmp_path / "a.zip", members), [made / "S"], again=2, run_code=True)
    assert "row 0 has" in verdict.problems[0]


@linux
def test_what_code_says_when_it_fails_gets_onto_no_page(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    secret = "raise RuntimeError(open('/etc/passwd').read())"
    members[f"code/{MODULE}.py"] = SOURCE.replace("self.last = int(y[-1])", secret).encode()
    verdict = verify(written(tmp_path / "a.zip", members), [made / "S"], again=2, run_code=True)
    assert verdict.problems == [f"{MODULE}:Last(plus=1), seed 0: its code failed"]
    assert "/bin/" not in json.dumps(verdict.plain())


def test_code_that_the_submission_lacks_is_not_looked_for_here(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    members.pop(f"code/{MODULE}.py")
    verdict = verify(written(tmp_path / "a.zip", members), [made / "S"], run_code=True)
    assert "names a Python module, which is not imported from a submission" in verdict.problems[0]


@linux
def test_enclosed_it_reaches_no_network_no_file_and_no_process(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = {"outside": str(tmp_path / "x"), "file": str(kept), "port": server.getsockname()[1]}
        found = isolated("support.prisoner:escape", request | {"process": os.getpid()}, enclosed=True)
    assert found.pop("folder") == "done"
    assert found == {"write": "OSError", "mount": "OSError", "change": "OSError", "network": "OSError",
                     "processes": "FileNotFoundError",
                     "kill": "ProcessLookupError"}  # fmt: skip
    assert kept.read_text() == "mine"
    assert not (tmp_path / "x").exists()


def test_a_system_without_namespaces_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(enclosure.sys, "platform", "darwin")
    with pytest.raises(NotEnclosed, match=r"this system is darwin.*Verify without --run-code"):
        enclose(tmp_path)


@pytest.mark.parametrize(("name", "error"), [("a-b.py", BadInput), ("a.txt", BadInput), ("missing.py", MissingFile)])
def test_code_that_cannot_be_packed(made: Path, tmp_path: Path, name: str, error: type[Exception]) -> None:
    if error is BadInput:
        (tmp_path / name).write_text("")
    with pytest.raises(error, match=name):
        pack([made / "runs"], "ours", tmp_path / "a.zip", code=[tmp_path / name])


@linux
def test_the_commands(made: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours.zip"
    driftline("submit", str(made / "runs"), "--name", "ours", "--code", str(made / f"{MODULE}.py"), "--out", str(ours))
    assert f"code/{MODULE}.py" in zipfile.ZipFile(ours).namelist()
    done = driftline("verify", str(ours), "--stream", str(made / "S"), "--again", "2", "--run-code")
    assert "2 of them run again" in done.stdout
