"""The papers' hyper-parameters by name, as settings of `evaluate`; whatever is set beside a preset goes before it.

A new preset is one dictionary here and one line in `PRESETS`; it reaches every learner that has its settings.
"""

from __future__ import annotations

from curate.ground.catalogue import Catalogue

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

PRESETS = Catalogue(
    "preset",
    {
        "clear-linear": "eval.presets:CLEAR_LINEAR",
        "clear-mlp": "eval.presets:CLEAR_MLP",
        "clear-resnet18": "eval.presets:CLEAR_RESNET18",
    },
)
