"""The papers' hyper-parameters by name, for the learners and protocols that they are about; --set overrides the preset.
And named sets of learners with settings: the rows of published tables, for `--learners`.

A preset is one entry of `PRESETS`: whose settings they are (names of learners or of protocols) → the settings, of which
each takes those that it has.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.curate.core.errors import BadConfig, UnknownName, available, did_you_mean
from driftline.eval.settings import setting_names

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
NETWORKS: dict[str, dict[str, Any]] = {"linear": LINEAR, "linear-imagenet": IMAGENET, "mlp": MLP, "resnet18": RESNET18}
CODE = {"scale": "none", "variant": "reference"}  # with what CLEAR's published numbers come from
OF_CODE = {CLEAR: {"splits": "random"}, ("agem",): {"sample": "step"}}
OCRR = {
    "optimiser": "adamw", "lr": 0.01, "weight_decay": 1e-4, "batch": 256, "epochs": 30, "decay_after": 30,
    "scale": "none", "correct_lr": 0.05,
}  # fmt: skip
ON_STREAMS = (*ONLINE, *BATCHWISE)
NETWORK = {"net": "resnet50", "weights": "tv_in1k", "lr": 0.005, "weight_decay": 1e-4}  # [sec. 3.3; Ghunaim et al.]
OF_IMAGES = ("net", "weights", "lr")  # of NETWORK: a stream of other samples has no use for them
INSTAGRAM = {"weights": "fb_swsl_ig1b_ft_in1k"}  # [sec. 3.3]

Preset = Mapping[tuple[str, ...], Mapping[str, Any]]


def _near_future(**rules: int) -> Preset:
    """[near-future accuracy, sec. 4: slow and fast streams]"""
    return {ON_STREAMS: NETWORK, ("overadapt", "fc-only"): INSTAGRAM, ("near-future",): rules}


PRESETS: dict[str, Preset] = {
    **{f"clear-{net}": {STEPWISE: settings} for net, settings in NETWORKS.items()},
    **{f"clear-{net}-code": {STEPWISE: settings | CODE, **OF_CODE} for net, settings in NETWORKS.items()},
    "ocrr": {
        CORRECTED: OCRR,
        ("ewc",): {"strength": 1000.0},
        ("agem",): {"memory": 1000, "sample": 64},
        ("lwf",): {"weight": 1.0, "temperature": 2.0},
    },
    "seq-to-final": {("seq-to-final",): {"budget": "paper", "fidelity": "clean"}},
    "seq-to-final-code": {("seq-to-final",): {"budget": "paper", "fidelity": "paper-code"}},
    "cglm": _near_future(batch=64, shift=256, updates=10),
    "cglm-fast": _near_future(batch=64, shift=256, updates=1),
    "cloc": _near_future(batch=128, shift=16_384, updates=5),
    "cloc-fast": _near_future(batch=128, shift=16_384, updates=1),
}


def fitting(preset: str, kinds: Mapping[str, type], x_shape: tuple[int, ...] = (1, 1, 3)) -> dict[str, dict[str, Any]]:
    """What a preset gives to each of some learners and protocols (name → class): name → settings. It gives nothing to
    those that it does not name, and a learner gets what it has: the blind classifier has no learning rate. x_shape: of
    a sample; one that is no image has no use for `OF_IMAGES` of a pre-trained network. Raises UnknownName."""
    if preset not in PRESETS:
        problem = f"Unknown preset {preset!r}."
        expected = did_you_mean(preset, PRESETS)
        raise UnknownName(problem, expected, available(preset, [*PRESETS], "driftline list presets"))
    idle = OF_IMAGES if _of_network(preset) and len(x_shape) != 3 else ()
    of_each: dict[str, dict[str, Any]] = {}
    for name, kind in kinds.items():
        ours = kind.__module__.startswith("driftline.eval.")  # not a stranger's, of the same name
        groups = [settings for owners, settings in PRESETS[preset].items() if ours and name in owners]
        own = [key for key in setting_names(kind) if key not in idle]
        of_each[name] = {key: value for settings in groups for key, value in settings.items() if key in own}
    return of_each


def _of_network(preset: str) -> bool:
    """Whether a preset's paper trains a pre-trained network on images."""
    return any("weights" in settings for settings in PRESETS[preset].values())


