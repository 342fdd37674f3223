"""CLEAR-10's published values, beside runs on the same data with exactly the settings that made them.

`published_clear.csv`: mean and standard deviation over five seeds, per cent, by features, network and learner. From
[CLEAR]: table 1 (ResNet-18 on images, and the seven named methods on MoCo features), and from its supplement tables 4
and 5 (linear, MoCo features, all scores) and 6 to 9 (linear and MLP on five kinds of features: in-domain, next-domain).
Where tables 4 and 6 differ (table 6 prints 91.5 for cumulative finetuning in-domain, table 4 92.3) table 4 counts.
Deviations of tables 6 and 7 have lost their decimal point in print ("± 2%" is .2). The offline ResNet-18 (section 4,
without a deviation) is `joint`, whose test accuracy is its in-domain accuracy.
"""

import csv
import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from driftline.eval.experiment.presets import fitting
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import stored_protocol
from driftline.eval.settings import spec_of

SCORES = {  # protocol → score → column
    "clear-iid": {name: name for name in ("in_domain", "next_domain", "accuracy", "backward", "forward")},
    "clear-streaming": {name: f"streaming_{name}" for name in ("next_domain", "forward")},
}
PRESET = {"linear": "clear-linear-code", "mlp": "clear-mlp-code", "resnet18": "clear-resnet18-code"}
OF_FEATURES = {("imagenet", "linear"): "clear-linear-imagenet-code"}  # their learning rate is 0.1 [supplement 6]
OF_MACHINE = ("device",)  # settings that change no result by intention


@cache
def table() -> dict[tuple[str, str, str], dict[str, str]]:
    """(features, network, learner) → column → mean and deviation."""
    text = files("driftline.eval.scoring").joinpath("published_clear.csv").read_text(encoding="utf-8")
    return {(row["features"], row["network"], row["learner"]): row for row in csv.DictReader(text.splitlines())}


def names() -> list[str]:
    """Data with published values, as `--published` names them.

    >>> names()[0]
    'clear10/moco-yfcc-b0'
    """
    return list(dict.fromkeys(f"clear10/{features}" for features, _, _ in table()))


def values(name: str, protocol: str, learner: str, network: str = "linear") -> dict[str, dict[str, float]]:
    """Score → {"mean", "sd"} as shares, without sd where none is printed; empty if nothing was published.

    >>> values("clear10/moco-yfcc-b0", "clear-streaming", "nap")["next_domain"]["mean"]
    0.867
    >>> list(values("clear10/clip", "clear-iid", "nap", "mlp"))
    ['in_domain', 'next_domain']
    """
    row = table().get((name.removeprefix("clear10/"), network, learner), {})
    cells = {score: row[column].split() for score, column in SCORES.get(protocol, {}).items() if row.get(column)}
    shares = {score: [round(float(per_cent) / 100, 4) for per_cent in cell] for score, cell in cells.items()}
    return {score: dict(zip(("mean", "sd"), of, strict=False)) for score, of in shares.items()}


@cache
def _printed(features: str, network: str) -> dict[str, list[str]]:
    """Learner and all settings that made a printed row, as text → the names that the tables have for it.

    They are the preset of the network and the features: hyper-parameters, features that are not scaled, the reference's
    variant of each method, as many samples of the memory in an update of A-GEM as a step has."""
    preset = OF_FEATURES.get((features, network), PRESET[network])
    learners: dict[str, list[str]] = {}
    for of, net, learner in table():
        if (of, net) == (features, network):
            spec = spec_of(learner)
            base = learner.partition("(")[0]
            settings = spec(**fitting(preset, {base: spec.kind})[base]).settings()
            learners.setdefault(_text(base, settings), []).append(learner)
    return learners


def _text(learner: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([learner, {k: v for k, v in settings.items() if k not in OF_MACHINE}], sort_keys=True)


def beside(about: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The published values of a stored run, by score; {} if it has other settings than those that made them, or, for
    clear-iid, other splits than random 70/30 ones or the published ones. It may have them by whatever way: its name,
    a preset, or set one by one."""
    network, base = str(about["settings"].get("net", "")), about["learner"].partition("(")[0].strip()
    if "published" not in about or network not in PRESET or base not in LEARNERS:
        return {}
    own = dict(about["protocol_settings"])
    if own.get("splits") == "published":  # drawn in the same way
        own["splits"] = "random"
    kind = stored_protocol(about["protocol"])
    of_protocol = fitting(PRESET[network], {about["protocol"]: kind})[about["protocol"]]
    if own != dataclasses.asdict(kind(**of_protocol)):
        return {}
    printed = _printed(about["published"].removeprefix("clear10/"), network)
    names = printed.get(_text(base, about["settings"]), [])  # table 1's reservoir is table 4's with α = 1
    learner = about["learner"] if about["learner"] in names else "".join(names[:1])
    return values(about["published"], about["protocol"], learner, network)
