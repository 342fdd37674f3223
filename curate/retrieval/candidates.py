"""Concepts → candidates: per bucket the images nearest to each concept's text, by CLEAR's rules and some of our own.

CLEAR's [supplement 1; prepare_concepts.py]:
- top `depth` images per concept by cosine, exact, ties by id;
- an image in several lists goes to its highest cosine (`highest`, the code), or is discarded and replaced from
  further down each list (`discard`, the paper), or stays in all (`allow`);
- background: per concept the lowest cosines, walked upwards, ids not used before, `int(per_class × ratio)` each.

Ours, off by default; an image they pass over has a fate of its own and the next in the list takes its place: a cap for
each uploader, no near copies, a margin over the second-best concept, equal shares of the bucket's span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig, Shortage
from curate.encoders import Encoder, Vectors
from curate.retrieval.exact_search import Ranked
from curate.retrieval.vector_store import Ints

BACKGROUND = "background"
EVERY = "{}"  # the template of a prompt that stands for itself


@dataclass(frozen=True)
class Concept:
    """prompts: put into every template and embedded; the mean of the unit vectors, unit again, is the query [CLIP,
    section 3.1.4]. subcategories: each a query of its own; the concept's score is that of its best query. negatives:
    texts that the queries are moved away from, by `negative_weight`. option: what workers read beside the checkbox.
    label: the source's own name of this class, if it has labels. examples: what workers read below the option."""

    name: str
    prompts: tuple[str, ...]
    option: str
    label: str
    templates: tuple[str, ...] = (EVERY,)
    subcategories: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    negative_weight: float = 0.5
    examples: tuple[str, ...] = ()

    def texts(self) -> list[list[str]]:
        """The texts of each query: the prompts together, then every sub-category, each in all templates."""
        groups = [list(self.prompts), *([s] for s in self.subcategories)]
        return [[t.replace(EVERY, text) for text in group for t in self.templates] for group in groups if group]


@dataclass(frozen=True)
class RetrieveRules:
    """per_class: images asked per concept and bucket. depth: length of each list before overlap is removed.
    short: "fail" raises Shortage with a table, "fewer" takes what there is. per_user: at most so many images of one
    uploader in a concept and bucket. near: an image with at least this cosine to a better one of its concept is a near
    copy. margin: by how much a score must stand above those of all other concepts. strata: so many equal parts of the
    bucket's time give equal shares, as far as they have images. reserve: so many further background images a concept
    are named, to be asked when too few are accepted."""

    per_class: int = 600
    depth: int = 16_000
    overlap: Literal["highest", "discard", "allow"] = "highest"
    background: bool = True
    negative_ratio: float = 0.1
    short: Literal["fail", "fewer"] = "fail"
    per_user: int | None = None
    near: float | None = None
    margin: float | None = None
    strata: int | None = None
    reserve: int = 0


def queries(encoder: Encoder, concepts: Sequence[Concept]) -> tuple[Vectors, list[int]]:
    """Unit vectors (Q, D) of all queries, and the number of each concept's first query.

    Raises BadConfig for a concept without texts and for two concepts with the same.
    """
    rows: list[Vectors] = []
    first: list[int] = []
    asked: dict[Any, str] = {}
    for concept in concepts:
        groups = concept.texts()
        if not groups:
            raise BadConfig(
                f"The concept {concept.name!r} has no prompts.",
                "Expected at least one.",
                "Add prompts: [a photo of …].",
            )
        same = asked.setdefault((tuple(map(tuple, groups)), concept.negatives), concept.name)
        if same != concept.name:
            raise BadConfig(
                f"The concepts {same!r} and {concept.name!r} have the same prompts.",
                "Expected each image to have one nearest concept.",
                "Change the prompts of one, or drop it.",
            )
        first.append(len(rows))
        away = _unit(encoder.texts(concept.negatives).mean(0)) * concept.negative_weight if concept.negatives else 0.0
        rows += [_unit(_unit(encoder.texts(group).mean(0)) - away) for group in groups]
    return np.stack(rows).astype(np.float32), first


def _unit(vector: Vectors) -> Vectors:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), np.float32)


@dataclass(frozen=True)
class Look:
    """What the rules of our own ask about rows: their uploaders (None: unknown), their part of the bucket's time (from
    0), their vectors (n, D) float32, their scores under every concept (n, C)."""

    users: Callable[[Ints], Sequence[str | None]] | None = None
    strata: Callable[[Ints], Ints] | None = None
    vectors: Callable[[Ints], Vectors] | None = None
    scores: Callable[[Ints], Vectors] | None = None


@dataclass(frozen=True)
class Chosen:
    """fates: of every image of every concept's list, in its order: "kept", "ambiguous" (in several lists, lost here),
    "surplus" (beyond per_class), "user_cap", "near_copy", "small_margin". background, reserve: (concept whose list it
    ends, its rank there, row, score)."""

    fates: list[list[str]]
    background: list[tuple[int, int, int, float]]
    reserve: list[tuple[int, int, int, float]]


def choose(tops: Sequence[Ranked], bottoms: Sequence[Ranked], rules: RetrieveRules, look: Look | None = None) -> Chosen:
    """One bucket's candidates from the top and bottom lists of every concept (same order of concepts)."""
    look = look or Look()
    kept = _resolve(tops, rules, look)
    fates = [[fate.get(row, "surplus") for row in top.rows.tolist()] for fate, top in zip(kept, tops, strict=True)]
    used = {row for fate in kept for row, name in fate.items() if name == "kept"}
    share = int(rules.per_class * rules.negative_ratio)
    background, reserve = (_lowest(bottoms, n, used) if rules.background else [] for n in (share, rules.reserve))
    return Chosen(fates, background, reserve)


