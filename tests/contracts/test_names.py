"""The name of a row is what ran: name, settings line, record, CSV and page say the value that trained."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from contracts.test_protocols import SMALL, pictures
from contracts.test_settings import alternatives, stream
from support.console import answer, inside
from support.helpers import described, drifting

from driftline.curate.core.errors import BadConfig
from driftline.eval.experiment import runs as run_module
from driftline.eval.experiment.jobs import jobs_of, settings_text
from driftline.eval.experiment.settings import parsed, setting_names
from driftline.eval.learners import LEARNERS
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate, plan

STREAM = described(drifting())
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
                assert (
                    getattr(learner, setting) == learner.settings()[setting] == run.recorded(learner)[setting] == value
                )
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
    on = pictures() if protocol == "seq-to-final" else STREAM
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
            plan(STREAM, "clear-iid", ["knn(k=3)", "majority"], [0], **option)
    assert plan(STREAM, "clear-iid", ["knn(k=3)"], [0], {"knn.k": 3}).runs == 1, "the same value"


def test_what_a_name_says_is_not_chosen(tmp_path: Path) -> None:
    found = evaluate(STREAM, "clear-iid", ["knn", "knn(k=3)"], [0], tune={"k": [1, 5]}, out=tmp_path)["results"]
    assert [result["settings"].get("tune") for result in found] == [{"k": [1, 5]}, None]


def test_several_values_of_a_protocols_setting_run_one_after_the_other(tmp_path: Path) -> None:
    policies = ["oracle", "random_10", "wrong:0.5"]
    together = evaluate(STREAM, "ocrr", ["knn", "nearest-mean"], [0], SMALL_OCRR | {"policy": policies}, tmp_path)
    alone = [evaluate(STREAM, "ocrr", ["knn", "nearest-mean"], [0], SMALL_OCRR | {"policy": one}) for one in policies]
    assert [r["settings"]["policy"] for r in together["results"]] == [one for one in policies for _ in range(2)]
    assert [r["scores"] for r in together["results"]] == [r["scores"] for one in alone for r in one["results"]]
    assert plan(STREAM, "ocrr", ["knn", "nearest-mean"], [0], SMALL_OCRR | {"policy": policies}, tmp_path).finished == 6
    refused = evaluate(STREAM, "ocrr", ["erm"], [0], SMALL_OCRR | {"policy": policies})["skipped"]
    assert [entry["because"].partition(":")[0] for entry in refused] == [f"policy={one}" for one in policies]


@pytest.mark.parametrize("values", [[], ["oracle", "oracle"]])
def test_values_of_a_sweep_are_different(values: list[str]) -> None:
    with pytest.raises(BadConfig, match="policy has the values .*Expected at least one value, none twice"):
        plan(STREAM, "ocrr", ["knn"], [0], {"policy": values})


def test_a_key_that_is_given_twice_sweeps_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    STREAM.save("s")
    more = [part for key, value in SMALL_OCRR.items() for part in ("--set", f"{key}={value}")]
    ocrr = ["eval", "s", "--protocol", "ocrr", "--learners", "knn,online-linear(epochs=1)", "--out", "runs", *more]
    found = answer(*ocrr, "--set", "policy=oracle", "--set", "policy=random_10", "--json")
    assert [r["settings"]["policy"] for r in found["results"]] == ["oracle", "oracle", "random_10", "random_10"]
    wrong = inside(*ocrr, "--set", "correct_lr=0.1", "--set", "correct_lr=0.2")
    assert "--set correct_lr is given 2 times." in (said := " ".join(wrong.stderr.split()))
    assert "Name learners with their own values: er(correct_lr=…),er(correct_lr=…)." in said
