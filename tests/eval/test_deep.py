"""Networks on images: augmentation of batches against pixel by pixel, gradients against autograd, every method."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import few_of
from torch.nn.functional import cross_entropy

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile, UnknownName
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused
from driftline.eval.engine.deep import SCALE, SHIFT, Deep, augmented, draw, planes
from driftline.eval.engine.linear import LinearSettings, Rule, fit, step
from driftline.eval.learner import Task
from driftline.eval.learners.closed_forms import NearestMean
from driftline.eval.learners.neighbours import Acm
from driftline.eval.learners.trained_heads import Finetune
from driftline.eval.run import evaluate
from driftline.eval.settings import spec_of
from driftline.stream_builder.stream import Split, Step, Stream

TINY, C, SIDE = "test_resnet", 3, 32  # timm's own model for tests


def images(n: int, seed: int = 0, shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise whose red, green or blue says the class."""
    rng = rng_for(seed, "images")
    y = np.arange(n, dtype=np.int64) % C
    x = rng.integers(0, 120 + shift, (n, SIDE, SIDE, 3)).astype(np.uint8)
    x[np.arange(n), :, :, y] += 90
    return x, y


def painted(steps: int = 2) -> Stream:
    made = []
    for t in range(steps):
        splits = {}
        for name, n in (("train", 48), ("test", 24)):
            x, y = images(n, seed=t * 2 + (name == "test"), shift=t * 10)
            splits[name] = Split(x, y, np.array([f"{t}{name}{i}" for i in range(n)]))
        made.append(Step(t, str(t), splits))
    return Stream("painted", made, [f"class {c}" for c in range(C)], sha256="painted")


def deep(seed: int = 0, kinds: tuple[str, ...] = (), mixed: bool = False) -> Deep:
    return Deep.new(TINY, C, kinds, rng_for(seed), "cpu", mixed)


