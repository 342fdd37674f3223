"""The C kernel against the loop in torch, its slow twin."""

import shutil
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pyarrow.lib
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import blobs

from driftline.curate.core.errors import BadConfig, Diverged
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused
from driftline.eval.engine.linear import Floats, Head, Labels, LinearSettings, fit

needs_kernel = pytest.mark.skipif(  # with a compiler, a kernel that was not built is a failure
    not fused.fits([torch.zeros(1, 32)], False) and shutil.which("cc") is None,
    reason="no C compiler: the package does without",
)


def both(
    x: Floats,
    y: Labels,
    s: LinearSettings,
    classes: int,
    memory: tuple[Floats, Labels] | None = None,
    half: bool = False,
    kind: str = "auto",
) -> tuple[Head, Head]:
    """The same training by the kernel and by torch."""
    heads = []
    for kernel in (kind, "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DRIFTLINE_KERNEL", kernel)
            head = Head.new(classes, x.shape[1], rng_for(0), half=half)
            fit(head, x, y, s, rng_for(1), memory)
            heads.append(head)
    return heads[0], heads[1]


@needs_kernel
def test_is_built_where_there_is_a_compiler() -> None:
    assert fused.fits([torch.zeros(1, 64)], half=False)


@pytest.mark.parametrize("x", [torch.zeros(2, 63), torch.zeros(2, 64).double(), torch.zeros(2, 64).half()])
def test_leaves_to_torch_what_it_could_not_read(x: torch.Tensor) -> None:
    assert not fused.fits([torch.zeros(2, 64), x], half=False)


