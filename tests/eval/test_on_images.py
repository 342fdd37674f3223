"""Batch normalisation's statistics, TENT, CoTTA and L2P against literal transcriptions, on images."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.executor.torch_threads import one_thread
from driftline.curate.core.registry import HOME
from driftline.curate.core.seeding import rng_for
from driftline.eval.abilities import check_stream
from driftline.eval.engine.augment import augmented, draw
from driftline.eval.engine.deep import planes
from driftline.eval.engine.seeded import seeded
from driftline.eval.learner import Task
from driftline.eval.learners.batch_norm import BnStats, Tent, normalisations
from driftline.eval.learners.cotta import VIEWS, Cotta
from driftline.eval.learners.l2p import L2p
from driftline.eval.learners.nearest_mean import NearestMean
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.protocols.adaptation.unlabelled import Unlabelled
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

NET = "test_resnet"  # of timm: 0.5 million parameters


def stream() -> Stream:
    """Squares of two colours, 16 pixels; the second step is darker and has less contrast."""
    rng, steps = rng_for(0, "squares"), []
    for t in range(2):
        splits = {}
        for name, n in (("train", 48), ("test", 32)):
            y = np.arange(n) % 2
            x = rng.integers(90, 130, (n, 16, 16, 3))
            x[y == 1, 4:12, 4:12, 0] += 70
            splits[name] = Split((x // (1 + 2 * t)).astype(np.uint8), y.astype(np.int64))
        steps.append(Step(t, str(t), splits))
    return Stream("squares", steps, ["a", "b"], sha256="squares")


STREAM = stream()
FIRST, LAST = (step["test"].x for step in STREAM.steps)


def trained(learner: Any) -> Any:
    learner.begin(Task(2, (16, 16, 3)), rng_for(0))
    learner.learn(STREAM.steps[0]["train"].x, STREAM.steps[0]["train"].y)
    return learner


def with_batch_statistics(module: Any) -> Any:
    """As the authors of TENT and CoTTA configure a network."""
    module.eval()
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    return module


def scores(learner: Any, x: Any) -> Any:
    with torch.inference_mode():
        return learner.answering().scores(torch.from_numpy(x))


class TestStatistics:
    def test_the_statistics_of_the_batch_are_those_of_a_pass_in_training_mode(self) -> None:
        learner = trained(BnStats(net=NET, epochs=2))
        learner.adapt(Unlabelled(LAST, "bn-stats"))
        twin = with_batch_statistics(deepcopy(learner.head.module))
        assert torch.allclose(scores(learner, LAST), twin(planes(torch.from_numpy(LAST))), atol=1e-4)

    def test_source_samples_count_as_stated(self) -> None:
        learner = trained(BnStats(net=NET, epochs=1, source=96.0))
        old = deepcopy(normalisations(learner.head)[0])
        inputs: list[Any] = []
        layer = normalisations(learner.head)[0]
        hook = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
        learner.head.scores(torch.from_numpy(LAST))
        hook.remove()
        learner.adapt(Unlabelled(LAST, "bn-stats"))
        mixed = 96 / 128 * old.running_mean + 32 / 128 * inputs[0].mean((0, 2, 3))
        assert torch.allclose(normalisations(learner.adapted)[0].running_mean, mixed, atol=1e-5)

    def test_each_batch_starts_from_training_and_training_forgets_batches(self) -> None:
        learner = trained(BnStats(net=NET, epochs=1))
        learner.adapt(Unlabelled(FIRST, "bn-stats"))
        learner.adapt(Unlabelled(LAST, "bn-stats"))
        once = trained(BnStats(net=NET, epochs=1))
        once.adapt(Unlabelled(LAST, "bn-stats"))
        assert torch.equal(scores(learner, LAST), scores(once, LAST))
        learner.learn(STREAM.steps[0]["train"].x, STREAM.steps[0]["train"].y)
        assert learner.answering() is learner.head


def test_tent_is_the_authors_code() -> None:
    """DequanWang/tent, tent.py: forward, entropy, Adam on scale and shift; here the updated network answers."""
    learner = trained(Tent(net=NET, epochs=1, adapt_lr=0.01))
    twin = with_batch_statistics(deepcopy(learner.head.module))
    moving = [p for m in twin.modules() if isinstance(m, torch.nn.BatchNorm2d) for p in (m.weight, m.bias)]
    optimiser = torch.optim.Adam(moving, lr=0.01)
    for x in (FIRST, LAST):
        outputs = twin(planes(torch.from_numpy(x)))
        loss = -(outputs.softmax(1) * outputs.log_softmax(1)).sum(1).mean(0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        facts = learner.adapt(Unlabelled(x, "tent"))
        assert facts["entropy"] == pytest.approx(float(loss), abs=1e-3)
    assert torch.allclose(scores(learner, LAST), twin(planes(torch.from_numpy(LAST))), atol=1e-3)


@pytest.mark.parametrize("kind", [Tent, Cotta])
def test_one_image_of_one_value_a_channel_is_seen_with_the_statistics_of_training(kind: Any) -> None:
    """Case 36: the last batch of a step may be one image, of which deep layers keep one value."""
    learner = trained(kind(net=NET, epochs=1))
    running = [layer.running_mean.clone() for layer in normalisations(learner.head)]
    learner.adapt(Unlabelled(LAST[:1], "one"))
    assert np.isfinite(scores(learner, LAST)).all()
    kept = [layer.running_mean for layer in normalisations(learner.head)]
    assert all(torch.equal(a, b) for a, b in zip(running, kept, strict=True))


def uneven(sizes: tuple[int, ...] = (60, 3, 1, 20, 2)) -> Stream:
    """Case 36: steps of very different size, the second of one class."""
    rng, steps, past = rng_for(0, "uneven"), [], 0
    for t, n in enumerate(sizes):
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
    return Stream("uneven", steps, list("abc"), sha256=f"uneven {sizes}")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("batch", [8, 59, 64, 85])
@pytest.mark.parametrize("spec", [f"bn-stats(net={NET})", f"finetune(net={NET})", f"er-online(net={NET})"])
def test_near_future_ends_on_steps_of_very_different_size(spec: str, batch: int) -> None:
    """Batches with the ends of three steps, of one class, a last one of one image or two, and one of nearly all."""
    results = evaluate(uneven(), "near-future", [spec], settings={"batch": batch, "shift": 0, "prefix": 0, "lr": 0.01})
    assert not results["skipped"]
    (result,) = results["results"]
    assert all(0 <= score["mean"] <= 1 for score in result["scores"].values())
    cells = np.array(result["matrix"], float)
    assert np.isfinite(cells[np.tril_indices(5)]).all()
    assert result["gradient_steps"] == -(-86 // batch)


@pytest.mark.parametrize("sizes", [(2, 50, 1, 1, 1), (1, 1, 30, 1, 30)])
def test_so_it_does_where_the_first_steps_are_the_small_ones(sizes: tuple[int, ...]) -> None:
    settings = {"batch": 16, "shift": 0, "prefix": 0, "lr": 0.01}
    results = evaluate(uneven(sizes), "near-future", [f"bn-stats(net={NET})"], settings=settings)
    assert np.isfinite(np.array(results["results"][0]["matrix"], float)[np.tril_indices(5)]).all()


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


@pytest.mark.parametrize("sure", [0.0, 1.0])
@one_thread()  # with more, gradients of nothing have other signs, and Adam follows them
def test_cotta_is_the_authors_code(sure: float) -> None:
    """qinenergy/cotta, cifar/cotta.py, with our views and the same draws; here the updated teacher answers."""
    learner = trained(Cotta(net=NET, epochs=1, teacher_decay=0.9, restore=0.3, sure=sure, views=2))
    rng = deepcopy(learner.rng)
    student, teacher, anchor = (with_batch_statistics(deepcopy(learner.head.module)) for _ in range(3))
    source = [p.detach().clone() for p in anchor.parameters()]
    optimiser = torch.optim.Adam(student.parameters(), lr=1e-3)
    for images in (FIRST, LAST):
        x = torch.from_numpy(images)
        outputs = student(planes(x))
        confidence = anchor(planes(x)).softmax(1).max(1)[0].mean(0)
        answers = teacher(planes(x)).detach()
        if confidence < sure:
            of_views = [teacher(planes(augmented(x, draw(tuple(x.shape), VIEWS, rng)))).detach() for _ in range(2)]
            answers = torch.stack(of_views).mean(0)
        loss = -(answers.softmax(1) * outputs.log_softmax(1)).sum(1).mean(0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with seeded(rng), torch.no_grad():
            for slow, fast, first in zip(teacher.parameters(), student.parameters(), source, strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
                mask = (torch.rand(fast.shape) < 0.3).float()
                fast.copy_(first * mask + fast * (1.0 - mask))
        facts = learner.adapt(Unlabelled(images, "cotta"))
        assert facts == {"anchor": pytest.approx(float(confidence), abs=1e-3), "views": 2 if sure else 0}
    assert torch.allclose(scores(learner, LAST), teacher(planes(torch.from_numpy(LAST))), atol=1e-3)


def test_statistics_of_the_batch_undo_a_change_of_contrast() -> None:
    """The published finding [Schneider et al. 2020; Nado et al. 2020]."""
    spec = f"bn-stats(net={NET},epochs=8,lr=0.05,batch=16,augment=none)"
    (result,) = evaluate(STREAM, "adaptation", [spec], settings={"batch": 32})["results"]
    assert result["scores"]["adapted"]["mean"] > result["scores"]["frozen"]["mean"] + 0.2


def test_vectors_and_networks_without_batch_normalisation_are_refused() -> None:
    with pytest.raises(BadConfig, match="has no batch normalisation"):
        trained(Tent(net="test_convnext"))
    with pytest.raises(BadConfig, match="net is 'linear'"):
        trained(Tent(net="linear"))
    vectors = [
        Step(s.index, s.name, {k: Split(v.x.mean((1, 2)), v.y) for k, v in s.splits.items()}) for s in STREAM.steps
    ]
    with pytest.raises(IncompatibleStream, match="images"):
        check_stream(Tent(), Stream("vectors", vectors, ["a", "b"]))


class TestL2p:
    def made(self, **settings: Any) -> Any:
        learner = L2p(net="test_vit", pool=4, length=2, chosen=2, batch=8, **settings)
        learner.begin(Task(2, (16, 16, 3)), rng_for(0))
        return learner

    def test_it_is_its_equations(self) -> None:
        """Wang et al. 2022, eq. 2-5, image by image: query, the nearest keys, prompts before the tokens, the mean of
        their outputs, and a loss that pulls the chosen keys."""
        learner, x = self.made(), FIRST[:5]
        scores, cosines = learner.forward(x)
        vit, losses = learner.vit, []
        for i in range(5):
            image = planes(torch.from_numpy(x[i : i + 1]))
            query = vit.forward_features(image)[0, 0]
            near = [float(normalize(query, dim=0) @ normalize(key, dim=0)) for key in learner.keys]
            best = sorted(range(4), key=lambda k: -near[k])[:2]
            tokens = vit._pos_embed(vit.patch_embed(image))
            with_prompts = torch.cat([learner.prompts[best[0]], learner.prompts[best[1]], tokens[0]])[None]
            outputs = vit.norm(vit.blocks(vit.norm_pre(with_prompts)))[0]
            assert torch.allclose(learner.classifier(outputs[:4].mean(0)), scores[i], atol=1e-4)
            losses.append(near[best[0]] + near[best[1]])
        assert float(cosines) == pytest.approx(np.mean(losses), abs=1e-4)

    def test_only_prompts_keys_and_the_classifier_learn(self) -> None:
        learner = self.made(epochs=1)
        frozen = [p.clone() for p in learner.vit.parameters()]
        before = [p.detach().clone() for p in learner.learned()]
        learner.learn(STREAM.steps[0]["train"].x[:16], STREAM.steps[0]["train"].y[:16])
        assert all(torch.equal(a, b) for a, b in zip(frozen, learner.vit.parameters(), strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(before, learner.learned(), strict=True))

    def test_one_step_follows_the_gradient_of_the_loss(self) -> None:
        learner, twin = self.made(pull=0.7), self.made(pull=0.7)
        x, y = FIRST[:8], STREAM.steps[0]["test"].y[:8]
        learner.correct(x, y)
        scores, cosines = twin.forward(x)
        (cross_entropy(scores, torch.from_numpy(y)) - 0.7 * cosines).backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in twin.learned()))
        for p, q in zip(learner.learned(), twin.learned(), strict=True):
            assert torch.allclose(p, q - 0.05 * q.grad / max(1.0, float(norm)), atol=1e-5)

    def test_it_learns_from_images_under_a_protocol(self) -> None:
        spec = "l2p(net=test_vit,epochs=10,lr=0.3,pool=4,length=2,chosen=2)"
        found = evaluate(STREAM, "clear-iid", [spec])
        assert found["results"][0]["matrix"][0][0] > 0.9, found["skipped"]

    @pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if PROTOCOLS.entry(name).origin == HOME])
    def test_it_runs_under_every_protocol(self, protocol: str) -> None:
        settings: dict[str, Any] = {
            "near-future": {"batch": 8, "shift": 4}, "ocrr": {"every": 16}, "seq-to-final": {"val_share": 0.2},
        }.get(protocol, {})  # fmt: skip
        third = slice(None, None, 3)
        steps = [replace(s, splits={name: v.take(third) for name, v in s.splits.items()}) for s in STREAM.steps]
        small = replace(STREAM, steps=steps, sha256="every third square")
        spec = f"l2p(net=test_vit,{'' if protocol == 'near-future' else 'epochs=1,'}pool=4,length=2,chosen=2)"
        found = evaluate(small, protocol, [spec], settings=settings)
        assert [result["learner"] for result in found["results"]] == [spec], found["skipped"]
        assert found["results"][0]["gradient_steps"] > 0

    def test_a_network_without_class_token_is_refused(self) -> None:
        for net, message in (("test_resnet", "Expected a vision transformer"), ("vit_tyni", "Unknown net")):
            with pytest.raises(Exception, match=message):
                L2p(net=net).begin(Task(2, (16, 16, 3)), rng_for(0))
        with pytest.raises(BadConfig, match="chosen is 5, pool is 3"):
            L2p(pool=3).begin(Task(2, (16, 16, 3)), rng_for(0))
