"""What stays in a memory, and what answers become under other class frequencies: counted by hand or over many draws."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from driftline.eval.learner import Task
from driftline.eval.learners.neighbours import Knn
from driftline.eval.learners.references import Majority
from driftline.eval.memory.samplers import Balanced, Dark, Fifo, balanced, class_reservoirs


def past(labels: list[int], start: int) -> Any:
    """A stream of these labels, whose newest batch begins at `start`."""
    y = np.array(labels)
    return SimpleNamespace(seen=len(y), start=start, y=lambda places: y[places])


def test_a_class_keeps_its_highest_weights() -> None:
    labels, weight = np.array([0, 0, 0, 1, 1, 1]), np.array([0.1, 0.9, 0.5, 0.3, 0.2, 0.8])
    assert class_reservoirs(labels, weight, 4).tolist() == [1, 2, 3, 5]


def test_every_sample_of_a_step_stays_as_often() -> None:
    x, often = np.arange(20)[:, None], Counter[int]()
    for seed in range(200):
        often.update(balanced([], x, np.zeros(20, np.int64), 10, np.random.default_rng(seed))[0][0].ravel().tolist())
    assert len(often) == 20
    assert all(abs(n - 100) < 5 * np.sqrt(50) for n in often.values())


def test_one_of_three_stays_in_a_memory_of_one_with_equal_probability() -> None:
    often = Counter[int]()
    for seed in range(900):
        memory = Dark(1, np.random.default_rng(seed))
        for place in range(3):
            memory.add(torch.tensor([[float(place)]]), torch.tensor([place]), torch.zeros(1, 2))
        often[int(memory.y[0])] += 1
    assert all(abs(often[place] - 300) < 5 * np.sqrt(200) for place in range(3))


def test_a_queue_gives_the_newest() -> None:
    assert Fifo(np.random.default_rng(0)).draw(past([0] * 9, 6), 4).tolist() == [5, 6, 7, 8]


def test_the_largest_class_makes_room() -> None:
    sampler = Balanced(np.random.default_rng(0), memory=4)
    sampler.grow(past([0, 0, 0, 0, 0, 0, 1], 0))
    assert {label: len(places) for label, places in sampler.members.items()} == {0: 3, 1: 1}


def test_a_vote_has_halved_after_a_half_life() -> None:
    learner = Knn(k=3, half_life=2)
    learner.begin(Task(2, (2,)), np.random.default_rng(0))
    x = np.array([[1.0, 0], [0, 1], [1, 0]], np.float32)
    learner.learn(x, np.array([0, 0, 1]))  # the sample of class 0 with the same features is two samples older
    label, sure = learner.predict(x[2:])
    assert (label[0], sure[0]) == (1, pytest.approx(2 / 3, abs=1e-4))


def test_the_majority_is_that_of_all_steps() -> None:
    learner = Majority()
    learner.begin(Task(2, (1,)), np.random.default_rng(0))
    for labels in ([1, 1, 1], [0, 0]):
        learner.learn(np.zeros((len(labels), 1)), np.array(labels))
    answers: Any = learner.predict(np.zeros((2, 1)))
    assert np.asarray(answers[0] if isinstance(answers, tuple) else answers).tolist() == [1, 1]
