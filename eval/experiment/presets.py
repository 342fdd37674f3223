"""The papers' hyper-parameters by name, for the learners and protocols that they are about; --set overrides the preset.

A preset is one entry of `PRESETS`: whose settings they are (names of learners or of protocols) → the settings, of which
each takes those that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.curate.core.errors import UnknownName, available, did_you_mean
from driftline.eval.experiment.settings import setting_names

STEPWISE = (  # trained step by step: CLEAR's methods, and ours beside them
    "nap", "scratch", "finetune", "cumulative", "joint", "er", "reservoir", "der", "der++", "gdumb", "agem",
    "ewc", "si", "lwf", "cwr", "self-training",
)  # fmt: skip
ONLINE = ("overadapt", "er-online", "fc-only", "ace", "acm", "cosine-fc")  # learn batch after batch
BATCHWISE = ("finetune", "der", "der++", "agem", "ewc", "si", "lwf")  # of STEPWISE, those that can, too
CORRECTED = ("online-linear", "static-linear", "knn-lm", *BATCHWISE)  # learn seed data, then corrections
CLEAR = ("clear-iid", "clear-streaming")

LINEAR = {"net": "linear", "lr": 1.0, "batch": 256, "epochs": 100, "decay_after": 60}  # [CLEAR, supplement 5]
IMAGENET = LINEAR | {"lr": 0.1}  # on features of supervised ImageNet [CLEAR, supplement 6]
MLP = LINEAR | {"net": "mlp", "hidden": 2048, "lr": 0.1}  # [CLEAR, supplement 6]
RESNET18 = {  # [CLEAR, supplement 5]
    "net": "resnet18", "lr": 0.01, "weight_decay": 1e-5, "batch": 64, "epochs": 70, "decay_after": 30,
    "augment": "flip+crop",
}  # fmt: skip
CODE = {"scale": "none", "variant": "reference"}  # with what CLEAR's published numbers come from
OF_CODE = {CLEAR: {"splits": "random"}, ("agem",): {"sample": "step"}}
OCRR = {
    "optimiser": "adamw", "lr": 0.01, "weight_decay": 1e-4, "batch": 256, "epochs": 30, "decay_after": 30,
    "scale": "none", "correct_lr": 0.05,
}  # fmt: skip
ON_STREAMS = (*ONLINE, *BATCHWISE)
DECAY = {
    "weight_decay": 1e-4
}  # the paper's learning rate, 0.005, is for networks on images: the first of lr=auto there

Preset = Mapping[tuple[str, ...], Mapping[str, Any]]
PRESETS: dict[str, Preset] = {
    "clear-linear": {STEPWISE: LINEAR},
    "clear-linear-imagenet": {STEPWISE: IMAGENET},
    "clear-mlp": {STEPWISE: MLP},
    "clear-resnet18": {STEPWISE: RESNET18},
    "clear-linear-code": {STEPWISE: LINEAR | CODE, **OF_CODE},
    "clear-linear-imagenet-code": {STEPWISE: IMAGENET | CODE, **OF_CODE},
    "clear-mlp-code": {STEPWISE: MLP | CODE, **OF_CODE},
    "clear-resnet18-code": {STEPWISE: RESNET18 | CODE, **OF_CODE},
    "ocrr": {
        CORRECTED: OCRR,
        ("ewc",): {"strength": 1000.0},
        ("agem",): {"memory": 1000, "sample": 64},
        ("lwf",): {"weight": 1.0, "temperature": 2.0},
    },
    "seq-to-final": {("seq-to-final",): {"budget": "paper", "fidelity": "clean"}},
    "seq-to-final-code": {("seq-to-final",): {"budget": "paper", "fidelity": "paper-code"}},
    # [near-future accuracy, sec. 5: slow, fast]
    "cglm": {ON_STREAMS: DECAY, ("near-future",): {"batch": 64, "shift": 256, "updates": 10}},
    "cglm-fast": {ON_STREAMS: DECAY, ("near-future",): {"batch": 64, "shift": 256, "updates": 1}},
    "cloc": {ON_STREAMS: DECAY, ("near-future",): {"batch": 128, "shift": 16_384, "updates": 5}},
    "cloc-fast": {ON_STREAMS: DECAY, ("near-future",): {"batch": 128, "shift": 16_384, "updates": 1}},
}


def fitting(preset: str, kinds: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """What a preset gives to each of some learners and protocols (name → class): name → settings. It gives nothing to
    those that it does not name, and a learner gets what it has: the blind classifier has no learning rate. Raises
    UnknownName."""
    if preset not in PRESETS:
        problem = f"Unknown preset {preset!r}."
        raise UnknownName(
            problem, did_you_mean(preset, PRESETS), available(preset, [*PRESETS], "driftline list presets")
        )
    of_each: dict[str, dict[str, Any]] = {}
    for name, kind in kinds.items():
        ours = kind.__module__.startswith("driftline.eval.")  # not a stranger's, of the same name
        groups = [settings for owners, settings in PRESETS[preset].items() if ours and name in owners]
        own = setting_names(kind)
        of_each[name] = {key: value for settings in groups for key, value in settings.items() if key in own}
    return of_each


def text_of(preset: Preset) -> str:
    """A preset in a list of them.

    >>> text_of({("er", "nap"): {"lr": 1.0, "epochs": 5}, ("clear-iid",): {"splits": "random"}})
    'er, nap: lr=1.0, epochs=5; clear-iid: splits=random.'
    """
    groups = [
        f"{', '.join(owners)}: {', '.join(f'{key}={value}' for key, value in settings.items())}"
        for owners, settings in preset.items()
    ]
    return "; ".join(groups) + "."
