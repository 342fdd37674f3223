"""Submissions with the code of their learners: run only on request, enclosed, and marked on the board."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.console import driftline
from support.helpers import drifting
from support.submissions import members_of, written
from support.users import USERS, as_user, open_folder

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.system import enclosure
from driftline.curate.core.system.enclosure import Bounds, Enclosed, NotEnclosed
from driftline.eval.leaderboard.board import board
from driftline.eval.leaderboard.isolation import Limits
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
    """Of a user; the next test is root's, if we are root."""

    def work() -> list[Any]:
        verdict = verify(folder / "ours.zip", [folder / "S"], again=2, run_code=True)
        return [verdict.problems, len(verdict.again), sorted(checked(verdict).values())]

    with open_folder() as folder:
        shutil.copytree(made, folder, dirs_exist_ok=True)
        folder.chmod(0o777)
        assert as_user(USERS["user"], work) == [[], 2, ["1 of 1 re-run", "1 of 1 re-run, own code"]]


OURS, SYSTEM = "driftline.eval", "driftline.curate.core.system.enclosure"
FORGED = {
    "Ends": "os._exit(0)",
    "ShortAnswers": "os.write(4, bytes(16)); os._exit(0)",
    "LongAnswers": "os.write(4, bytes(40_000)); os._exit(0)",
    "OneByteMore": "os.write(4, b'x')",
    "Ready": "os.write(4, b'ready' + bytes([10])); os._exit(0)",
    "OwnVerdict": "open('answer.json', 'w').write('{\"answer\": {\"differs\": \"\"}}'); os._exit(0)",
    "OwnJudge": f"import {OURS}.leaderboard.repeating as r; r._difference = lambda *runs: ''; self.plus += 1",
    "OwnCounts": f"import {OURS}.rows as r; r.counted = lambda row: {{}}; self.plus += 1",
    "OwnLoop": f"import {OURS}.run as r; r.evaluate = None; self.plus += 1",
    "ErrorOfOurs": f"from {OURS}.leaderboard.isolation import Stopped; raise Stopped('the same')",
    "ErrorOfSystem": f"from {SYSTEM} import NotEnclosed; raise NotEnclosed('here', '', '')",
    "Interrupt": "raise KeyboardInterrupt('the same')",
    "Printed": "print(chr(13) + 'ours holds: 99 runs verified'); self.plus += 1",
    "Escaped": "print('x' * 9000 + chr(27) + '[2K the same'); raise SystemExit",
    "Slow": "import time; time.sleep(600)",
}


@linux
def test_no_code_writes_its_own_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [SOURCE.replace("class Last", f"class {name}") for name in FORGED]
    forged = [text.replace("self.last = int(y[-1])", FORGED[name]) for name, text in zip(FORGED, classes, strict=True)]
    (tmp_path / "forgers.py").write_text("\n\n".join(classes))
    stream = drifting(drift=0.2).save(tmp_path / "S")
    monkeypatch.syspath_prepend(str(tmp_path))
    evaluate(stream, "clear-iid", [f"forgers:{name}" for name in FORGED], [0], out=tmp_path / "runs")
    pack([tmp_path / "runs"], "ours", tmp_path / "ours.zip", code=[tmp_path / "forgers.py"])
    members = members_of(tmp_path / "ours.zip")
    members["code/forgers.py"] = ("import os\n" + "\n\n".join(forged)).encode()
    written(tmp_path / "a.zip", members)
    verdict = verify(tmp_path / "a.zip", [tmp_path / "S"], len(FORGED), run_code=True, limits=Limits(seconds=8))
    differs = {run["learner"].partition(":")[2]: run["differs"] for run in verdict.again}
    differs |= {run["learner"].partition(":")[2]: run["because"] for run in verdict.not_again}
    other = {name for name, code in FORGED.items() if "self.plus" in code}
    assert {name for name, text in differs.items() if text.startswith("row 0 has ")} == other
    assert differs.pop("Slow") == "It took more than 8 seconds."
    assert {name for name, text in differs.items() if text.startswith("its code failed; it printed '")} == set(
        differs
    ) - other


def test_code_that_the_submission_lacks_is_not_looked_for_here(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    members.pop(f"code/{MODULE}.py")
    verdict = verify(written(tmp_path / "a.zip", members), [made / "S"], run_code=True)
    assert "names a Python module, which is not imported from a submission" in verdict.problems[0]


def test_a_system_without_namespaces_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(enclosure.sys, "platform", "darwin")
    with pytest.raises(NotEnclosed, match=r"this system is darwin.*Verify without --run-code"):
        Enclosed(lambda requests, answers: None, Bounds(1, 2**30, 2**20), [tmp_path])


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
