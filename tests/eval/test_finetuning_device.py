"""No method of Seq-to-Final leaves a tensor on the CPU when its network is elsewhere.

Torch's device "meta" stands in for a GPU: it has shapes and no numbers, and refuses to mix with the CPU's tensors.
"""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from driftline.eval.finetuning import method, search
from driftline.eval.finetuning.fit import Rule
from driftline.eval.finetuning.search import Rules, points
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.seq_to_final import ToFinal
from driftline.stream_builder.stream import Split, Step

METHODS = sorted(name for name, kind in LEARNERS.items() if isinstance(kind, type) and issubclass(kind, ToFinal))
SIDE, CLASSES = 16, 3


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What "meta" cannot do, as no device does: be read, be multiplied in halves, be updated in one kernel."""
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda groups, lr, fused: adam(groups, lr=lr))
    monkeypatch.setattr(torch, "autocast", lambda *given, **settings: nullcontext())
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: 0.5)
    monkeypatch.setattr(torch.Tensor, "__int__", lambda self: 0)
    monkeypatch.setattr(torch.Tensor, "__index__", lambda self: 0)
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda self: True)
    for module in (search, method):
        monkeypatch.setattr(module, "digest_of", lambda state: f"{len(state)} tensors")


def images(n: int) -> Split:
    return Split(np.zeros((n, SIDE, SIDE, 3), np.uint8), np.arange(n) % CLASSES, np.arange(n).astype(str))


def task() -> Task:
    grid = points((1e-3,), (1e-4,), (0.5,))
    rule = Rule(epochs=1, batch=10, augment=("flip", "crop", "rotate"), normalise=True)
    rules = Rules("conv-1", "clean", rule, dict.fromkeys(("base", "side", "joint", "joint-side"), grid))
    return Task(CLASSES, (SIDE, SIDE, 3), steps=3, rules=rules)


def learned(learner: Any) -> Any:
    learner.begin(task(), np.random.default_rng(0))
    learner.learn_sequence([Step(t, str(t), {"train": images(20), "val": images(10)}) for t in range(3)])
    return learner.net


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_to_its_device(name: str, elsewhere: None) -> None:
    net = learned(LEARNERS[name](device="meta"))

    assert {p.device.type for p in net.parameters()} == {"meta"}


@pytest.mark.parametrize(
    "settings",
    [
        {"final": final}
        for final in ("unfreeze-last", "lowrank-add", "lowrank-mul", "search", "surgical-rgn", "surgical-snr")
    ]
    + [{"history": "each", "regulariser": kind} for kind in ("l1", "previous-l2", "previous-all-l2", "fisher-all")],
    ids=str,
)
def test_a_composed_method_does_too(settings: dict[str, str], elsewhere: None) -> None:
    net = learned(LEARNERS["to-final"](device="meta", **settings))

    assert {p.device.type for p in net.parameters()} == {"meta"}
