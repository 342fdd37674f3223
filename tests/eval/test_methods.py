"""Each method's gradient against autograd of its own equation; each mechanism against its definition."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import drifting, hinted

from driftline.curate.core.errors import BadConfig, Diverged, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.deep import Deep
from driftline.eval.engine.heads import Mlp
from driftline.eval.engine.linear import Head, LinearSettings, Net, batches, fit, zeros
from driftline.eval.experiment.presets import GRIDS, fitting
from driftline.eval.experiment.tune import check_needs
from driftline.eval.history import History
from driftline.eval.learner import Learner, Needs, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.regularised import Anchor, Cwr, Distil, Ewc, Lwf, Path, Penalty, Si, fisher_of_batches
from driftline.eval.learners.replay import Agem, Gdumb, Project, Reservoir
from driftline.eval.learners.trained_heads import Finetune
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate, plan
from driftline.eval.settings import spec_of
from driftline.stream_builder.stream import Split, Step, Stream

N, D, C = 40, 5, 3


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = rng_for(0, "methods")
    return torch.from_numpy(rng.normal(size=(N, D)).astype(np.float32)), torch.from_numpy(rng.integers(C, size=N))


def head(seed: int) -> Head:
    return Head.new(C, D, rng_for(seed))


def mlp(seed: int) -> Mlp:
    return Mlp.new(C, D, 7, rng_for(seed))


NETS = pytest.mark.parametrize("net", [head, mlp])
Batch = tuple[torch.Tensor, torch.Tensor]
Make = Callable[[int], Net]
Loss = Callable[[list[torch.Tensor]], torch.Tensor]


def scores(params: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The network's definition: one layer, or two with ReLU between."""
    if len(params) == 2:
        return x @ params[0].T + params[1]
    return torch.relu(x @ params[0].T + params[1]) @ params[2].T + params[3]


def by_autograd(at: Net, loss_of: Loss) -> list[torch.Tensor]:
    params = [p.clone().requires_grad_() for p in at.params]
    loss_of(params).backward()  # type: ignore[no-untyped-call]
    return [p.grad for p in params if p.grad is not None]


