"""Each method's gradient against autograd of its own equation; each mechanism against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import drifting

from curate.ground.errors import BadConfig
from curate.ground.rng import rng_for
from eval.engine.linear import Head, data_gradient
from eval.learner import Task
from eval.learners.agem import Project
from eval.learners.cwr import Cwr
from eval.learners.ewc import Anchor, Ewc, Penalty, fisher, fisher_of_batches
from eval.learners.finetune import Finetune
from eval.learners.gdumb import Gdumb
from eval.learners.lwf import Distil, Lwf
from eval.learners.reservoir import Reservoir
from eval.learners.si import Path, Si
from eval.run import evaluate

N, D, C = 40, 5, 3


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = rng_for(0, "methods")
    return torch.from_numpy(rng.normal(size=(N, D)).astype(np.float32)), torch.from_numpy(rng.integers(C, size=N))


def head(seed: int) -> Head:
    return Head.new(C, D, rng_for(seed))


def by_autograd(at: Head, loss_of: object) -> tuple[torch.Tensor, torch.Tensor]:
    w, b = at.weights.clone().requires_grad_(), at.bias.clone().requires_grad_()
    loss_of(w, b).backward()  # type: ignore[operator]
    assert w.grad is not None
    assert b.grad is not None
    return w.grad, b.grad


def close(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> bool:
    return all(torch.allclose(p, q, atol=1e-5) for p, q in zip(a, b, strict=True))


def cross_entropy(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(x @ w.T + b, y)


def test_the_datas_gradient(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    now = head(1)
    assert close(data_gradient(now, *batch), by_autograd(now, lambda w, b: cross_entropy(*batch, w, b)))


class TestEwc:
    def test_fisher_is_the_mean_of_squared_single_sample_gradients(
        self, batch: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        x, y = batch
        now = head(1)
        squares = [
            by_autograd(now, lambda w, b, i=i: cross_entropy(x[i : i + 1], y[i : i + 1], w, b)) for i in range(N)
        ]
        slow = tuple(torch.stack([s[k] ** 2 for s in squares]).mean(0) for k in (0, 1))
        assert close(fisher(now, x, y), slow)  # type: ignore[arg-type]

    def test_avalanches_fisher_is_far_smaller(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = torch.randn(2048, D, generator=torch.Generator().manual_seed(0)), torch.arange(2048) % C
        now = head(1)
        ratio = fisher(now, x, y)[0].sum() / fisher_of_batches(now, x, y, 256)[0].sum()
        assert ratio > 20, "squared means of 256 samples are about 256 times smaller where the mean is near zero"

    def test_the_penaltys_gradient(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = batch
        now, old = head(1), head(2)
        fw, fb = fisher(old, x, y)
        rule = Penalty([Anchor(old.weights, old.bias, fw, fb)], 0.7)

        def loss(w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            pull = (fw * (w - old.weights) ** 2).sum() + (fb * (b - old.bias) ** 2).sum()
            return cross_entropy(x, y, w, b) + 0.7 / 2 * pull

        assert close(rule.gradient(now, *data_gradient(now, x, y), x, y), by_autograd(now, loss))

    def test_online_keeps_one_anchor_and_separate_one_a_step(self) -> None:
        stream = drifting()
        for mode, anchors in (("online", 1), ("separate", 4)):
            learner = Ewc(mode=mode, epochs=2)
            learner.begin(Task(3, (8,)), rng_for(0))
            for step in stream.steps:
                learner.learn_step(step.visible())
            assert len(learner.anchors) == anchors

    def test_a_strong_pull_keeps_the_past(self) -> None:
        stream = drifting(steps=4, n=300, drift=1.5, noise=1.5)
        found = evaluate(stream, "clear-iid", [Finetune(epochs=30), Ewc(epochs=30, strength=10.0)])
        finetune, ewc = (r["scores"]["backward"]["mean"] for r in found["results"])
        assert ewc > finetune


class TestSi:
    def test_the_penaltys_gradient(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        now, old = head(1), head(2)
        rule = Path(old, torch.full((C, D), 0.3), torch.full((C,), 0.2), 0.5)

        def loss(w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            pull = (0.3 * (w - old.weights) ** 2).sum() + (0.2 * (b - old.bias) ** 2).sum()
            return cross_entropy(*batch, w, b) + 0.5 * pull

        assert close(rule.gradient(now, *data_gradient(now, *batch), *batch), by_autograd(now, loss))

    def test_the_path_integral_is_what_the_loss_fell_by(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Small steps: −Σ g · Δθ approaches the loss before minus the loss after [equation 1]."""
        now = head(1)
        before = cross_entropy(*batch, now.weights, now.bias)
        rule = Path(now.copy(), torch.zeros(C, D), torch.zeros(C), 0.0)
        for _ in range(400):
            dw, db = data_gradient(now, *batch)
            now.weights.add_(dw, alpha=-0.005)
            now.bias.add_(db, alpha=-0.005)
            rule.moved(dw, db, -0.005 * dw, -0.005 * db)
        fell = before - cross_entropy(*batch, now.weights, now.bias)
        assert float(rule.path_w.sum() + rule.path_b.sum()) == pytest.approx(float(fell), rel=0.01)

    def test_it_is_no_no_op(self) -> None:
        """The same data, order and start: important weights move less than without it."""
        stream = drifting(steps=2, n=200, drift=1.5, noise=1.5)
        moved = []
        for learner in (Finetune(epochs=20, lr=0.05), Si(epochs=20, lr=0.05, strength=1.0)):
            learner.begin(Task(3, (8,)), rng_for(0))
            learner.learn_step(stream.steps[0])
            before = learner.head.weights.clone()
            learner.learn_step(stream.steps[1])
            moved.append(float((learner.head.weights - before).norm()))
        assert moved[1] < 0.9 * moved[0]


