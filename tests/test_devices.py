"""What trains elsewhere than on the CPU leaves none of its tensors there.

Torch's device "meta" stands in for a GPU: it has shapes and no numbers, and refuses to mix with the CPU's tensors.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from driftline.curate.core.run_log import RunLog
from driftline.curate.pretrain import SMALL, small_clip
from driftline.curate.pretrain.moco import Moco
from driftline.curate.pretrain.train import ProcessGroup, Training
from driftline.eval.engine.heads import Mlp
from driftline.eval.engine.linear import Head, LinearSettings, _train, batches


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What "meta" cannot do, as no device does: be read."""
    monkeypatch.setattr(torch, "autocast", lambda *given, **settings: nullcontext())
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: 0.5)
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda self: True)


def of(tensors: Any) -> set[str]:
    return {tensor.device.type for tensor in tensors}


def test_it_refuses_to_mix() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        torch.zeros(3, device="meta") @ torch.zeros(3)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_heads_keep_to_their_device(optimiser: str, half: bool) -> None:
    rng, settings = np.random.default_rng(0), LinearSettings(epochs=1, batch=8, optimiser=optimiser)
    x = torch.zeros(20, 8, device="meta", dtype=torch.bfloat16 if half else torch.float32)
    y = torch.zeros(20, dtype=torch.int64, device="meta")
    for net in (Head.new(3, 8, rng, "meta", half), Mlp.new(3, 8, 5, rng, "meta", half)):
        with torch.no_grad():
            assert _train(net, [x, x[:5]], [y, y[:5]], batches([20, 5], settings, rng), settings, None) == 3
        assert of([*net.params, *net.velocity]) == {"meta"}


def test_moco_keeps_to_its_device() -> None:
    recipe = replace(SMALL, batch=4, queue=8, size=32, room=36)
    pixels = np.zeros((8, 36, 36, 3), np.uint8)
    training = Training(recipe, Moco.new(recipe, 8, 0, "meta"), pixels, "meta", ProcessGroup(), 0)
    assert training.update(np.arange(4), 0, 0) == 0.5
    assert of([*training.weights, training.moco.queue, *training.moco.key.parameters()]) == {"meta"}


def test_a_small_clip_keeps_to_its_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(small_clip, "save", lambda model, config, out: saved.append(model))
    images = np.zeros((4, 32, 32, 3), np.uint8)
    text = lambda i, rng: f"thing {i}"  # noqa: E731
    small_clip.train(images, text, ["a", "b", "a", "c"], tmp_path, RunLog(quiet=True), 0, 1, 2, device="meta")
    assert of(saved[0].parameters()) == {"meta"}
