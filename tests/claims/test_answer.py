"""The first screen of a report, from numbers made by hand: each word follows from an interval, a p or a control."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from driftline.eval.protocol import Score
from driftline.eval.reporting.answer import Answer, answer
from driftline.eval.reporting.text import points
from driftline.eval.scoring.bands import Band
from driftline.eval.scoring.decay import HalfLife
from driftline.eval.scoring.net import Loss, Net

SCORE = Score("first", "first")
AGEING = re.compile(r"\bage(s|d|ing)?\b")


def band(value: Any, half: float = 0.02) -> Band:
    value = np.asarray(value, float)
    return Band(value, value - half, value + half)


def aged(fresh: float, loss: float, half: float = 0.02, models: int = 3, ages: int = 2) -> Any:
    """Models of age 0 and 2 years, which lose `loss` a year to newer ones."""
    values = [fresh, fresh - 2 * loss][:ages]
    ns = SimpleNamespace
    curve = ns(
        age=np.array([0.0, 2.0])[:ages], youngest=np.zeros(2), oldest=np.array([0.0, 2.0]), tested=np.array([1, 2]),
        accuracy=band(values), loss=band(loss, half), pairs=3, models=0,
    )  # fmt: skip
    return ns(
        curve=curve, lags=np.array([0, 2])[:ages], base=0, models=models, clustered=True,
        older=band([0.0, 2 * loss if models > 1 else 0.0][:ages]),
        half_life=HalfLife(1.5, 1.0, 2.0, 1.0, 2.0), seeds=(0, 1, 2),
    )  # fmt: skip


def net(value: float, half: float, is_: Any, draws: int = 20) -> Net:
    nothing = Loss(np.zeros(1), 0.0)
    return Net(is_, band(value, half), "because", draws, 20, np.array([2.0]), nothing, nothing, nothing, nothing,
               np.zeros(draws), p=0.001)  # fmt: skip


def result(name: str, mean: float, loss: float = 0.1, place: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "learner": name, "label": name, "settings": {}, "seeds": [0, 1, 2], "seconds": 6.0, "measures": {},
        "scores": {"first": {"mean": mean, "sd": 0.0, "values": [mean] * 3}}, "standing": "", "place": place,
        "matrix": [[mean, mean - loss], [None, mean]], "aged": aged(mean, loss), "references": {}, **more,
    }  # fmt: skip


def part(*results: dict[str, Any], ties: Any = None, samples: int = 500, **more: Any) -> dict[str, Any]:
    for place, one in enumerate(results):
        one["place"] = place
    old = {"members": list(range(len(results))), "ties": [] if ties is None else ties, "samples": samples}
    about = {"unit": "years", "dates": [0, 1]}
    document = {"protocol": "mine", "results": list(results), "primary": SCORE, "ageing": about, "when_old": old}
    return document | {"stream": {"name": "s"}, "uploaders": ""} | more


def of(document: dict[str, Any]) -> Answer:
    return answer(document)


def words(document: dict[str, Any]) -> str:
    texts = of(document).texts()
    return " ".join([texts["headline"], *(one for key in texts if key != "headline" for one in texts[key])])


def test_without_a_control_nothing_is_said_to_age() -> None:
    found = of(part(result("er", 0.9), result("ridge", 0.8), ties=[[0, 1]])).texts()
    assert found["headline"] == "Older models are behind newer ones"
    assert found["sentences"][0] == (
        "er and ridge fall 10.0 percentage points per year behind newer models of the same method, which have also "
        "seen more data: "
        "how much of it is ageing is not known."
    )
    assert not AGEING.search(" ".join([found["headline"], *found["sentences"][1:], *found["may_conclude"]]))
    assert any("that models age: no control was run" in one for one in found["may_not_conclude"])


@pytest.mark.parametrize(
    ("nets", "headline"),
    [
        ([(3.0, 1.0, "ageing"), (2.0, 1.0, "ageing")], "Models age: more training data do not explain the whole fall"),
        ([(0.2, 0.5, "none"), (0.1, 0.5, "none")], "No measurable ageing in 2.0 years"),
        ([(1.0, 2.0, "not known"), (0.1, 0.5, "none")], "Whether models age is not known"),
        ([(3.0, 1.0, "ageing"), (1.0, 2.0, "not known")], "Some of the best models age"),
    ],
)
def test_a_control_decides_the_headline(nets: Any, headline: str) -> None:
    results = [result(f"l{k}", 0.9, net=net(*one)) for k, one in enumerate(nets)]
    assert of(part(*results, ties=[[0, 1]])).headline == headline


def test_ageing_that_chance_makes_among_many_is_not_said() -> None:
    """Holm over the learners that are named."""
    results = [result(f"l{k}", 0.9, net=replace(net(3.0, 2.9, "ageing"), p=0.04)) for k in range(2)]
    assert of(part(results[0])).headline.startswith("Models age")
    assert of(part(*results, ties=[[0, 1]])).headline == "Whether models age is not known"


def test_a_half_life_is_said_only_where_ageing_is_shown() -> None:
    half = "Half of the accuracy of er above a constant answer"
    assert half in words(part(result("er", 0.9, net=net(3.0, 1.0, "ageing"))))
    assert half not in words(part(result("er", 0.9, net=net(0.2, 0.5, "none"))))
    assert half not in words(part(result("er", 0.9)))


def test_missing_draws_are_shown() -> None:
    assert "(3 of 20 permutations)" in words(part(result("er", 0.9, net=net(3.0, 1.0, "ageing", draws=3))))


def test_a_group_that_is_not_told_apart_is_named_and_its_extremes_are_not() -> None:
    """The one that falls least is the worst."""
    good, flat = result("er", 0.9, 0.2), result("flat", 0.5, 0.01)
    found = words(part(good, result("ridge", 0.89, 0.2), flat, ties=[[0, 1], [2]]))
    assert "When 2.0 years old, er and ridge do not differ measurably, ahead of 1 more: 49.0 to 50.0 % of 500" in found
    assert "which of er and ridge is best when old" in found
    assert "flat" not in found


def test_the_most_accurate_is_crowned_only_by_a_test() -> None:
    two = (result("er", 0.9), result("ridge", 0.8))
    assert "er is the most accurate, beyond chance: 70.0 % of 500 test samples" in words(part(*two, ties=[[0], [1]]))
    assert "most accurate" not in words(part(*two, ties=[[0, 1]]))
    assert "differences were not tested" in words(part(*two))


def test_twelve_test_samples_are_too_few() -> None:
    found = of(part(result("er", 0.9), ties=[], samples=12))
    assert found.headline == "12 test samples: too few"
    assert found.may_conclude == ("nothing beyond these runs and these test samples",)


def test_one_age_cannot_tell() -> None:
    one = result("er", 0.9) | {"aged": aged(0.9, 0.1, ages=1)}
    assert of(part(one) | {"when_old": None}).headline == "How models age is not known"


def test_a_fall_within_its_interval_is_none() -> None:
    flat = result("er", 0.9) | {"aged": aged(0.9, 0.01, half=0.05)}
    assert of(part(flat)).headline == "No measurable fall in 2.0 years"


def test_what_is_never_retrained_stands_beside_newer_models_on_the_same_period() -> None:
    frozen = result("nap", 0.9) | {"aged": aged(0.9, 0.3, models=1), "matrix": [[0.9, 0.3], [0.9, 0.3]]}
    document = part(result("er", 0.88), frozen)
    document["when_old"]["members"] = [0]
    found = words(document)
    assert "nap, never retrained: 30.0 % on the last period, where newly trained models reach 88.0 %." in found


def test_harder_data_is_one_number_where_its_interval_leaves_zero_out() -> None:
    says = "Test samples become harder for newly trained models, too: by 6.0 points (4.0 to 8.0) per year"
    assert says in words(part(result("er", 0.9), harder_data=band(6.0, 2.0)))
    assert "harder" not in words(part(result("er", 0.9), harder_data=band(1.0, 2.0)))


def by_rank(*results: dict[str, Any], ties: Any, **more: Any) -> dict[str, Any]:
    document = part(*results)
    for one in results:
        one["aged"] = None
    means = np.array([one["scores"]["first"]["mean"] for one in results])
    tested = {"members": list(range(len(results))), "score": band(means), "ties": ties, "pairs": []}
    return document | {"ageing": None, "when_old": None, "tested": tested} | more


def test_nobody_is_first_who_is_not_above_a_constant_answer() -> None:
    results = [result("er", 0.26), result("blind", 0.25, standing="blind")]
    found = of(by_rank(*results, ties=[[0, 1]])).texts()
    assert found["headline"] == "No learner is shown to be above blind"
    assert found["sentences"][0] == (
        "Blind reaches 25.0 %. Of 1 learner looking at samples, er is the best with 26.0 % (24.0 to 28.0), "
        "which is not shown to be better."
    )


def test_who_is_first_by_rank_stands_with_its_interval_and_a_reference() -> None:
    results = [result("er", 0.9), result("ridge", 0.7), result("majority", 0.3, standing="blind")]
    found = of(by_rank(*results, ties=[[0], [1], [2]])).texts()
    assert found["sentences"][0] == (
        "er has the best first of 2 learners, 90.0 % (88.0 to 92.0), beyond chance. Majority reaches 30.0 %."
    )
    assert found["may_conclude"] == ["that learners without a common letter in the table differ"]
    tied = of(by_rank(*results, ties=[[0, 1], [2]])).texts()
    assert tied["headline"] == "2 of 2 learners are first together"
    assert tied["sentences"][0].startswith("er and ridge do not differ measurably in first: 70.0 to 90.0 %.")


def test_a_bound_is_no_winner_and_said_to_be_one() -> None:
    bounds = [result("er", 0.9), result("joint", 0.99, standing="bound")]
    found = of(by_rank(*bounds, ties=[[0]])).texts()
    assert "joint" not in " ".join(found["sentences"])
    assert "that joint can be reached: an upper bound" in found["may_not_conclude"]


@pytest.mark.parametrize(("seeds", "says"), [(1, "each learner ran with one"), (4, "there are only 4"), (5, "")])
def test_what_few_seeds_do_not_tell_is_said(seeds: int, says: str) -> None:
    found = of(part(result("er", 0.9, seeds=list(range(seeds))))).texts()["may_not_conclude"]
    assert any(says in one for one in found)
    assert any("seed" in one for one in found) == bool(says)


def test_uploaders_that_are_not_known_are_said_to_be() -> None:
    assert "give --stream" in words(part(result("er", 0.9), uploaders="not known"))
    assert "give --stream" not in words(part(result("er", 0.9)))


def test_at_most_120_words_are_above_the_figure() -> None:
    many = [result(f"a-learner-with-a-long-name-{k}", 0.9, net=net(3.0, 1.0, "ageing")) for k in range(12)]
    found = of(part(*many, ties=[list(range(12))])).texts()
    assert len(f"{found['headline']} {found['sentences'][0]}".split()) <= 120
    assert len(found["sentences"]) <= 4, "the key sentence and three takeaways"


def test_a_cost_is_that_of_one_run() -> None:
    rows = (result("er", 0.9, seconds=30.0), result("ridge", 0.8))
    assert "A run of ridge takes 2.0 s, one of er 5 times as long (10.0 s)." in words(by_rank(*rows, ties=[[0], [1]]))


def test_points_are_rounded_to_the_nearest_tenth() -> None:
    assert [points(v) for v in (0.12345, 0.12355, -0.0126, 0.0)] == ["12.3", "12.4", "−1.3", "0.0"]
