"""Other people's code under our protocols: it repeats by seed, sees no test, and learns."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from support.helpers import drifting

from driftline.curate.core.seeding import rng_for
from driftline.eval.integrations import Avalanche, River, Sklearn, Torch
from driftline.eval.learner import Learner, Task
from driftline.eval.run import evaluate


def network(task: Task) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(task.x_shape)), task.n_classes))


def naive(task: Task) -> object:
    from avalanche.evaluation.metrics import accuracy_metrics
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    model = network(task)
    quiet = EvaluationPlugin(accuracy_metrics(stream=True), loggers=[])
    return Naive(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), train_mb_size=16, train_epochs=5,
                 evaluator=quiet)  # fmt: skip


def replay(task: Task) -> object:
    from avalanche.training.plugins import ReplayPlugin

    made = naive(task)
    made.plugins.append(ReplayPlugin(40))  # type: ignore[attr-defined]
    return made


def learners() -> list[Learner]:
    from river.linear_model import LogisticRegression
    from river.multiclass import OneVsRestClassifier
    from sklearn.linear_model import SGDClassifier

    return [
        Sklearn("sgd", SGDClassifier(loss="log_loss"), epochs=3),
        River("one-vs-rest", lambda: OneVsRestClassifier(LogisticRegression())),
        Torch("linear", network, functools.partial(torch.optim.SGD, lr=0.1), epochs=5, batch=16),
        Avalanche("naive", naive),
        Avalanche("replay", replay),
    ]


@pytest.mark.parametrize("learner", learners(), ids=lambda one: one.name)
def test_it_learns_under_the_protocol_and_repeats_by_its_seed(learner: Learner) -> None:
    stream = drifting(steps=3, drift=0.1)
    first = evaluate(stream, "clear-iid", [learner, "majority"], seeds=[0, 1])
    assert not first["skipped"]
    by = {r["learner"]: r for r in first["results"]}
    mine = by[learner.name]  # type: ignore[attr-defined]
    assert mine["scores"]["in_domain"]["mean"] > by["majority"]["scores"]["in_domain"]["mean"] + 0.2
    assert mine["stored_bytes"] > 0
    again = evaluate(stream, "clear-iid", [learner], seeds=[0, 1])["results"][0]
    assert again["scores"] == mine["scores"]


def test_images_reach_a_module_channels_first() -> None:
    shapes = []

    class Looks(torch.nn.Module):
        def __init__(self, task: Task) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, task.n_classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shapes.append((tuple(x.shape[1:]), float(x.max())))
            return self.head(x.mean((2, 3)))

    learner = Torch("looks", Looks, functools.partial(torch.optim.SGD, lr=0.1))
    learner.begin(Task(2, (6, 5, 3)), rng_for(0))
    learner.learn(np.full((4, 6, 5, 3), 255, np.uint8), np.array([0, 1, 0, 1]))
    assert set(shapes) == {((3, 6, 5), 1.0)}


def test_a_loss_that_explodes_is_named_and_the_others_go_on() -> None:
    explodes = Torch("explodes", network, functools.partial(torch.optim.SGD, lr=1e38), epochs=3)
    found = evaluate(drifting(steps=2), "clear-iid", [explodes, "majority"])
    assert [r["learner"] for r in found["results"]] == ["majority"]
    assert "explodes is not finite" in found["skipped"][0]["because"]


def test_a_pass_over_a_batch_counts_as_an_update_and_the_budget_says_how_many() -> None:
    from river.linear_model import LogisticRegression
    from river.multiclass import OneVsRestClassifier
    from sklearn.linear_model import SGDClassifier

    wrapped = [
        Sklearn("any number", SGDClassifier()),
        River("one pass", lambda: OneVsRestClassifier(LogisticRegression())),
    ]
    found = evaluate(drifting(), "near-future", wrapped, settings={"batch": 20, "shift": 20, "updates": 5})
    five, one = (result["budget"] for result in found["results"])
    assert five == {"updates_paid": 60, "updates_taken": 60}
    assert one == {"updates_paid": 60, "updates_taken": 12, "underspent": 0.2}


def test_an_estimator_that_cannot_learn_in_parts_is_refused() -> None:
    from sklearn.svm import SVC

    (skipped,) = evaluate(drifting(steps=2), "clear-iid", [Sklearn("svc", SVC())])["skipped"]
    assert skipped["because"].startswith("SVC has no partial_fit.")
