"""Concepts → candidates: per bucket the images nearest to each concept's text, by CLEAR's rules.

Rules and sources [CLEAR, supplement 1; prepare_concepts.py]:
- top `depth` images per concept by cosine, exact, ties by id;
- an image in several lists goes to its highest cosine (`highest`, the code), or is discarded and replaced from
  further down each list (`discard`, the paper), or stays in all (`allow`);
- background: per concept the lowest cosines, walked upwards, ids not used before, `int(per_class × ratio)` each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.encoders import Encoder, Vectors
from curate.ground.errors import BadConfig, Shortage

BACKGROUND = "background"
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Concept:
    """prompts: each is embedded; the mean of the unit vectors, unit again, is the query. option: what workers
    read beside the checkbox. label: the source's own name of this class, if it has labels."""

    name: str
    prompts: tuple[str, ...]
    option: str
    label: str


@dataclass(frozen=True)
class RetrieveRules:
    """per_class: images asked per concept and bucket. depth: length of each list before overlap is removed.
    short: "fail" raises Shortage with a table, "fewer" takes what there is."""

    per_class: int = 600
    depth: int = 16_000
    overlap: Literal["highest", "discard", "allow"] = "highest"
    background: bool = True
    negative_ratio: float = 0.1
    short: Literal["fail", "fewer"] = "fail"


def queries(encoder: Encoder, concepts: Sequence[Concept]) -> Vectors:
    """One unit vector per concept (C, D): CLIP's prompt ensemble."""
    rows = []
    for concept in concepts:
        if not concept.prompts:
            raise BadConfig(
                f"The concept {concept.name!r} has no prompts.",
                "Expected at least one.",
                "Add prompts: [a photo of …].",
            )
        mean = encoder.texts(concept.prompts).mean(0)
        rows.append(mean / np.linalg.norm(mean))
    return np.stack(rows).astype(np.float32)


def nearest(texts: Vectors, vectors: Vectors, ids: Sequence[str], k: int) -> tuple[Ints, Vectors]:
    """texts (Q, D), vectors (N, D) → positions (Q, k) and cosines (Q, k), falling; equal cosines by id.

    Exact (faiss inner product over all vectors). k is cut to N.
    """
    import faiss

    n = len(vectors)
    k = min(k, n)
    order_of_id = np.empty(n, np.int64)
    order_of_id[np.argsort(np.array(ids, dtype=np.str_), kind="stable")] = np.arange(n)
    asked = min(k + 1, n)
    scores, found = faiss.knn(texts, vectors, asked, metric=faiss.METRIC_INNER_PRODUCT)
    if asked > k and (scores[:, k - 1] == scores[:, k]).any():  # a tie at the cut: rank everything
        scores, found = faiss.knn(texts, vectors, n, metric=faiss.METRIC_INNER_PRODUCT)
    positions = np.empty((len(texts), k), np.int64)
    cosines = np.empty((len(texts), k), np.float32)
    for q in range(len(texts)):
        order = np.lexsort((order_of_id[found[q]], -scores[q]))[:k]
        positions[q], cosines[q] = found[q][order], scores[q][order]
    return positions, cosines


def choose(
    texts: Vectors, vectors: Vectors, ids: Sequence[str], names: Sequence[str], rules: RetrieveRules
) -> list[dict[str, Any]]:
    """One bucket's candidates: dicts of id, concept, score, rank, fate, in order of concept and rank.

    fate: "kept", "background", "ambiguous" (in several lists, lost here), "surplus" (beyond per_class).
    """
    tops = nearest(texts, vectors, ids, rules.depth)
    kept = _resolve(tops, ids, rules)
    rows: list[dict[str, Any]] = []
    used: set[int] = set()
    for c, name in enumerate(names):
        for rank, (position, score) in enumerate(zip(*(a[c].tolist() for a in tops), strict=True)):
            fate = kept[c].get(position, "surplus")
            rows.append({"id": ids[position], "concept": name, "score": score, "rank": rank, "fate": fate})
            if fate == "kept":
                used.add(position)
    if rules.background:
        share = int(rules.per_class * rules.negative_ratio)
        bottoms, negated = nearest(-texts, vectors, ids, min(len(vectors), rules.depth))
        for c in range(len(names)):
            taken = 0
            for rank, (position, score) in enumerate(zip(bottoms[c].tolist(), negated[c].tolist(), strict=True)):
                if taken == share:
                    break
                if position not in used:
                    used.add(position)
                    taken += 1
                    rows.append(
                        {
                            "id": ids[position],
                            "concept": BACKGROUND,
                            "score": -score,
                            "rank": rank,
                            "fate": "background",
                        }
                    )
    return rows


def _resolve(tops: tuple[Ints, Vectors], ids: Sequence[str], rules: RetrieveRules) -> list[dict[int, str]]:
    """Per concept: position → "kept" or "ambiguous"; positions not named are surplus."""
    positions, cosines = tops
    lists = [positions[c].tolist() for c in range(len(positions))]
    if rules.overlap == "allow":
        return [dict.fromkeys(one[: rules.per_class], "kept") for one in lists]
    if rules.overlap == "highest":
        best: dict[int, tuple[float, int]] = {}
        for c, one in enumerate(lists):
            for position, score in zip(one, cosines[c].tolist(), strict=True):
                if position not in best or score > best[position][0]:  # equal cosines: the earlier concept
                    best[position] = (score, c)
        fates: list[dict[int, str]] = []
        for c, one in enumerate(lists):
            mine = [p for p in one if best[p][1] == c]
            fates.append(
                {p: "ambiguous" for p in one if best[p][1] != c} | dict.fromkeys(mine[: rules.per_class], "kept")
            )
        return fates
    discarded: set[int] = set()
    while True:  # replace discarded images from further down until no image stands in two lists
        current = [[p for p in one if p not in discarded][: rules.per_class] for one in lists]
        seen: dict[int, int] = {}
        for one in current:
            for p in one:
                seen[p] = seen.get(p, 0) + 1
        twice = {p for p, n in seen.items() if n > 1}
        if not twice:
            return [
                {p: "ambiguous" for p in one if p in discarded} | dict.fromkeys(mine, "kept")
                for one, mine in zip(lists, current, strict=True)
            ]
        discarded |= twice


def check_enough(counts: Mapping[tuple[str, str], int], wanted: Mapping[str, int], what: str, way_out: str) -> None:
    """Raise Shortage with a table unless every (bucket, class) of `counts` has what its class wants."""
    lacking = [(b, c, n) for (b, c), n in sorted(counts.items()) if n < wanted[c]]
    if lacking:
        table = "\n".join(f"  bucket {b:>12}  {c:<24} {n:>6} of {wanted[c]}" for b, c, n in lacking)
        raise Shortage(f"{what}:\n{table}\n", "", way_out)
