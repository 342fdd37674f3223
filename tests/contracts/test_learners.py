"""Every learner keeps the same promises, also one of an installed package."""

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pytest
from contracts.test_protocols import SMALL, pictures
from support.console import answer, inside
from support.helpers import described, drifting, few_of, hinted

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.registry import HOME
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment import runs as run_module
from driftline.eval.experiment.jobs import jobs_of, settings_text
from driftline.eval.experiment.tune import check_stream
from driftline.eval.learner import Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.predictions import answers, sure_answers
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate, plan
from driftline.eval.settings import check_settings, parsed, setting_names
from driftline.eval.settings import described as described_settings
from driftline.eval.training.sgd_learner import NetworkLearner
from driftline.stream_builder.stream import Stream

STREAM = described(drifting(drift=0.1))
TRAIN, TEST = STREAM.steps[0]["train"], STREAM.steps[0]["test"]
TASK = Task(3, (8,), 4, class_texts=STREAM.class_texts)
IGNORE_SAMPLES = {"majority": "counts labels", "random": "guesses", "blind": "repeats labels"}
SHORT = {"static-linear": "thirty updates on the first step, and none later"}


def left_out(name: str) -> str:
    """Why a learner cannot be tested on single batches of vectors; "" if it can."""
    kind = LEARNERS[name]
    if kind.needs.images:
        return "it learns from images"
    return "it learns from texts: eval/test_texts.py" if kind.needs.texts else kind.needs.all_steps


def begun(name: str, seed: int = 0, task: Task | None = None) -> Learner:
    kind = LEARNERS[name]
    learner: Learner = kind(epochs=5) if "epochs" in setting_names(kind) else kind()
    learner.begin(task or TASK, rng_for(seed, name))
    return learner


def ours(name: str) -> bool:
    return LEARNERS.entry(name).origin == HOME


def test_those_that_are_left_out_have_tests_of_their_own() -> None:
    families = {f"driftline.eval.learners.{n}" for n in ("seq_to_final", "texts")}
    assert {LEARNERS[name].__module__ for name in LEARNERS if left_out(name) and ours(name)} == families


def asked(learner: Learner) -> Labels:
    """Its answers to the test samples."""
    return answers(learner, TEST.x, len(TEST))


@pytest.mark.parametrize("name", LEARNERS)
def test_defaults_are_settings_that_fit(name: str) -> None:
    kind = LEARNERS[name]
    learner = kind()
    check_settings(kind, {setting: getattr(learner, setting) for setting in setting_names(kind)})


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_has_a_meaning(name: str) -> None:
    settings = described_settings(LEARNERS[name])
    assert [setting.name for setting in settings] == setting_names(LEARNERS[name])
    assert not [setting.name for setting in settings if not setting.meaning]


