"""The C kernel against the loop in torch, its slow twin."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.core.errors import Diverged
from curate.core.seeding import rng_for
from eval.engine import fused
from eval.engine.linear import Floats, Head, Labels, LinearSettings, fit

needs_kernel = pytest.mark.skipif(  # with a compiler, a kernel that was not built is a failure
    not fused.fits([torch.zeros(1, 32)], False) and shutil.which("cc") is None,
    reason="no C compiler: the package does without",
)


def data(n: int, width: int, classes: int, seed: int) -> tuple[Floats, Labels]:
    rng = rng_for(seed, "fused")
    y = rng.integers(classes, size=n)
    x = rng.normal(size=(classes, width))[y] + 0.7 * rng.normal(size=(n, width))
    return (x / np.sqrt(width)).astype(np.float32), y.astype(np.int64)


def both(
    x: Floats,
    y: Labels,
    s: LinearSettings,
    classes: int,
    memory: tuple[Floats, Labels] | None = None,
    half: bool = False,
) -> tuple[Head, Head]:
    """The same training by the kernel and by torch."""
    heads = []
    for kernel in ("on", "off"):
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
    assert not fused.fits([x], half=False)
    assert not fused.fits([torch.zeros(2, 64), x], half=False)


@needs_kernel
@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 90),
    st.integers(1, 4),
    st.integers(2, 40),
    st.integers(1, 70),
    st.booleans(),
    st.sampled_from([0, 0.01]),
)
def test_equals_torch(n: int, blocks: int, classes: int, batch: int, replays: bool, decay: float) -> None:
    x, y = data(n, 32 * blocks, classes, n)
    memory = data(n // 2 + 1, 32 * blocks, classes, n + 1) if replays else None
    s = LinearSettings(lr=0.5, batch=batch, epochs=4, decay_after=2, weight_decay=decay)
    ours, twin = both(x, y, s, classes, memory)
    for a, b in zip([*ours.params, *ours.velocity], [*twin.params, *twin.velocity], strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.skipif(
    not fused.fits([torch.zeros(1, 32).bfloat16()], True), reason="no bfloat16 products on this processor"
)
def test_in_bfloat16_it_is_nearer_to_float32_than_torch_is() -> None:
    x, y = data(700, 256, 20, 3)
    s = LinearSettings(epochs=10, decay_after=6)
    exact = both(x, y, s, 20)[1]
    ours, twin = both(x, y, s, 20, half=True)
    away = [float((h.weights - exact.weights).square().mean().sqrt()) for h in (ours, twin)]
    size = float(exact.weights.square().mean().sqrt())
    assert 0 < away[0] < 1.2 * away[1]
    assert away[0] < 0.01 * size


@needs_kernel
def test_divergence_is_named_as_in_torch() -> None:
    x, y = data(64, 32, 3, 0)
    x[5, 7] = np.inf
    with pytest.raises(Diverged, match="not finite"):
        fit(Head.new(3, 32, rng_for(0)), x, y, LinearSettings(epochs=2), rng_for(1))


@needs_kernel
def test_read_only_features_stay_as_they_are() -> None:
    x, y = data(64, 32, 3, 0)
    before = x.copy()
    x.flags.writeable = False
    fit(Head.new(3, 32, rng_for(0)), x, y, LinearSettings(epochs=2), rng_for(1))
    assert np.array_equal(x, before)
