"""The papers' hyper-parameters by name, as settings of `evaluate`; --set overrides the preset.

A new preset is one dictionary here and one line in `PRESETS`; it applies to every learner that has its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.curate.core.registry import Registry
from driftline.eval.experiment.settings import setting_names

CLEAR_LINEAR = {"net": "linear", "lr": 1.0, "batch": 256, "epochs": 100, "decay_after": 60}  # [CLEAR, supplement 5]
CLEAR_MLP = CLEAR_LINEAR | {"net": "mlp", "hidden": 2048, "lr": 0.1}  # [CLEAR, supplement 6]
CLEAR_RESNET18 = {  # [CLEAR, supplement 5]
    "net": "resnet18",
    "lr": 0.01,
    "weight_decay": 1e-5,
    "batch": 64,
    "epochs": 70,
    "decay_after": 30,
    "augment": "flip+crop",
}
CODE = {"scale": "none", "variant": "reference", "splits": "random"}  # what CLEAR's published numbers come from
CLEAR_LINEAR_CODE, CLEAR_MLP_CODE, CLEAR_RESNET18_CODE = CLEAR_LINEAR | CODE, CLEAR_MLP | CODE, CLEAR_RESNET18 | CODE

CGLM = {"batch": 64, "shift": 256, "updates": 10, "weight_decay": 1e-4}  # [near-future accuracy, sec. 5: slow stream]
# Its learning rate, 0.005, is for networks on images, where it is the first candidate of lr=auto.
CLOC = CGLM | {"batch": 128, "shift": 16_384, "updates": 5}
OCRR = {
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
}
SEQ_TO_FINAL = {"budget": "paper", "fidelity": "clean"}
SEQ_TO_FINAL_CODE = {"budget": "paper", "fidelity": "paper-code"}  # the source of its published numbers
CGLM_FAST, CLOC_FAST = CGLM | {"updates": 1}, CLOC | {"updates": 1}

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


def fitting(name: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's settings that some of the protocols and learners (name → class) have: the blind classifier has no
    learning rate."""
    names = {owner: setting_names(kind) for owner, kind in kinds.items()}
    available = {name for owner, own in names.items() for setting in own for name in (setting, f"{owner}.{setting}")}
    return {key: value for key, value in PRESETS[name].items() if key in available}
