"""What `driftline age` says of logs whose truth is known (see `support.log_worlds`)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import log_worlds as worlds
from support.log_worlds import aged, log_of

from driftline.eval.logs import age as service_log
from driftline.eval.logs.reading import Log, read_log
from driftline.eval.reporting.logs import Ages

LOGS = 100
World = Callable[[np.random.Generator], Ages]


def said(ages: Ages) -> str:
    texts = ages.json()["answer"]
    return " ".join([texts["headline"], *texts["sentences"], *ages.notes])


def one(world: World, seed: int = 0) -> Ages:
    return world(np.random.default_rng(seed))


def test_labels_of_unsure_answers_speak_of_labelled_rows_and_no_alarm_fires() -> None:
    ages = one(worlds.chosen)
    assert "Labels were chosen by confidence: all numbers are of labelled predictions only" in said(ages)
    result = ages.json("accuracy<0.84")
    assert result["labels"] == "only"
    assert result["alarm"]["high"] < 0.84
    assert result["alarm"]["crossed"] is False
    assert result["slope_per_period"]["low"] is None
    assert result["forecast"] == []


def test_labels_chosen_by_confidence_are_weighted_where_each_score_has_some() -> None:
    """Accuracy is .8, that of labelled rows about .75."""
    log = log_of(
        np.random.default_rng(0), 6, 3000, lambda *_: 0.8,
        score=lambda right: np.where(right, np.random.default_rng(1).beta(5, 2, len(right)),
                                     np.random.default_rng(2).beta(3, 3, len(right))),
        known=lambda month, score, u: u < 0.9 - 0.7 * score,
    )  # fmt: skip
    ages = aged(log)
    cells = ages.cells
    assert cells.labels == "weighted"
    assert (cells.right / cells.labelled).max() < 0.78
    assert ((cells.low < 0.8) & (cells.high > 0.8)).mean() >= 0.8
    assert (cells.high - cells.low).max() < 0.06


def test_labels_at_random_are_not_weighted() -> None:
    rng = np.random.default_rng(0)
    log = log_of(rng, 6, 500, lambda *_: 0.8, score=lambda right: rng.beta(5, 2, len(right)),
                 known=lambda month, score, u: u < 0.4)  # fmt: skip
    assert aged(log).cells.labels == ""


def test_wrong_answers_found_late_leave_the_last_periods_incomplete() -> None:
    ages = one(worlds.late)
    note = "Labels of wrong answers come later than those of right ones: the last 2 months are not complete."
    assert note in said(ages)
    assert ages.cells.period[ages.cells.usable].max() == 6


def test_traffic_of_harder_customers_is_no_fall_at_a_constant_mix() -> None:
    ages = one(worlds.traffic)
    assert ages.slope.value < -0.005
    assert abs(float(ages.fixed_slope.value)) < 0.004
    assert ages.fixed_slope.low < 0 < ages.fixed_slope.high
    assert "At a constant mix of classes and groups it changes by" in said(ages)


def test_a_new_class_is_no_fall_at_a_constant_mix() -> None:
    ages = one(worlds.new_class)
    assert float(ages.slope.value) < 4 * float(ages.fixed_slope.value) - 0.005
    assert ages.fixed_slope.low < 0 < ages.fixed_slope.high


def test_the_fit_of_cells_classes_and_groups_is_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[Log] = []
    monkeypatch.setattr(service_log, "read_log", lambda *given: logs.append(read_log(*given)) or logs[0])
    cells = one(worlds.traffic).cells
    (log,) = logs
    design = np.concatenate([np.eye(size)[of] for size, of in (
        (len(cells), cells.of), (len(log.classes), log.label), (len(log.groups), log.group),
    )], 1)  # fmt: skip
    fitted = np.linalg.lstsq(design, (log.label == log.prediction).astype(float), rcond=None)[0]
    level = (design[:, len(cells) :] @ fitted[len(cells) :]).mean()
    assert cells.fixed == pytest.approx(fitted[: len(cells)] + level, abs=1e-4)


def test_harder_data_alone_advise_nothing() -> None:
    ages = one(worlds.harder)
    assert ages.advice.retrain is None
    assert ages.json()["half_life_days"] is None
    text = said(ages)
    assert "No staleness is shown" in text
    assert "no older version is shown behind a newer one in one month" in text
    assert "ages" not in text


def test_under_two_years_a_season_is_not_excluded() -> None:
    rng = np.random.default_rng(0)
    for months, told in ((9, True), (24, False)):
        text = said(aged(log_of(rng, months, 60, lambda *_: 0.85)))
        assert ("The log spans less than two years: a season cannot be excluded." in text) is told


def test_rows_that_do_not_count_are_said() -> None:
    log, versions = log_of(np.random.default_rng(0), 4, 100, lambda *_: 0.8)
    twice = {name: np.concatenate([of, of[:30]]) for name, of in log.items()}
    twice["prediction"] = np.concatenate([twice["prediction"], [""]])
    twice |= {name: np.concatenate([of, of[:1]]) for name, of in twice.items() if name != "prediction"}
    text = said(aged((twice, versions)))
    assert "30 rows repeat an id of the same version: the last row counts." in text
    assert "1 rows without a prediction are not used." in text


def test_one_look_of_an_alarm_and_many_are_told_apart() -> None:
    alarm = one(lambda rng: worlds.steady(rng, (0,))).json("accuracy<0.85")["alarm"]
    assert alarm["because"] == "One look is a false alarm in 2.5 %, looks after each of 12 months in up to 26 %."


def rates(world: World, **what: Callable[[Ages], Any]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in what}
    for seed in range(LOGS):
        ages = one(world, seed)
        for name, of in what.items():
            if (value := of(ages)) is not None:
                found[name].append(float(value))
    return {name: float(np.mean(values)) if values else 0.0 for name, values in found.items()}


def falls(ages: Ages) -> bool:
    return bool(ages.slope.high < 0)


def stale(ages: Ages) -> bool:
    return ages.stale is not None and ages.stale.shown


def advised(ages: Ages) -> bool:
    return ages.advice.retrain is True


@pytest.mark.proof("statistics")
@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_months_that_differ_by_chance_do_not_fall(memory: float) -> None:
    """With a standard deviation of 3 points, alike or not."""
    found = rates(lambda rng: worlds.apart(rng, memory), falls=falls)
    assert found["falls"] <= 0.05 + 2 * (0.05 * 0.95 / LOGS) ** 0.5


@pytest.mark.proof("statistics")
@pytest.mark.parametrize("own", [0.0, 0.01])
def test_versions_that_do_not_age_are_not_advised_against(own: float) -> None:
    found = rates(lambda rng: worlds.steady(rng, own=own), advised=advised, falls=falls)
    assert found["advised"] <= 0.05
    assert found["falls"] <= 0.06


@pytest.mark.proof("statistics")
def test_harder_data_and_better_versions_mislead_in_few_logs() -> None:
    found = rates(worlds.harder, stale=stale, advised=advised)
    assert found["stale"] <= 0.06
    assert found["advised"] <= 0.05

    def holds(ages: Ages) -> bool | None:
        gain = ages.advice.gain
        return None if gain is None else bool(gain.low <= 0.02 <= gain.high)

    assert rates(worlds.better, holds=holds)["holds"] >= 0.9


@pytest.mark.proof("statistics")
def test_versions_that_age_are_found() -> None:
    found = rates(lambda rng: worlds.falling(rng, n=1600), falls=falls, stale=stale, advised=advised)
    assert found["falls"] >= 0.9
    assert found["stale"] >= 0.8
    assert found["advised"] >= 0.5
    assert rates(lambda rng: worlds.falling(rng, (0,)), falls=falls)["falls"] >= 0.9


@pytest.mark.proof("statistics")
def test_late_or_chosen_labels_and_a_moving_mix_make_no_fall() -> None:
    for world in (worlds.late, worlds.chosen, lambda rng: worlds.chosen(rng, hard=True)):
        assert rates(world, falls=falls)["falls"] <= 0.05
    for world in (worlds.traffic, worlds.new_class):
        changes = rates(world, changes=lambda ages: ages.fixed_slope.high < 0 or ages.fixed_slope.low > 0)
        assert changes["changes"] <= 0.06
    last = rates(worlds.late, holds=lambda ages: ages.cells.low[ages.cells.usable][-1] <= 0.85
                 <= ages.cells.high[ages.cells.usable][-1])  # fmt: skip
    assert last["holds"] >= 0.9
