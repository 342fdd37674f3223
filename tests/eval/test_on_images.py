"""Networks on images under near-future, where steps have very different sizes."""

from typing import Any

import numpy as np
import pytest
import torch

from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.settings import spec_of
from driftline.eval.learner import Task
from driftline.eval.learners.closed_forms import NearestMean
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

NET = "test_resnet"  # of timm: 0.5 million parameters


def uneven() -> Stream:
    """Case 36: steps of very different size, the second of one class."""
    rng, steps, past = rng_for(0, "uneven"), [], 0
    for t, n in enumerate((60, 3, 1, 20, 2)):
        splits = {}
        for name in ("train", "test"):
            y = np.zeros(n, np.int64) if t == 1 else np.arange(n, dtype=np.int64) % 3
            x = rng.integers(60, 130, (n, 16, 16, 3))
            x[np.arange(n), :, :, y] += 60
            splits[name] = Split(
                x.astype(np.uint8), y, np.array([f"{t}{name}{i}" for i in range(n)]), np.arange(n) + past
            )
        past += n
        steps.append(Step(t, str(t), splits))
    return Stream("uneven", steps, list("abc"), sha256="uneven")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("batch", [8, 59, 64, 85])
@pytest.mark.parametrize("spec", [f"finetune(net={NET})", f"er-online(net={NET})"])
def test_near_future_ends_on_steps_of_very_different_size(spec: str, batch: int) -> None:
    """Batches with the ends of three steps, of one class, a last one of one image or two, and one of nearly all."""
    results = evaluate(uneven(), "near-future", [spec], settings={"batch": batch, "shift": 0, "prefix": 0, "lr": 0.01})
    assert not results["skipped"]
    (result,) = results["results"]
    assert all(0 <= score["mean"] <= 1 for score in result["scores"].values())
    cells = np.array(result["matrix"], float)
    assert np.isfinite(cells[np.tril_indices(5)]).all()
    assert result["gradient_steps"] == -(-86 // batch)


def test_steps_that_end_with_one_batch_are_tested_once_each() -> None:
    """The model is the same: 5,000, 3 and 1 samples were tested three times."""
    asked: list[int] = []

    class Asked(NearestMean):
        def predict(self, x: Any) -> Any:
            asked.append(len(x))
            return np.zeros(len(x), np.int64)

    settings = {"batch": 64, "shift": 0, "prefix": 0}
    (result,) = evaluate(uneven(), "near-future", [Asked], settings=settings)["results"]
    assert [n for n in asked if n in (60, 3, 1, 20, 2)] == [60, 3, 1, 60, 3, 1, 20, 2]
    assert np.isfinite(np.array(result["matrix"], float)[np.tril_indices(5)]).all()


@pytest.mark.parametrize(
    ("spec", "whole"), [("finetune", True), ("er-online", True), ("ace", True), ("cosine-fc", True), ("fc-only", False)]
)
def test_what_the_papers_train_whole_moves_every_tensor(spec: str, whole: bool) -> None:
    """Figure 6 of near-future accuracy: CosineFC replaces the classifier of ER, and FC-Only trains it alone."""
    learner = spec_of(f"{spec}(net={NET},lr=0.1)")()
    first = uneven().steps[0]["train"]
    learner.begin(Task(3, (16, 16, 3), None, 20, 1.0), rng_for(0))
    tensors = list(learner.head.module.named_parameters())  # type: ignore[attr-defined]
    before = [tensor.detach().clone() for _, tensor in tensors]
    for start in range(0, 60, 20):
        learner.learn(first.x[start : start + 20], first.y[start : start + 20])
    moved = [name for (name, tensor), old in zip(tensors, before, strict=True) if not torch.equal(tensor, old)]
    assert len(moved) == (len(tensors) if whole else 2)
