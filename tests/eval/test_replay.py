"""DER, DER++ and iCaRL against literal transcriptions."""

from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import drifting
from torch.nn.functional import cross_entropy, mse_loss

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.linear import Head, LinearSettings, step
from driftline.eval.learner import Task
from driftline.eval.learners.replay import Icarl, Remember, herded
from driftline.eval.memory.samplers import Dark
from driftline.eval.run import evaluate

STREAM = drifting()
TRAIN, TEST = STREAM.steps[0]["train"], STREAM.steps[0]["test"]
NAMES = ["der", "der++"]


def head() -> Head:
    return Head.new(3, 8, rng_for(3))


def filled(n: int = 12) -> Dark:
    """A memory of n samples with scores of another head."""
    memory = Dark(n, rng_for(1))
    x = torch.from_numpy(TRAIN.x[:n])
    memory.add(x, torch.from_numpy(TRAIN.y[:n]), Head.new(3, 8, rng_for(9)).scores(x))
    return memory


def batch() -> tuple[Any, Any]:
    return torch.from_numpy(TRAIN.x[20:30]), torch.from_numpy(TRAIN.y[20:30])


class TestDark:
    def test_it_is_algorithm_r_in_any_portions(self) -> None:
        counts = np.zeros(40)
        for seed in range(300):
            memory = Dark(5, rng_for(seed))
            for low in range(0, 40, 8):
                numbers = torch.arange(low, low + 8)
                memory.add(numbers[:, None].float(), numbers, torch.zeros(8, 1))
            assert len(set(memory.y.tolist())) == 5
            counts[memory.y.numpy()] += 1
        assert abs(counts[:8].mean() - counts[-8:].mean()) < 8  # 37.5 expected for all

    def test_until_it_is_full_it_keeps_everything(self) -> None:
        memory = filled()
        assert len(memory) == 12
        assert (memory.x.numpy() == TRAIN.x[:12]).all()


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_der_is_the_gradient_of_its_loss(beta: float) -> None:
    """Buzzega et al. 2020, algorithms 1 and 2, by autograd; the same draws of the memory."""
    net, memory, twin = head(), filled(), filled()
    x, y = batch()
    weights = [p.clone().requires_grad_() for p in net.params]

    def scores(inputs: Any) -> Any:
        return inputs @ weights[0].T + weights[1]

    past, _, stored = twin.draw(len(y))
    loss = cross_entropy(scores(x), y) + 0.4 * mse_loss(scores(past), stored)
    if beta:
        past, labels, _ = twin.draw(len(y))
        loss = loss + beta * cross_entropy(scores(past), labels)
    loss.backward()
    grads = Remember(memory, 0.4, beta).gradient(net, net.data_gradient(x, y), x, y)
    assert all(torch.allclose(g, w.grad, atol=1e-5) for g, w in zip(grads, weights, strict=True))


def test_der_stores_the_scores_from_before_the_update() -> None:
    net, memory = head(), Dark(100, rng_for(0))
    x, y = batch()
    before = net.scores(x).clone()
    step(net, x, y, 1.0, LinearSettings(), Remember(memory, 0.5, 0.0))
    assert torch.allclose(memory.scores[:10], before)
    assert not torch.allclose(net.scores(x), before)


def test_herding_is_algorithm_4() -> None:
    x = TRAIN.x[:20] / np.linalg.norm(TRAIN.x[:20], axis=1, keepdims=True)
    mean, chosen = x.mean(0), []
    for k in range(1, 8):
        distances = [
            np.inf if i in chosen else np.linalg.norm(mean - (x[[*chosen, i]]).sum(0) / k) for i in range(len(x))
        ]
        chosen.append(int(np.argmin(distances)))
    assert herded(x, mean.astype(np.float64), 7).tolist() == chosen


def test_icarl_keeps_its_memory_and_answers_with_the_nearest_mean_of_exemplars() -> None:
    learner = Icarl(memory=12)
    learner.begin(Task(3, (8,)), rng_for(0))
    two = TRAIN.y < 2
    learner.learn(TRAIN.x[two], TRAIN.y[two])
    assert [len(e) for e in learner.exemplars] == [6, 6, 0]
    first = learner.exemplars[0].copy()
    learner.learn(TRAIN.x[~two], TRAIN.y[~two])
    assert [len(e) for e in learner.exemplars] == [4, 4, 4]
    assert (learner.exemplars[0] == first[:4]).all()  # the best ones stay
    means = np.stack([e.mean(0) for e in learner.exemplars])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    x = TEST.x / np.linalg.norm(TEST.x, axis=1, keepdims=True)
    nearest = np.linalg.norm(x[:, None] - means, axis=2).argmin(1)
    assert (learner.predict(TEST.x) == nearest).all()


def test_replay_forgets_less_than_finetuning() -> None:
    """The published finding: DER++ keeps old tasks that plain finetuning forgets [Buzzega et al. 2020]. Here
    each step has one class of its own."""
    steps = []
    for k, old in enumerate(drifting(steps=3, drift=0.0).steps):
        train = old["train"].take(np.flatnonzero(old["train"].y == k))
        steps.append(type(old)(k, str(k), {"train": train, "test": old["test"]}))
    apart = type(STREAM)("apart", steps, STREAM.classes, sha256="apart")
    found = evaluate(apart, "clear-iid", ["finetune", *NAMES, "icarl"], settings={"epochs": 20, "batch": 16})
    last = {result["learner"]: result["matrix"][-1][-1] for result in found["results"]}
    assert all(last[name] > last["finetune"] + 0.2 for name in (*NAMES, "icarl")), last