@pytest.mark.parametrize("name", [name for name in LEARNERS if not left_out(name)])
class TestLearner:
    def test_predicts_before_it_has_learned(self, name: str) -> None:
        answer = asked(begun(name))
        assert answer.shape == (len(TEST),)
        assert answer.dtype == np.int64
        assert set(answer.tolist()) <= ({-1} if name == "river-logreg" else {0, 1, 2})

    def test_predicts_the_same_with_confidence(self, name: str) -> None:
        learner = begun(name)
        for _ in range(2):
            labels, confidence = sure_answers(learner, TEST.x, len(TEST))
            assert (labels == asked(learner)).all()
            if confidence is not None:
                assert ((confidence >= 0) & (confidence <= 1 + 1e-6)).all()
            learner.learn(TRAIN.x, TRAIN.y)

    def test_predicting_does_not_learn(self, name: str) -> None:
        a, b = begun(name), begun(name)
        a.learn(TRAIN.x, TRAIN.y)
        b.learn(TRAIN.x, TRAIN.y)
        for _ in range(3):
            a.predict(TRAIN.x)
        a.learn(TRAIN.x[::-1], TRAIN.y[::-1])
        b.learn(TRAIN.x[::-1], TRAIN.y[::-1])
        assert (asked(a) == asked(b)).all()

    def test_leaves_its_input_alone(self, name: str) -> None:
        x, y = TRAIN.x.copy(), TRAIN.y.copy()
        x.flags.writeable = y.flags.writeable = False
        learner = begun(name)
        learner.learn(x, y)
        learner.learn(x, y)
        learner.predict(x)
        assert (x == TRAIN.x).all()
        assert (y == TRAIN.y).all()

    def test_the_same_seed_gives_the_same_answers(self, name: str) -> None:
        answers = []
        for _ in range(2):
            learner = begun(name, seed=7)
            learner.learn(TRAIN.x, TRAIN.y)
            learner.learn(TRAIN.x + 0.5, TRAIN.y)
            answers.append(asked(learner))
        assert (answers[0] == answers[1]).all()

    def test_begin_forgets_all(self, name: str) -> None:
        used, fresh = begun(name), begun(name)
        used.learn(TRAIN.x, (TRAIN.y + 1) % 3)
        used.begin(TASK, rng_for(0, name))
        used.learn(TRAIN.x, TRAIN.y)
        fresh.learn(TRAIN.x, TRAIN.y)
        assert (asked(used) == asked(fresh)).all()

    def test_beats_the_majority_on_an_easy_stream(self, name: str) -> None:
        learner = begun(name)
        learner.learn_sequence([step.visible() for step in hinted(STREAM).steps])
        right = (asked(learner) == TEST.y).mean()
        assert right > 0.6 or name in {*IGNORE_SAMPLES, *SHORT} or not ours(name)

    def test_takes_one_correction(self, name: str) -> None:
        learner = begun(name)
        learner.learn(TRAIN.x, TRAIN.y)
        learner.correct(TEST.x[:1], TEST.y[:1])
        assert asked(learner).shape == (len(TEST),)

    def test_says_what_it_keeps(self, name: str) -> None:
        """A head keeps (D + 1) × C numbers of 4 bytes, momentum not among them; a memory comes on top."""
        learner = begun(name)
        learner.learn(TRAIN.x, TRAIN.y)
        kept = learner.stored_bytes()
        assert kept >= (4 * 3 * 9 if isinstance(learner, NetworkLearner) else 0)
        if name in ("nap", "finetune", "scratch", "lwf"):
            assert kept == 4 * 3 * 9
        if name in ("cumulative", "er", "reservoir", "gdumb", "agem"):
            weights = 8 * len(TRAIN) if name == "gdumb" else 0  # of its uniform sample
            assert kept == 4 * 3 * 9 + TRAIN.x.nbytes + TRAIN.y.nbytes + weights

    def test_takes_images_too(self, name: str) -> None:
        """Or refuses them, where it needs texts about the classes."""
        if LEARNERS[name].needs.class_texts:
            with pytest.raises(IncompatibleStream):
                check_stream(LEARNERS[name](), pictures())
            return
        learner = begun(name, task=Task(2, (4, 4, 3)))
        images = rng_for(1).integers(0, 256, (10, 4, 4, 3)).astype(np.uint8)
        learner.learn(images, np.arange(10) % 2)
        assert answers(learner, images, 10).shape == (10,)


# ---- each recorded setting of each learner changes what it does, or is refused, or has its reason here


OTHERS: dict[str, list[Any]] = {  # values to try in place of a default, in this order; others follow from the type
    "lr": [0.07], "k": [1, 3], "sampler": ["fifo", "balanced"], "vote": ["sum", "band"],
    "memory": [5, 12], "capacity": [7], "seed_rows": [5], "shrinkage": [0.9], "hidden": [16],
    "strength": [50.0], "weights": ["increasing"], "alpha": [0.2, 7.0], "damping": [1e-9, 10.0], "share": [0.2],
    "net": ["mlp"], "sees_final": [True, False], "resets": [True, False], "shared": ["head"],
    "augment": ["none", "flip"], "sample": [2], "history": ["each", "erm"], "final": ["fc", "all", "stem"],
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
    "exact_below": "an index finds the same neighbours among few samples: eval/test_memory.py",
    "index": "as exact_below",
    "limit_mb": "main memory, by intention no result: eval/test_memory.py",
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
        left = {name: np.flatnonzero((s.y > 1) | (np.arange(len(s)) % 8 < 4)) for name, s in step.splits.items()}
        steps.append(replace(step, splits={name: s.take(left[name]) for name, s in step.splits.items()}))
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


def did(name, settings, monkeypatch, protocol, samples) -> tuple[Any, ...] | str:
    """Answers, scores, bytes and updates of a learner, behind its settings; or why it was refused."""
    learners: list[Learner] = []
    finish = run_module._finish

    def noted(stream: Any, grid: Any, job: Any, run: Any, ran: Any) -> Any:
        learners.append(ran.learner)
        return finish(stream, grid, job, run, ran)

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "_finish", noted)
        short: dict[str, Any] = {"lr": 0.5 if samples == "vectors" else 0.01}
        short |= {"epochs": 3, "batch": 8, "decay_after": 2}
        given = {key: value for key, value in short.items() if key in setting_names(LEARNERS[name])}
        given = {f"{name}.{key}": value for key, value in (given | settings).items()}
        more: dict[str, Any] = {"epochs": 4, "fits": 2, "lrs": 0.1} if protocol == "seq-to-final" else {}
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
    of_all = [result[key] for key in ("settings", "matrix", "scores", "stored_bytes", "gradient_steps")]
    return (*of_all, *given_by)


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


