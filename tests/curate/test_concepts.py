"""Retrieval: exact against brute force; CLEAR's rules against slow, literal twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.concepts import BACKGROUND, RetrieveRules, check_enough, choose, nearest
from curate.ground.errors import Shortage

NAMES = ["bus", "car", "dog"]


def vectors(n: int, width: int, seed: int, levels: int = 3) -> np.ndarray:
    """Unit vectors on a coarse grid, so that equal cosines abound."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(-levels, levels + 1, (n, width)).astype(np.float32) + 0.5
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 1000))
def test_nearest_equals_brute_force_with_ties_by_id(n: int, k: int, seed: int) -> None:
    x, queries = np.repeat(vectors(n, 4, seed), 2, axis=0), vectors(3, 4, seed + 1)
    ids = [f"id{i:03d}" for i in np.random.default_rng(seed).permutation(2 * n)]
    positions, cosines = nearest(queries, x, ids, k)
    scores = queries @ x.T
    for q in range(3):
        assert np.allclose(cosines[q], scores[q][positions[q]], atol=1e-6)
        best = np.sort(scores[q])[::-1][: min(k, 2 * n)]
        assert np.allclose(cosines[q], best, atol=1e-6)
        for a, b in zip(range(len(positions[q]) - 1), range(1, len(positions[q])), strict=True):
            if cosines[q][a] == cosines[q][b]:
                assert ids[positions[q][a]] < ids[positions[q][b]]


def literal(scores: np.ndarray, ids: list[str], rules: RetrieveRules) -> tuple[dict[str, list[str]], list[str]]:
    """CLEAR's code, word by word: lists, overlap, then the lowest of each concept walked upwards."""
    order = [sorted(range(len(ids)), key=lambda i, c=c: (-scores[c][i], ids[i])) for c in range(len(NAMES))]  # type: ignore[misc]
    lists = [o[: rules.depth] for o in order]
    kept: dict[str, list[str]] = {}
    if rules.overlap == "highest":
        for c, name in enumerate(NAMES):
            mine = []
            for i in lists[c]:
                rivals = [scores[d][i] for d in range(len(NAMES)) if i in lists[d]]
                owner = next(d for d in range(len(NAMES)) if i in lists[d] and scores[d][i] == max(rivals))
                if owner == c:
                    mine.append(ids[i])
            kept[name] = mine[: rules.per_class]
    elif rules.overlap == "discard":
        thrown: set[int] = set()
        while True:
            current = [[i for i in one if i not in thrown][: rules.per_class] for one in lists]
            both = {i for a in range(len(NAMES)) for b in range(a) for i in current[a] if i in current[b]}
            if not both:
                break
            thrown |= both
        kept = {name: [ids[i] for i in one] for name, one in zip(NAMES, current, strict=True)}
    else:
        kept = {name: [ids[i] for i in one[: rules.per_class]] for name, one in zip(NAMES, lists, strict=True)}
    used = {i for one in kept.values() for i in one}
    ground: list[str] = []
    for c in range(len(NAMES)):
        taken = 0
        for i in sorted(range(len(ids)), key=lambda i, c=c: (scores[c][i], ids[i]))[: rules.depth]:  # type: ignore[misc]
            if taken < int(rules.per_class * rules.negative_ratio) and ids[i] not in used:
                used.add(ids[i])
                ground.append(ids[i])
                taken += 1
    return kept, ground


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from(["highest", "discard", "allow"]), st.integers(2, 12), st.integers(2, 40))
def test_clears_rules_equal_their_literal_twin(seed: int, overlap: str, per_class: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    queries = x[:3] + 0.3
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    ids = [f"{i:02d}" for i in range(40)]
    rules = RetrieveRules(per_class, depth, overlap, True, 0.5)  # type: ignore[arg-type]
    chosen = choose(queries, x, ids, NAMES, rules)
    kept, ground = literal(queries @ x.T, ids, rules)
    for name in NAMES:
        assert [r["id"] for r in chosen if r["concept"] == name and r["fate"] == "kept"] == kept[name]
    assert [r["id"] for r in chosen if r["concept"] == BACKGROUND] == ground


def test_discard_replaces_from_further_down() -> None:
    x = np.eye(4, dtype=np.float32)
    shared = np.array([[0.9, 0.3, 0.2, 0.0], [0.9, 0.0, 0.1, 0.3]], np.float32)
    chosen = choose(shared, x, list("abcd"), ["p", "q"], RetrieveRules(1, 4, "discard", background=False))
    assert {(r["concept"], r["id"]) for r in chosen if r["fate"] == "kept"} == {("p", "b"), ("q", "d")}
    assert {(r["concept"], r["id"]) for r in chosen if r["fate"] == "ambiguous"} == {("p", "a"), ("q", "a")}


def test_a_shortage_is_a_table_never_a_smaller_class_in_silence() -> None:
    with pytest.raises(Shortage, match=r"bucket\s+2009  bus\s+3 of 5[\s\S]*Lower"):
        check_enough({("2009", "bus"): 3, ("2010", "bus"): 5}, {"bus": 5}, "Too few", "Lower it.")
