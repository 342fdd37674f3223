"""Online learners: updates against torch's own, losses against autograd, samplers against their definitions."""

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import correlated

from driftline.curate.core.errors import Diverged
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.deep import planes
from driftline.eval.engine.heads import Cosine, Wide
from driftline.eval.history import History, Past
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.neighbours import Acm, votes
from driftline.eval.learners.online import Ace, FcOnly
from driftline.eval.learners.references import Blind
from driftline.eval.memory.samplers import SAMPLERS
from driftline.eval.predictions import answers
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split

N, D, C = 32, 10, 7
STREAM = correlated()
TRAIN = STREAM.flat("train")


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = rng_for(seed, "batch")
    return torch.from_numpy(rng.normal(size=(N, D)).astype(np.float32)), torch.from_numpy(rng.integers(C, size=N))


def plain(head: Wide, momentum: float, decay: float) -> tuple[torch.nn.Linear, torch.optim.SGD]:
    """The loop that a user would write."""
    linear = torch.nn.Linear(D, C)
    with torch.no_grad():
        linear.weight.copy_(head.weights)
        linear.bias.copy_(head.bias)
    return linear, torch.optim.SGD(linear.parameters(), lr=0.3, momentum=momentum, weight_decay=decay)


class TestWide:
    @pytest.mark.parametrize("kernel", ["on", "off"])
    @pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.0, 0.01), (0.9, 0.01)])
    def test_float32_equals_linear_and_sgd(self, momentum, decay, kernel, monkeypatch):
        monkeypatch.setenv("DRIFTLINE_KERNEL", kernel)
        monkeypatch.setattr("driftline.eval.engine.heads.PART", 3)  # classes at a time
        head = Wide.new(C, D, rng_for(0), "cpu", momentum > 0, half=False)
        linear, optimiser = plain(head, momentum, decay)
        for t in range(30):
            x, y = batch(t)
            assert torch.equal(head.scores(x).argmax(1), linear(x).argmax(1))
            torch.nn.functional.cross_entropy(linear(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
            with torch.no_grad():
                head.update(x, y, 0.3, momentum, decay)
        assert torch.allclose(head.weights, linear.weight, atol=2e-6)
        assert torch.allclose(head.bias, linear.bias, atol=2e-6)

    @pytest.mark.parametrize("kernel", ["on", "off"])
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_bfloat16_stays_near_and_its_copy_is_the_weights_rounded(self, momentum, kernel, monkeypatch):
        monkeypatch.setenv("DRIFTLINE_KERNEL", kernel)
        monkeypatch.setattr("driftline.eval.engine.heads.PART", 3)
        whole, half = (Wide.new(C, D, rng_for(0), "cpu", momentum > 0, h) for h in (False, True))
        with torch.no_grad():
            for t in range(20):
                for head in (whole, half):
                    head.update(*batch(t), 0.1, momentum, 0.01)
        assert 0 < float((whole.weights - half.weights).norm() / whole.weights.norm()) < 0.02
        assert torch.equal(half.rounded, half.weights.bfloat16())

    def test_a_masked_class_is_not_pushed(self) -> None:
        x, y = batch()
        y = y % 3
        masked = torch.zeros(N, C, dtype=torch.bool)
        masked[:, 3:] = True
        head = Wide.new(C, D, rng_for(0), "cpu", False, False)
        before = head.weights.clone()
        params = [head.weights.clone().requires_grad_(), head.bias.clone().requires_grad_()]
        scores = (x @ params[0].T + params[1]).masked_fill(masked, -1e9)
        torch.nn.functional.cross_entropy(scores, y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            head.update(x, y, 1.0, 0.0, 0.0, masked)
        assert torch.equal(head.weights[3:], before[3:])
        assert torch.allclose(head.weights, before - params[0].grad, atol=1e-6)

    def test_what_is_not_finite_is_named(self) -> None:
        x, y = batch()
        x[0, 0] = torch.inf
        with pytest.raises(Diverged, match="Lower lr"):
            Wide.new(C, D, rng_for(0), "cpu", False, False).update(x, y, 0.1, 0.0, 0.0)


@pytest.mark.parametrize(("momentum", "half"), [(0.0, False), (0.9, True)])
def test_scores_are_taken_over_for_the_same_batch_only(momentum: float, half: bool) -> None:
    """Bit by bit what a head does that predicts nothing."""
    (x, y), (other, labels) = batch(), batch(1)
    one, two = (Wide.new(C, D, rng_for(0), "cpu", momentum > 0, half) for _ in range(2))
    masked = torch.zeros((N, C), dtype=torch.bool)
    masked[:, 3] = True
    for predicted, learned, truth in ((x, x, y), (x, other, labels), (other, other, labels), (None, other, labels)):
        if predicted is not None:
            shown = one.scores(predicted, learned_next=True)
            before = shown.clone()
        for head in (one, two):
            head.update(learned, truth, 0.3, momentum, 0.01, masked)
        assert torch.equal(shown, before)
        assert torch.equal(one.weights, two.weights)
        assert torch.equal(one.bias, two.bias)


def test_a_queue_predicts_and_learns_a_batch_by_one_forward_product(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    scores = Wide.scores

    def counted(self: Wide, x: torch.Tensor, learned_next: bool = False) -> Any:
        rows.append(0 if learned_next else len(x))
        return scores(self, x, learned_next)

    monkeypatch.setattr(Wide, "scores", counted)
    whole = History([TRAIN])
    for name, again in (("overadapt", 0), ("er-online", 16)):
        learner = LEARNERS[name]()
        learner.begin(Task(len(STREAM.classes), TRAIN.x.shape[1:], batch=16, updates=1), rng_for(0))
        for t in range(3):
            rows.clear()
            learner.predict(whole.x(np.r_[16 * t : 16 * t + 16, 100:120]))  # also what comes later
            learner.learn_from(whole.past(16 * t, 16 * t + 16))
            if t:  # before, the scale of the inputs is not known
                assert sum(rows) == 16 + 20 + again, name


def test_the_gradient_of_angles_is_autograds() -> None:
    x, y = batch()
    head = Cosine.new(C, D, rng_for(0), "cpu")
    weights, sigma = head.weights.clone().requires_grad_(), head.sigma.clone().requires_grad_()
    cosines = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(weights).T
    torch.nn.functional.cross_entropy(sigma * cosines, y).backward()  # type: ignore[no-untyped-call]
    before = head.weights.clone(), head.sigma.clone()
    with torch.no_grad():
        head.update(x, y, 1.0, 0.0, 0.0)
    assert torch.allclose(before[0] - head.weights, weights.grad, atol=1e-6)
    assert torch.allclose(before[1] - head.sigma, sigma.grad, atol=1e-6)


def test_ace_excludes_classes_that_the_newest_batch_lacks() -> None:
    learner = Ace()
    learner.begin(Task(5, (D,), None, 4, 1), rng_for(0))
    masked = learner.masked(np.array([True, False, True]), np.array([1, 3]))
    assert masked.tolist() == [[True, False, True, False, True], [False] * 5, [True, False, True, False, True]]


def test_an_update_of_ace_follows_its_two_losses() -> None:
    """Caccia et al. 2022: cross-entropy of replayed samples over all classes, and of incoming ones over the incoming
    classes alone; here on the mean of all samples, as both parts have as many in the paper."""
    learner = Ace(lr=0.5, momentum=0.0, weight_decay=0.0, scale="none", batch=N)  # type: ignore[arg-type]
    learner.begin(Task(C, (D,), None, N, 1), rng_for(0))
    weights, bias = (p.clone().requires_grad_() for p in (learner.wide.weights, learner.wide.bias))
    x, y = batch()
    incoming, new = torch.arange(N) >= N // 2, [0, 2, 5]
    y[incoming] = torch.tensor(new)[y[incoming] % 3]
    scores = x @ weights.T + bias
    own = torch.nn.functional.one_hot(y[incoming], C)[:, new].argmax(1)
    parts = [
        torch.nn.functional.cross_entropy(scores[~incoming], y[~incoming]),
        torch.nn.functional.cross_entropy(scores[incoming][:, new], own),
    ]
    (sum(parts) / 2).backward()  # type: ignore[union-attr]
    learner.measure(x.numpy())
    learner._update(x.numpy(), y.numpy(), incoming.numpy(), np.array(new))
    for moved, start in ((learner.wide.weights, weights), (learner.wide.bias, bias)):
        assert torch.allclose(moved, start - 0.5 * start.grad, atol=1e-6)


class TestBlind:
    @given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.integers(1, 12))
    def test_it_is_the_mode_of_the_last_k(self, y: list[int], k: int) -> None:
        from driftline.stream_builder.measures.label_correlation import modes

        learner = Blind(k=k)
        learner.begin(Task(5, (D,)), rng_for(0))
        found = []
        for label in y:
            learner.learn(np.zeros((1, D)), np.array([label]))
            found.append(int(learner.predict(np.zeros((1, D)))[0]))
        assert found == modes(np.array(y), k).tolist()


class TestAcm:
    def test_two_neighbours_answer_as_one(self) -> None:
        scores = evaluate(STREAM, "near-future", ["acm(k=1)", "acm(k=2)"], settings={"shift": 50})["results"]
        assert scores[0]["scores"] == scores[1]["scores"]

    def test_it_is_scikit_learns(self) -> None:
        from sklearn.neighbors import KNeighborsClassifier

        learner = Acm(k=1)
        learner.begin(Task(12, (8,)), rng_for(0))
        for low in range(0, 600, 64):
            learner.learn(TRAIN.x[low : min(600, low + 64)], TRAIN.y[low : min(600, low + 64)])
        theirs = KNeighborsClassifier(1, metric="cosine", algorithm="brute").fit(TRAIN.x[:600], TRAIN.y[:600])
        assert (answers(learner, TRAIN.x[600:], 480) == theirs.predict(TRAIN.x[600:])).all()

    def test_the_most_frequent_wins_and_ties_go_to_the_nearest(self) -> None:
        near = np.array([[1, 2, 2], [3, 1, 2], [4, 5, 5], [7, 6, 7]])
        assert votes(np.zeros((4, 3)), near, near, np.inf, "count").tolist() == [2, 3, 5, 7]


WHOLE = History([TRAIN])


class TestSamplers:
    def past(self, seen: int) -> Past:
        return WHOLE.past(seen - 64, seen)

    def grown(self, name: str, batches: int, **more: Any) -> tuple[Any, Past]:
        sampler = SAMPLERS[name](rng_for(0), **more)
        for t in range(batches):
            sampler.grow(self.past(64 * (t + 1)))
        return sampler, self.past(64 * batches)

    def test_fifo_walks_the_last_batches_oldest_first(self) -> None:
        sampler, past = self.grown("fifo", 10)
        assert sampler.draw(past, 128).tolist() == list(range(512, 640))

    def test_fifo_has_all_where_fewer_than_asked_for_were_seen(self) -> None:
        sampler, past = self.grown("fifo", 1)
        assert sampler.draw(past, 100).tolist() == list(range(64))

    def test_a_balanced_memory_without_a_limit_keeps_all(self) -> None:
        sampler, past = self.grown("balanced", 10, memory=0)
        assert sampler.stored(past) == 640

    def test_fifo_keeps_the_newest_batch(self) -> None:
        sampler, past = self.grown("fifo", 10)
        assert sampler.stored(past) == 64

    def test_uniform_takes_each_at_most_once_and_all_alike(self) -> None:
        sampler, past = self.grown("uniform", 10)
        drawn = [sampler.draw(past, 64) for _ in range(500)]
        assert all(len(set(d.tolist())) == 64 for d in drawn)
        from scipy.stats import chisquare

        assert chisquare(np.bincount(np.concatenate(drawn), minlength=640)).pvalue > 1e-3

    def test_mixed_is_half_and_half(self) -> None:
        sampler, past = self.grown("mixed", 10)
        drawn = sampler.draw(past, 64)
        assert drawn[:32].tolist() == list(range(608, 640))
        assert drawn[32:].min() < 300

    def test_balanced_draws_classes_alike(self) -> None:
        sampler, past = self.grown("balanced", 10)
        labels = TRAIN.y[np.concatenate([sampler.draw(past, 64) for _ in range(200)])]
        counts = Counter(labels.tolist())
        assert set(counts) == set(TRAIN.y[:640].tolist())
        assert max(counts.values()) / min(counts.values()) < 1.3

    @pytest.mark.parametrize("name", ["uniform", "mixed", "balanced"])
    def test_a_memory_has_a_limit(self, name: str) -> None:
        sampler, past = self.grown(name, 10, memory=48)
        assert sampler.stored(past) == 48
        assert sampler.draw(past, 64).max() < past.seen

    def test_a_large_alpha_keeps_the_recent_past(self) -> None:
        means = [self.grown("uniform", 16, memory=64, alpha=alpha)[0].positions.mean() for alpha in (0.5, 1.0, 8.0)]
        assert means[0] < means[1] < means[2]


def test_a_limited_memory_is_reported_as_what_it_holds() -> None:
    sizes = {}
    for memory in (0, 100):
        learner = FcOnly(memory=memory)
        evaluate(STREAM, "near-future", [learner], settings={"shift": 50, "prefix": 0})
        sizes[memory] = learner.stored_bytes()
    head = 4 * (8 + 1) * 12
    assert sizes == {0: head + 1080 * (8 * 4 + 8), 100: head + 100 * (8 * 4 + 8)}


STEPWISE = ("scratch", "finetune", "cumulative", "er", "reservoir", "gdumb", "agem", "ewc", "si", "lwf", "cwr")
PAPERS = {  # learner → how many of the network's tensors its paper trains; None: all
    "overadapt": 2, "fc-only": 2, "er-online": None, "ace": None, "cosine-fc": None, **dict.fromkeys(STEPWISE),
}  # fmt: skip


@pytest.mark.parametrize("net", ["test_resnet", "resnet10t"])
@pytest.mark.parametrize("name", PAPERS)
def test_on_images_what_the_paper_trains_moves(name: str, net: str) -> None:
    """CLEAR: a ResNet18 from scratch; near-future accuracy: a ResNet50, or its classifier alone."""
    online = name not in STEPWISE
    learner = LEARNERS[name](net=net, lr=0.05, **({} if online else {"epochs": 6}))
    learner.begin(Task(3, (32, 32, 3), None, *((16, 1) if online else ())), rng_for(0))
    before = [p.clone() for p in learner.head.params]
    rng = rng_for(1)
    x, y = rng.integers(0, 256, (32, 32, 32, 3)).astype(np.uint8), rng.integers(0, 3, 32)
    if online:
        history = History([Split(x, y)])
        learner.learn_from(history.past(0, 16))
        learner.learn_from(history.past(16, 32))
    else:
        learner.learn(x, y)
    moved = [not torch.equal(a, b) for a, b in zip(before, learner.head.params, strict=True)]
    assert sum(moved) == (PAPERS[name] or len(moved))
    assert all(moved[-2:])
    assert learner.predict(x).shape == (32,)


def test_a_network_with_a_classifier_on_angles_has_autograds_gradient() -> None:
    """σ · cos(features, w): the rest of the network is that of er-online."""
    learner = LEARNERS["cosine-fc"](net="test_resnet", weight_decay=0.0, lr=0.1, augment="none")
    learner.begin(Task(3, (32, 32, 3), None, 16, 1), rng_for(0))
    x = rng_for(1).integers(0, 256, (16, 32, 32, 3)).astype(np.uint8)
    y = torch.arange(16) % 3
    module = copy.deepcopy(learner.head.module).train()
    features = module.forward_head(module.forward_features(planes(torch.from_numpy(x))), pre_logits=True)
    weight, sigma = list(module.parameters())[-2:]
    cosines = torch.nn.functional.cosine_similarity(features[:, None], weight[None], dim=2)
    torch.nn.functional.cross_entropy(sigma * cosines, y).backward()  # type: ignore[no-untyped-call]
    learner._update(x, y.numpy(), np.ones(16, bool), np.arange(3))
    for moved, start in zip(learner.head.params, module.parameters(), strict=True):
        assert torch.allclose(moved, start - 0.1 * start.grad, atol=1e-5)