def batch(n: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = images(n)
    return torch.from_numpy(x), torch.from_numpy(y)


def one_by_one(x: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The literal twin: pixel by pixel."""
    n, height, width, _ = x.shape
    out = np.zeros_like(x)
    for i in range(n):
        cos, sin, down, right, flip = draws[i].astype(np.float64)
        source = x[i, :, ::-1] if flip else x[i]
        for r in range(height):
            for c in range(width):
                v, u = r - (height - 1) / 2, c - (width - 1) / 2
                row = round(sin * u + cos * v + (height - 1) / 2 + down)
                column = round(cos * u - sin * v + (width - 1) / 2 + right)
                if 0 <= row < height and 0 <= column < width:
                    out[i, r, c] = source[row, column]
    return out


class TestAugmentation:
    @pytest.mark.parametrize("kinds", [(), ("flip",), ("crop",), ("flip", "crop", "rotate")])
    def test_a_batch_equals_pixel_by_pixel(self, kinds: tuple[str, ...]) -> None:
        x, _ = images(6)
        x = x[:, :, :24]  # not square
        draws = draw(x.shape, kinds, rng_for(3))
        literal = one_by_one(x, draws)
        few = 0.002 if "rotate" in kinds else 0  # float32 may round a pixel on the border otherwise
        found = augmented(torch.from_numpy(x), draws)
        assert (found.numpy() != literal).any(-1).mean() <= few
        if fused.ready():
            shown = fused.show(torch.from_numpy(np.ascontiguousarray(x)), draws, SCALE, SHIFT)
            same = (shown - planes(torch.from_numpy(literal))).abs().amax(1) < 1e-5
            assert float((~same).float().mean()) <= few

    def test_the_input_stays(self) -> None:
        x, _ = batch()
        before = x.clone()
        draws = draw(tuple(x.shape), ("flip", "crop", "rotate"), rng_for(0))
        augmented(x, draws)
        deep(kinds=("flip", "crop", "rotate")).view(x)
        assert torch.equal(x, before)

    def test_without_the_kernel_a_network_is_shown_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, _ = batch()
        kernel = deep(kinds=("flip", "crop")).view(x)
        monkeypatch.setenv("DRIFTLINE_KERNEL", "off")
        assert torch.allclose(kernel, deep(kinds=("flip", "crop")).view(x), atol=1e-5)


class TestGradients:
    def test_of_the_data(self) -> None:
        (x, y), net = batch(), deep()
        module = copy.deepcopy(net.module).train()
        cross_entropy(module(planes(x)), y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            found = net.data_gradient(x, y)
        for ours, p in zip(found, module.parameters(), strict=True):
            assert torch.allclose(ours, p.grad, atol=1e-6)

    def test_of_a_pull(self) -> None:
        (x, _), net = batch(), deep()
        pull = torch.from_numpy(rng_for(0).normal(size=(8, C)).astype(np.float32))
        module = copy.deepcopy(net.module).train()
        (module(planes(x)) * pull).sum().backward()
        for ours, p in zip(net.pulled(x, pull), module.parameters(), strict=True):
            assert torch.allclose(ours, p.grad, atol=1e-5)

    def test_of_a_pull_beside_the_data(self) -> None:
        (x, y), net = batch(), deep()
        module = copy.deepcopy(net.module).train()
        scores = module(planes(x))
        (cross_entropy(scores, y) + (scores**2).sum() / 2).backward()
        gradient = net.data_gradient(x, y, lambda s, of=slice(None): s)
        for ours, p in zip(gradient, module.parameters(), strict=True):
            assert torch.allclose(ours, p.grad, atol=1e-4)

    def test_fisher_is_the_mean_of_squared_single_sample_gradients(self) -> None:
        (x, y), net = batch(20), deep()
        module = copy.deepcopy(net.module).eval()
        slow = [torch.zeros_like(p) for p in module.parameters()]
        for i in range(20):
            loss = cross_entropy(module(planes(x[i : i + 1])), y[i : i + 1])
            grads = torch.autograd.grad(loss, list(module.parameters()))
            slow = [s + g**2 / 20 for s, g in zip(slow, grads, strict=True)]
        with torch.no_grad():
            found = net.fisher(x, y)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, slow, strict=True))

    def test_frozen_below_moves_the_classifier_alone(self) -> None:
        (x, y), net = batch(), deep()
        net.frozen = True
        before = copy.deepcopy(net.module.state_dict())
        with torch.no_grad():
            step(net, x, y, 0.1, LinearSettings(weight_decay=0.0), None)
        moved = [name for name, value in net.module.state_dict().items() if not torch.equal(value, before[name])]
        assert len(moved) == 2, moved

    def test_mixed_precision_stays_near(self) -> None:
        x, y = batch(24)
        whole, half = (deep(mixed=mixed).data_gradient(x, y)[-2] for mixed in (False, True))
        assert 0 < float((whole - half).norm() / whole.norm()) < 0.1


SHORT = {"net": TINY, "epochs": 2, "batch": 16, "lr": 0.05}


@pytest.mark.proof("matrix")
def test_a_network_learns_and_the_seed_decides_all() -> None:
    runs = [evaluate(painted(), "clear-iid", ["finetune"], settings=SHORT | {"epochs": 12}) for _ in range(2)]
    assert runs[0]["results"][0]["matrix"] == runs[1]["results"][0]["matrix"]
    assert runs[0]["results"][0]["scores"]["in_domain"]["mean"] > 0.9


FROZEN = [(f"{name}(net=test_resnet{more})", protocol) for name, more in (("acm", ""), ("fc-only", ",lr=1.0"))
          for protocol in ("near-future", "clear-iid")]  # fmt: skip


@pytest.mark.parametrize(("name", "protocol"), few_of(FROZEN, [FROZEN[0], FROZEN[3]]))
def test_a_frozen_network_serves_learners_on_images(name: str, protocol: str) -> None:
    settings = {"batch": 20, "shift": 0, "updates": 40} if protocol == "near-future" else {}
    settings |= {"fc-only.epochs": 40} if protocol == "clear-iid" and name.startswith("fc-only") else {}
    found = evaluate(painted(), protocol, [name], settings=settings)
    assert not found["skipped"]
    last = found["results"][0]["matrix"][1][1]
    assert last > (0.9 if name.startswith("acm") else 0.5)


def test_acm_compares_the_networks_features_not_pixels() -> None:
    learner = Acm(net="test_resnet")
    learner.begin(Task(3, (32, 32, 3)), rng_for(0))
    x = painted().steps[0]["train"].x[:4]
    width = int(learner.model.params[-2].shape[1])
    assert learner.compared(x).shape == (4, width)
    assert width < 32 * 32 * 3
    before = [p.clone() for p in learner.model.params]
    learner.learn(x, np.arange(4) % 3)
    assert all((a == b).all() for a, b in zip(before, learner.model.params, strict=True))


def test_a_network_needs_images() -> None:
    for kind in (Acm, Finetune):
        with pytest.raises(IncompatibleStream, match="net is 'resnet18', which takes images"):
            kind(net="resnet18").begin(Task(3, (8,)), rng_for(0))


class TestWeights:
    @pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
    def test_a_checkpoint_with_other_classes_gives_all_but_the_classifier(self, suffix: str, tmp_path: Path) -> None:
        source = Deep.new(TINY, 7, (), rng_for(5), "cpu", False).module.state_dict()
        path = tmp_path / f"w{suffix}"
        if suffix == ".pt":
            torch.save(source, path)
        else:
            from safetensors.torch import save_file

            save_file(source, path)
        made = Deep.new(TINY, C, (), rng_for(0), "cpu", False, str(path)).module.state_dict()
        other = [name for name in made if made[name].shape != source[name].shape]
        assert len(other) == 2
        assert all(torch.equal(made[name], source[name]) for name in made if name not in other)

    def test_a_tag_of_timm_gives_all_but_the_classifier(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from safetensors.torch import save_file

        copy_of_hub = tmp_path / "model.safetensors"
        source = Deep.new(TINY, 1000, (), rng_for(5), "cpu", False).module.state_dict()
        save_file(source, copy_of_hub)
        monkeypatch.setattr("driftline.curate.encoders.backbone.offline_copy", lambda *_: str(copy_of_hub))
        for tag in ("r160_in1k", f"{TINY}.r160_in1k"):
            made = Deep.new(TINY, C, (), rng_for(0), "cpu", False, tag).module.state_dict()
            assert sum(not torch.equal(made[name], source[name]) for name in made) == 2
        with pytest.raises(MissingFile, match=r"timm has no such weights of test_resnet.*one of: r160_in1k"):
            Deep.new(TINY, C, (), rng_for(0), "cpu", False, "r161_in1k")

    def test_a_checkpoint_that_does_not_fit_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="There is no file"):
            Deep.new(TINY, C, (), rng_for(0), "cpu", False, str(tmp_path / "none.pt"))
        for suffix in (".pt", ".safetensors"):
            (tmp_path / f"bad{suffix}").write_bytes(b"no weights at all")
            with pytest.raises(BadInput, match="cannot be read as a checkpoint"):
                Deep.new(TINY, C, (), rng_for(0), "cpu", False, str(tmp_path / f"bad{suffix}"))
        torch.save({"stem.weight": torch.zeros(2)}, tmp_path / "other.pt")
        with pytest.raises(BadInput, match="does not fit the network"):
            Deep.new(TINY, C, (), rng_for(0), "cpu", False, str(tmp_path / "other.pt"))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="Unknown net 'resnet-18'. Did you mean 'resnet18'?"):
        Finetune(net="resnet-18").begin(Task(C, (SIDE, SIDE, 3)), rng_for(0))
    with pytest.raises(BadConfig, match="augment is 'flip.twirl'. Expected flip, crop, rotate, joined by"):
        spec_of("finetune(augment=flip+twirl)")
    with pytest.raises(BadConfig, match="precision is 'float8'. Expected 'float32' or 'bfloat16'"):
        spec_of("finetune(precision=float8)")
    for learner in ("finetune", "acm", "lora", "ft"):
        with pytest.raises(BadConfig, match=f"{learner}: device is 'gpu'. Expected cpu, cuda or auto."):
            spec_of(f"{learner}(device=gpu)")


def test_weights_of_a_network_are_not_ignored_by_a_linear_head() -> None:
    with pytest.raises(BadConfig, match="weights is 'none.pth', and net=linear starts from random weights"):
        Finetune(weights="none.pth").begin(Task(C, (16,)), rng_for(0))


def test_a_rule_gets_the_view_that_was_trained_on() -> None:
    seen = []

    class Spy(Rule):
        def gradient(self, net, grads, x, y):  # type: ignore[no-untyped-def]
            seen.append(x)
            return grads

    x, y = images(16)
    fit(deep(kinds=("flip",)), x, y, LinearSettings(epochs=1, batch=16, lr=0.01), rng_for(0), rule=Spy())
    assert seen[0].dtype == torch.float32
    assert seen[0].shape == (16, 3, SIDE, SIDE)


# ---- networks on images under near-future, where steps have very different sizes


def uneven() -> Stream:
    """Case 36: steps of very different size, the second of one class."""
    rng, steps, past = rng_for(0, "uneven"), [], 0
    for t, n in enumerate((60, 3, 1, 20, 2)):
        splits = {}
        for name in ("train", "test"):
            y = np.zeros(n, np.int64) if t == 1 else np.arange(n, dtype=np.int64) % 3
            x = rng.integers(60, 130, (n, 16, 16, 3))
            x[np.arange(n), :, :, y] += 60
            ids = np.array([f"{t}{name}{i}" for i in range(n)])
            splits[name] = Split(x.astype(np.uint8), y, ids, np.arange(n) + past)
        past += n
        steps.append(Step(t, str(t), splits))
    return Stream("uneven", steps, list("abc"), sha256="uneven")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("batch", [8, 59, 64, 85])
@pytest.mark.parametrize("spec", [f"finetune(net={TINY})", f"er-online(net={TINY})"])
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
