"""Classes that first appear in a later step, and images under learners that compare or classify frozen features."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Task
from driftline.eval.learners.closed_forms import NearestMean
from driftline.eval.learners.neighbours import Acm
from driftline.eval.reporting.exports import scores_text
from driftline.eval.reporting.report import write
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

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


def pictures(side: int = 32) -> Stream:
    """Images of three colours with noise, in two steps."""
    rng, steps = rng_for(0, "pictures"), []
    for t in range(2):
        splits = {}
        for name, n in (("train", 60), ("test", 30)):
            y = np.arange(n, dtype=np.int64) % 3
            x = np.clip(rng.normal(90, 25, (n, side, side, 3)), 0, 255)
            x[np.arange(n), :, :, y] += 90
            splits[name] = Split(np.clip(x, 0, 255).astype(np.uint8), y, np.array([f"{t}{name}{i}" for i in range(n)]))
        steps.append(Step(t, str(t), splits))
    return Stream("pictures", steps, ["red", "green", "blue"], sha256="pictures")


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


@pytest.mark.parametrize("name", ["acm(net=test_resnet)", "fc-only(net=test_resnet,lr=1.0)"])
@pytest.mark.parametrize("protocol", ["near-future", "clear-iid"])
def test_a_frozen_network_serves_learners_on_images(name: str, protocol: str) -> None:
    settings = {"batch": 20, "shift": 0, "updates": 40} if protocol == "near-future" else {}
    settings |= {"fc-only.epochs": 40} if protocol == "clear-iid" and name.startswith("fc-only") else {}
    found = evaluate(pictures(), protocol, [name], settings=settings)
    assert not found["skipped"]
    last = found["results"][0]["matrix"][1][1]
    assert last > (0.9 if name.startswith("acm") else 0.5)


def test_acm_compares_the_networks_features_not_pixels() -> None:
    learner = Acm(net="test_resnet")
    learner.begin(Task(3, (32, 32, 3)), rng_for(0))
    x = pictures().steps[0]["train"].x[:4]
    assert learner.model is not None
    width = int(learner.model.params[-2].shape[1])
    assert learner.compared(x).shape == (4, width)
    assert width < 32 * 32 * 3
    before = [p.clone() for p in learner.model.params]
    learner.learn(x, np.arange(4) % 3)
    assert all((a == b).all() for a, b in zip(before, learner.model.params, strict=True))


def test_a_network_needs_images() -> None:
    with pytest.raises(IncompatibleStream, match="net is 'resnet18', which takes images"):
        Acm(net="resnet18").begin(Task(3, (8,)), rng_for(0))
