"""Every method that Avalanche 0.6 has too, against it: same data, same settings, whole accuracy matrices.

`variant="reference"` does what Avalanche does where that is not the method's definition (docs/papers/avalanche.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from eval.integrations import Avalanche
from eval.learner import Learner, Task
from eval.run import evaluate

LR, BATCH, EPOCHS, STEPS, N = 0.1, 32, 12, 5, 160


def theirs(kind: str, **more: Any) -> Avalanche:
    """An Avalanche strategy on a linear head."""

    def make(task: Task) -> Any:
        import avalanche.training.supervised as strategies
        import torch
        from avalanche.evaluation.metrics import accuracy_metrics
        from avalanche.training.plugins import EvaluationPlugin

        model = torch.nn.Sequential()
        model.add_module("classifier", torch.nn.Linear(task.x_shape[0], task.n_classes))
        strategy = getattr(strategies, kind)
        return strategy(
            model=model, optimizer=torch.optim.SGD(model.parameters(), LR, momentum=0.9),
            criterion=torch.nn.CrossEntropyLoss(), train_mb_size=BATCH, train_epochs=EPOCHS,
            evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]), **more,
        )  # fmt: skip

    return Avalanche(kind, make)


def ours(name: str, **more: Any) -> Callable[[], Learner]:
    def make() -> Learner:
        from eval.learners import LEARNERS

        learner: Learner = LEARNERS[name](lr=LR, batch=BATCH, epochs=EPOCHS, decay_after=EPOCHS, scale="none", **more)
        return learner

    return make


@cache
def stream() -> Any:
    return drifting(steps=STEPS, classes=4, n=N, width=16, drift=0.4, noise=2.0)


def matrices(learner: Learner) -> np.ndarray:
    """(seeds, T, T)."""
    found = [evaluate(stream(), "clear-iid", [learner], seeds=[s])["results"][0]["matrix"] for s in range(3)]
    return np.array(found)


PAIRS = {
    "Naive": (theirs("Naive"), ours("finetune")),
    "EWC": (
        theirs("EWC", ewc_lambda=0.4, mode="online", decay_factor=0.1),
        ours("ewc", variant="reference"),
    ),
    "SI": (theirs("SynapticIntelligence", si_lambda=1e-4), ours("si", variant="reference")),
    "LwF": (theirs("LwF", alpha=[0.0, 0.5, 1.0, 1.5, 2.0], temperature=1.0), ours("lwf", weight=2.0, ramp=5)),
    "CWR*": (theirs("CWRStar", cwr_layer_name="classifier"), ours("cwr")),
    "GDumb": (theirs("GDumb", mem_size=N), ours("gdumb", variant="reference")),
    "ER": (theirs("Replay", mem_size=N), ours("er")),
    "A-GEM": (theirs("AGEM", patterns_per_exp=N, sample_size=N), ours("agem", variant="reference", sample=N)),
    "Cumulative": (theirs("Cumulative"), ours("cumulative")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_matrix_is_avalanches_within_seed_noise(name: str) -> None:
    other, mine = PAIRS[name]
    a, b = matrices(other), matrices(mine())
    noise = np.maximum(a.std(0), b.std(0)).mean()
    gap = np.abs(a.mean(0) - b.mean(0)).mean()
    assert gap < max(0.02, 2 * noise), f"{gap:.4f} against noise of {noise:.4f}"


def test_the_papers_ewc_is_not_avalanches() -> None:
    """Their Fisher is so small that the penalty does nothing: EWC equals Naive there [spec: CLEAR, section 3]."""
    naive, reference, strong = (
        matrices(make()) for make in (ours("finetune"), ours("ewc", variant="reference"), ours("ewc", strength=3.0))
    )
    assert np.abs(naive - reference).mean() < 0.02
    assert np.abs(naive - strong).mean() > 0.02


def test_the_reservoir_without_its_shuffle_keeps_half_of_the_first_bucket() -> None:
    """After ten buckets with α = 1: 49 % of bucket 1 in CLEAR's code, 10 % by algorithm 1 [spec: CLEAR, section 3]."""
    from curate.core.seeding import rng_for
    from eval.memory.buffers import biased_reservoir

    share = {}
    for shuffle in (True, False):
        bucket = np.zeros(0, int)
        for t in range(10):
            keep = biased_reservoir(len(bucket), 1000, 1000 * (t + 1), 1000, 1.0, rng_for(t), shuffle)
            bucket = np.concatenate([bucket, np.full(1000, t)])[keep]
        share[shuffle] = float((bucket == 0).mean())
    assert share[False] == pytest.approx(0.49, abs=0.04)
    assert share[True] == pytest.approx(0.10, abs=0.04)