def close(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return all(torch.allclose(p, q, atol=1e-5) for p, q in zip(a, b, strict=True))


def cross_entropy(params: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(scores(params, x), y)


@NETS
def test_the_datas_gradient(net: Make, batch: Batch) -> None:
    now = net(1)
    assert close(now.data_gradient(*batch), by_autograd(now, lambda p: cross_entropy(p, *batch)))
    assert torch.allclose(now.scores(batch[0]), scores(now.params, batch[0]), atol=1e-6)


def test_products_in_bfloat16_stay_near() -> None:
    rng = rng_for(0, "half")
    x, y = torch.from_numpy(rng.normal(size=(64, 32)).astype(np.float32)), torch.arange(64) % C
    whole, half = Mlp.new(C, 32, 50, rng_for(1)), Mlp.new(C, 32, 50, rng_for(1), half=True)
    for a, b in zip(whole.data_gradient(x, y), half.data_gradient(x, y), strict=True):
        assert 0 < float((a - b).norm() / a.norm()) < 0.06


class TestEwc:
    @NETS
    def test_fisher_is_the_mean_of_squared_single_sample_gradients(self, net: Make, batch: Batch) -> None:
        x, y = batch
        now = net(1)
        squares = [by_autograd(now, lambda p, i=i: cross_entropy(p, x[i : i + 1], y[i : i + 1])) for i in range(N)]  # type: ignore[misc]
        slow = [torch.stack([s[k] ** 2 for s in squares]).mean(0) for k in range(len(now.params))]
        assert close(now.fisher(x, y), slow)

    def test_avalanches_fisher_is_far_smaller(self) -> None:
        x, y = torch.randn(2048, D, generator=torch.Generator().manual_seed(0)), torch.arange(2048) % C
        now = head(1)
        ratio = now.fisher(x, y)[0].sum() / fisher_of_batches(now, x, y, 256)[0].sum()
        assert ratio > 20, "squared means of 256 samples are about 256 times smaller where the mean is near zero"

    @NETS
    def test_the_penaltys_gradient(self, net: Make, batch: Batch) -> None:
        now, old = net(1), net(2)
        weight = old.fisher(*batch)
        rule = Penalty([Anchor(old.params, weight)], 0.7)

        def loss(params: list[torch.Tensor]) -> torch.Tensor:
            pull = sum((f * (p - o) ** 2).sum() for f, p, o in zip(weight, params, old.params, strict=True))
            return cross_entropy(params, *batch) + 0.7 / 2 * pull

        assert close(rule.gradient(now, now.data_gradient(*batch), *batch), by_autograd(now, loss))

    def test_online_keeps_one_anchor_and_separate_one_a_step(self) -> None:
        stream = drifting()
        for mode, anchors in (("online", 1), ("separate", 4)):
            learner = Ewc(mode=mode, epochs=2)
            learner.begin(Task(3, (8,)), rng_for(0))
            for step in stream.steps:
                learner.learn_step(step.visible())
            assert len(learner.anchors) == anchors

    @pytest.mark.parametrize("mode", ["online", "separate"])
    def test_a_pull_that_no_step_can_follow_holds_the_weights(self, mode: str) -> None:
        stream = drifting(steps=4, n=200)
        learner = Ewc(mode=mode, epochs=5, strength=1e9)
        learner.begin(Task(3, (8,)), rng_for(0))
        learner.learn_step(stream.steps[0].visible())
        first = [p.clone() for p in learner.head.params]
        for step in stream.steps[1:]:
            learner.learn_step(step.visible())
        moved = max(float((p - old).abs().max()) for p, old in zip(learner.head.params, first, strict=True))
        assert moved < 0.5 * max(float(p.abs().max()) for p in first)


class TestSi:
    @NETS
    def test_the_penaltys_gradient(self, net: Make, batch: Batch) -> None:
        now, old = net(1), net(2)
        omega = [torch.full_like(p, 0.1 * (k + 1)) for k, p in enumerate(old.params)]
        rule = Path(old.params, omega, 0.5)

        def loss(params: list[torch.Tensor]) -> torch.Tensor:
            pull = sum((o * (p - q) ** 2).sum() for o, p, q in zip(omega, params, old.params, strict=True))
            return cross_entropy(params, *batch) + 0.5 * pull

        assert close(rule.gradient(now, now.data_gradient(*batch), *batch), by_autograd(now, loss))

    @pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
    def test_the_path_is_that_of_the_optimisers_own_updates(self, optimiser: str) -> None:
        now, rule = head(1), Path([p.clone() for p in head(1).params], zeros(head(1).params), 0.0)
        x, y = rng_for(0).normal(size=(N, D)).astype(np.float32), np.arange(N) % C
        before = cross_entropy(now.params, torch.from_numpy(x), torch.from_numpy(y))
        settings = LinearSettings(0.002, 0.0, 0.0, batch=N, epochs=300, decay_after=300, optimiser=optimiser)
        fit(now, x, y, settings, rng_for(0), rule=rule)
        fell = before - cross_entropy(now.params, torch.from_numpy(x), torch.from_numpy(y))
        assert float(sum(p.sum() for p in rule.path)) == pytest.approx(float(fell), rel=0.01)


class TestLwf:
    @NETS
    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_the_distillations_gradient(self, net: Make, batch: Batch, temperature: float) -> None:
        x, _ = batch
        now, teacher = net(1), net(2)

        def loss(params: list[torch.Tensor]) -> torch.Tensor:
            student = torch.log_softmax(scores(params, x) / temperature, 1)
            target = torch.softmax(scores(teacher.params, x) / temperature, 1)
            kl = torch.nn.functional.kl_div(student, target, reduction="batchmean")
            return cross_entropy(params, *batch) + 1.5 * temperature**2 * kl

        rule = Distil(teacher, 1.5, temperature)
        pull = rule.pull(now, batch[0])
        assert close(now.data_gradient(*batch, pull), by_autograd(now, loss))

    def test_classes_that_the_teacher_has_not_learned_are_left_out(self, batch: Batch) -> None:
        x, y = batch
        now, teacher = head(1), head(2)

        def loss(params: list[torch.Tensor]) -> torch.Tensor:
            student = torch.log_softmax(scores(params, x)[:, :2], 1)
            target = torch.softmax(scores(teacher.params, x)[:, :2], 1)
            return cross_entropy(params, x, y) + torch.nn.functional.kl_div(student, target, reduction="batchmean")

        pull = Distil(teacher, 1.0, 1.0, unlearned=[2]).pull(now, x)
        assert close(now.data_gradient(x, y, pull), by_autograd(now, loss))

    @pytest.mark.parametrize("net", ["linear", "mlp"])
    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_the_teacher_is_asked_once_about_each_sample(self, net, precision, monkeypatch):
        split, asked, heads = drifting(n=50).steps[0]["train"], [], []
        pull = Distil.pull
        for once in (True, False):
            learner = Lwf(epochs=5, batch=16, ramp=1, net=net, precision=precision)
            learner.begin(Task(3, (8,)), rng_for(0))
            learner.learn(split.x, split.y)

            def counted(rule: Distil, *given: Any, once: bool = once) -> Any:
                scores = rule.teacher.scores
                rule.teacher.scores = lambda x: asked.append((once, len(x))) or scores(x)  # type: ignore[method-assign]
                found = pull(rule, *(given if once else given[:2]))
                rule.teacher.scores = scores  # type: ignore[method-assign]
                return found

            monkeypatch.setattr(Distil, "pull", counted)
            learner.learn(split.x, split.y[::-1].copy())
            monkeypatch.setattr(Distil, "pull", pull)
            heads.append(learner.head)
        assert sum(n for once, n in asked if once) == len(split)
        assert sum(n for once, n in asked if not once) == 5 * len(split)
        assert close(heads[0].params, heads[1].params)

    def test_what_it_has_learned_grows_with_the_stream(self) -> None:
        learner = Lwf(epochs=1)
        learner.begin(Task(4, (8,)), rng_for(0))
        x = drifting().steps[0]["train"].x
        left = []
        for labels in ([0, 1], [0], [3, 1]):
            learner.learn(x[: len(labels)], np.array(labels))
            left.append(sorted(learner.unlearned))
        assert left == [[2, 3], [2, 3], [2]]

    def test_the_first_step_has_no_teacher_and_the_tenth_the_full_weight(self) -> None:
        learner = Lwf(epochs=1)
        learner.begin(Task(3, (8,)), rng_for(0))
        plain = Finetune(epochs=1)
        plain.begin(Task(3, (8,)), rng_for(0))
        step = drifting().steps[0]
        learner.learn_step(step)
        plain.learn_step(step)
        assert torch.equal(learner.head.params[0], plain.head.params[0])


class TestAgem:
    @NETS
    def test_the_projection_never_points_against_the_memory(self, net: Make, batch: Batch) -> None:
        x, y, other = batch[0], torch.zeros(N, dtype=torch.int64), torch.ones(N, dtype=torch.int64)
        now = net(1)
        rule = Project(x, other, sample=N, rng=rng_for(0))
        grads, past = now.data_gradient(x, y), now.data_gradient(x, other)

        def along(some: list[torch.Tensor]) -> float:
            return float(sum((g * r).sum() for g, r in zip(some, past, strict=True)))

        assert along(grads) < 0, "the two disagree"
        assert along(rule.gradient(now, grads, x, y)) == pytest.approx(0, abs=1e-5)

    @NETS
    def test_agreement_is_left_alone(self, net: Make, batch: Batch) -> None:
        now = net(1)
        grads = now.data_gradient(*batch)
        assert close(Project(*batch, sample=N, rng=rng_for(0)).gradient(now, grads, *batch), grads)


def test_agem_may_use_as_many_samples_of_the_memory_as_a_step_has() -> None:
    """CLEAR: 2,310 under one protocol, 3,300 under the other."""
    learner = LEARNERS["agem"](sample="step", epochs=1)
    learner.begin(Task(C, (D,)), rng_for(0))
    for n in (30, 40):
        learner.learn(rng_for(n, "agem").normal(size=(n, D)).astype(np.float32), np.arange(n) % C)
    assert learner.used == 30


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


def test_the_references_cwr_star_replaces_what_the_first_step_learned() -> None:
    """Avalanche's pull request 1008: a class's first step is not counted."""
    found = {}
    for variant in ("paper", "reference"):
        learner = Cwr(epochs=1, variant=variant)  # type: ignore[arg-type]
        learner.begin(Task(C, (D,)), rng_for(0))
        for t in range(3):
            rng = rng_for(t, "cwr")
            learner.learn(rng.normal(size=(N, D)).astype(np.float32), np.arange(N) % C)
            if t == 1:
                merged = learner.consolidated.clone()
        found[variant] = int(learner.past.sum()), merged
    assert [past for past, _ in found.values()] == [3 * N, 2 * N]
    assert not torch.equal(found["paper"][1], found["reference"][1])


def test_the_references_er_divides_a_batch_evenly_among_steps() -> None:
    """CLEAR's code: 497 updates in one epoch over ten steps of 2,310 samples, in batches of 256; ours 100."""
    settings = LinearSettings(epochs=1, batch=256)
    groups = [[2310 // t] * t for t in range(1, 10)]
    drawn = [list(batches([2310, sum(sizes)], settings, rng_for(0), sizes)) for sizes in groups]
    assert 10 + sum(map(len, drawn)) == 497
    _, own, replayed = drawn[-1][0]
    assert np.bincount(replayed // (2310 // 9)).tolist() == [26] * 5 + [25] * 4
    assert len(own) == 26
    from driftline.eval.learners.er import Er

    er = Er(epochs=1, batch=16, variant="reference")
    er.begin(Task(C, (D,)), rng_for(0))
    for t in range(3):
        er.learn(rng_for(t, "er").normal(size=(N, D)).astype(np.float32), np.arange(N) % C)
    assert er.gradient_steps == sum(-(-N // share) for share in (16, 8, 6))


def test_cwr_star_trains_a_class_that_is_not_there_from_zero_and_gives_it_its_weights_back() -> None:
    """As Avalanche's reset_weights and set_consolidate_weights; a class never seen keeps what training made of it."""
    learner = Cwr(epochs=0)
    learner.begin(Task(3, (1,)), rng_for(0))
    assert float(learner.head.params[0].abs().min()) > 0
    x = np.array([[1.0], [-1.0]], np.float32)
    learner.learn(x, np.array([0, 1]))
    assert float(learner.head.params[0].abs().max()) == 0, "nothing was learned in 0 epochs"
    learner.epochs = 5
    learner.learn(x, np.array([0, 1]))
    first = learner.head.params[0].clone()
    learner.learn(x, np.array([0, 0]))
    assert torch.equal(learner.head.params[0][1], first[1])
    assert not torch.equal(learner.head.params[0][2], learner.consolidated[2]), "of the class never seen"


def test_cwr_star_freezes_the_layers_below_the_output_after_the_first_step() -> None:
    stream = drifting(steps=3, n=60)
    learner = Cwr(epochs=3, net="mlp", hidden=6)
    learner.begin(Task(3, (8,)), rng_for(0))
    learner.learn_step(stream.steps[0])
    below, output = (learner.head.params[k].clone() for k in (0, 2))
    learner.learn_step(stream.steps[1])
    assert torch.equal(learner.head.params[0], below)
    assert not torch.equal(learner.head.params[2], output)


TWO_LAYERS = [
    n for n in LEARNERS
    if hasattr(LEARNERS[n], "hidden") and n != "cosine-fc"
    and not LEARNERS[n].needs.class_texts and not LEARNERS[n].needs.images  # texts: one layer
]  # fmt: skip


@pytest.mark.parametrize("name", TWO_LAYERS)
def test_every_method_learns_with_two_layers(name: str) -> None:
    found = evaluate(
        hinted(drifting(steps=3, drift=0.1)), "clear-iid", [name, "majority"],
        settings={"net": "mlp", "hidden": 16, "epochs": 30},
    )  # fmt: skip
    assert not found["skipped"]
    mine, majority = (r["scores"]["in_domain"]["mean"] for r in found["results"])
    assert mine > majority + 0.2


def test_gdumb_trains_on_its_memory_alone_from_new_weights() -> None:
    stream = drifting(steps=2, n=60)
    learner = Gdumb(epochs=3, memory=12)
    learner.begin(Task(3, (8,)), rng_for(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
    assert np.bincount(learner.y, minlength=3).tolist() == [4, 4, 4]
    assert learner.gradient_steps == 2 * 3


@pytest.mark.parametrize("preset", ["clear-linear", "clear-mlp"])
def test_gdumbs_memory_in_clears_presets_takes_from_every_step(preset: str) -> None:
    """The greedy sampler would keep the first step alone: `nap` under another name."""
    stream = drifting(steps=4, n=60)
    learner = Gdumb(**{**fitting(preset, {"gdumb": Gdumb})["gdumb"], "epochs": 1, "hidden": 4})
    learner.begin(Task(3, (8,)), rng_for(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
    steps = np.concatenate([np.full(60, t) for t in range(4)])
    origin = {row.tobytes(): t for t, row in zip(steps, stream.flat("train").x, strict=True)}
    counts = np.bincount([origin[row.tobytes()] for row in learner.x], minlength=4)
    assert counts.sum() == 60
    assert counts.min() >= 5, "15 of every step are expected"


@pytest.mark.parametrize("alpha", ["dynamik:1", "dynamic:x", -1.0])
def test_the_reservoirs_alpha_is_checked(alpha: float | str) -> None:
    with pytest.raises(BadConfig, match=rf"alpha is {alpha!r}\. Expected a number from 0, or dynamic:NUMBER"):
        evaluate(drifting(), "clear-iid", [Reservoir(alpha=alpha)])


def test_dynamic_one_is_the_newest_bucket_so_reservoir_equals_scratch_on_one_bucket() -> None:
    stream = drifting(steps=3, n=60)
    learner = Reservoir(alpha="dynamic:1.0", start="scratch", epochs=2)
    learner.begin(Task(3, (8,)), rng_for(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
    newest = {row.tobytes() for row in stream.steps[-1]["train"].x}
    assert {row.tobytes() for row in learner.x} == newest


# ---- A row runs what its name says: replay replays, what is frozen stays, a memory has its size, a setting changes s


STREAM = drifting(steps=3, classes=4, n=80)
FROZEN = ("nap", "static-linear", "static-knn")


def begun(name: str, **settings: Any) -> Learner:
    learner: Learner = LEARNERS[name](**settings)
    learner.begin(Task(4, (8,)), rng_for(0, "mechanisms"))
    return learner


def of_step(number: int) -> Split:
    return STREAM.steps[number]["train"]


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_learner_answers_as_after_its_first_data(name: str) -> None:
    learner, x = begun(name), of_step(2).x
    learner.learn(of_step(0).x, of_step(0).y)
    before = np.asarray(learner.predict(x)[0] if name == "static-knn" else learner.scores(x))
    learner.learn(of_step(1).x, (of_step(1).y + 1) % 4)
    learner.correct(of_step(2).x[:1], np.array([3]))
    after = np.asarray(learner.predict(x)[0] if name == "static-knn" else learner.scores(x))
    np.testing.assert_array_equal(before, after)


def test_the_head_of_knn_lm_is_frozen_and_its_memory_grows() -> None:
    learner: Any = begun("knn-lm")
    learner.learn(of_step(0).x, of_step(0).y)
    head = [p.clone() for p in learner.head.params]
    learner.learn(of_step(1).x, of_step(1).y)
    assert all(bool((a == b).all()) for a, b in zip(head, learner.head.params, strict=True))
    assert learner.memory.n == len(of_step(0)) + len(of_step(1))


def test_every_need_that_a_protocol_refuses_has_a_sentence() -> None:
    for kind in map(PROTOCOLS.__getitem__, PROTOCOLS):
        for need in kind.refuses:
            value: Any = True if isinstance(getattr(Needs(), need), bool) else "a reason"

            class Needy(LEARNERS["majority"]):  # type: ignore[misc]
                needs = replace(Needs(), **{need: value})

            with pytest.raises(IncompatibleStream, match="driftline list learners --protocol"):
                check_needs(Needy(), kind.refuses)


def test_si_pulls_corrections_towards_the_weights_of_the_last_step() -> None:
    def moved(strength: float) -> float:
        learner: Any = Si(strength=strength)
        learner.begin(Task(4, (8,)), rng_for(0, "mechanisms"))
        learner.learn(of_step(0).x, of_step(0).y)
        start = [p.clone() for p in learner.head.params]
        for i in range(20):
            learner.correct(of_step(1).x[i : i + 1], (of_step(1).y[i : i + 1] + 1) % 4)
        return float(sum(((p - q) ** 2).sum() for p, q in zip(learner.head.params, start, strict=True)))

    assert moved(50.0) < 0.9 * moved(0.0)


def test_one_image_changes_no_statistics_of_batch_normalisation() -> None:
    learner: Any = LEARNERS["finetune"](net="resnet10t", epochs=1, batch=8)
    learner.begin(Task(3, (32, 32, 3)), rng_for(0, "mechanisms"))
    images = rng_for(1, "mechanisms").integers(0, 256, (8, 32, 32, 3)).astype(np.uint8)
    learner.learn(images, np.arange(8) % 3)
    assert isinstance(learner.head, Deep)
    statistics = {n: t.clone() for n, t in learner.head.module.state_dict().items() if "running" in n}
    before = learner.scores(images)
    learner.correct(images[:1], np.array([2]))
    after = learner.head.module.state_dict()
    assert statistics
    assert all(bool((after[name] == value).all()) for name, value in statistics.items())
    assert abs(learner.scores(images) - before).max() > 0


def on_a_stream(memory: int, sample: int = 0) -> Agem:
    learner = Agem(memory=memory, sample=sample)
    learner.begin(Task(4, (8,), batch=10, updates=4.0), rng_for(0, "mechanisms"))
    history = History([of_step(0), of_step(1)])
    for start in range(0, len(history), 10):
        learner.learn_from(history.past(start, start + 10))
    return learner


def test_agem_pays_for_the_samples_that_an_update_reads() -> None:
    """4 updates of plain SGD a batch of 10: two of A-GEM with 10 more samples, one with 30."""
    few, many = on_a_stream(memory=40), on_a_stream(memory=40, sample=30)
    assert (few.gradient_steps, many.gradient_steps) == (2 * 16, 16)
    assert few.spent() == many.spent() == 4 * 16


@pytest.mark.parametrize("settings", [{"finetune.epochs": 3}, {"epochs": 3}, {"finetune.batch": 4}, {"decay": 0.5}])
def test_a_setting_that_a_budget_replaces_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="which changes nothing: all learners share a budget of updates"):
        evaluate(STREAM, "near-future", ["finetune"], settings={"shift": 20, "batch": 10} | settings)


UNUSED = [
    ("clear-iid", "finetune", "correct_lr", 0.1, "the protocol brings no corrections"),
    ("ocrr", "nap", "correct_lr", 0.1, "it ignores corrections"),
    ("clear-iid", "static-linear", "classes", "open", "its head is frozen when corrections come"),
    ("clear-iid", "cosine-fc", "scale", "none", "an angle does not depend on the length of a sample"),
    ("clear-iid", "substrate-k1", "k", 3, "the nearest sample alone votes"),
]


@pytest.mark.parametrize(("protocol", "name", "setting", "value", "why"), UNUSED)
def test_a_setting_that_changes_nothing_is_refused(protocol, name, setting, value, why):
    by_name: list[tuple[list[Any], dict[str, Any]]] = [
        ([name], {f"{name}.{setting}": value}),
        ([f"{name}({setting}={value})"], {}),
        ([LEARNERS[name](**{setting: value})], {}),
        ([name], {setting: value}),
    ]
    for learners, settings in by_name:
        with pytest.raises(BadConfig, match=f"{setting} is {value!r}, which changes nothing: {why}"):
            plan(STREAM, protocol, learners, [0], settings)
    plan(STREAM, protocol, [name], [0], {f"{name}.{setting}": getattr(LEARNERS[name], setting)})


def test_a_setting_for_all_goes_to_those_that_use_it() -> None:
    shown = plan(STREAM, "clear-iid", ["fc-only", "cosine-fc"], [0], {"momentum": 0.5}).settings
    assert ("momentum" in shown["fc-only"], "momentum" in shown["cosine-fc"]) == (True, False)


def test_a_setting_that_a_budget_replaces_is_not_recorded() -> None:
    settings = {"shift": 20, "batch": 10, "prefix": 40}
    (result,) = evaluate(STREAM, "near-future", ["finetune"], settings=settings)["results"]
    assert result["settings"]["batch"] == 10  # of the protocol
    assert not {"epochs", "decay", "decay_after"} & set(result["settings"])


def test_a_presets_settings_reach_only_whom_it_names() -> None:
    class Er(LEARNERS["er"]):  # type: ignore[misc]
        """A stranger's, of the same name."""

    Er.__module__ = "somebody"
    given = fitting("clear-mlp", {"er": LEARNERS["er"], "majority": LEARNERS["majority"], "ocrr": PROTOCOLS["ocrr"]})
    assert given["er"]["net"] == "mlp"
    assert given["majority"] == given["ocrr"] == {}
    assert fitting("clear-mlp", {"er": Er}) == {"er": {}}


def test_the_record_says_where_each_setting_comes_from() -> None:
    runs: list[Any] = []
    changed = {"shift": 20, "batch": 10, "prefix": 40, "finetune.weight_decay": 0.5}
    evaluate(STREAM, "near-future", ["finetune"], settings=changed, preset="cglm", keep_run=runs.append)
    origin = runs[0].about["settings_from"]
    assert origin == {"momentum": "protocol", "lr": "chosen", "weight_decay": "set"}
    del changed["finetune.weight_decay"]
    text = plan(STREAM, "near-future", ["fc-only"], [0], changed, preset="cglm").settings["fc-only"]
    assert "weight_decay 0.0001 (preset cglm)" in text
    assert "momentum" not in text  # the protocol's is the learner's own


def test_a_papers_preset_is_its_recipe_on_images_and_says_what_it_leaves_out_elsewhere() -> None:
    pixels = Split(rng_for(0).integers(0, 256, (64, 32, 32, 3)).astype(np.uint8), np.arange(64) % 3)
    images = Stream("painted", [Step(0, "0", {"train": pixels, "test": pixels})], list("abc"), sha256="painted")
    rules = {"shift": 8, "batch": 8, "prefix": 0}
    planned = plan(images, "near-future", ["er-online", "overadapt", "acm"], [0], rules, preset="cglm")
    assert planned.left_out == ""
    assert "net resnet50 (preset cglm), weights tv_in1k (preset cglm)" in planned.settings["acm"]
    assert "lr 0.005 (preset cglm)" in planned.settings["er-online"]
    assert "weights fb_swsl_ig1b_ft_in1k (preset cglm)" in planned.settings["overadapt"]
    for learner in ("er-online(net=linear)", "finetune(net=mlp)"):
        with pytest.raises(BadConfig, match=r"raw pixels.*driftline stream encode"):
            plan(images, "near-future", [learner], [0], rules, preset="cloc-fast")
    own = {**rules, "net": "test_resnet", "weights": "none", "updates": 1}
    (ran,) = evaluate(images, "near-future", ["cosine-fc"], [0], own, preset="cglm")["results"]
    assert (ran["settings"]["net"], ran["settings"]["lr"], ran["gradient_steps"]) == ("test_resnet", 0.005, 8)
    vectors = plan(STREAM, "near-future", ["er-online"], [0], {"shift": 20}, preset="cglm")
    assert vectors.left_out.startswith("preset cglm: the samples are no images")
    assert "net" not in vectors.settings["er-online"]
    assert plan(STREAM, "clear-iid", ["er-online"], [0], preset="cglm").left_out == ""


def test_every_learner_of_a_named_set_exists() -> None:
    for learners in GRIDS.values():
        assert len({(spec_of(name).kind, str(spec_of(name).with_name)) for name in learners}) == len(learners)


def test_ewc_is_held_on_corrections_as_in_training() -> None:
    """Where the learning rate times the pull is above 2, each step would go further beyond the anchor."""
    learner: Any = begun("ewc", strength=1e4)
    learner.learn(of_step(0).x, of_step(0).y)
    for i in range(40):
        learner.correct(of_step(1).x[i : i + 1], of_step(1).y[i : i + 1])
    (anchor,) = learner.anchors
    assert max(float((p - old).abs().max()) for p, old in zip(learner.head.params, anchor.params, strict=True)) < 1


def test_a_correction_that_diverges_is_an_error() -> None:
    learner: Any = begun("finetune", correct_lr=0.5)
    learner.learn(of_step(0).x, of_step(0).y)
    x, y = of_step(1).x[:1] * np.float32(1e37), (of_step(1).y[:1] + 1) % 4
    learner.correct(x, y)
    with pytest.raises(Diverged, match=r"Lower correct_lr \(it is 0\.5\)"):
        learner.correct(x, (y + 1) % 4)
