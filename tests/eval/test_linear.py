"""The fast linear head against its slow twin (autograd, DataLoader-like loop) and against scikit-learn."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import blobs, drifting

from driftline.curate.core.errors import Diverged
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.linear import Head, LinearSettings, fit, net_scores
from driftline.eval.learner import Task
from driftline.eval.settings import spec_of


def slow_twin(head: Head, x: np.ndarray, y: np.ndarray, s: LinearSettings, rng: np.random.Generator) -> torch.nn.Linear:
    """What a user would write: nn.Linear, cross entropy, torch.optim."""
    layer = torch.nn.Linear(x.shape[1], len(head.params[1]))
    with torch.no_grad():
        layer.weight.copy_(head.params[0])
        layer.bias.copy_(head.params[1])
    decayed = [
        {"params": [layer.weight], "weight_decay": s.weight_decay},
        {"params": [layer.bias], "weight_decay": 0.0},
    ]
    optimiser: torch.optim.Optimizer = torch.optim.SGD(decayed, lr=s.lr, momentum=s.momentum)
    if s.optimiser == "adamw":  # it decays the bias, too
        optimiser = torch.optim.AdamW(layer.parameters(), lr=s.lr, weight_decay=s.weight_decay, foreach=False)
    for epoch in range(s.epochs):
        for group in optimiser.param_groups:
            group["lr"] = s.lr * (s.decay if epoch >= s.decay_after else 1)
        order = rng.permutation(len(y))
        for start in range(0, len(y), s.batch):
            here = order[start : start + s.batch]
            loss = torch.nn.functional.cross_entropy(layer(torch.from_numpy(x[here])), torch.from_numpy(y[here]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return layer


@settings(deadline=None, max_examples=30)
@given(
    st.integers(3, 90), st.integers(2, 20), st.integers(2, 6), st.integers(1, 40), st.sampled_from([0.0, 0.5]),
    st.sampled_from(["sgd", "adamw"]),
)  # fmt: skip
def test_equals_the_loop_a_user_would_write(n, width, classes, batch, decay, optimiser):
    x, y = blobs(n, width, classes, n)
    head = Head.new(classes, width, rng_for(0))
    s = LinearSettings(lr=0.1, batch=batch, epochs=4, decay_after=2, weight_decay=decay, optimiser=optimiser)
    twin = slow_twin(head, x, y, s, rng_for(1))
    steps = fit(head, x, y, s, rng_for(1))
    assert steps == 4 * -(-n // batch)
    assert torch.allclose(head.params[0], twin.weight, atol=1e-4)
    assert torch.allclose(head.params[1], twin.bias, atol=1e-4)


def test_converged_head_equals_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = blobs(300, 6, 3, 5)
    decay = 0.01
    head = Head.new(3, 6, rng_for(0))
    fit(head, x, y, LinearSettings(lr=1.0, batch=300, epochs=3000, decay_after=3000, weight_decay=decay), rng_for(0))
    peer = LogisticRegression(C=1 / (decay * len(y)), tol=1e-8, max_iter=5000).fit(x, y)
    ours = np.asarray(head.params[0] - head.params[0].mean(0))
    theirs = peer.coef_ - peer.coef_.mean(0)
    assert np.allclose(ours, theirs, atol=5e-3)
    assert (net_scores(head, x).argmax(1) == peer.predict(x)).mean() > 0.995


def test_replay_fills_half_of_every_batch_and_uses_all_of_the_memory() -> None:
    x, y = blobs(64, 4, 2, 0)
    head = Head.new(2, 4, rng_for(0))
    elsewhere = np.full((64, 4), 50, np.float32)
    fit(head, x, y, LinearSettings(lr=0.01, batch=16, epochs=1), rng_for(0), (elsewhere, np.ones(64, np.int64)))
    assert (net_scores(head, elsewhere).argmax(1) == 1).all(), "what is only in the memory was learned"


def test_numbers_that_are_not_finite_stop_the_run_by_name() -> None:
    x, y = blobs(30, 4, 2, 0)
    with pytest.raises(Diverged, match="Lower lr"):
        fit(Head.new(2, 4, rng_for(0)), x * 1e20, y, LinearSettings(lr=1e20, epochs=3), rng_for(0))


def test_training_in_bfloat16_changes_few_predictions() -> None:
    stream = drifting(steps=2, classes=5, n=1000, width=64, noise=2.5)
    train, test = stream.steps[0]["train"], stream.steps[0]["test"]
    answers = []
    for half in (False, True):
        net = Head.new(5, 64, rng_for(0), half=half)
        fit(net, train.x, train.y, LinearSettings(lr=0.1, epochs=30, decay_after=20), rng_for(1))
        assert net.params[0].dtype == torch.float32
        answers.append(net_scores(net, test.x).argmax(1))
    assert 0 <= np.mean(answers[0] != answers[1]) < 0.01
    assert np.mean(answers[1] == test.y) > 0.5


@pytest.mark.parametrize("name", ["joint", "cumulative"])
def test_all_steps_are_one_array_at_most_twice(name: str) -> None:
    """Measured in float64 at once, they were five arrays."""
    steps = drifting(n=8000, width=64, steps=6).steps
    size = sum(step["train"].x.nbytes for step in steps)
    learner: Any = spec_of(f"{name}(epochs=1)")()
    learner.begin(Task(3, (64,), steps=6), rng_for(0))
    learner.train(steps[0]["train"].x[:10], steps[0]["train"].y[:10])  # what is imported at the first training
    learner.length = None
    tracemalloc.start()
    if name == "joint":
        learner.learn_sequence(steps)
    else:
        for step in steps:
            learner.learn_step(step)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * size


def test_parts_are_scaled_and_joined_as_one_array_is() -> None:
    x = rng_for(3).normal(0, 9, (2500, 5)).astype(np.float32)
    made: list[Any] = [spec_of("finetune")() for _ in range(2)]
    whole, parts = made
    for learner in made:
        learner.begin(Task(3, (5,)), rng_for(0))
    whole.measure(x)
    parts.measure(x[:7], x[7:2000], x[2000:])
    assert parts.length == whole.length == float(np.sqrt((x.astype(np.float64) ** 2).sum(1).mean()))
    assert (parts.joined([x[:7], x[7:2000], x[2000:]]) == whole.inputs(x)).all()


@pytest.mark.filterwarnings("error")
def test_read_only_features_are_predicted_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's tests are mapped files: a copy for every prediction would cost as much as the product."""
    head, x = Head.new(3, 8, rng_for(0)), rng_for(1).normal(size=(5, 8)).astype(np.float32)
    expected, seen = net_scores(head, x), []
    monkeypatch.setattr(Head, "scores", lambda self, x, plain=Head.scores: seen.append(x.data_ptr()) or plain(self, x))
    x.flags.writeable = False
    assert np.array_equal(net_scores(head, x), expected)
    assert seen == [x.ctypes.data]
