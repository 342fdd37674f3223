"""The guarantee and routing: intervals that cover, judges that drift and are caught, who is asked what."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from driftline.curate.validation.answers.answers import ANSWERS
from driftline.curate.validation.answers.verdicts import joint_probabilities, people_say, tally
from driftline.curate.validation.judging.guarantee import (
    Sample,
    classical,
    images_for,
    power,
    ppi_mean,
    precision,
    recall,
    share_of,
)
from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.curate.validation.judging.report import guarantee, people_would, verdicts_of
from driftline.curate.validation.judging.routing import Rules, information, route
from driftline.curate.validation.judging.trust import judge_table
from driftline.curate.validation.settings import ValidationSettings

Floats = npt.NDArray[np.floating]


def campaign(rng: np.random.Generator, n: int, p: float, skill: float) -> tuple[Floats, Floats]:
    """(truth, what judges say as a probability) of the images of one class and bucket."""
    y = (rng.random(n) < p).astype(float)
    return y, np.where(rng.random(n) < skill, y, 1 - y) * 0.8 + 0.1


def ppi_py(y: Floats, f: Floats, f_rest: Floats) -> tuple[float, float]:
    """Estimate and standard error of `ppi_py.ppi_mean_ci` (angelopoulos/ppi_py, 0.2), step by step with its names."""
    n, rest = len(y), len(f_rest)
    lhat: float = 1.0
    for _ in range(2):  # first with λ = 1, to find λ, then with it
        pointest = (lhat * f_rest).mean() + (y - lhat * f).mean()
        grads, grads_hat, grads_hat_unlabeled = y - pointest, f - pointest, f_rest - pointest
        if lhat == 1.0:
            grads_cent, grad_hat_cent = grads - grads.mean(), grads_hat - grads_hat.mean()
            cov_grads = (1 / n) * 2 * (grads_cent @ grad_hat_cent)
            var_grads_hat = np.cov(np.concatenate([grads_hat, grads_hat_unlabeled]))
            lhat = float(np.clip(cov_grads / (2 * (1 + n / rest) * var_grads_hat), 0, 1))
    imputed_std = (lhat * f_rest).std() / np.sqrt(rest)
    rectifier_std = (y - lhat * f).std() / np.sqrt(n)
    return float(pointest), float(np.sqrt(imputed_std**2 + rectifier_std**2))


@pytest.mark.parametrize("seed", range(5))
def test_the_estimate_is_ppi_pys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, f = campaign(rng, 400, 0.8, 0.9)
    value, variance = ppi_mean(y[:60], f[:60], f[60:])
    assert (value, variance**0.5) == pytest.approx(ppi_py(y[:60], f[:60], f[60:]), rel=1e-12)
    assert 0 < power(y[:60], f[:60], f[60:]) < 1


def test_judges_that_tell_nothing_have_no_weight() -> None:
    y = np.array([1.0, 0.0, 1.0, 1.0])
    assert power(y, np.full(4, 0.9), np.full(50, 0.9)) == 0
    assert ppi_mean(y, np.full(4, 0.9), np.full(50, 0.9)) == (0.75, pytest.approx(y.var() / 4))


@pytest.mark.parametrize(
    ("images", "audited", "p", "skill"),
    [(500, 50, 0.95, 0.9), (500, 30, 0.9, 0.95), (300, 100, 0.8, 0.9), (2000, 200, 0.9, 0.6), (1000, 100, 0.98, 0.95)],
)
def test_95_percent_intervals_cover_in_1000_campaigns(images: int, audited: int, p: float, skill: float) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        y, f = campaign(rng, images, p, skill)
        found = share_of(y[:audited], f[:audited], f[audited:])
        covered += found.low <= y[audited:].mean() <= found.high
    assert covered >= 930


def test_good_judges_narrow_the_interval() -> None:
    rng = np.random.default_rng(0)
    y, f = campaign(rng, 2000, 0.7, 0.97)
    ours, plain = share_of(y[:200], f[:200], f[200:]), classical(int(y[:200].sum()), 200)
    assert ours.half_width < 0.6 * plain.half_width


def test_labels_that_people_saw_are_certain_and_narrow_it() -> None:
    rng = np.random.default_rng(0)
    y, f = campaign(rng, 300, 0.9, 0.9)
    sample = Sample(y[:60], f[:60], f[60:])
    alone, with_seen = precision(0, sample), precision(240, sample)
    assert with_seen.value == pytest.approx(0.5 + alone.value / 2)
    assert with_seen.half_width == pytest.approx(alone.half_width / 2)
    nothing = Sample(np.zeros(0), np.zeros(0), np.zeros(0))
    assert (precision(5, nothing).low, precision(0, nothing).high) == (1.0, 1.0)


def test_recall_counts_what_judges_rejected() -> None:
    accepted = Sample(np.ones(40), np.full(40, 0.9), np.full(160, 0.9))
    rejected = Sample(np.repeat([0.0, 1.0], [45, 5]), np.full(50, 0.1), np.full(150, 0.1))
    found = recall(40, accepted, rejected)
    assert found.value == pytest.approx(200 / 215)
    assert found.low < 200 / 215 < found.high < 1
    nothing = Sample(np.zeros(0), np.zeros(0), np.zeros(0))
    assert recall(40, accepted, nothing).value == 1


def test_without_audits_the_interval_says_nothing() -> None:
    one = share_of(np.ones(1), np.ones(1), np.ones(9))
    assert (one.low, one.high) == (0.0, 1.0)
    assert images_for(0.5, 0.05, 1) == 99


def answers_table(rows: list[tuple[str, str, list[str]]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"item": i, "id": i, "worker": w, "labels": labels, "sensitive": False, "fault": None}
            for i, w, labels in rows
        ],
        schema=ANSWERS,
    )


def said(rng: np.random.Generator, truth: list[str], skill: Any) -> list[str]:
    """A judge with two labels; skill: of each image."""
    right = rng.random(len(truth)) < skill
    return [t if ok else ("car" if t == "bus" else "bus") for t, ok in zip(truth, right, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_judge_that_is_worse_on_old_pictures_is_caught_in_every_seed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = ["bus" if v else "car" for v in rng.random(600) < 0.5]
    bucket = np.repeat(np.arange(6), 100)
    rows = []
    for judge, skill in (("good", 0.95), ("drifting", np.where(bucket == 0, 0.65, 0.95))):
        told = said(rng, truth, skill)
        rows += [opinion(f"{i:03d}", int(bucket[i]), judge, [told[i]], confidence=0.9) for i in range(600)]
    people = {f"{i:03d}": frozenset({t}) for i, t in enumerate(truth)}
    worse = [(r["judge"], r["bucket"]) for r in judge_table(table_of(rows), people) if r["worse"]]
    assert worse == [("drifting", 0)]


def test_a_judge_has_a_confusion_matrix_in_each_bucket() -> None:
    """Two drifting judges outvote one person in the old bucket; the model of workers finds out, the vote does not."""
    rng = np.random.default_rng(0)
    truth = ["bus" if v else "car" for v in rng.random(1200) < 0.5]
    bucket = np.repeat([0, 1], 600)
    ids = [f"{i:04d}" for i in range(1200)]
    people = [(i, w, [t]) for w in ("ann", "bob") for i, t in zip(ids, said(rng, truth, 0.93), strict=True)]
    rows = []
    for judge in ("a", "b"):
        told = said(rng, truth, np.where(bucket == 0, 0.5, 0.99))
        rows += [opinion(ids[i], int(bucket[i]), judge, [told[i]]) for i in range(1200)]
    joint = joint_probabilities(answers_table(people), "dawid-skene", table_of(rows))
    best = [max(joint[i], key=lambda labels: joint[i][labels]) for i in ids]
    right = np.array([b == {t} for b, t in zip(best, truth, strict=True)])
    one_worker = [{**row, "bucket": 0} for row in rows]
    pooled = joint_probabilities(answers_table(people), "dawid-skene", table_of(one_worker))
    pooled_right = np.array(
        [max(pooled[i], key=lambda v: pooled[i][v]) == {t} for i, t in zip(ids, truth, strict=True)]
    )
    assert right[bucket == 1].mean() > 0.98
    assert right[bucket == 0].mean() > 0.92, "one person, who is right on 93 %"
    assert right.mean() > pooled_right.mean()


ITEMS = [{"id": f"{i:03d}", "bucket": i % 2, "concept": "bus"} for i in range(100)]
RULES = Rules(skip=True, confidence=0.9, audit_share=0.1)


def opinions_of(*judges: dict[str, Any]) -> pa.Table:
    """judges: keywords of `opinion` for all items; labels: a function of the item's number."""
    return table_of(
        opinion(item["id"], item["bucket"], f"j{n}", **{**{"labels": ["bus"], "confidence": 0.95}, **values})
        for n, values in enumerate(judges)
        for item in ITEMS
    )


