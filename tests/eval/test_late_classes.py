"""Classes that first appear in a later step, and classes that a step does not test."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.eval.learners.closed_forms import NearestMean
from driftline.eval.reporting.exports import scores_text
from driftline.eval.reporting.report import write
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Stream

LATE, STEPS = 2, 4  # the step in which class 2 appears; all steps


def growing() -> Stream:
    """Three classes; class 2 first appears in the third of four steps, in training and in tests."""
    whole = drifting(steps=STEPS, drift=0.05)
    early = [
        replace(step, splits={name: split.take(np.flatnonzero(split.y < 2)) for name, split in step.splits.items()})
        for step in whole.steps[:LATE]
    ]
    return replace(whole, steps=[*early, *whole.steps[LATE:]], sha256="growing")


def answers_right(result: dict[str, Any]) -> tuple[float, float]:
    """Accuracy after the last step on its samples of class 2, and on those of all steps' other classes."""
    n, right = np.zeros((2, 3))
    for row in result["rows"]:
        if row.learned_to == STEPS - 1:
            n += np.pad(row.class_n, (0, 3 - len(row.class_n)))
            right += np.pad(row.class_correct, (0, 3 - len(row.class_n)))
    return right[2] / n[2], float(np.mean(right[:2] / n[:2]))


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    learners = ["nap", "scratch", "joint", "reservoir", "cwr", "lwf", "finetune", "er", "gdumb", "agem", "cumulative"]
    found = evaluate(growing(), "clear-iid", learners, settings={"epochs": 30})
    assert not found["skipped"]
    rows = {run.about["learner"]: run.rows for run in found.runs}
    return {result["learner"]: result | {"rows": rows[result["learner"]]} for result in found["results"]}


@pytest.mark.parametrize("name", ["scratch", "joint", "cwr", "lwf", "finetune", "er", "gdumb", "agem", "cumulative"])
def test_it_is_learned_and_the_old_ones_are_kept(name: str, results: dict[str, dict[str, Any]]) -> None:
    late, old = answers_right(results[name])
    assert late > 0.8, name
    assert old > 0.8, name


def test_the_reservoir_learns_it_from_what_it_keeps(results: dict[str, dict[str, Any]]) -> None:
    """Its memory has the size of the first step, so the new class is a sixth of it."""
    late, old = answers_right(results["reservoir"])
    assert late > 0.5
    assert old > 0.8


def test_napping_never_answers_with_it(results: dict[str, dict[str, Any]]) -> None:
    late, old = answers_right(results["nap"])
    assert late == 0
    assert old > 0.8


def test_before_it_appears_nobody_but_joint_answers_with_it(results: dict[str, dict[str, Any]]) -> None:
    """On the third step after two: class 2 is a third of its test samples."""
    before = {name: result["matrix"][LATE - 1][LATE] for name, result in results.items()}
    assert before.pop("joint") > 0.8
    assert max(before.values()) <= 2 / 3 + 1e-9


class AlwaysTheLast(NearestMean):
    """Answers the last class, whatever it sees."""

    def scores(self, x: Any) -> Any:
        return np.tile(np.arange(3.0), (len(x), 1))


def stream_without(missing: dict[int, list[int]]) -> Stream:
    """Four steps of three classes; step → classes that its tests do not have."""
    whole, steps = drifting(steps=STEPS, noise=2.5), []
    for step in whole.steps:
        test = step["test"]
        left = test.take(np.flatnonzero(~np.isin(test.y, missing.get(step.index, []))))
        steps.append(replace(step, splits={**step.splits, "test": left}))
    return replace(whole, steps=steps, sha256=f"{missing}")


@pytest.mark.filterwarnings("error::RuntimeWarning")
class TestCase37AClassThatABucketDoesNotTest:
    @pytest.mark.parametrize(
        "missing",
        [
            {2: [2]},
            {t: [2] for t in range(STEPS)},
            {t: [0] for t in range(STEPS)},
            {1: [2], 2: [2], 3: [2]},
            {t: [0, 1] for t in range(1, STEPS)} | {0: [2]},
        ],
        ids=["one bucket", "the last never", "the first never", "in the first alone", "others in each"],
    )
    def test_it_is_a_dash_in_tables_and_no_part_of_means(self, missing, tmp_path):
        stream = stream_without(missing)
        document = evaluate(stream, "clear-iid", ["nearest-mean", AlwaysTheLast], seeds=[0, 1])
        for result in document["results"]:
            recall = [value for value in result["classes"]["recall"] if value is not None]
            assert result["classes"]["balanced_accuracy"]["mean"] == pytest.approx(np.mean(recall))
        lines = scores_text(document).splitlines()
        head = next(i for i, line in enumerate(lines) if line.split()[:1] == ["recall"])
        cells = next(line for line in lines[head + 1 :] if line.split()[:1] == ["nearest-mean"]).split()[1:]
        tested = np.unique(np.concatenate([step["test"].y for step in stream.steps[1:]]))  # next-domain tests decide
        assert [cell == "–" for cell in cells] == [c not in tested for c in range(3)]
        write([document], tmp_path, streams=[stream])
        assert not re.search(r">\s*(nan|None)\s*<", (tmp_path / "protocol-clear-iid.html").read_text(), re.IGNORECASE)