def left_out(preset: str, protocol: str, x_shape: tuple[int, ...]) -> str:
    """What of a paper's recipe cannot be had on samples of this shape, and where it can; "" if all of it is used."""
    if not preset or len(x_shape) == 3 or not _of_network(preset) or (protocol,) not in PRESETS[preset]:
        return ""
    return (
        f"preset {preset}: the samples are no images, so its batch, shift, updates and weight decay are used, without "
        "the paper's network and rate (a pre-trained ResNet50, 0.005); for them evaluate a stream of images."
    )


def check_network(preset: str, learner: str, net: str | None, x_shape: tuple[int, ...]) -> None:
    """Raise BadConfig if a layer on raw pixels takes the place of a preset's network. net: None: it has none."""
    if preset and len(x_shape) == 3 and _of_network(preset) and net in ("", "linear", "mlp"):
        problem = f"{learner}: preset {preset} trains a pre-trained network on images, and net is {net!r}: raw pixels."
        way_out = "Leave net out, or evaluate vectors of the images: driftline stream encode."
        raise BadConfig(problem, "Expected a timm model, such as resnet50.", way_out)


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


ALPHAS = ("0.5", "1.0", "2.0", "5.0", "dynamic:0.25", "dynamic:0.5", "dynamic:0.75", "dynamic:1.0")
TABLE_4 = (  # [CLEAR, supplement, tables 4 and 5], in their order
    "nap",
    "cumulative(start=scratch)",
    *(f"reservoir(alpha={a},start=scratch)" for a in ALPHAS),
    "cumulative",
    *(f"reservoir(alpha={a})" for a in ALPHAS),
)
TABLE_1 = ("ewc", "si", "lwf", "cwr", "gdumb", "er", "agem", "reservoir", "reservoir(alpha=dynamic:1.0)")
SAMPLERS = tuple(f"fc-only(sampler={s})" for s in ("fifo", "uniform", "mixed", "balanced"))
RECOVERY = (  # [OCRR, readme]
    "static-knn", "static-linear", "online-linear", "ewc", "agem", "lwf", "knn-lm", "river-logreg",
    "lora(model=microsoft/deberta-v3-large)", "substrate",
    *(f"bounded-{kind}(capacity={n})" for kind in ("reservoir", "fifo") for n in (1000, 5000)),
)  # fmt: skip
GRIDS: dict[str, tuple[str, ...]] = {
    "clear-table-1": TABLE_1,
    "clear-table-4": TABLE_4,
    "near-future-samplers": (*SAMPLERS, "fc-only(memory=1000,alpha=5.0)"),
    # [near-future accuracy]; uniform samples are er-online's default; a rate or decay ten times as large and as small
    "near-future-figure-3": ("overadapt", "er-online", "ace", "acm"),
    "near-future-figure-4": ("overadapt", "er-online(sampler=fifo)", "fc-only", "er-online"),
    "near-future-figure-6": ("er-online", "fc-only", "ace", "acm", "cosine-fc"),
    "near-future-figures-7-10": ("er-online(sampler=fifo)", "er-online(sampler=mixed)", "er-online"),
    "near-future-figure-11": tuple(f"er-online(weight_decay={w})" for w in ("0.001", "0.0001", "0.00001")),
    "near-future-figure-12": tuple(f"er-online(lr={lr})" for lr in ("0.05", "0.005", "0.0005")),
    "ocrr-sanity": ("substrate", "ewc", "online-linear", "static-knn"),
    "ocrr-table": RECOVERY,
    "ocrr-ablations": ("substrate", *(f"substrate-{a}" for a in ("k1", "sumsim", "count-only", "no-recency"))),
}


def split(text: str) -> list[str]:
    """`er,reservoir(alpha=5,start=scratch)` → two learners: commas inside brackets do not separate.

    >>> split("er, reservoir(alpha=5,start=scratch)")
    ['er', 'reservoir(alpha=5,start=scratch)']
    """
    return [word.strip() for word in re.split(r",(?![^(]*\))", text) if word.strip()]


def expand(names: Sequence[str], all_names: Sequence[str]) -> list[str]:
    """Names of sets and `all` → their learners, each once, in order."""
    learners: list[str] = []
    for name in names:
        learners += GRIDS.get(name, tuple(all_names) if name == "all" else (name,))
    return list(dict.fromkeys(learners))
