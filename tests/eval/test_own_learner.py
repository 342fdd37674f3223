"""What a learner of a stranger must have, what it may have, and that nobody writes into it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.eval.learner import Learner, Needs, bytes_of
from driftline.eval.learners.trained_heads import Nap
from driftline.eval.predictions import answers_by_scores, sure_answers
from driftline.eval.reporting.document import remarks
from driftline.eval.run import evaluate

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
    return type(kind.__name__, (kind,), {"mark": True})


@marked
class Decorated(Frozen):
    """The same, decorated."""


@pytest.mark.parametrize("kind", [Frozen, Decorated])
@pytest.mark.parametrize(
    ("protocol", "settings"),
    [
        ("clear-iid", {}),
        ("clear-streaming", {}),
        ("near-future", {"batch": 20, "shift": 40}),
        ("ocrr", {"every": 20, "held_out": 1}),
    ],
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

    settings = {"batch": 20, "shift": 40} if protocol == "near-future" else {}
    document = evaluate(drifting(), protocol, [Says()], settings=settings)
    assert [skipped["because"][: len(because)] for skipped in document["skipped"]] == [because] * bool(because)
    if not because:
        (result,) = document["results"]
        silent = value != 1
        assert (result.get("no_answer"), max(s["mean"] for s in result["scores"].values()) == 0) == (
            (1.0, True) if silent else (None, False)
        )
        assert ("no answer to 100.0% of test samples" in remarks(result)) == silent


def test_bytes_are_those_of_all_attributes_but_the_task() -> None:
    learner = Nap()
    learner.task, learner.rng = np.zeros(100), np.zeros(100)  # type: ignore[assignment]
    learner.extra_memory = [np.zeros(3), {"more": np.zeros(2)}]  # type: ignore[attr-defined]
    assert learner.stored_bytes() == 8 * 5 == bytes_of([np.zeros(5)])