HERE = fused.KINDS[: fused.library().driftline_best_kind() + 1] if fused.library() else ()
KINDS, HALVES = HERE[: fused.HALF], HERE[fused.HALF :]  # products of float32, and of bfloat16
needs_bfloat16 = pytest.mark.skipif(not HALVES, reason="no bfloat16 products on this processor")


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=15)
@given(
    st.integers(1, 90),
    st.integers(1, 140),
    st.integers(2, 40),
    st.integers(1, 64),
    st.booleans(),
    st.sampled_from([0, 0.01]),
)
def test_every_kind_of_registers_equals_torch(kind, n, width, classes, batch, replays, decay):
    x, y = blobs(n, width, classes, n)
    memory = blobs(n // 2 + 1, width, classes, n + 1) if replays else None
    s = LinearSettings(lr=0.1, batch=batch, epochs=8, decay_after=4, weight_decay=decay)  # 8: widths of any number
    ours, twin = both(x, y, s, classes, memory, kind=kind)
    for a, b in zip([*ours.params, *ours.velocity], [*twin.params, *twin.velocity], strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def shapes(count: int) -> Iterator[tuple[int, int, int]]:
    """Widths 16 … 4,096, classes 2 … 1,000 and batches 1 … 1,024, spread evenly over their logarithms."""
    rng = rng_for(0, "shapes")
    for _ in range(count):
        width, classes, batch = np.exp(rng.uniform(np.log([16, 2, 1]), np.log([4096, 1000, 1024]))).round().astype(int)
        yield int(width), int(classes), int(batch)


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", shapes(20), ids=str)
def test_it_equals_torch_on_shapes_of_any_size(kind, shape, monkeypatch):
    width, classes, batch = shape
    monkeypatch.setattr(fused, "suits", lambda *given: True)  # also where it is slower
    x, y = blobs(batch, width, classes, 0)
    head, (inputs, labels) = Head.new(classes, width, rng_for(0)), map(torch.from_numpy, (x, y))
    gradients = []
    for kernel in (kind, "off"):
        monkeypatch.setenv(fused.VARIABLE, kernel)
        gradients.append(head.data_gradient(inputs, labels))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    ours, twin = both(x, y, LinearSettings(lr=0.1, batch=batch, epochs=2), classes, kind=kind)
    for a, b in zip(ours.params, twin.params, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_very_wrong_scores_have_a_gradient_of_zero_or_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fused.VARIABLE, kind)
    params = [torch.eye(3, 32) * 500, torch.zeros(3)]
    _, bias = fused.gradient(params, torch.eye(3, 32), torch.tensor([1, 1, 1]))
    assert bias.tolist() == pytest.approx([1 / 3, -2 / 3, 1 / 3], abs=1e-6)


@pytest.mark.parametrize("which", ["none", "damaged", "another library"])
def test_torch_trains_without_a_library(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler; a file of another system in a shared folder, or cut short; one of another version."""
    damaged = tmp_path / "_kernel.abi3.so"
    damaged.write_bytes(b"\x7fELF, and no more")
    origin = {"none": None, "damaged": str(damaged), "another library": pyarrow.lib.__file__}[which]
    spec = None if origin is None else ModuleSpec("driftline.eval.engine._kernel", None, origin=origin)
    monkeypatch.setattr(fused, "find_spec", lambda name: spec)
    monkeypatch.delenv(fused.VARIABLE, raising=False)
    fused.library.cache_clear()
    try:
        assert fused.kind() == "torch"
        assert not fused.has_half()
        x, y = blobs(50, 32, 11, 0)
        ours, twin = both(x, y, LinearSettings(epochs=2), 11)
        assert torch.equal(ours.params[0], twin.params[0])
        monkeypatch.setenv(fused.VARIABLE, "avx1024")
        with pytest.raises(BadConfig, match="Expected one of auto, off on this processor"):
            fused.kind()
    finally:
        fused.library.cache_clear()


OURS = [(2048, 11, 256), (2048, 11), (1024, 11), (2048, 13), (2048, 9), (768, 13), (768, 60), (768, 2), (768, 25)]
TORCHS = [
    *[(2048, 1000, 256), (64, 10, 1024)],  # wide outputs, and narrow layers in large batches
    *[(16, 13), (63, 60), (327, 2), (3000, 25), (4096, 60)],  # trainings that pay for padding or leave the cache
    *[(2048, 11, 255), (1024, 11, 256), (2048, 13, 256), (2048, 9, 256), (2040, 11, 512), (2048, 24, 256)],  # gradients
]


def test_what_torch_computes_as_fast_is_left_to_it() -> None:
    assert [shape for shape in OURS if not fused.suits(*shape)] == []
    assert [shape for shape in TORCHS if fused.suits(*shape)] == []
    padded = [fused.suits(3000, 11, epochs=8), fused.suits(3000, 11, epochs=7), fused.suits(3008, 11, epochs=1)]
    assert padded == [True, False, True], "inputs are padded only for a training of some epochs"
    assert [fused.suits(256, 25, batch, tiles=True) for batch in (64, 63)] == [True, False]


@needs_kernel
def test_narrow_layers_train_in_the_kernel_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    monkeypatch.setattr(fused, "train", lambda *arrays, decay: steps.extend(arrays[4]) or len(steps))
    monkeypatch.delenv(fused.VARIABLE, raising=False)
    x, y = blobs(2000, 16, 5, 0)
    fit(Head.new(5, 16, rng_for(0)), x, y, LinearSettings(batch=1000, epochs=8), rng_for(1))
    assert len(steps) == 16


@needs_bfloat16
@pytest.mark.parametrize("kind", HALVES)
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 90), st.integers(1, 140), st.integers(2, 70), st.integers(0, 9))
def test_a_gradient_in_bfloat16_is_that_of_rounded_numbers(kind, n, width, classes, seed):
    """The twin adds in float64 what is rounded where the kernel rounds: inputs, weights, slopes of scores."""
    x, y = (torch.from_numpy(each) for each in blobs(n, width, classes, seed))
    generator = torch.Generator().manual_seed(seed)
    params = [torch.randn(classes, width, generator=generator), torch.randn(classes, generator=generator)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fused.VARIABLE, kind)
        ours = fused.gradient(params, x.bfloat16(), y)
    inputs, weights = x.bfloat16().double(), params[0].bfloat16().double()
    slopes = torch.softmax(inputs @ weights.T + params[1], 1)
    slopes[torch.arange(n), y] -= 1
    slopes /= n
    assert torch.allclose(ours[0].double(), slopes.float().bfloat16().double().T @ inputs, atol=3e-3 / n)
    assert torch.allclose(ours[1].double(), slopes.sum(0), atol=1e-6)


@needs_bfloat16
@pytest.mark.parametrize("kind", HALVES)
def test_in_bfloat16_it_is_nearer_to_float32_than_torch_is(kind: str) -> None:
    x, y = blobs(700, 256, 20, 3)
    s = LinearSettings(epochs=10, decay_after=6)
    exact = both(x, y, s, 20)[1]
    ours, twin = both(x, y, s, 20, half=True, kind=kind)
    away = [float((h.params[0] - exact.params[0]).square().mean().sqrt()) for h in (ours, twin)]
    size = float(exact.params[0].square().mean().sqrt())
    assert 0 < away[0] < 1.2 * away[1]
    assert away[0] < 0.01 * size


@needs_bfloat16
@pytest.mark.parametrize("kind", HALVES)
def test_in_bfloat16_the_same_training_gives_the_same_bytes(kind: str) -> None:
    x, y = blobs(300, 96, 20, 4)
    one, again = (both(x, y, LinearSettings(epochs=3), 20, half=True, kind=kind)[0] for _ in range(2))
    assert one.params[0].numpy().tobytes() == again.params[0].numpy().tobytes()


@needs_bfloat16
def test_without_its_products_bfloat16_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fused.VARIABLE, "avx2")
    assert not fused.has_half()
    assert not fused.fits([torch.zeros(1, 64).bfloat16()], half=True)


@needs_kernel
def test_divergence_is_named_as_in_torch() -> None:
    x, y = blobs(64, 32, 3, 0)
    x[5, 7] = np.inf
    with pytest.raises(Diverged, match="not finite"):
        fit(Head.new(3, 32, rng_for(0)), x, y, LinearSettings(epochs=2), rng_for(1))


@needs_kernel
def test_read_only_features_stay_as_they_are() -> None:
    x, y = blobs(64, 32, 3, 0)
    before = x.copy()
    x.flags.writeable = False
    fit(Head.new(3, 32, rng_for(0)), x, y, LinearSettings(epochs=2), rng_for(1))
    assert np.array_equal(x, before)