class TestLwf:
    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_the_distillations_gradient(self, batch: tuple[torch.Tensor, torch.Tensor], temperature: float) -> None:
        x, y = batch
        now, teacher = head(1), head(2)

        def loss(w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            student = torch.log_softmax((x @ w.T + b) / temperature, 1)
            target = torch.softmax((x @ teacher.weights.T + teacher.bias) / temperature, 1)
            kl = torch.nn.functional.kl_div(student, target, reduction="batchmean")
            return cross_entropy(x, y, w, b) + 1.5 * temperature**2 * kl

        rule = Distil(teacher, 1.5, temperature)
        assert close(rule.gradient(now, *data_gradient(now, x, y), x, y), by_autograd(now, loss))

    def test_the_first_step_has_no_teacher_and_the_tenth_the_full_weight(self) -> None:
        learner = Lwf(epochs=1)
        learner.begin(Task(3, (8,)), rng_for(0))
        plain = Finetune(epochs=1)
        plain.begin(Task(3, (8,)), rng_for(0))
        step = drifting().steps[0]
        learner.learn_step(step)
        plain.learn_step(step)
        assert torch.equal(learner.head.weights, plain.head.weights)


class TestAgem:
    def test_the_projection_never_points_against_the_memory(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = batch
        now = head(1)
        now.weights.zero_()
        rule = Project(-x, y, sample=N, rng=rng_for(0))
        dw, db = data_gradient(now, x, y)
        rw, rb = data_gradient(now, -x, y)
        assert float((dw * rw).sum() + (db * rb).sum()) < 0, "the two disagree"
        pw, pb = rule.gradient(now, dw, db, x, y)
        assert float((pw * rw).sum() + (pb * rb).sum()) == pytest.approx(0, abs=1e-5)

    def test_agreement_is_left_alone(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        now = head(1)
        dw, db = data_gradient(now, *batch)
        assert close(Project(*batch, sample=N, rng=rng_for(0)).gradient(now, dw, db, *batch), (dw, db))


def test_cwr_star_merges_by_how_often_a_class_was_seen() -> None:
    learner = Cwr(epochs=3)
    learner.begin(Task(2, (1,)), rng_for(0))
    x = np.array([[1.0], [-1.0], [1.0], [-1.0]], np.float32)
    learner.learn(x, np.array([0, 1, 0, 1]))
    first = learner.consolidated.clone()
    assert float(first.mean()) == pytest.approx(0, abs=1e-6), "the mean over all weights is taken away"
    learner.learn(x[:1].repeat(8, 0), np.zeros(8, np.int64))
    assert torch.equal(learner.consolidated[1], first[1]), "a class that is not there keeps its weights"
    assert learner.past.tolist() == [10, 2]


def test_gdumb_trains_on_its_memory_alone_from_new_weights() -> None:
    stream = drifting(steps=2, n=60)
    learner = Gdumb(epochs=3, memory=12)
    learner.begin(Task(3, (8,)), rng_for(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
    assert np.bincount(learner.y, minlength=3).tolist() == [4, 4, 4]
    assert learner.gradient_steps == 2 * 3


def test_the_reservoirs_alpha_is_checked() -> None:
    learner = Reservoir(alpha="dynamik:1")
    learner.begin(Task(3, (8,)), rng_for(0))
    with pytest.raises(BadConfig, match=r"alpha is 'dynamik:1'\. Expected a number from 0, or dynamic:NUMBER"):
        learner.learn_step(drifting().steps[0])


def test_dynamic_one_is_the_newest_bucket_so_reservoir_equals_scratch_on_one_bucket() -> None:
    stream = drifting(steps=3, n=60)
    learner = Reservoir(alpha="dynamic:1.0", start="scratch", epochs=2)
    learner.begin(Task(3, (8,)), rng_for(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
    newest = {row.tobytes() for row in stream.steps[-1]["train"].x}
    assert {row.tobytes() for row in learner.x} == newest
