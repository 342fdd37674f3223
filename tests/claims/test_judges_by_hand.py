"""Judges in cases that can be counted: who is worse, what a student may know, what audits say of labels nobody saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.curate.validation.judging.report import _probability, guarantee
from driftline.curate.validation.judging.routing import Route
from driftline.curate.validation.judging.student import answers_of, cross_fitted
from driftline.curate.validation.judging.trust import judge_table
from driftline.curate.validation.settings import ValidationSettings

BUS, CAR = frozenset({"bus"}), frozenset({"car"})


def _table(right: int, judges: int) -> list[dict[str, Any]]:
    """Each judge is right on `right` of 12 images of bucket 0, and on 58 of 60 of bucket 1."""
    rows = [
        opinion(f"{b}-{i}", b, f"j{j}", ["bus" if i < ok else "car"])
        for j in range(judges)
        for b, n, ok in ((0, 12, right), (1, 60, 58))
        for i in range(n)
    ]
    return judge_table(table_of(rows), {row["id"]: BUS for row in rows})


def test_a_judge_is_worse_where_chance_gives_so_few_in_one_of_a_hundred_tables() -> None:
    p = {right: hypergeom.cdf(right, 72, 58 + right, 12) for right in range(13)}
    last = max(right for right in p if p[right] <= 0.01 / 2)
    assert [row["worse"] for row in _table(last, 1)] == [True, False]
    assert [row["worse"] for row in _table(last + 1, 1)] == [False, False]
    assert p[last] > 0.01 / 12
    assert not any(row["worse"] for row in _table(last, 6)), "twelve pairs are twelve tests"


def test_half_sure_is_no_answer() -> None:
    assert answers_of(np.array([[0.5, 0.5], [0.6, 0.4]]), ["bus", "car"]) == [([], 0.5), (["bus"], 0.6)]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_student_knows_nothing_of_an_image_or_its_copies(copies: int) -> None:
    """Labels at random: who has seen the answers is right everywhere, others in half of the images."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 200)), rng.integers(0, 2, 120)
    x, y, groups = (np.repeat(values, copies, 0) for values in (x, y, np.arange(120)))
    said = cross_fitted(x, np.zeros(len(y), np.int64), y, 2, 5, 3, 0, groups)
    assert 0.25 < (said.argmax(1) == y).mean() < 0.75


def _guarantee(labels: frozenset[str], people: tuple[str, str]) -> dict[str, Any]:
    """Judges give `labels` to four images that were asked for bus; of two that were audited people say so."""
    items = [{"id": f"p{i}", "bucket": 0, "concept": "bus"} for i in range(4)]
    routes = {f"p{i}": Route("audit" if i < 2 else "skip", labels, 0.9, 0.0) for i in range(4)}
    said = {(f"p{i}", "bus"): verdict for i, verdict in enumerate((*people, "pending", "pending"))}
    run = dict.fromkeys(said, "wrong_concept")
    (row,) = guarantee(items, routes, run, said, {"p0", "p1"}, {"p0", "p1"}, ValidationSettings())
    return row


def test_an_audit_without_enough_answers_counts_against_the_judges() -> None:
    row = _guarantee(BUS, ("kept", "pending"))
    assert (row["unseen"], row["audited"], row["labels"]) == (2, 2, 2)
    assert row["classical"] == pytest.approx(0.5)
    lost = _guarantee(CAR, ("pending", "pending"))
    assert (lost["recall"], lost["recall_low"], lost["recall_high"]) == (0, 0, 0), "no image got the label"
    assert _guarantee(CAR, ("wrong_concept", "wrong_concept"))["recall"] is None, "no image shows the class"


def test_what_judges_reject_has_the_rest_of_their_probability() -> None:
    assert _probability(Route("skip", CAR, 0.9, 0.0), accepted=False) == pytest.approx(0.1)
    assert _probability(Route("skip", BUS, 0.9, 0.0), accepted=True) == pytest.approx(0.9)