def counts(routes: dict[str, Any]) -> dict[str, int]:
    return {
        to: n for to in ("people", "audit", "skip", "unaffordable") if (n := sum(r.to == to for r in routes.values()))
    }


def test_people_see_everything_unless_the_settings_say_otherwise() -> None:
    assert ValidationSettings().skip_people == "never"
    rules = Rules(skip=False, confidence=0.9, audit_share=0.1)
    assert counts(route(ITEMS, opinions_of({}, {}), rules)) == {"people": 100}


def test_agreed_and_confident_skips_people_but_for_a_random_share() -> None:
    routes = route(ITEMS, opinions_of({}, {}), RULES)
    assert counts(routes) == {"audit": 10, "skip": 90}
    more = route(ITEMS, opinions_of({}, {}), Rules(True, 0.9, 0.3))
    audited = {i for i, r in routes.items() if r.to == "audit"}
    assert audited < {i for i, r in more.items() if r.to == "audit"}, "a larger share holds the smaller one"


@pytest.mark.parametrize(
    ("second", "to"),
    [
        ({"labels": ["car"]}, "people"),
        ({"confidence": 0.1}, "people"),
        ({"sensitive": True}, "people"),
        ({"fault": "refused", "labels": []}, "people"),
        ({"labels": ["bus", "car"]}, "people"),
    ],
)
def test_what_is_not_agreed_goes_to_people(second: dict[str, Any], to: str) -> None:
    assert counts(route(ITEMS, opinions_of({}, second), RULES)) == {to: 100}