# ---- the name of a row is what ran: name, settings line, record, CSV and page say the value that trained


NAMED = described(drifting())
SMALL_OCRR = {"every": 20, "held_out": 1, "scenario": "categorical"}
OURS = [name for name, kind in LEARNERS.items() if not (kind.needs.texts or kind.needs.images)]


def runs_with(name: str, setting: str, of_name: Any, of_set: Any) -> list[Any]:
    """The planned runs of a learner with one value in its name and another by --set, and of the learner itself."""
    protocol = "seq-to-final" if LEARNERS[name].needs.all_steps else "clear-iid"
    data = pictures() if protocol == "seq-to-final" else stream()
    learners, given = [f"{name}({setting}={of_name})", name], {f"{name}.{setting}": of_set}
    return jobs_of(data, protocol, learners, [0], SMALL.get(protocol, {}) | given, {}, None, "", False)[1]


@pytest.mark.parametrize("name", OURS)
def test_a_setting_in_a_name_counts_for_that_learner(name: str) -> None:
    for setting in (key for key in setting_names(LEARNERS[name]) if key not in ("device", "weights", "name")):
        default = LEARNERS[name]().settings()[setting]
        values = [value for value in alternatives(name, setting, default) if value is not None]
        of_name, of_set = values[0], values[-1] if len(values) > 1 else default
        with suppress(BadConfig):  # a value that changes nothing
            for run, given in zip(runs_with(name, setting, of_name, of_set), (of_name, of_set), strict=True):
                learner, value = run.learner(), parsed(run.name)[1].get(setting, given)
                recorded = (learner.settings()[setting], run.recorded(learner)[setting])
                assert (getattr(learner, setting), *recorded) == (value,) * 3
                assert f"{setting} {value} (" in settings_text(learner.settings(), run.origin)


# protocol → learner: setting, value in its name, value by --set. A learner of each family that runs on arrays, and a
# setting of each kind: whole number, number, number or word, choice, yes or no.
TRAINED: dict[str, dict[str, tuple[str, Any, Any]]] = {
    "clear-iid": {
        "finetune": ("epochs", 2, 3), "reservoir": ("alpha", "dynamic:0.5", 2.0), "ewc": ("strength", 10.0, 0.5),
        "ridge": ("intercept", False, True), "zero-shot": ("logit_scale", 30.0, 60.0),
    },
    "clear-streaming": {"knn": ("k", 1, 3), "slda": ("priors", "observed", "uniform")},
    "near-future": {"er-online": ("lr", 0.05, 0.005), "blind": ("k", 2, 3)},
    "ocrr": {"bounded-reservoir": ("capacity", 20, 30), "online-linear": ("classes", "open", "closed")},
    "seq-to-final": {"to-final": ("regulariser", "previous-l2", "l1")},
}  # fmt: skip
BRIEF = {"clear-iid": {"reservoir.epochs": 1, "ewc.epochs": 1}, "ocrr": {"online-linear.epochs": 1} | SMALL_OCRR}


def test_one_learner_of_each_family_trains() -> None:
    families = {LEARNERS[name].guide.family for of in TRAINED.values() for name in of}
    assert {LEARNERS[name].guide.family for name in OURS} == families


