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
from driftline.eval.finetuning import method, search
from driftline.eval.finetuning.modes import Hyper, Rule, Rules
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.seq_to_final import ToFinal
from driftline.eval.settings import spec_of
from driftline.stream_builder.stream import Split, Step


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """What "meta" cannot do, as no device does: be read, be multiplied in halves, be updated in one kernel."""
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda groups, lr, fused: adam(groups, lr=lr))
    monkeypatch.setattr(torch, "autocast", lambda *given, **settings: nullcontext())
    for name, value in (("float", 0.5), ("int", 0), ("index", 0), ("bool", True)):
        monkeypatch.setattr(torch.Tensor, f"__{name}__", lambda self, value=value: value)
    for module in (search, method):
        monkeypatch.setattr(module, "digest_of", lambda state: f"{len(state)} tensors")


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
    training = Training(recipe, Moco(recipe, 8, 0, "meta"), pixels, "meta", ProcessGroup(), 0)
    assert training.update(np.arange(4), 0, 0) == 0.5
    assert of([*training.weights, training.moco.queue, *training.moco.key.parameters()]) == {"meta"}


def test_a_small_clip_keeps_to_its_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(small_clip, "save", lambda model, config, out: saved.append(model))
    images = np.zeros((4, 32, 32, 3), np.uint8)
    text = lambda i, rng: f"thing {i}"  # noqa: E731
    small_clip.train(images, text, ["a", "b", "a", "c"], tmp_path, RunLog(quiet=True), 0, 1, 2, device="meta")
    assert of(saved[0].parameters()) == {"meta"}


METHODS = sorted(name for name, kind in LEARNERS.items() if isinstance(kind, type) and issubclass(kind, ToFinal))
FINALS = ("unfreeze-last", "lowrank-add", "lowrank-mul", "search", "surgical-rgn", "surgical-snr")
COMPOSED = [
    *(f"to-final(final={final})" for final in FINALS),
    *(f"to-final(history=each,regulariser={kind})" for kind in ("l1", "previous-l2", "previous-all-l2", "fisher-all")),
]
SIDE, CLASSES = 16, 3


def pictures(n: int) -> Split:
    return Split(np.zeros((n, SIDE, SIDE, 3), np.uint8), np.arange(n) % CLASSES, np.arange(n).astype(str))


@pytest.mark.parametrize("name", [*METHODS, *COMPOSED])
def test_a_method_of_seq_to_final_keeps_to_its_device(name: str) -> None:
    grid = [Hyper(dropout=0.5)]
    rule = Rule(epochs=1, batch=10, augment=("flip", "crop", "rotate"), normalise=True)
    rules = Rules("conv-1", False, rule, dict.fromkeys(("base", "side", "joint", "joint-side"), grid))
    learner: Any = spec_of(name)(device="meta")
    learner.begin(Task(CLASSES, (SIDE, SIDE, 3), steps=3, rules=rules), np.random.default_rng(0))
    learner.learn_sequence([Step(t, str(t), {"train": pictures(20), "val": pictures(10)}) for t in range(3)])
    assert of(learner.net.parameters()) == {"meta"}
