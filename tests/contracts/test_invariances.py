"""What must change nothing: the numbers of the classes, the ids of the samples, how many test samples are predicted at
once, and how many processes work."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts.test_protocols import SMALL, trained_shortly, vectors

from driftline.curate.core.executor import Executor
from driftline.eval import predictions
from driftline.eval.engine import heads, linear
from driftline.eval.learners import LEARNERS
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Stream

pytestmark = pytest.mark.proof("matrix")

NEW = np.array([2, 0, 5, 1, 3, 4])  # number of each class after renaming; no class has its old one
OLD = np.argsort(NEW)  # and back
MEMORIES = {"memory": 23, "capacity": 23, "si.strength": 0.05, "threshold": 0.4}  # not equal shares
RATES = {"lr": 0.1, "online-linear.lr": 0.01}  # with larger ones, rounding grows to other answers
PROTOCOLS: dict[str, dict[str, Any]] = {"clear-iid": {}, "near-future": SMALL["near-future"], "ocrr": SMALL["ocrr"]}
TIES = "of equally frequent classes it names the lowest"
BY_NUMBER = {  # learner → why the numbers of classes change its answers
    "random": "it draws the number of a class",
    "majority": TIES,
    "blind": TIES,
    "gdumb": "of a memory that the classes do not divide, the lowest ones get the rest",
}
Answer = list[tuple[Any, ...]]


def renamed() -> Stream:
    """The stream with other numbers of classes, in labels, in the list of classes and in the texts about them, and with
    other ids of samples, whose order is another one."""

    def of_split(split: Split) -> Split:
        return replace(split, y=NEW[split.y], ids=np.array([text[::-1] for text in split.ids.tolist()]))

    stream = vectors()
    steps = [replace(s, splits={name: of_split(split) for name, split in s.splits.items()}) for s in stream.steps]
    texts = replace(stream.class_texts, y=NEW[stream.class_texts.y])
    return replace(stream, steps=steps, classes=[stream.classes[old] for old in OLD.tolist()], class_texts=texts)


def rows_of(stream: Stream, protocol: str, **more: Any) -> dict[str, Answer]:
    """Learner → what each test counted and answered."""
    runs: list[Run] = []
    names = [name for name in LEARNERS if not LEARNERS[name].needs.all_steps]
    settings = PROTOCOLS[protocol] | MEMORIES | trained_shortly(protocol) | RATES
    evaluate(stream, protocol, names, seeds=[3], settings=settings, keep_run=runs.append, **more)
    return {run.about["learner"]: answered(run) for run in runs}


def answered(run: Run) -> Answer:
    return [
        (row.tested_on, row.learned_to, row.seen, row.n_correct, () if row.answers is None else row.answers.predicted)
        for row in run.rows
    ]


@cache
def plain(protocol: str) -> dict[str, Answer]:
    return rows_of(vectors(), protocol)


def equal(a: Answer, b: Answer) -> bool:
    """Whether all tests have the same counts and answers."""
    return [row[:4] for row in a] == [row[:4] for row in b] and all(
        np.array_equal(x[4], y[4]) for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_of_classes_and_ids_of_samples_change_no_answer(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class starts from the weights that it had under its old number, since those are drawn by number."""
    first = plain(protocol)
    layer = linear.layer

    def of_old_numbers(outputs: int, *more: Any) -> Any:
        return [p[OLD] if outputs == len(NEW) else p for p in layer(outputs, *more)]

    for module in (linear, heads):
        monkeypatch.setattr(module, "layer", of_old_numbers)
    second = {
        name: [(*row[:4], OLD[np.asarray(row[4], np.int64)]) for row in rows]
        for name, rows in rows_of(renamed(), protocol).items()
    }
    assert set(first) == set(second)
    assert {name for name in first if not equal(first[name], second[name])} <= set(BY_NUMBER)


def test_how_many_test_samples_are_predicted_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plain("clear-iid")
    monkeypatch.setattr(predictions, "CHUNK", 7)
    second = rows_of(vectors(), "clear-iid")
    # The guesses of random are those of places in a batch.
    assert [name for name in first if not equal(first[name], second[name])] == ["random"]


def test_two_processes_have_the_rows_of_one(tmp_path: Path) -> None:
    vectors().save(tmp_path / "stream")
    two = rows_of(Stream.load(tmp_path / "stream"), "clear-iid", out=tmp_path / "out",
                  stream_folder=tmp_path / "stream", executor=Executor(workers=2))  # fmt: skip
    one = plain("clear-iid")
    assert [name for name in one if not equal(one[name], two[name])] == []
