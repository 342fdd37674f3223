"""CLEAR-10's published values, beside runs on the same data with exactly the settings that made them.

`published_clear.csv`: mean and standard deviation over five seeds, per cent, by features, network and learner. From
[CLEAR]: table 1 (ResNet-18 on images, and the seven named methods on MoCo features), and from its supplement tables 4
and 5 (linear, MoCo features, all scores) and 6 to 9 (linear and MLP on five kinds of features: in-domain, next-domain).
Where tables 4 and 6 differ (table 6 prints 91.5 for cumulative finetuning in-domain, table 4 92.3) table 4 counts.
Deviations of tables 6 and 7 have lost their decimal point in print ("± 2%" is .2).
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from driftline.eval.experiment.learner_spec import spec_of
from driftline.eval.experiment.presets import fitting
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import stored_protocol

SCORES = {  # protocol → score → column
    "clear-iid": {name: name for name in ("in_domain", "next_domain", "accuracy", "backward", "forward")},
    "clear-streaming": {name: f"streaming_{name}" for name in ("next_domain", "forward")},
}
PRESET = {"linear": "clear-linear-code", "mlp": "clear-mlp-code", "resnet18": "clear-resnet18-code"}
OF_MACHINE = ("device",)  # settings that change no result by intention
BUCKET = {"clear-iid": 2310, "clear-streaming": 3300}  # training samples of a step of CLEAR-10
OTHERWISE = {  # learner → what the code behind the printed values does, and no setting of ours
    "er": "divides a batch evenly among the step and each past one, which gives an epoch up to five times the updates",
    "cwr": "replaces the weights of the first step at the second one (Avalanche, pull request 1008)",
}


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
    """Score → {"mean", "sd"} as shares; empty if nothing was published.

    >>> values("clear10/moco-yfcc-b0", "clear-streaming", "nap")["next_domain"]["mean"]
    0.867
    >>> list(values("clear10/clip", "clear-iid", "nap", "mlp"))
    ['in_domain', 'next_domain']
    """
    row = table().get((name.removeprefix("clear10/"), network, learner), {})
    cells = {score: row[column].split() for score, column in SCORES.get(protocol, {}).items() if row.get(column)}
    return {s: {"mean": round(float(m) / 100, 4), "sd": round(float(sd) / 100, 4)} for s, (m, sd) in cells.items()}


def beside(about: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The published values of a stored run, by score; {} if it has other settings than those that made them: the preset
    of its network (hyper-parameters, features that are not scaled, the reference's variant of each method), for A-GEM
    as many samples of the memory in an update as a step has, and, for clear-iid, random 70/30 splits or the published
    ones; and always {} for the learners of `OTHERWISE`."""
    name, network = about["learner"], str(about["settings"].get("net", ""))
    base = name.partition("(")[0].strip()
    if "published" not in about or network not in PRESET or base not in LEARNERS or base in OTHERWISE:
        return {}
    spec, protocol = spec_of(name), stored_protocol(about["protocol"])
    preset = fitting(PRESET[network], {base: spec.kind, about["protocol"]: protocol})
    preset[base] |= {"sample": BUCKET.get(about["protocol"], 0)} if base == "agem" else {}
    expected = [spec(**preset[base]).settings(), dataclasses.asdict(protocol(**preset[about["protocol"]]))]
    own = [about["settings"], about["protocol_settings"]]
    if own[1].get("splits") == "published":  # drawn in the same way
        own[1] = expected[1]
    plain = [{key: v for key, v in one.items() if key not in OF_MACHINE} for one in (*expected, *own)]
    same = json.dumps(plain[:2], sort_keys=True) == json.dumps(plain[2:], sort_keys=True)
    return values(about["published"], about["protocol"], name, network) if same else {}
