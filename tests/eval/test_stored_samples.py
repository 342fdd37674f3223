"""A learner trains on no more past samples than its memory declares, and reports the bytes of all that it stores."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from contracts.test_protocols import vectors
from support.helpers import hinted

from driftline.curate.core.seeding import rng_for
from driftline.eval.history import History, Past
from driftline.eval.learner import APART, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.online import OnlineLearner
from driftline.eval.memory.knn_index import Memory
from driftline.eval.settings import setting_names

STREAM = hinted(vectors())
TRAINS = [step["train"] for step in STREAM.steps]
SAMPLES = np.concatenate([train.x for train in TRAINS]).astype(np.float64)
SAMPLES /= np.linalg.norm(SAMPLES, axis=1, keepdims=True)  # whatever the unit in which a learner stores them
BYTES = TRAINS[0].x[0].nbytes
LIMITS = {"memory": 23, "capacity": 23}
EVERYTHING = {  # learners without a declared limit
    "knn", "knn-lm", "cumulative", "acm", "static-knn", "substrate", "substrate-k1",
    "substrate-sumsim", "substrate-count-only", "substrate-no-recency",
}  # fmt: skip
NAMES = [
    name for name, needs in ((name, LEARNERS[name].needs) for name in LEARNERS)
    if not (needs.all_steps or needs.images or needs.texts or needs.future)
]  # fmt: skip
ON_STREAMS = [n for n in NAMES if not (LEARNERS[n].needs.whole_steps or LEARNERS[n].needs.first_step)]


def begun(name: str, task: Task) -> tuple[Learner, float]:
    """A learner with a small memory, and the past samples that it may hold."""
    names = set(setting_names(LEARNERS[name])) - set(LEARNERS[name]().unused(task))
    small = {key: value for key, value in {**LIMITS, "epochs": 2}.items() if key in names}
    learner: Learner = LEARNERS[name](**small)
    learner.begin(task, rng_for(0, name))
    limit = small.get("memory", small.get("capacity", small.get("support", 0) * task.n_classes))
    return learner, np.inf if name in EVERYTHING else limit


def arrays(value: Any) -> Iterator[Any]:
    """All arrays of floats with rows of the width of a sample, in plain data and objects of driftline."""
    if isinstance(value, torch.Tensor):
        value = value.detach().float().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and value.shape[-1:] == SAMPLES.shape[1:]:
            yield value.reshape(-1, SAMPLES.shape[1]).astype(np.float64)
    elif isinstance(value, Memory):  # the rest of its blocks is not written yet
        yield from arrays([block[: value.n] for block in value.blocks])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from arrays(part)
    elif isinstance(value, dict):
        yield from arrays(list(value.values()))
    elif type(value).__module__.startswith("driftline.eval."):
        yield from arrays({key: part for key, part in getattr(value, "__dict__", {}).items() if key not in APART})


def stored(learner: Learner) -> set[int]:
    """Numbers of the training samples that it holds, in any scale."""
    numbers: set[int] = set()
    for rows in arrays(learner):
        filled = rows[np.linalg.norm(rows, axis=1) > 0]
        cosines = filled @ SAMPLES.T / np.linalg.norm(filled, axis=1, keepdims=True)
        numbers |= set(np.flatnonzero((cosines > 1 - 1e-6).any(0)).tolist())
    return numbers


def test_no_two_samples_are_one_in_another_scale() -> None:
    assert (SAMPLES @ SAMPLES.T > 1 - 1e-5).sum() == len(SAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_between_steps_a_learner_holds_its_memory_and_reports_its_bytes(name: str) -> None:
    learner, limit = begun(name, Task(6, (8,), 4, class_texts=STREAM.class_texts))
    for step in STREAM.steps[:3]:
        learner.learn_step(step.visible())
        held = stored(learner)
        assert learner.stored_bytes() >= len(held) * BYTES
        # Without a stream to read from, an online head stores all batches, and draws from its memory: see below.
        assert len(held) <= limit or isinstance(learner, OnlineLearner)
    before = stored(learner)
    if not LEARNERS[name].needs.whole_steps:
        learner.correct(TRAINS[3].x[:1], TRAINS[3].y[:1])
        correction = len(TRAINS[0]) * 3
        assert len(stored(learner) - {correction}) <= limit or isinstance(learner, OnlineLearner)
    assert bool(before) == bool(limit) or isinstance(learner, OnlineLearner)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Positions before the newest batch that were read from the past."""
    positions: set[int] = set()
    read = Past.x

    def spy(past: Past, at: Any) -> Any:
        positions.update(number for number in np.asarray(at).tolist() if number < past.start)
        return read(past, at)

    monkeypatch.setattr(Past, "x", spy)
    return positions


@pytest.mark.parametrize("name", ON_STREAMS)
def test_on_a_stream_a_learner_reads_its_memory_and_reports_its_bytes(name: str, reads: set[int]) -> None:
    learner, limit = begun(name, Task(6, (8,), batch=10, updates=4.0, class_texts=STREAM.class_texts))
    history = History(TRAINS[:3])
    edges = [0, *range(60, len(history) + 1, 10)]  # a mean of one sample would be taken for the sample
    for start, end in pairwise(edges):
        reads.clear()
        learner.learn_from(history.past(start, end))
        older = {number for number in reads | stored(learner) if number < start}
        assert len(older) <= (30 if name == "overadapt" else limit)  # a queue as long as its four updates need
        assert learner.stored_bytes() >= max(len(reads), len(stored(learner))) * BYTES


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(LEARNERS[name], OnlineLearner)])
def test_without_a_stream_an_online_head_reads_its_memory(name: str, reads: set[int]) -> None:
    learner, limit = begun(name, Task(6, (8,)))
    for train in TRAINS:
        for start in range(0, len(train), 10):
            reads.clear()
            learner.learn(train.x[start : start + 10], train.y[start : start + 10])
            assert len(reads) <= limit or name == "overadapt"  # for which no memory but a queue is declared
