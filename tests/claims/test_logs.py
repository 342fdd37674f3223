"""What learners were asked and taught, in order: each protocol's log against one written by plain code; and what a
correction does to a trained head, by its own term.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import softmax

from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

Log = list[tuple[Any, ...]]


def stream() -> Stream:
    """Three steps; the first number of a sample is its place in the whole, so that a log can name it."""
    rng, steps, place = np.random.default_rng(0), [], 0
    for t, sizes in enumerate(((11, 5), (7, 3), (13, 2))):
        splits = {}
        for name, n in zip(("train", "test"), sizes, strict=True):
            x = rng.normal(size=(n, 3)).astype(np.float32)
            x[:, 0] = np.arange(place, place + n)
            splits[name] = Split(x, rng.integers(0, 5, n), np.array([f"{place + i}" for i in range(n)]), np.full(n, t))
            place += n
        steps.append(Step(t, str(t), splits))
    return Stream("logged", steps, list("abcde"), sha256="logged")


STREAM = stream()


def numbers(x: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in np.asarray(x)[:, 0])


@dataclass
class Diary(Learner):
    """Answers 0 to everything, and writes down what it gets."""

    log: Log = field(default_factory=list)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.log.clear()

    def predict(self, x: Array) -> Labels:
        self.log.append(("asked", numbers(x)))
        return np.zeros(len(x), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.log.append(("taught", numbers(x), tuple(y.tolist())))

    def correct(self, x: Array, y: Labels) -> None:
        self.log.append(("corrected", numbers(x)[0], int(y[0])))


def log_of(protocol: str, **settings: Any) -> Log:
    learner = Diary()
    evaluate(STREAM, protocol, [learner], settings=settings)
    return learner.log


def taught(split: Split) -> tuple[Any, ...]:
    return "taught", numbers(split.x), tuple(split.y.tolist())


def test_clear_teaches_a_step_and_then_tests_all() -> None:
    tests: Log = [("asked", numbers(step["test"].x)) for step in STREAM.steps]
    expected: Log = []  # nothing is asked before: what has learned nothing stands at chance
    for step in STREAM.steps:
        expected += [taught(step["train"]), *tests]
    assert log_of("clear-iid") == expected


def test_clears_streaming_protocol_tests_all_of_later_steps_before_it_teaches_them() -> None:
    log = log_of("clear-streaming")
    asked = {part: {n for what, xs, *_ in log[:part] if what == "asked" for n in xs} for part in range(len(log))}
    lessons = [k for k, entry in enumerate(log) if entry[0] == "taught"]
    assert [sorted(log[k][1]) for k in lessons] == [sorted(numbers(s.everything().x)) for s in STREAM.steps[:2]]
    for t, k in enumerate(lessons):
        after = [xs for what, xs, *_ in log[k + 1 : (lessons + [len(log)])[t + 1]] if what == "asked"]
        assert after == [numbers(step.everything().x) for step in STREAM.steps[t + 1 :]]
    assert not asked[lessons[0]]


@pytest.mark.parametrize("delay", [0, 1, 4])
@pytest.mark.parametrize("wrong", ["", "+wrong:1"])
def test_corrections_come_in_the_order_of_their_errors(delay: int, wrong: str) -> None:
    rules = {"held_out": 2, "scenario": "categorical", "every": 1000}
    log = [
        entry
        for entry in log_of("ocrr", policy=f"delayed:{delay}{wrong}", **rules)
        if len(entry[1:]) > 1 or len(entry[1]) == 1
    ]
    part = Ocrr(**rules).cut(STREAM, 0).stream
    place, truth = numbers(part.x), part.y.tolist()
    expected: Log = []
    for i in range(len(part)):
        due = i - delay
        if delay and due >= 0 and truth[due]:
            expected.append(("corrected", place[due], truth[due]))
        expected.append(("asked", (place[i],)))
        if not delay and truth[i]:
            expected.append(("corrected", place[i], truth[i]))
    log = log[1 : 1 + len(expected)]
    assert [entry[:2] for entry in log] == [entry[:2] for entry in expected]
    same = [a == b for a, b in zip(log, expected, strict=True) if a[0] == "corrected"]
    assert not any(same) if wrong else all(same)


# ---- seq-to-final


def triples(split: Split) -> tuple[tuple[int, int, int], ...]:
    """(time, sample, label) of each, in order."""
    return tuple(zip(split.time.tolist(), numbers(split.x), split.y.tolist(), strict=True))


def sequence() -> Stream:
    """Steps of 16, 10 and 15 samples: four of validation, then training, then three of tests, which the second step has
    not. Times go back within a step; labels are in turn."""
    steps, place = [], 0
    for t, n in enumerate((16, 10, 15)):
        x = np.zeros((n, 3), np.float32)
        x[:, 0] = np.arange(place, place + n)
        ids = np.array([f"{place + i}" for i in range(n)])
        whole = Split(x, np.arange(n) % 2, ids, 100 * t + np.arange(n)[::-1] ** 2)
        cuts = {"train": (4, n - 3), "val": (0, 4)} | ({} if t == 1 else {"test": (n - 3, n)})
        steps.append(Step(t, str(t), {name: whole.part(*cut) for name, cut in cuts.items()}))
        place += n
    return Stream("sequence", steps, ["a", "b"], sha256="sequence")


@dataclass
class Sequenced(Diary):
    """The same, for all steps at once."""

    def learn_sequence(self, steps: Any) -> None:
        assert not any("test" in step.splits for step in steps)
        self.log += [(step.index, triples(step["train"]), triples(step["val"])) for step in steps]


@pytest.mark.parametrize("per_step", [False, True])
def test_seq_to_final_gives_all_steps_in_order_and_then_asks_the_last_tests(per_step: bool) -> None:
    stream, learner = sequence(), Sequenced()
    evaluate(stream, "seq-to-final", [learner], settings={"per_step": per_step, "network": "linear"})
    place, expected = 0, Log()
    for t, sizes in enumerate((16, 10, 15)):  # recounted: places in the stream, squares backwards, labels in turn
        rows = tuple((100 * t + (sizes - 1 - i) ** 2, place + i, i % 2) for i in range(sizes))
        expected.append((t, rows[4:-3], rows[:4]))
        place += sizes
    tests = [("asked", (38, 39, 40))]
    tests += [("asked", (13, 14, 15)), ("asked", (38, 39, 40))] if per_step else []
    assert learner.log == [*expected, *tests]


def test_seq_to_final_teaches_a_learner_of_one_step_after_the_other_their_training_data() -> None:
    stream, learner = sequence(), Diary()
    evaluate(stream, "seq-to-final", [learner], settings={"network": "linear"})
    assert learner.log == [*(taught(step["train"]) for step in stream.steps), ("asked", (38, 39, 40))]


def test_seq_to_final_holds_a_share_of_each_class_of_each_step_back() -> None:
    whole = sequence()
    steps = [replace(s, splits={k: v for k, v in s.splits.items() if k != "val"}) for s in whole.steps]
    stream = replace(whole, steps=steps)
    learner = Sequenced()
    evaluate(stream, "seq-to-final", [learner], settings={"val_share": 0.25, "network": "linear"})
    for (index, train, val), step in zip(learner.log, stream.steps, strict=False):
        rows = triples(step["train"])
        assert train == tuple(row for row in rows if row not in val), index
        assert val == tuple(row for row in rows if row not in train), index
        of_class = [sum(label == c for *_, label in rows) for c in (0, 1)]
        assert [sum(label == c for *_, label in val) for c in (0, 1)] == [max(1, round(n / 4)) for n in of_class]


# ---- corrections


def _head(name: str, **settings: Any) -> Any:
    """A trained linear head with a correction already made, so that its weights are off its anchors."""
    learner: Any = LEARNERS[name](epochs=3, scale="none", correct_lr=0.5, **settings)
    learner.begin(Task(5, (3,)), np.random.default_rng(1))
    rng = np.random.default_rng(2)
    for _ in range(2):
        learner.learn(rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 5, 40))
    learner.correct(np.ones((1, 3), np.float32), np.array([2]))
    return learner


def _weights(learner: Any) -> list[npt.NDArray[np.float64]]:
    return [np.asarray(p.cpu().numpy(), np.float64).copy() for p in learner.head.params]


X, Y = np.array([[0.3, -1.2, 0.7]], np.float32), 4


def _gradient(weights: list[npt.NDArray[np.float64]]) -> list[npt.NDArray[np.float64]]:
    """Of the cross-entropy of the sample, by hand; weights (C, D) and bias (C,)."""
    scores = weights[0] @ X[0] + weights[1]
    off = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    off[Y] -= 1
    return [off[:, None] * X[0], off]


@pytest.mark.parametrize("name", ["finetune", "ewc", "lwf", "agem", "der", "si"])
def test_a_correction_raises_the_probability_of_its_class(name: str) -> None:
    learner = _head(name)
    before = softmax(learner.scores(X), 1)[0, Y]
    learner.correct(X, np.array([Y]))
    assert softmax(learner.scores(X), 1)[0, Y] > before


def test_a_correction_is_one_step_of_sgd() -> None:
    learner = _head("finetune")
    before = _weights(learner)
    learner.correct(X, np.array([Y]))
    for old, new, slope in zip(before, _weights(learner), _gradient(before), strict=True):
        assert new == pytest.approx(old - 0.5 * slope, abs=1e-5)


def test_ewc_pulls_a_correction_towards_its_anchor_by_the_fisher_information() -> None:
    learner = _head("ewc", strength=3.0)
    before, anchor = _weights(learner), learner.anchors[0]
    pulls = [3.0 * f.numpy() * (w - p.numpy()) for f, w, p in zip(anchor.fisher, before, anchor.params, strict=True)]
    assert max(np.abs(pull).max() for pull in pulls) > 1e-3
    learner.correct(X, np.array([Y]))
    for old, new, slope, pull in zip(before, _weights(learner), _gradient(before), pulls, strict=True):
        assert new == pytest.approx(old - 0.5 * (slope + pull), abs=1e-5)
