"""Learners by package.module:Name, from Python, in worker processes, with settings; failures are one sentence."""

import sys
from pathlib import Path

import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadConfig, BadPlugin, UnknownName
from driftline.curate.core.seeding import rng_for
from driftline.eval.nets import build
from driftline.eval.run import evaluate
from driftline.eval.settings import spec_of

MODULE = '''
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from driftline.eval.learner import Learner
from driftline.eval.memory.samplers import Fifo


@dataclass
class Constant(Learner):
    """Always the same class."""

    answer: Annotated[int, Field(ge=0)] = 0

    def begin(self, task, rng):
        pass

    def predict(self, x):
        return np.full(len(x), self.answer)

    def learn(self, x, y):
        pass


@dataclass
class Unfinished(Learner):
    def begin(self, task, rng):
        pass

    def predict(self, x):
        return x


class Silent(Constant):
    predict = Learner.predict


@dataclass
class Clashing(Constant):
    recall: float = 1.0


@dataclass
class Needy(Constant):
    path: str = None

    def __init__(self, path):
        self.path = path


class Latest(Fifo):
    pass


NUMBER = 3
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user in the working directory."""
    (tmp_path / "users_learners.py").write_text(MODULE)
    (tmp_path / "broken_learners.py").write_text("import no_such_package\n")
    monkeypatch.setattr(sys, "path", list(sys.path))  # resolve appends the working directory
    monkeypatch.chdir(tmp_path)


def test_a_learner_of_a_module_has_settings() -> None:
    names = ["users_learners:Constant", "users_learners:Constant(answer=2)", "majority"]
    found = evaluate(drifting(steps=2), "clear-iid", names, [0, 1])["results"]
    assert [r["learner"] for r in found] == names
    assert [r["settings"].get("answer") for r in found] == [0, 2, None]


def test_a_setting_reaches_it_by_its_name() -> None:
    settings = {"users_learners:Constant.answer": 1}
    (found,) = evaluate(drifting(steps=2), "clear-iid", ["users_learners:Constant"], settings=settings)["results"]
    assert found["settings"]["answer"] == 1


def test_a_network_of_a_module_is_never_imported_for_a_stored_run() -> None:
    with pytest.raises(UnknownName, match="Unknown network 'broken_learners:network'"):
        build("broken_learners:network", 3, (8,), rng_for(0), stored=True)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("users_learners:Missing", BadPlugin, "cannot be imported: AttributeError"),
        (
            "broken_learners:Any",
            BadPlugin,
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("users_learners:NUMBER", BadPlugin, "is 3. Expected a class derived from driftline.eval.learner.Learner"),
        ("users_learners:Latest", BadPlugin, "Expected a class derived from driftline.eval.learner.Learner"),
        (
            "fc-only(sampler=users_learners:Constant)",
            BadPlugin,
            "Expected a class derived from driftline.eval.memory.samplers",
        ),
        ("users_learners:Silent", BadPlugin, "Silent cannot answer. Expected a method scores or predict"),
        ("users_learners:Clashing", BadPlugin, "Clashing has a setting recall, which is a name of Learner"),
        ("users learners:Constant", UnknownName, "Expected a registered name or package.module:Name"),
        ("users_learners:Constant(answer=-1)", BadConfig, "users_learners:Constant: answer is -1. Expected a number"),
        ("users_learners:Constant(anser=1)", BadConfig, "Unknown setting 'anser'. Did you mean 'answer'"),
        ("fc-only(sampler=fifoo)", UnknownName, "Unknown sampler 'fifoo'. Did you mean 'fifo'"),
    ],
)
def test_what_is_no_learner_is_one_sentence(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        spec_of(name)


@pytest.mark.parametrize(("name", "said"), [("Unfinished", "abstract"), ("Needy", "'path'")])
def test_a_class_that_cannot_be_made_is_named(name: str, said: str) -> None:
    with pytest.raises(BadPlugin, match=f"The learner 'users_learners:{name}' cannot be created: .*{said}"):
        spec_of(f"users_learners:{name}")()
