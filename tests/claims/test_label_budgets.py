"""5: a budget binds everything that is paid, and what it leaves out is drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from support.campaigns import Campaign

from driftline.curate.validation.asking.batches import affordable, draw_gold, estimate
from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.curate.validation.judging.routing import Rules, route
from driftline.curate.validation.settings import ValidationSettings

JUDGES = [{"name": "m", "kind": "margin"}]


def settings_of(**values: Any) -> ValidationSettings:
    return ValidationSettings.model_validate({"judges": JUDGES, **values})


def test_three_dollars_ask_for_three_dollars_with_audits_and_gold() -> None:
    for usd in (0.5, 3.0, 7.77):
        rules = settings_of(people_budget_usd=usd, gold="gold.csv", gold_share=0.2)
        images = affordable(rules)
        assert images is not None
        gold = round(0.2 * images)
        assert estimate(images + gold, rules) <= usd
        assert estimate(images + gold + 2, rules) > usd, "and not for much less"


def test_audits_are_within_the_budget() -> None:
    for usd in (1.0, 3.0, 6.0):
        campaign = Campaign(0, people_budget_usd=usd)
        routes = campaign.panel.routes(campaign.items)
        asked = [i for i, one in routes.items() if one.to in ("people", "audit")]
        assert estimate(len(asked), settings_of()) <= usd
        assert len(asked) == int(usd / 0.08 + 1e-9)


def test_later_rounds_are_within_what_is_left() -> None:
    rules = settings_of(people_budget_usd=8)
    assert affordable(rules) == 100
    assert affordable(rules, 5.6) == 30
    assert affordable(rules, 20.0) == 0


def test_few_audits_are_spread_over_classes_and_buckets() -> None:
    items = [{"id": f"p{i}", "bucket": i % 10, "concept": "bus"} for i in range(1000)]
    rows = table_of(opinion(i["id"], int(i["bucket"]), "j", ["bus"], confidence=0.95) for i in items)
    routes = route(items, rows, Rules(True, 0.9, 0.5, affordable=23))
    shares = Counter(i["bucket"] for i in items if routes[str(i["id"])].to == "audit")
    assert sum(shares.values()) == 23
    assert set(shares.values()) == {2, 3}


def test_equal_information_is_drawn_and_not_ordered_by_id() -> None:
    """200 affordable answers, ids that begin with the bucket: every bucket gets its part, another one for each seed."""
    items = [{"id": f"{i // 100}-{i:04d}", "bucket": i // 100, "concept": "bus"} for i in range(1000)]
    rows = table_of(
        opinion(i["id"], int(i["bucket"]), j, [said], confidence=0.9)
        for i in items
        for j, said in (("a", "bus"), ("b", "car"))
    )
    chosen = []
    for seed in range(20):
        routes = route(items, rows, Rules(True, 0.9, 0.1, affordable=200, seed=seed))
        chosen.append({i for i, one in routes.items() if one.to == "people"})
        shares = Counter(int(i[0]) for i in chosen[-1])
        assert min(shares[b] for b in range(10)) >= 5
    common = [len(a & b) for n, a in enumerate(chosen) for b in chosen[:n]]
    assert np.mean(common) == pytest.approx(40, abs=3), "as independent draws of 200 of 1,000 have"
    renamed = [{**i, "id": str(i["id"])[::-1]} for i in items]
    other = table_of(
        opinion(i["id"], int(i["bucket"]), j, [said], confidence=0.9)
        for i in renamed
        for j, said in (("a", "bus"), ("b", "car"))
    )
    routes = route(renamed, other, Rules(True, 0.9, 0.1, affordable=200))
    assert min(Counter(i["bucket"] for i in renamed if routes[str(i["id"])].to == "people").values()) >= 5


def test_gold_beyond_whole_rounds_is_drawn_over_classes() -> None:
    known = {f"{c}{k}": frozenset({c}) for c in "abcdefghij" for k in range(5)}
    times: Counter[str] = Counter()
    for seed in range(300):
        shares = Counter(next(iter(v)) for v in draw_gold(known, 13, seed).values())
        assert {shares[c] for c in "abcdefghij"} == {1, 2}
        times.update(c for c in shares if shares[c] == 2)
    assert max(times.values()) < 300 * 0.3 + 4 * np.sqrt(300 * 0.21)
    assert min(times[c] for c in "abcdefghij") > 300 * 0.3 - 4 * np.sqrt(300 * 0.21)


def test_a_rare_answer_is_not_lost_and_not_invented() -> None:
    known = {"n": frozenset({"none"})} | {f"b{k}": frozenset({"bus"}) for k in range(9)}
    assert Counter(next(iter(v)) for v in draw_gold(known, 5, 0).values()) == {"bus": 4, "none": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"people_budget_usd": 0.05}, r"less than the \$0.08 of the answers to one image"),
        ({"people_budget_usd": 5, "judges": []}, "people_budget_usd needs judges"),
    ],
)
def test_a_budget_that_cannot_work_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings_of(**values)
