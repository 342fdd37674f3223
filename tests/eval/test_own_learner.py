"""What a learner or a protocol of a stranger must have, what it may have, and that nobody writes into it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadConfig, BadPlugin
from driftline.eval.learner import Needs, bytes_of
from driftline.eval.learners.trained_heads import Nap
from driftline.eval.predictions import answers_by_scores, sure_answers
from driftline.eval.protocol import Protocol, Roles
from driftline.eval.reporting.document import remarks
from driftline.eval.reporting.report import results_of
from driftline.eval.run import evaluate, plan
from driftline.ext import Learner, Result, Row, Score, Stream, Task, evaluate_split, rng_for

NEAR = {"batch": 20, "shift": 40}
STATE: dict[str, Any] = {}  # what the frozen learner remembers: it cannot keep it itself


@dataclass(frozen=True, slots=True)
class Frozen(Learner):
    """Nothing can be written into it; it answers the class of the nearest mean."""

    weight: float = 1.0

    def begin(self, task: Any, rng: Any) -> None:
        STATE.update(sums=np.zeros((task.n_classes, *task.x_shape)), counts=np.full(task.n_classes, 1e-9))

    def learn(self, x: Any, y: Any) -> None:
        np.add.at(STATE["sums"], y, x)
        np.add.at(STATE["counts"], y, self.weight)

    def scores(self, x: Any) -> Any:
        means = STATE["sums"] / STATE["counts"][:, None]
        return -((x[:, None] - means) ** 2).sum(2)


def marked(kind: type) -> type:
    """A decorator that hands out a class of its own."""
    return type(kind.__name__, (kind,), {"mark": True, "__doc__": kind.__doc__})


@marked
class Decorated(Frozen):
    """The same, decorated."""


@pytest.mark.parametrize("kind", [Frozen, Decorated])
@pytest.mark.parametrize(
    ("protocol", "settings"),
    [("clear-iid", {}), ("clear-streaming", {}), ("near-future", NEAR), ("ocrr", {"every": 20, "held_out": 1})],
)
def test_a_frozen_slotted_or_decorated_learner_runs(kind: type[Learner], protocol: str, settings: Any) -> None:
    found = evaluate(drifting(), protocol, [kind()], settings=settings)
    assert found["skipped"] == []
    assert found["results"][0]["stored_bytes"] == 0  # its memory is not its own


class Twice(Nap):
    """Answers by labels, although its base has scores."""

    def predict(self, x: Any) -> Any:
        return np.ones(len(x), np.int64)


class Again(Twice):
    """Scores once more."""

    def scores(self, x: Any) -> Any:
        return np.tile([3.0, 0.0], (len(x), 1))


def test_what_is_defined_last_answers() -> None:
    assert [answers_by_scores(kind) for kind in (Nap, Twice, Again)] == [True, False, True]
    labels, sure = sure_answers(Again(), np.zeros((4, 2)), 4)
    assert labels.tolist() == [0] * 4
    assert sure == pytest.approx(1 / (1 + np.exp(-3.0)))


@pytest.mark.parametrize("shape", ["labels", "confidences", "probabilities"])
def test_predict_may_say_how_sure_it_is(shape: str) -> None:
    class Says(Twice):
        def predict(self, x: Any) -> Any:
            labels = np.ones(len(x), np.int64)
            more = {"confidences": np.full(len(x), 0.7), "probabilities": np.tile([0.3, 0.7], (len(x), 1))}
            return labels if shape == "labels" else (labels, more[shape])

    labels, sure = sure_answers(Says(), np.zeros((3, 2)), 3)
    assert labels.tolist() == [1, 1, 1]
    assert sure is None if shape == "labels" else sure.tolist() == [0.7] * 3


@pytest.mark.parametrize("protocol", ["clear-iid", "near-future"])
@pytest.mark.parametrize(
    ("value", "because"),
    [
        (-1, ""),
        (None, ""),
        (1.0, ""),
        (np.nan, "Says.predict answered nan to sample 0 of "),
        ("1", "Says.predict answered '1' to sample 0 of "),
        (1.7, "Says.predict answered 1.7 to sample 0 of "),
        (99, "Says answered 99 to the sample '"),
        (-2, "Says answered -2 to the sample '"),
    ],
)
def test_an_answer_is_a_class_or_none(value: Any, because: str, protocol: str) -> None:
    class Says(Twice):
        needs = Needs()

        def predict(self, x: Any) -> Any:
            return [value] * len(x)

    settings = NEAR if protocol == "near-future" else {}
    document = evaluate(drifting(), protocol, [Says()], settings=settings)
    assert [skipped["because"][: len(because)] for skipped in document["skipped"]] == [because] * bool(because)
    if not because:
        (result,) = document["results"]
        silent = value != 1
        wrong = max(s["mean"] for s in result["scores"].values()) == 0
        assert (result.get("no_answer"), wrong) == ((1.0, True) if silent else (None, False))
        assert ("no answer to 100.0% of test samples" in remarks(result)) == silent


def test_bytes_are_those_of_all_attributes_but_the_task() -> None:
    learner = Nap()
    learner.task, learner.rng = np.zeros(100), np.zeros(100)  # type: ignore[assignment]
    learner.extra_memory = [np.zeros(3), {"more": np.zeros(2)}]  # type: ignore[attr-defined]
    assert learner.stored_bytes() == 8 * 5 == bytes_of([np.zeros(5)])


# ---- a protocol


@dataclass(frozen=True, slots=True)
class Slotted(Protocol):
    """Train on one step, test on all."""

    first: int | str = "auto"
    """the step that is learned"""
    further: int = 3
    """a setting that changes nothing"""

    scores = (Score("last", "last step"),)
    roles = Roles(step=lambda row: int(row.tested_on), decisive=lambda rows: rows[-1:])

    def check(self, stream: Stream) -> None: ...

    def task(self, stream: Stream) -> Task:
        return Task(len(stream.classes), stream.x_shape)

    def unused(self) -> dict[str, str]:
        return {"further": "nothing is further"}

    def resolve(self, stream: Stream) -> "Slotted":
        return replace(self, first=0)

    def defaults(self, learner: Learner) -> dict[str, Any]:
        return {"epochs": 1} if hasattr(learner, "epochs") else {}

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        return {"told": {"steps": len(stream.steps)}, "own": seed}

    def training_sizes(self, stream: Stream) -> list[int]:
        return [len(stream.steps[0]["train"])]

    def run(self, stream: Stream, learner: Learner, rng: Any, seed: int) -> Iterator[Row]:
        learner.learn_step(stream.steps[int(self.first)].visible())
        for step in stream.steps:
            yield evaluate_split(learner, step["test"], str(step.index), 0.0, learned_to=0)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        return Result({"last": rows[-1].n_correct / rows[-1].n})


@marked
class DecoratedProtocol(Slotted):
    """The same, decorated."""


@pytest.mark.parametrize("kind", [Slotted, DecoratedProtocol])
def test_a_frozen_slotted_or_decorated_protocol_runs_with_its_abilities(kind: type[Protocol], tmp_path: Path) -> None:
    kept: list[Any] = []
    learners = ["nearest-mean", "majority", "finetune"]
    found = evaluate(drifting(), kind, learners, [0, 1], out=tmp_path, keep_run=kept.append)
    assert found["skipped"] == []
    assert [result["settings"].get("epochs") for result in found["results"]] == [None, None, 1]
    assert all(result["settings"]["first"] == 0 for result in found["results"])
    assert [run.about["own"] for run in kept] == [run.about["seed"] for run in kept]
    assert all(run.about["told"] == {"steps": 4} for run in kept)
    (document,) = results_of([tmp_path])
    assert document["ageing"], "roles.step: accuracy by age"
    assert document["compared"], "roles.decisive: learners on single samples"


def test_settings_are_chosen_on_three_parts_of_the_first_step_by_default() -> None:
    ((protocol, part),) = Slotted(0).trials(drifting(), rng_for(0), 0)
    assert (protocol, len(part.steps)) == (Slotted(0), 3)


@pytest.mark.parametrize(("given", "settings"), [(Slotted, {"further": 4}), (Slotted(further=4), {})])
def test_a_setting_of_a_protocol_that_changes_nothing_is_refused(given: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="further is 4, which changes nothing: nothing is further"):
        plan(drifting(), given, ["majority"], [0], settings)
    assert plan(drifting(), Slotted, ["majority"], [0], {"further": 3}).runs == 1, "its default may be given"


def test_a_setting_with_the_name_of_a_method_is_refused() -> None:
    annotated = {"__annotations__": {"facts": int}, "facts": 5}
    kind = dataclass(frozen=True)(type("Clashing", (Slotted,), annotated))
    with pytest.raises(BadPlugin, match="Clashing has a setting facts, which is a name of Protocol"):
        plan(drifting(), kind, ["majority"], [0])
