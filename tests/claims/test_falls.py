"""Claims about learners and ages on data with a known truth: where nothing differs, (almost) nothing is said to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from curate.core.seeding import rng_for
from eval.protocol import Score
from eval.reporting.overview import alike, cells_of, critical_difference, ranks
from eval.scoring.aggregate import _compare


def _documents(scores: Any) -> list[dict[str, Any]]:
    """scores: (streams, protocols, learners)."""
    documents = []
    for stream, of_stream in enumerate(scores.tolist()):
        for protocol, means in enumerate(of_stream):
            results = [
                {"learner": f"l{k}", "settings": {}, "seeds": [0], "scores": {"first": {"mean": mean}}}
                for k, mean in enumerate(means)
            ]
            about = {"name": f"s{stream}", "sha256": f"s{stream}"}
            documents.append({"protocol": f"p{protocol}", "stream": about, "results": results})
    return documents


def _differ(scores: Any) -> bool:
    """Whether the diagram separates any two learners."""
    order = ranks(*cells_of(_documents(scores)))
    return alike(order, critical_difference(len(order), len(scores))) != [(0, len(order) - 1)]


def test_correlated_protocols_of_a_stream_are_no_independent_data_sets() -> None:
    """Ten equal learners on six streams, five protocols each, which correlate by .95: 30 columns, six data sets."""
    rng, tables = rng_for(0, "ranks"), 200
    of_stream, own = rng.normal(size=(tables, 6, 1, 10)), rng.normal(size=(tables, 6, 5, 10))
    scores = np.sqrt(0.95) * of_stream + np.sqrt(0.05) * own

    assert np.mean([_differ(of_table) for of_table in scores]) <= 0.05


def test_a_difference_on_twenty_streams_is_seen() -> None:
    """One of five learners is better by two standard deviations."""
    rng = rng_for(0, "better")
    scores = rng.normal(size=(20, 20, 1, 5)) + [2.0, 0, 0, 0, 0]

    assert np.mean([_differ(of_table) for of_table in scores]) >= 0.95


def test_critical_values_are_those_of_demsars_table() -> None:
    """[Demšar 2006, table 5 (a), q of 0.05]; and the studentised range drawn by itself."""
    printed = dict(zip(range(2, 11), (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164), strict=True))
    for learners, q in printed.items():
        spread = np.sqrt(learners * (learners + 1) / (6 * 12))
        assert critical_difference(learners, 12) / spread == pytest.approx(q, abs=0.001)
    drawn = np.ptp(rng_for(0, "range").normal(size=(100_000, 7)), axis=1)
    assert np.quantile(drawn, 0.95) / np.sqrt(2) == pytest.approx(printed[7], abs=0.02)


def _ps(scores: Any) -> list[float]:
    """Every p that a table shows of scores (learners, seeds)."""
    results: list[dict[str, Any]] = [
        {
            "learner": f"l{k}",
            "seeds": list(range(len(values))),
            "scores": {"s": {"mean": sum(values), "values": values}},
        }
        for k, values in enumerate(scores.tolist())
    ]
    _compare(results, Score("s", "score"))
    return [p for result in results if (p := result["p_against_best_adjusted"]["s"]) is not None]


@pytest.mark.parametrize("learners", [2, 5, 20])
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("noisy", [1.0, 20.0])
def test_a_table_of_equal_learners_has_a_small_p_in_five_per_cent(learners: int, seeds: int, noisy: float) -> None:
    """Seeds move all learners together; the last one is as noisy as the others, or far noisier."""
    rng, tables = rng_for(0, "equal", str(learners), str(seeds)), 400
    noise = rng.normal(size=(tables, learners, seeds)) + rng.normal(size=(tables, 1, seeds))
    noise[:, -1] *= noisy
    small = np.mean([min(_ps(table)) < 0.05 for table in noise])

    assert small <= 0.05 + 1.645 * np.sqrt(0.05 * 0.95 / tables)


def test_a_learner_that_is_far_worse_is_seen_among_twenty_with_ten_seeds() -> None:
    rng = rng_for(0, "worse")
    scores = rng.normal(size=(20, 20, 10))
    scores[:, 0] -= 4.5

    assert np.mean([min(_ps(table)) < 0.05 for table in scores]) >= 0.8


def test_the_adjusted_p_is_that_of_two_libraries() -> None:
    """Every pair by scipy, Holm by statsmodels, the best by the mean."""
    from statsmodels.stats.multitest import multipletests

    scores = rng_for(0, "by hand").normal(size=(6, 5)) + np.arange(6)[:, None]
    pairs = [(i, j) for i in range(6) for j in range(i)]
    adjusted = multipletests([ttest_rel(scores[i], scores[j]).pvalue for i, j in pairs], method="holm")[1]
    best = int(scores.mean(1).argmax())

    assert sorted(_ps(scores)) == pytest.approx(
        sorted(p for p, pair in zip(adjusted, pairs, strict=True) if best in pair)
    )


def test_two_seeds_have_no_p() -> None:
    assert _ps(np.array([[0.1, 0.2], [0.8, 0.9]])) == []