def _lowest(bottoms: Sequence[Ranked], wanted: int, used: set[int]) -> list[tuple[int, int, int, float]]:
    """The next `wanted` images of every concept's bottom list that are not `used`; they are, afterwards."""
    found: list[tuple[int, int, int, float]] = []
    for c, bottom in enumerate(bottoms):
        free = (
            (rank, row, score)
            for rank, (row, score) in enumerate(zip(bottom.rows.tolist(), bottom.scores.tolist(), strict=True))
            if row not in used
        )
        for (rank, row, score), _ in zip(free, range(wanted), strict=False):
            found.append((c, rank, row, score))
            used.add(row)
    return found


def _resolve(tops: Sequence[Ranked], rules: RetrieveRules, look: Look) -> list[dict[int, str]]:
    """Per concept: row → fate; rows not named are surplus."""
    lists = [top.rows.tolist() for top in tops]
    if rules.overlap == "allow":
        return [_pick(c, one, rules, look) for c, one in enumerate(lists)]
    if rules.overlap == "highest":
        best: dict[int, tuple[float, int]] = {}
        for c, top in enumerate(tops):
            for row, score in zip(lists[c], top.scores.tolist(), strict=True):
                if row not in best or score > best[row][0]:  # equal cosines: the earlier concept
                    best[row] = (score, c)
        return [
            {row: "ambiguous" for row in one if best[row][1] != c}
            | _pick(c, [row for row in one if best[row][1] == c], rules, look)
            for c, one in enumerate(lists)
        ]
    discarded: set[int] = set()
    while True:  # replace discarded images from further down until no image stands in two lists
        picked = [_pick(c, [r for r in one if r not in discarded], rules, look) for c, one in enumerate(lists)]
        seen = Counter(row for one in picked for row, fate in one.items() if fate == "kept")
        twice = {row for row, n in seen.items() if n > 1}
        if not twice:
            return [
                {row: "ambiguous" for row in one if row in discarded} | fates
                for one, fates in zip(lists, picked, strict=True)
            ]
        discarded |= twice


def _pick(concept: int, rows: Sequence[int], rules: RetrieveRules, look: Look) -> dict[int, str]:
    """Row → "kept" for the first `per_class` that the rules of our own let pass; others met on the way have their
    reason."""
    passes = _Passes(concept, np.array(rows, np.int64), rules, look)
    fates: dict[int, str] = {}
    if rules.strata is not None and look.strata is not None and rows:
        parts = look.strata(np.array(rows, np.int64))
        share = -(-rules.per_class // rules.strata)
        for part in range(rules.strata):
            _take(np.flatnonzero(parts == part).tolist(), rows, share, passes, fates)
    left = rules.per_class - sum(fate == "kept" for fate in fates.values())
    _take(range(len(rows)), rows, left, passes, fates)
    if len(fates) > rules.per_class:  # the shares of the parts were rounded up: the lowest go again
        kept = [row for row in rows if fates.get(row) == "kept"]
        for row in kept[rules.per_class :]:
            del fates[row]
    return fates


def _take(
    positions: Sequence[int] | range, rows: Sequence[int], wanted: int, passes: _Passes, fates: dict[int, str]
) -> None:
    for position in positions:
        if wanted <= 0:
            return
        if rows[position] not in fates:
            fates[rows[position]] = passes.judge(position)
            wanted -= fates[rows[position]] == "kept"


class _Passes:
    """Judges one concept's images, best first, by the rules of our own."""

    def __init__(self, concept: int, rows: Ints, rules: RetrieveRules, look: Look) -> None:
        self.rules = rules
        self.users = look.users(rows) if rules.per_user is not None and look.users else None
        self.vectors = look.vectors(rows) if rules.near is not None and look.vectors else None
        self.margins: npt.NDArray[Any] | None = None
        if rules.margin is not None and look.scores and len(rows):
            scores = look.scores(rows)
            if scores.shape[1] > 1:
                self.margins = scores[:, concept] - np.delete(scores, concept, 1).max(1)
        self.of_user: Counter[str] = Counter()
        self.kept: list[int] = []

    def judge(self, position: int) -> str:
        """The fate of one image; what is kept counts against those that follow."""
        if self.margins is not None and self.margins[position] < (self.rules.margin or 0):
            return "small_margin"
        user = self.users[position] if self.users is not None else None
        if user and self.of_user[user] >= (self.rules.per_user or 0):
            return "user_cap"
        if self.vectors is not None and self._is_near(position):
            return "near_copy"
        if user:
            self.of_user[user] += 1
        self.kept.append(position)
        return "kept"

    def _is_near(self, position: int) -> bool:
        assert self.vectors is not None
        near = self.vectors[self.kept] @ self.vectors[position]
        return bool((near >= self.rules.near).any())


def check_enough(counts: Mapping[tuple[str, str], int], wanted: Mapping[str, int], what: str, way_out: str) -> None:
    """Raise Shortage with a table unless every (bucket, class) of `counts` has what its class wants."""
    lacking = [(b, c, n) for (b, c), n in sorted(counts.items()) if n < wanted[c]]
    if lacking:
        table = "\n".join(f"  bucket {b:>12}  {c:<24} {n:>6} of {wanted[c]}" for b, c, n in lacking)
        raise Shortage(f"{what}:\n{table}\n", "", way_out)