def test_a_distrusted_judge_decides_nothing_in_its_bucket() -> None:
    routes = route(ITEMS, opinions_of({}), RULES, [("j0", 1)])
    assert {routes[i["id"]].to for i in ITEMS if i["bucket"] == 1} == {"people"}
    assert "skip" in {routes[i["id"]].to for i in ITEMS if i["bucket"] == 0}


def test_a_small_budget_asks_what_tells_most() -> None:
    rows = [opinion(i["id"], 0, "j", ["bus"], confidence=0.5 + int(i["id"]) / 300) for i in ITEMS]
    routes = route(ITEMS, table_of(rows), Rules(False, 0.9, 0.1, affordable=10))
    asked = [i for i, r in routes.items() if r.to == "people"]
    assert asked == [f"{i:03d}" for i in range(10)]
    assert counts(routes) == {"people": 10, "unaffordable": 90}


def test_an_answer_tells_most_where_judges_know_nothing() -> None:
    bits = information(np.array([[0.5, 0.5, 0.0], [0.9, 0.05, 0.05], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]))
    assert np.argsort(bits).tolist() == [2, 1, 0, 3]


def test_100000_images_are_routed_in_seconds() -> None:
    items = [{"id": f"{i:06d}", "bucket": i % 10, "concept": f"c{i % 11}"} for i in range(20_000)]
    rows = table_of(
        opinion(i["id"], i["bucket"], f"j{j}", [i["concept"]], confidence=0.9) for i in items for j in (1, 2)
    )
    clock = time.process_time()
    route(items, rows, RULES)
    assert time.process_time() - clock < 2  # a fifth of the images in a fifth of the time


def test_the_verdict_of_what_nobody_saw_is_the_judges_or_pending() -> None:
    items = [{"id": i, "bucket": 0, "concept": "bus"} for i in "abc"]
    answers = answers_table([("a", w, ["bus"]) for w in "xyz"])
    decided = {"b": frozenset({"bus"})}
    opinions = table_of(opinion(i, 0, "j", ["bus"]) for i in "abc")
    verdicts = tally(items, answers, ValidationSettings(), opinions, decided)
    assert verdicts["verdict"].to_pylist() == ["kept", "kept", "pending"]
    assert verdicts["answers"].to_pylist() == [4, 1, 1]


def test_a_judge_votes_as_a_worker() -> None:
    items = [{"id": "a", "bucket": 0, "concept": "bus"}]
    rules = ValidationSettings(workers=1, agree=2)
    one = answers_table([("a", "x", ["bus"])])
    assert tally(items, one, rules)["verdict"].to_pylist() == ["no_majority"]
    assert tally(items, one, rules, table_of([opinion("a", 0, "j", ["bus"])]))["verdict"].to_pylist() == ["kept"]


def test_the_report_has_a_row_for_each_class_and_bucket() -> None:
    opinions = opinions_of({})
    routes = route(ITEMS, opinions, RULES)
    audited = {i for i, r in routes.items() if r.to == "audit"}
    answers = answers_table([(i, "ann", ["bus"]) for i in sorted(audited)])
    rules = ValidationSettings(workers=1)
    decided = {i: r.label for i, r in routes.items() if i not in audited}
    verdicts = verdicts_of(tally(ITEMS, answers, rules, opinions, decided))
    rows = guarantee(ITEMS, routes, verdicts, people_would(ITEMS, answers, rules), audited, audited, rules)
    assert [(r["bucket"], r["labels"], r["unseen"], r["audited"]) for r in rows] == [(0, 50, 45, 5), (1, 50, 45, 5)]
    assert rows[0]["precision_low"] < rows[0]["precision"] == 1.0
    assert rows[0]["usd_a_point"] > 0 < rows[0]["minutes_a_point"]
    split = answers_table([("a", "x", ["bus"]), ("a", "y", ["car"])])
    assert people_say(split, ValidationSettings(workers=2)) == {"a": frozenset()}


def test_judges_alone_do_not_outvote_people() -> None:
    items = [{"id": "a", "bucket": 0, "concept": "bus"}]
    answers = answers_table([("a", w, ["none"]) for w in "xyz"])
    opinions = table_of(opinion("a", 0, judge, ["bus"]) for judge in "jkl")
    rules = ValidationSettings(agree=1)
    assert tally(items, answers, rules, opinions)["verdict"].to_pylist() == ["wrong_concept"]
