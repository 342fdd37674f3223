"""Each recorded setting of each learner changes what it does, or is refused, or has its reason here."""

from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from contracts.test_protocols import SMALL, pictures
from support.helpers import described, drifting, few_of, hinted

from driftline.curate.core.errors import BadConfig
from driftline.eval.experiment import runs as run_module
from driftline.eval.experiment.settings import setting_names
from driftline.eval.learner import Learner
from driftline.eval.learners import LEARNERS
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Stream

OTHERS: dict[str, list[Any]] = {  # values to try in place of a default, in this order; others follow from the type
    "lr": [0.07], "k": [1, 3], "sampler": ["fifo", "balanced"], "vote": ["sum", "band"],
    "memory": [5, 12], "capacity": [7], "seed_rows": [5], "shrinkage": [0.9], "hidden": [16],
    "strength": [50.0], "weights": ["increasing"], "alpha": [0.2, 7.0], "damping": [1e-9, 10.0], "share": [0.2],
    "net": ["mlp"], "sees_final": ["yes", "no"], "resets": ["yes", "no"], "shared": ["head"],
    "augment": ["none", "flip"], "sample": [2], "history": ["each", "erm"], "final": ["fc", "all"],
}  # fmt: skip
WITH: dict[str, dict[str, Any]] = {  # setting → others beside which it has an effect
    "hidden": {"net": "mlp"}, "momentum": {"optimiser": "sgd"}, "alpha": {"memory": 12, "sampler": "uniform"},
    "damping": {"strength": 0.5},
    "variant": {"strength": 0.5}, "memory": {"sampler": "uniform"},
    "threshold": {"threshold": 0.3}, "strength": {"lr": 0.1},
}  # fmt: skip
ELSEWHERE = {  # setting → where it has an effect, or why it has none by intention
    "device": "changes no result by intention",
    "weights": "a checkpoint of a network on pictures: eval/test_deep.py",
    "exact_below": "an index finds the same neighbours among few samples: eval/test_knn.py",
    "index": "as exact_below",
    "limit_mb": "main memory, by intention no result: eval/test_knn.py",
    "classes": "for corrections to classes that were not declared: eval/test_ocrr.py",
}
OF_PICTURES = {"augment", "cosine-fc.precision"}
WITHOUT = {  # protocol, samples → settings that have no effect there
    ("clear-iid", "vectors"): OF_PICTURES,
    ("clear-iid", "pictures"): {"hidden", "net", "scale"},
    ("seq-to-final", "pictures"): set(),
}


@cache
def stream() -> Stream:
    """Three steps that conflict; half of the samples of two classes are missing."""
    whole = drifting(steps=3, classes=4, n=40, drift=2.0, noise=2.0)
    steps = []
    for step in whole.steps:
        splits = {
            name: s.take(np.flatnonzero((s.y > 1) | (np.arange(len(s)) % 8 < 4))) for name, s in step.splits.items()
        }
        steps.append(replace(step, splits=splits))
    return hinted(described(replace(whole, steps=steps)))


def alternatives(name: str, setting: str, value: Any) -> list[Any]:
    """Other values of a setting."""
    if setting in OTHERS:
        return [other for other in OTHERS[setting] if other != value]
    hint = get_type_hints(LEARNERS[name])[setting]
    literals = [choice for part in (hint, *get_args(hint)) if get_origin(part) is Literal for choice in get_args(part)]
    if literals:
        return [choice for choice in literals if choice not in (value, "auto")]
    if isinstance(value, bool):
        return [not value]
    return [value / 3 or 0.3, value * 3] if isinstance(value, float) else [2, 3, value + 5]


def did(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, protocol: str, samples: str
) -> tuple[Any, ...] | str:
    """Answers, scores, bytes and updates of a learner, behind its settings; or why it was refused."""
    learners: list[Learner] = []

    finish = run_module._finish

    def noted(stream: Any, grid: Any, job: Any, run: Any, ran: Any) -> Any:
        learners.append(ran.learner)
        return finish(stream, grid, job, run, ran)

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "_finish", noted)
        short: dict[str, Any] = {"lr": 0.5 if samples == "vectors" else 0.03}
        short |= {} if protocol == "near-future" else {"epochs": 3, "batch": 8, "decay_after": 2}
        given = {key: value for key, value in short.items() if key in setting_names(LEARNERS[name])}
        given = {f"{name}.{key}": value for key, value in (given | settings).items()}
        more: dict[str, Any] = (
            {"updates": 9} if protocol == "near-future" else {}
        )  # several a batch, also of the dearest
        more |= {"epochs": 4, "fits": 2, "lrs": 0.1} if protocol == "seq-to-final" else {}
        on = pictures() if samples == "pictures" else stream()
        learner = DEEP.get(name, name) if samples == "pictures" else name
        document = evaluate(on, protocol, [learner], settings=SMALL.get(protocol, {}) | more | given)
    if document["skipped"]:
        assert "It crashed" not in document["skipped"][0]["because"]
        return str(document["skipped"][0]["because"])
    (ran,) = learners
    answers = ran.predict(on.steps[-1]["test"].x)
    parts = answers if isinstance(answers, tuple) else (answers,)
    scores = ran.scores(on.steps[-1]["test"].x) if type(ran).scores is not Learner.scores else ""
    result = document["results"][0]
    given_by = [np.asarray(part).tobytes() for part in (*parts, scores)]
    return (
        result["settings"],
        result["matrix"],
        result["scores"],
        *given_by,
        result["stored_bytes"],
        result["gradient_steps"],
    )


DEEP = {"finetune": "finetune(net=test_resnet)"}
HERE = [n for n, k in LEARNERS.items() if not (k.needs.all_steps or k.needs.texts or k.needs.images)]
CASES = [
    *(("clear-iid", "vectors", name) for name in HERE),
    ("clear-iid", "pictures", "finetune"),
    *(("seq-to-final", "pictures", name) for name in ("erm", "i-ft", "sft-exponential", "st-1", "jm")),
]


FEW = [("clear-iid", "vectors", name) for name in ("finetune", "er", "ewc", "der", "knn", "slda", "ridge", "substrate")]


@pytest.mark.parametrize(
    ("protocol", "samples", "name"), few_of([case for case in CASES if setting_names(LEARNERS[case[2]])], FEW)
)
def test_each_setting_changes_something_or_is_refused(protocol, samples, name, monkeypatch):
    own, dead = setting_names(LEARNERS[name]), []
    plain = did(name, {}, monkeypatch, protocol, samples)
    if isinstance(plain, str):
        assert samples == "vectors", plain
        return
    left_out = set(ELSEWHERE) | WITHOUT[protocol, samples]
    for setting in (key for key in own if not {key, f"{name}.{key}"} & left_out):
        try:
            beside = {key: value for key, value in WITH.get(setting, {}).items() if key in own}
            before = did(name, beside, monkeypatch, protocol, samples) if beside else plain
            if isinstance(before, str):  # refused beside it
                continue
            if setting not in (recorded := before[0]):  # a budget decides
                continue
            for other in alternatives(name, setting, recorded[setting]):
                if did(name, beside | {setting: other}, monkeypatch, protocol, samples)[1:] != before[1:]:
                    break
            else:
                dead.append(setting)
        except BadConfig:  # refused
            continue
    assert not dead
