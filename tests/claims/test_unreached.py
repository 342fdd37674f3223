"""A score that some seeds never reached is no match for one that all reached, and one seed is none for five."""

import json
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from driftline.eval.protocol import PROTOCOLS, Score
from driftline.eval.protocols.ocrr.protocol import REACHED
from driftline.eval.reporting.answer import answer
from driftline.eval.reporting.document import _cost
from driftline.eval.reporting.exports import scores_tex, scores_text
from driftline.eval.reporting.overview import overview
from driftline.eval.results import Results
from driftline.eval.scoring.aggregate import _spread
from driftline.eval.scoring.ranking import best, rank, ranked

COST = REACHED[90]
HIGH = Score("worst", "min(novel, original)")
Values = Sequence[float | None]


def result(learner: str, values: Values, score: Score = COST, **others: Values) -> dict[str, Any]:
    scores = {score.name: _spread(values)} | {name: _spread(v) for name, v in others.items()}
    about = {"learner": learner, "label": learner, "settings": {}, "measures": {}}
    return about | {"seeds": list(range(len(values))), "scores": scores}


def document(results: Sequence[Mapping[str, Any]]) -> Results:
    return Results(protocol="ocrr", stream={"name": "s", "sha256": "0" * 64}, results=list(results), skipped=[])


PARTLY = {"never slow": (120.0, 140.0, 160.0), "lucky": (100.0, None, None), "mostly": (100.0, 101.0, None)}


class TestSomeSeedsNeverReachedIt:
    @pytest.mark.parametrize("order", permutations(PARTLY), ids=lambda o: ", ".join(o))
    def test_100_and_two_that_never_came_is_behind_three_that_did(self, order: tuple[str, ...]) -> None:
        results = [result(name, PARTLY[name]) for name in order]
        in_order = sorted(results, key=lambda r: rank(COST, r), reverse=True)
        assert [r["learner"] for r in in_order] == ["never slow", "mostly", "lucky"]
        assert [r["learner"] for r in best(COST, results)] == ["never slow"]

    def test_nobody_is_the_best_if_nobody_always_came(self) -> None:
        assert best(COST, [result(name, PARTLY[name]) for name in ("lucky", "mostly")]) == []
        assert best(COST, [result("never", (None, None))]) == best(COST, []) == []

    def test_where_the_higher_is_the_better(self) -> None:
        some, every = result("some", (0.9, None), HIGH), result("every", (0.2, 0.3), HIGH)
        assert best(HIGH, [some, every]) == [every]
        assert rank(HIGH, every) > rank(HIGH, some) > rank(HIGH, result("none", (None, None), HIGH))

    def test_a_front_of_costs_has_no_mean_over_some_seeds(self) -> None:
        results = [result(n, v, HIGH) | {"seconds": 1.0} for n, v in (("a", (0.9, None)), ("b", (0.5, 0.5)))]
        assert _cost(dict(document(results)) | {"primary": HIGH}) is None


class TestFewerSeeds:
    MADE = (("one", (0.9,)), ("five", (0.5, 0.6, 0.55, 0.5, 0.6)), ("other", (0.4, 0.4, 0.5, 0.4, 0.4)))

    @pytest.mark.parametrize("order", permutations(range(3)), ids=str)
    def test_one_seed_is_not_the_best_beside_five(self, order: tuple[int, ...]) -> None:
        results = [result(*self.MADE[k], HIGH) for k in order]
        assert [r["learner"] for r in best(HIGH, results)] == ["five"]

    def test_one_lucky_seed_of_five_hides_nobody(self) -> None:
        """Of the five seeds some never came: neither they nor the single seed is the best."""
        assert best(HIGH, [result("one", (0.9,), HIGH), result("five", (0.5, None, 0.6, 0.5, 0.5), HIGH)]) == []

    def test_single_seeds_among_themselves_have_a_best(self) -> None:
        results = [result("a", (0.5,), HIGH), result("b", (0.7,), HIGH), result("c", (0.7,), HIGH)]
        assert [r["learner"] for r in best(HIGH, results)] == ["b", "c"]


def ocrr(learner: str, *worst: float | None) -> dict[str, Any]:
    """A result of ocrr, with all its scores."""
    names = [score.name for score in PROTOCOLS["ocrr"].scores]
    others: dict[str, Values] = {name: worst for name in names if name != "worst"}
    return result(learner, worst, HIGH, **others)


class TestEveryTableHasTheSameRule:
    """The primary score of ocrr, of learners of which one has one seed and another one lacks a seed."""

    @pytest.fixture
    def made(self) -> Results:
        partly, one = ocrr("partly", 0.95, None, 0.95), ocrr("one", 0.9)
        return document([partly, one, ocrr("whole", 0.5, 0.6, 0.7), ocrr("low", 0.4, 0.3, 0.4)])

    def test_ranking_and_leaderboards(self, made: Results) -> None:
        assert [(p.name, p.best) for p in ranked(made)] == [
            ("one", False), ("whole", True), ("low", False), ("partly", False)
        ]  # fmt: skip
        assert made.best == "whole"

    def test_terminal(self, made: Results) -> None:
        assert [line.split()[0] for line in scores_text(made).splitlines()[2:]] == ["one", "whole", "low", "partly"]
        assert "95.0 ± 0.0 (2/3)" in scores_text(made)

    def test_notebook_and_latex(self, made: Results) -> None:
        bold = [line for line in scores_tex([made]).splitlines() if r"\mathbf" in line]
        assert [line.split(" &")[0] for line in bold] == ["whole"]
        assert made._repr_html_().count("<strong>") == 1

    def test_sentence(self, made: Results) -> None:
        results = [r | {"place": k, "seconds": 1.0} for k, r in enumerate(made["results"])]
        found = answer(whole := {**made, "primary": HIGH, "results": results})
        assert found.sentences[0].startswith("<strong>whole</strong> is first by"), "nobody was tested against it"
        none = answer({**whole, "results": whole["results"][:2]})
        assert none.headline.startswith("No learner can be ranked")

    def test_overview(self, made: Results) -> None:
        html = overview([made, made])
        assert html.count("class='best'") == 2
        assert "<td class='best'>60.0" in html

    def test_json_says_how_many_came(self, made: Results) -> None:
        stored = json.loads(json.dumps(made))["results"]
        assert stored[0]["scores"]["worst"] == {"mean": 0.95, "sd": 0.0, "values": [0.95, None, 0.95], "reached": 2}
        assert np.isclose(stored[2]["scores"]["worst"]["mean"], 0.6)
        assert "reached" not in stored[2]["scores"]["worst"]
