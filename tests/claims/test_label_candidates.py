"""Which candidates are asked: shares of a bucket's span, and what later rounds ask."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from driftline.curate.retrieval.candidates import Lookup, choose
from driftline.curate.retrieval.exact_search import Ranked
from driftline.curate.retrieval.settings import RetrieveSettings
from driftline.curate.validation.asking.crowd import next_candidates


def lists(n: int) -> list[Ranked]:
    return [Ranked(np.arange(n), np.linspace(1, 0, n, dtype=np.float32))]


def rules_of(**values: Any) -> RetrieveSettings:
    return RetrieveSettings.model_validate(
        {"concepts": [{"name": "bus", "prompts": ["bus"]}], "background_share": 0, "depth": 400, **values}
    )


class TestLaterRounds:
    """7: what later rounds ask obeys the rules of the first."""

    def test_no_further_image_is_a_near_copy_of_another(self) -> None:
        vectors = np.eye(40, dtype=np.float32)[np.arange(400) % 40]
        lookup = Lookup(vectors=lambda rows: vectors[rows])
        chosen = choose(lists(400), [], rules_of(per_class=10, near_copy_cosine=0.9), lookup, reserve=True)
        fates = chosen.fates[0]
        assert [i % 40 for i, f in enumerate(fates) if f in ("kept", "surplus")] == list(range(40))
        assert fates.count("kept") == 10

    @pytest.mark.parametrize("overlap", ["highest", "discard", "allow"])
    def test_no_uploader_exceeds_the_cap_in_all_rounds(self, overlap: str) -> None:
        users = [f"u{min(i % 7, 3)}" for i in range(400)]  # heavy: most photos are of one
        lookup = Lookup(users=lambda rows: [users[r] for r in rows])
        chosen = choose(lists(400), [], rules_of(per_class=4, per_user=3, overlap=overlap), lookup, reserve=True)
        asked = Counter(users[i] for i, f in enumerate(chosen.fates[0]) if f in ("kept", "surplus"))
        assert asked == {"u0": 3, "u1": 3, "u2": 3, "u3": 3}

    def test_rounds_ask_what_was_checked(self) -> None:
        fates = ["kept", "near_copy", "user_cap", "unchecked", "surplus", "surplus"]
        table = pa.table({
            "id": list("abcdef"), "bucket": [0] * 6, "concept": ["bus"] * 6, "score": [0.5] * 6, "rank": list(range(6)),
            "fate": fates,
        })  # fmt: skip
        assert [row["id"] for row in next_candidates(table, {"a"}, {(0, "bus"): (5, 1.0)})] == ["e", "f"]


class TestShares:
    """8: equal parts of a bucket's span give equal shares, and what remains is drawn."""

    def shares(self, per_class: int, parts: int, seed: int, n: int = 200) -> list[int]:
        strata = np.sort(np.arange(n) % parts)[::-1]  # the best scores are in the last part
        lookup = Lookup(strata=lambda rows: np.asarray(strata[rows]), seed=seed)
        fates = choose(lists(n), [], rules_of(per_class=per_class, strata=parts), lookup).fates[0]
        asked = Counter(int(strata[i]) for i, f in enumerate(fates) if f == "kept")
        return [asked[k] for k in range(parts)]

    @pytest.mark.parametrize(("per_class", "parts"), [(12, 10), (7, 3), (30, 10), (5, 8)])
    def test_shares_differ_by_one_at_most(self, per_class: int, parts: int) -> None:
        shares = self.shares(per_class, parts, 0)
        assert sum(shares) == per_class
        assert max(shares) - min(shares) <= 1

    def test_the_remainder_is_drawn_by_the_seed(self) -> None:
        total = np.sum([self.shares(12, 10, seed) for seed in range(200)], 0)
        assert np.abs(total / 200 - 1.2).max() < 4 * math.sqrt(0.16 / 200)

    def test_a_part_without_images_gives_its_share_to_the_best_scores(self) -> None:
        assert sum(self.shares(12, 10, 0, n=8)) == 8
