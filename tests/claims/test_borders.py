"""What happens exactly at a border: the words of settings and docs say on which side it is."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from driftline.curate.bucketing.assign import assign
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.seeding import rng_for
from driftline.curate.retrieval.candidates import Lookup, Ranked, choose
from driftline.curate.retrieval.settings import Concept, RetrieveSettings
from driftline.curate.validation.answers.agreement import Votes, fleiss_kappa
from driftline.curate.validation.answers.answers import ANSWERS
from driftline.curate.validation.answers.verdicts import agreement, tally, verdict
from driftline.curate.validation.settings import ValidationSettings
from driftline.eval.protocols.ocrr.loop import policy_of

BUS, CAR = frozenset({"bus"}), frozenset({"car"})
DAYS = ("2010-01-01", "2010-01-02", "2010-01-03", "2010-01-05")


def test_a_span_has_its_first_second_and_not_its_end() -> None:
    rules = BucketSettings(kind="spans", spans=((DAYS[0], DAYS[1]), (DAYS[2], DAYS[3])), unlabelled=())
    start, end, again, last = (int(np.datetime64(day, "s").astype(np.int64)) for day in DAYS)
    times = np.array([start - 1, start, end - 1, end, again - 1, again, last - 1, last])
    number, buckets = assign(times, [str(i) for i in range(8)], rules)
    assert number.tolist() == [-1, 0, 0, -1, -1, 1, 1, -1]
    assert [bucket.count for bucket in buckets] == [2, 2]


def test_a_cut_is_the_first_second_of_the_later_bucket() -> None:
    cut = int(np.datetime64(DAYS[1], "s").astype(np.int64))
    number, _ = assign(
        np.array([cut - 1, cut]), ["a", "b"], BucketSettings(kind="cuts", cuts=(DAYS[1],), unlabelled=())
    )
    assert number.tolist() == [0, 1]


@pytest.mark.parametrize("least", [0.75, 0.9])
def test_an_answer_with_exactly_the_confidence_that_is_asked_for_is_kept(least: float) -> None:
    rules, answers = ValidationSettings(aggregate="dawid-skene", confidence=least), [(BUS, False)] * 3
    for p, found in ((least, "kept"), (least - 1e-9, "unsure")):
        assert verdict(answers, "bus", rules, {BUS: p, CAR: 1 - p}) == found


def test_half_of_at_least_three_known_answers_right_is_no_reason_to_reject() -> None:
    def suspected(right: int, wrong: int) -> bool:
        said = ["bus"] * right + ["car"] * wrong
        rows: list[dict[str, Any]] = [
            {"item": f"i{n}", "id": f"p{n}", "worker": w, "assignment": f"A{n}{w}", "labels": [label],
             "sensitive": False, "seconds": 5, "fault": None}
            for n, truth in enumerate(said) for w, label in (("ann", "bus"), ("eve", truth))
        ]  # fmt: skip
        gold = {f"p{n}": BUS for n in range(len(said))}
        report = agreement(pa.Table.from_pylist(rows, ANSWERS), gold)
        return next(bool(row["suggest_reject"]) for row in report["workers"] if row["worker"] == "eve")

    assert not suspected(2, 2)
    assert suspected(1, 2)
    assert not suspected(0, 2)
    assert suspected(0, 3)


def test_judges_decide_nothing_that_people_answered_and_agreement_is_of_whole_answers() -> None:
    rows: list[dict[str, Any]] = [
        {"item": "i", "id": "p", "worker": f"w{n}", "assignment": f"A{n}", "labels": labels, "sensitive": False,
         "seconds": 5, "fault": None}
        for n, labels in enumerate((["bus", "car"], ["bus", "car"], ["bus"]))
    ]  # fmt: skip
    items = [{"id": "p", "bucket": 0, "concept": "bus"}]
    (row,) = tally(items, pa.Table.from_pylist(rows, ANSWERS), ValidationSettings(), decided={"p": BUS}).to_pylist()
    assert row["decision"] == "several_concepts"
    assert row["agreement"] == pytest.approx(2 / 3)


def test_kappa_is_of_images_with_as_many_answers_as_most() -> None:
    """Three images with three answers, one with two: (1 + 1/3 + 1) / 3 of the pairs are equal, (5/9)² + (4/9)² by
    chance."""
    items, labels = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3], [0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1]
    found = fleiss_kappa(Votes(np.array(items), np.zeros(11, np.int64), np.array(labels)))
    chance = (5 / 9) ** 2 + (4 / 9) ** 2
    assert found == pytest.approx((7 / 9 - chance) / (1 - chance))


def _fates(scores: list[list[float]], lookup: Lookup | None = None, **more: Any) -> list[list[str]]:
    """scores: of each concept, best first; row i has the i-th score."""
    concepts = tuple(Concept(name=f"c{k}", prompts=(f"x{k}",)) for k in range(len(scores)))
    rules = RetrieveSettings(**({"depth": 4, "background_share": 0, "concepts": concepts} | more))
    tops = [Ranked(np.argsort(-np.array(s), kind="stable"), -np.sort(-np.array(s, np.float32))) for s in scores]
    fates = choose(tops, [Ranked(t.rows[:0], t.scores[:0]) for t in tops], rules, lookup).fates
    return [
        [dict(zip(t.rows.tolist(), f, strict=True))[row] for row in range(4)] for t, f in zip(tops, fates, strict=True)
    ]


def test_an_image_of_two_concepts_with_equal_cosines_is_the_earlier_ones() -> None:
    first, second = _fates([[0.9, 0.8, 0.1, 0.2], [0.9, 0.7, 0.3, 0.4]], per_class=4, overlap="highest")
    assert first == ["kept", "kept", "ambiguous", "ambiguous"]
    assert second == ["ambiguous", "ambiguous", "kept", "kept"]


def test_a_margin_is_to_the_best_of_the_other_concepts() -> None:
    both = np.array([[0.9, 0.1, 0.86], [0.8, 0.1, 0.1], [0.7, 0.6, 0.6], [0.6, 0.0, 0.0]], np.float32)
    found = _fates(both.T.tolist(), Lookup(scores=lambda rows: both[rows]), per_class=2, margin=0.05, overlap="allow")[
        0
    ]
    assert found[:2] == ["small_margin", "kept"]


def test_a_wrong_correction_names_each_other_class_equally_often() -> None:
    policy, rng = policy_of("wrong:1"), rng_for(0, "wrong")
    said = Counter(policy.label(2, 5, rng) for _ in range(4000))
    assert set(said) == {0, 1, 3, 4}
    assert all(abs(n - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75) for n in said.values())
