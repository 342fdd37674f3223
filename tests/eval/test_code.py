"""Finished rows are used again only if nothing changed that decides them: code of one's own, what it imports, what it
was given, driftline itself."""

import importlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core import own_code
from driftline.curate.core.own_code import Untold, code_of
from driftline.eval.experiment import runs
from driftline.eval.experiment.runs import code_of_run, ours
from driftline.eval.integrations import Sklearn, Torch
from driftline.eval.learner import Learner
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate, plan
from driftline.stream_builder.stream import Stream

STREAM = drifting(steps=2, n=40)
IID = PROTOCOLS["clear-iid"]()
OWN = """
import numpy as np
from driftline.ext import Learner
from {helper} import ANSWER

class Constant(Learner):
    def begin(self, task, rng):
        pass

    def learn(self, x, y):
        pass

    def predict(self, x):
        return np.full(len(x), ANSWER)
"""


class Own:
    """A learner in a file of its own, that imports another one."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.name, self.helper = folder, f"own_code_{number}", f"own_helper_{number}"
        (folder / f"{self.name}.py").write_text(OWN.format(helper=self.helper))
        self.answer(0)

    def answer(self, label: int) -> None:
        path = self.folder / f"{self.helper}.py"
        path.write_text(f"ANSWER = {label}\n")
        os.utime(path, ns=(label * 10**9, label * 10**9))

    def learner(self) -> Learner:
        for name in (self.name, self.helper):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        made: Learner = importlib.import_module(self.name).Constant()
        return made


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Own:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Own(tmp_path, abs(hash(request.node.name)) % 10**9)


def finished(learner: Any, out: Path, stream: Stream = STREAM) -> int:
    return plan(stream, "clear-iid", [learner], [0], out=out).finished


def test_an_edited_helper_module_is_run_again_and_an_unedited_one_is_not(own: Own, tmp_path: Path) -> None:
    def accuracy(reuse: Any = "same") -> tuple[float, str]:
        (result,) = evaluate(STREAM, "clear-iid", [own.learner()], out=tmp_path / "runs", reuse=reuse)["results"]
        return result["scores"]["in_domain"]["mean"], result["code"]

    right = [float((STREAM.steps[0]["test"].y == label).mean()) for label in (0, 1)]
    assert accuracy() == (pytest.approx(right[0]), "this")
    assert finished(own.learner(), tmp_path / "runs") == 1
    own.answer(1)
    assert finished(own.learner(), tmp_path / "runs") == 0
    assert accuracy("any") == (pytest.approx(right[0]), "other")
    assert accuracy() == (pytest.approx(right[1]), "this")


def test_rows_of_two_codes_are_two_marked_rows(own: Own, tmp_path: Path) -> None:
    from driftline.eval.reporting.report import results_of
    from driftline.eval.scoring.ranking import labels

    for label in (0, 1):
        own.answer(label)
        evaluate(STREAM, "clear-iid", [own.learner()], out=tmp_path / "runs")
    (document,) = results_of([tmp_path / "runs"])
    names = labels(document["results"])
    assert len(names) == len(set(names)) == 2
    assert all(name.startswith("Constant, code of learner=") for name in names)


def test_files_of_one_name_in_several_folders_all_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the `__init__.py` of a package with rooms."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    house, names = tmp_path / "own_house", ("own_house", "own_house.room")
    (house / "room").mkdir(parents=True)
    codes = []
    for i, (outer, inner) in enumerate(((0, 0), (1, 0), (0, 1), (0, 0))):
        texts = {house: f"from own_house import room\nclass Own: ...\nA = {outer}\n", house / "room": f"A = {inner}\n"}
        for folder, text in texts.items():
            (folder / "__init__.py").write_text(text)
            os.utime(folder / "__init__.py", ns=(i, i))
        importlib.invalidate_caches()
        codes.append(code_of(importlib.import_module("own_house").Own))
        for name in names:
            del sys.modules[name]
    assert codes[0] == codes[3]
    assert len(set(codes)) == 3


def test_another_driftline_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(STREAM, "clear-iid", ["majority"], out=tmp_path)
    assert finished("majority", tmp_path) == 1
    monkeypatch.setattr(runs, "ours", lambda: "0.3.0 (abc)")
    assert finished("majority", tmp_path) == 0


def test_the_digest_of_driftline_is_that_of_its_files(tmp_path: Path) -> None:
    """In a process of its own: it is computed once."""
    text = "from driftline.eval.experiment.runs import ours; print(ours())"
    assert subprocess.check_output([sys.executable, "-c", text], text=True).strip() == ours()


@pytest.mark.parametrize("optimiser", ["partial", "default", "closure"])
def test_a_learning_rate_inside_a_function_is_part_of_the_code(optimiser: str) -> None:
    import torch

    def linear(task: Any) -> Any:
        return torch.nn.Linear(8, 3)

    def made(lr: float) -> Any:
        def with_default(parameters: Any, lr: float = lr) -> Any:
            return torch.optim.SGD(parameters, lr)

        def enclosing(parameters: Any) -> Any:
            return torch.optim.SGD(parameters, lr)

        kinds = {"partial": partial(torch.optim.SGD, lr=lr), "default": with_default, "closure": enclosing}
        return Torch("own", linear, kinds[optimiser])

    first, again, other = (code_of_run(made(lr), IID) for lr in (0.1, 0.1, 0.001))
    assert first == again
    assert first != other


def test_another_network_in_a_lambda_is_other_code() -> None:
    import torch

    def made(deep: bool) -> Torch:
        if deep:
            return Torch("own", lambda task: torch.nn.Sequential(torch.nn.Linear(8, 3)), torch.optim.SGD)
        return Torch("own", lambda task: torch.nn.Linear(8, 3), torch.optim.SGD)

    codes = [code_of_run(made(deep), IID)["learner"] for deep in (False, False, True)]
    assert codes[0] == codes[1]
    assert len(set(codes)) == 2


def test_an_estimators_parameters_and_its_librarys_version_are_part_of_the_code(monkeypatch):
    from sklearn.linear_model import SGDClassifier

    def coded(alpha: float) -> str:
        return code_of_run(Sklearn("own", SGDClassifier(alpha=alpha)), IID)["learner"]

    first, again, other = coded(0.1), coded(0.1), coded(0.2)
    assert first == again
    version = own_code.installed_version
    monkeypatch.setattr(own_code, "installed_version", lambda name: "99" if name == "scikit-learn" else version(name))
    assert len({first, other, coded(0.1)}) == 3


def test_the_bytes_of_a_file_that_a_setting_names_are_part_of_the_code(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    digests = []
    for i, content in enumerate((b"a", b"b", b"a")):
        path.write_bytes(content)
        os.utime(path, ns=(i, i))
        digests.append(code_of_run(LEARNERS["finetune"](weights=str(path)), IID)["learner"])
    assert digests[0] == digests[2]
    assert len(set(digests)) == 2


def test_code_of_ours_and_of_installed_packages_has_a_version() -> None:
    assert code_of(LEARNERS["er"]) == "driftline"
    assert code_of(np.random.Generator).startswith("numpy ")


def test_code_of_a_cell_is_run_again_each_time_and_said(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "a_cell"}
    exec(OWN.format(helper="stat").replace("import ANSWER", "import ST_INO as ANSWER"), space)
    kind = space["Constant"]
    with pytest.raises(Untold, match=r"a_cell\.Constant"):
        code_of(kind)
    assert code_of_run(kind(), IID) == {"untold": "a_cell.Constant"}
    evaluate(STREAM, "clear-iid", [kind()], out=tmp_path)
    again = plan(STREAM, "clear-iid", [kind()], [0], out=tmp_path)
    assert (again.finished, again.untold) == (0, {"Constant": "a_cell.Constant"})
    evaluate(STREAM, "clear-iid", [kind()], out=tmp_path)
    assert len(list(tmp_path.rglob("run.json"))) == 1


def test_rows_of_a_file_that_was_edited_while_it_ran_stand_apart(own: Own, tmp_path: Path) -> None:
    learner: Any = own.learner()
    learner.learn = lambda x, y: own.answer(2)
    (result,) = evaluate(STREAM, "clear-iid", [learner], out=tmp_path / "runs")["results"]
    assert result["code"] == "other"
    (record,) = (tmp_path / "runs").rglob("run.json")
    assert record.parent.name.endswith("-edited")
    assert json.loads(record.read_bytes())["edited_while_running"] is True


def test_the_digests_of_all_learners_take_less_than_50_ms() -> None:
    import time

    learners = [LEARNERS[name]() for name in LEARNERS]
    ours()
    begun = time.process_time()
    for learner in learners:
        code_of_run(learner, IID)
    assert time.process_time() - begun < 0.05
