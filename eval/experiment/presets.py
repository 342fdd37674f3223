"""The papers' hyper-parameters by name, for the learners and protocols that they are about; --set overrides the preset.

A new preset is one value here and one line in `PRESETS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftline.curate.core.registry import Registry
from driftline.eval.experiment.settings import setting_names

STEPWISE = (  # trained step by step: CLEAR's methods, and ours beside them
    "nap", "scratch", "finetune", "cumulative", "joint", "er", "reservoir", "der", "der++", "gdumb", "agem",
    "ewc", "si", "lwf", "cwr", "self-training",
)  # fmt: skip
ONLINE = ("overadapt", "er-online", "fc-only", "ace", "acm", "cosine-fc")  # learn batch after batch
BATCHWISE = ("finetune", "der", "der++", "agem", "ewc", "si", "lwf")  # of STEPWISE, those that can, too
CORRECTED = ("online-linear", "static-linear", "knn-lm", *BATCHWISE)  # learn seed data, then corrections


@dataclass(frozen=True)
class Preset:
    """Settings of a paper, and whose they are."""

    learners: Sequence[str] = ()
    """names of driftline's own learners that `settings` are for, as far as they have them"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of these learners; `NAME.setting` of one of them"""
    protocols: Sequence[str] = ()
    """names of driftline's own protocols that `rules` are for"""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """settings of these protocols"""


def _clear(code: bool, **settings: Any) -> Preset:
    """code: with what CLEAR's published numbers come from."""
    if not code:
        return Preset(STEPWISE, settings)
    same = {"scale": "none", "variant": "reference"}
    return Preset(STEPWISE, settings | same, ("clear-iid", "clear-streaming"), {"splits": "random"})


LINEAR: dict[str, Any] = {
    "net": "linear",
    "lr": 1.0,
    "batch": 256,
    "epochs": 100,
    "decay_after": 60,
}  # [CLEAR, suppl. 5]
MLP: dict[str, Any] = LINEAR | {"net": "mlp", "hidden": 2048, "lr": 0.1}  # [CLEAR, supplement 6]
RESNET18: dict[str, Any] = {  # [CLEAR, supplement 5]
    "net": "resnet18",
    "lr": 0.01,
    "weight_decay": 1e-5,
    "batch": 64,
    "epochs": 70,
    "decay_after": 30,
    "augment": "flip+crop",
}
CLEAR_LINEAR, CLEAR_LINEAR_CODE = _clear(False, **LINEAR), _clear(True, **LINEAR)
CLEAR_MLP, CLEAR_MLP_CODE = _clear(False, **MLP), _clear(True, **MLP)
CLEAR_RESNET18, CLEAR_RESNET18_CODE = _clear(False, **RESNET18), _clear(True, **RESNET18)


def _near_future(batch: int, shift: int, updates: int) -> Preset:
    """Its learning rate, 0.005, is for networks on images, where it is the first candidate of lr=auto."""
    rules = {"batch": batch, "shift": shift, "updates": updates}
    return Preset((*ONLINE, *BATCHWISE), {"weight_decay": 1e-4}, ("near-future",), rules)


CGLM, CGLM_FAST = _near_future(64, 256, 10), _near_future(64, 256, 1)  # [near-future accuracy, sec. 5: slow, fast]
CLOC, CLOC_FAST = _near_future(128, 16_384, 5), _near_future(128, 16_384, 1)
OCRR = Preset(
    CORRECTED,
    {
        "optimiser": "adamw",
        "lr": 0.01,
        "weight_decay": 1e-4,
        "batch": 256,
        "epochs": 30,
        "decay_after": 30,
        "scale": "none",
        "correct_lr": 0.05,
        "ewc.strength": 1000.0,
        "agem.memory": 1000,
        "agem.sample": 64,
        "lwf.weight": 1.0,
        "lwf.temperature": 2.0,
    },
)
SEQ_TO_FINAL = Preset(protocols=("seq-to-final",), rules={"budget": "paper", "fidelity": "clean"})
SEQ_TO_FINAL_CODE = Preset(protocols=("seq-to-final",), rules={"budget": "paper", "fidelity": "paper-code"})

PRESETS = Registry(
    "preset",
    {
        "clear-linear": "driftline.eval.experiment.presets:CLEAR_LINEAR",
        "clear-mlp": "driftline.eval.experiment.presets:CLEAR_MLP",
        "clear-resnet18": "driftline.eval.experiment.presets:CLEAR_RESNET18",
        "clear-linear-code": "driftline.eval.experiment.presets:CLEAR_LINEAR_CODE",
        "clear-mlp-code": "driftline.eval.experiment.presets:CLEAR_MLP_CODE",
        "clear-resnet18-code": "driftline.eval.experiment.presets:CLEAR_RESNET18_CODE",
        "ocrr": "driftline.eval.experiment.presets:OCRR",
        "seq-to-final": "driftline.eval.experiment.presets:SEQ_TO_FINAL",
        "seq-to-final-code": "driftline.eval.experiment.presets:SEQ_TO_FINAL_CODE",
        "cglm": "driftline.eval.experiment.presets:CGLM",
        "cglm-fast": "driftline.eval.experiment.presets:CGLM_FAST",
        "cloc": "driftline.eval.experiment.presets:CLOC",
        "cloc-fast": "driftline.eval.experiment.presets:CLOC_FAST",
    },
)


def fitting(preset: str, kinds: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """What a preset gives to each of some learners and protocols (name → class): name → settings. It gives nothing to
    those that it does not name, and a learner gets what it has: the blind classifier has no learning rate."""
    chosen: Preset = PRESETS[preset]
    of_each: dict[str, dict[str, Any]] = {}
    for name, kind in kinds.items():
        settings = chosen.settings if name in chosen.learners else chosen.rules if name in chosen.protocols else {}
        if not kind.__module__.startswith("driftline.eval."):  # a stranger's, of the same name
            settings = {}
        of_one = {key: value for key, value in settings.items() if "." not in key}
        of_one |= {key.partition(".")[2]: value for key, value in settings.items() if key.startswith(f"{name}.")}
        own = setting_names(kind)
        of_each[name] = {key: value for key, value in of_one.items() if key in own}
    return of_each