@pytest.mark.parametrize("protocol", TRAINED)
def test_record_csv_and_page_have_the_value_that_trained(protocol, tmp_path, monkeypatch):
    trained: dict[str, Any] = {}
    finish = run_module._finish

    def noted(on: Any, grid: Any, job: Any, run: Any, ran: Any) -> Any:
        trained[job.name] = getattr(ran.learner, TRAINED[protocol][job.name.partition("(")[0]][0])
        return finish(on, grid, job, run, ran)

    monkeypatch.setattr(run_module, "_finish", noted)
    expected, settings = {}, SMALL.get(protocol, {}) | BRIEF.get(protocol, {})
    for name, (setting, of_name, of_set) in TRAINED[protocol].items():
        expected |= {f"{name}({setting}={of_name})": of_name, name: of_set}
        settings = settings | {f"{name}.{setting}": of_set}
    key = {learner: TRAINED[protocol][learner.partition("(")[0]][0] for learner in expected}
    on = pictures() if protocol == "seq-to-final" else NAMED
    said = plan(on, protocol, list(expected), [0], settings).settings
    found = evaluate(on, protocol, list(expected), [0], settings, tmp_path / "runs")
    assert trained == expected
    assert {r["learner"]: r["settings"][key[r["learner"]]] for r in found["results"]} == expected
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("run.json")]
    assert {about["learner"]: about["settings"][key[about["learner"]]] for about in records} == expected
    assert all(f"{key[learner]} {value} (" in said[learner] for learner, value in expected.items())
    write(results_of([tmp_path / "runs"]), tmp_path / "page", formats=("csv",))
    table = pd.read_csv(tmp_path / "page" / "scores.csv")
    assert {row.learner: json.loads(row.settings)[key[row.learner]] for row in table.itertuples()} == expected
    page = (tmp_path / "page" / "index.html").read_text()
    assert all(learner in page for learner in expected)


def test_a_value_that_every_name_has_already_is_refused() -> None:
    for option in ({"settings": {"k": 5}}, {"tune": {"k": [1, 5]}}, {"settings": {"knn.k": 5}}):
        with pytest.raises(BadConfig, match=r"reaches no learner: k is set in the name of knn\(k=3\), which counts"):
            plan(NAMED, "clear-iid", ["knn(k=3)", "majority"], [0], **option)
    assert plan(NAMED, "clear-iid", ["knn(k=3)"], [0], {"knn.k": 3}).runs == 1, "the same value"


def test_what_a_name_says_is_not_chosen(tmp_path: Path) -> None:
    found = evaluate(NAMED, "clear-iid", ["knn", "knn(k=3)"], [0], tune={"k": [1, 5]}, out=tmp_path)["results"]
    assert [result["settings"].get("tune") for result in found] == [{"k": [1, 5]}, None]


def test_several_values_of_a_protocols_setting_run_one_after_the_other(tmp_path: Path) -> None:
    policies = ["oracle", "random_10", "wrong:0.5"]
    together = evaluate(NAMED, "ocrr", ["knn", "nearest-mean"], [0], SMALL_OCRR | {"policy": policies}, tmp_path)
    alone = [evaluate(NAMED, "ocrr", ["knn", "nearest-mean"], [0], SMALL_OCRR | {"policy": one}) for one in policies]
    assert [r["settings"]["policy"] for r in together["results"]] == [one for one in policies for _ in range(2)]
    assert [r["scores"] for r in together["results"]] == [r["scores"] for one in alone for r in one["results"]]
    assert plan(NAMED, "ocrr", ["knn", "nearest-mean"], [0], SMALL_OCRR | {"policy": policies}, tmp_path).finished == 6
    refused = evaluate(NAMED, "ocrr", ["erm"], [0], SMALL_OCRR | {"policy": policies})["skipped"]
    assert [entry["because"].partition(": It ")[0] for entry in refused] == [f"policy={one}" for one in policies]


@pytest.mark.parametrize("values", [[], ["oracle", "oracle"]])
def test_values_of_a_sweep_are_different(values: list[str]) -> None:
    with pytest.raises(BadConfig, match="policy has the values .*Expected at least one value, none twice"):
        plan(NAMED, "ocrr", ["knn"], [0], {"policy": values})


def test_a_key_that_is_given_twice_sweeps_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    NAMED.save("s")
    more = [part for key, value in SMALL_OCRR.items() for part in ("--set", f"{key}={value}")]
    ocrr = ["eval", "s", "--protocol", "ocrr", "--learners", "knn,online-linear(epochs=1)", "--out", "runs", *more]
    found = answer(*ocrr, "--set", "policy=oracle", "--set", "policy=random_10", "--json")
    assert [r["settings"]["policy"] for r in found["results"]] == ["oracle", "oracle", "random_10", "random_10"]
    wrong = inside(*ocrr, "--set", "correct_lr=0.1", "--set", "correct_lr=0.2")
    assert "--set correct_lr is given 2 times." in (said := " ".join(wrong.stderr.split()))
    assert "Name learners with their own values: er(correct_lr=…),er(correct_lr=…)." in said
