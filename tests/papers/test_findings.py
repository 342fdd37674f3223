"""docs/studies/findings.md: a row for each learner, tests that exist, and what no other test repeats of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.helpers import example

from driftline.curate.core.registry import HOME
from driftline.eval.answers import answers
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.river_logreg import RiverLogreg
from driftline.eval.protocols.adaptation.protocol import ESTIMATES
from driftline.eval.run import evaluate

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers" / "findings.md").read_text(encoding="utf-8")
HEAD = "| {} | agrees with | published | seen |"
SAID = ("**yes**", "**no**", "**in part**", "not run", "–")


def rows(*kinds: str) -> list[list[str]]:
    """The cells of all tables of a kind."""
    parts = [part for kind in kinds for part in PAGE.split(HEAD.format(kind) + "\n")[1:]]
    lines = [line for part in parts for line in part.partition("\n\n")[0].splitlines()[1:]]
    return [[cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")] for line in lines]


def test_every_learner_has_its_row() -> None:
    named = [name for cells in rows("learner") for name in re.findall(r"`([^`]+)`", cells[0])]
    assert sorted(named) == sorted(name for name in LEARNERS if LEARNERS.entry(name).origin == HOME)


def test_every_estimate_of_accuracy_has_its_row() -> None:
    assert [name for cells in rows("estimate") for name in re.findall(r"`([^`]+)`", cells[0])] == list(ESTIMATES)


def test_every_row_names_tests_that_exist_and_says_what_was_seen() -> None:
    tests = dict(re.findall(r"^\[(\w+)\]: .*?/tests/(\S+\.py)$", PAGE, re.MULTILINE))
    for cells in rows("learner", "estimate"):
        name, agrees, published, seen = cells
        assert published, name
        assert seen.startswith(SAID), (name, seen)
        found = re.findall(r"\[`(test_\w+)`\]\[(\w+)\]", agrees)
        assert found or agrees.startswith("– "), (name, agrees)  # – and why there is none
        for test, label in found:
            assert f"def {test}(" in (ROOT / "tests" / tests[label]).read_text(encoding="utf-8"), (name, test)


def test_what_was_seen_names_a_command_of_the_page() -> None:
    commands = set(re.findall(r"^### (\w+)", PAGE, re.MULTILINE))
    for name, _, _, seen in rows("learner", "estimate"):
        if not seen.startswith(("not run", "–")):
            named = re.findall(r"\(([A-Z][a-z]+)\)", seen)
            assert named, (name, seen)
            assert set(named) <= commands, (name, named)


@pytest.mark.shared(twin="tests/eval/test_replay.py::test_replay_forgets_less_than_finetuning")
def test_er_ace_keeps_old_classes_where_er_gives_them_up(shared: Path) -> None:
    """Caccia et al. 2022, abstract: gains where new classes appear. One of three seeds, a fifth of the samples."""
    stream = example("findings").intents(shared)
    names = [f"{name}(sampler=mixed,memory=77,batch=20,lr={lr})" for name in ("er-online", "ace") for lr in (10, 30)]
    results = evaluate(stream, "clear-iid", names)["results"]
    of = [result["scores"]["accuracy"]["mean"] for result in results]
    assert max(of[2:]) > max(of[:2]) + 0.03, of


def test_rivers_weights_answer_as_river() -> None:
    """`river-logreg` reads river's weights for a whole batch; river itself answers one sample after the other."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    learner = RiverLogreg()
    learner.begin(Task(3, (5,)), rng)
    learner.learn(x, y)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    alone = [learner.model.predict_one(dict(enumerate(row.tolist()))) for row in unit]
    assert answers(learner, x, len(x)).tolist() == alone
