"""Claims about learners and ages on data with a known truth: where nothing differs, (almost) nothing is said to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curate.core.seeding import rng_for
from eval.reporting.overview import alike, cells_of, critical_difference, ranks


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
