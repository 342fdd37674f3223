"""Concepts → candidates: per bucket the images nearest to each concept's texts, by CLEAR's rules and additional ones.

CLEAR's rules [supplement 1; prepare_concepts.py]:
- the top `depth` images per concept by cosine, exact, ties by id;
- an image in several lists goes to its highest cosine (`highest`, as in the code), or is discarded and replaced by the
  next ones of each list (`discard`, as in the paper), or stays in all lists (`allow`);
- background: per concept the images with the lowest cosines that are not used yet, `int(per_class × ratio)` each.

Additional rules, off by default: a maximum per uploader, no near-duplicates, a margin over the second-best concept,
equal shares of the bucket's time span. An image that fails one of them is replaced by the next in the list.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from driftline.curate.core.errors import Shortage
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.vectors import unit
from driftline.curate.embedding.vector_store import Ints
from driftline.curate.encoders import Encoder, Vectors
from driftline.curate.retrieval.exact_search import Ranked
from driftline.curate.retrieval.settings import Concept, RetrieveSettings


def query_vectors(
    encoder: Encoder, concepts: Sequence[Concept], negative_weight: float = 0.5
) -> tuple[Vectors, list[int]]:
    """(unit vectors (Q, D) float32 of all queries, the first query of each concept).

    negative_weight: how far they are moved away from a concept's negatives.
    """
    rows: list[Vectors] = []
    first: list[int] = []
    for concept in concepts:
        first.append(len(rows))
        away = unit(encoder.texts(concept.negatives).mean(0)) * negative_weight if concept.negatives else 0.0
        rows += [unit(unit(encoder.texts(group).mean(0)) - away) for group in concept.texts()]
    return np.stack(rows).astype(np.float32), first


RESERVE = 4  # further images to ask if too few are accepted, as a multiple of those asked


@dataclass(frozen=True)
class Lookup:
    """Functions of rows (n,) that the additional rules call; None: the rule cannot be used."""

    users: Callable[[Ints], Sequence[str | None]] | None = None
    """uploaders; None: unknown"""
    strata: Callable[[Ints], Ints] | None = None
    """parts of the bucket's time span, from 0"""
    vectors: Callable[[Ints], Vectors] | None = None
    """(n, D) float32, unit length"""
    scores: Callable[[Ints], Vectors] | None = None
    """(n, C) cosines with all C concepts"""
    seed: int = 0
    """draws the parts of the time span that get one image more"""
    bucket: int = 0
    """for this draw"""


@dataclass(frozen=True)
class Chosen:
    """The candidates of one bucket."""

    fates: list[list[str]]
    """[concept][rank]: kept, ambiguous (in several lists), surplus (beyond per_class), user_cap, near_copy,
    small_margin, unchecked (beyond per_class and the images that later rounds may ask)"""
    background: list[tuple[int, int, int, float]]
    """(concept in whose bottom list it is, its rank there, row, score)"""
    reserve: list[tuple[int, int, int, float]]
    """further background images, as `background`"""


def choose(
    tops: Sequence[Ranked],
    bottoms: Sequence[Ranked],
    settings: RetrieveSettings,
    lookup: Lookup | None = None,
    reserve: bool = False,
) -> Chosen:
    """The candidates of one bucket from the top and bottom lists of every concept (same order of concepts).

    reserve: choose further images, too, to be asked if too few are accepted.
    """
    resolved = _resolve_overlap(tops, settings, lookup or Lookup(), reserve)
    fates = [[fate.get(row, "surplus") for row in top.rows.tolist()] for fate, top in zip(resolved, tops, strict=True)]
    used = {row for fate in resolved for row, name in fate.items() if name == "kept"}
    each = settings.negatives_each
    counts = (each, RESERVE * each * reserve)
    return Chosen(fates, *(_lowest(bottoms, n, used) for n in counts))


def _lowest(bottoms: Sequence[Ranked], wanted: int, used: set[int]) -> list[tuple[int, int, int, float]]:
    """The next `wanted` images of every concept's bottom list that are not in `used`, which is updated."""
    lowest: list[tuple[int, int, int, float]] = []
    for c, bottom in enumerate(bottoms):
        free = (
            (rank, row, score)
            for rank, (row, score) in enumerate(zip(bottom.rows.tolist(), bottom.scores.tolist(), strict=True))
            if row not in used
        )
        for (rank, row, score), _ in zip(free, range(wanted), strict=False):
            lowest.append((c, rank, row, score))
            used.add(row)
    return lowest


def _resolve_overlap(
    tops: Sequence[Ranked], settings: RetrieveSettings, lookup: Lookup, reserve: bool
) -> list[dict[int, str]]:
    """Per concept: row → fate; all other rows are surplus."""
    lists = [top.rows.tolist() for top in tops]
    if settings.overlap == "allow":
        return [_pick(c, rows, settings, lookup, reserve) for c, rows in enumerate(lists)]
    if settings.overlap == "highest":
        best: dict[int, tuple[float, int]] = {}
        for c, top in enumerate(tops):
            for row, score in zip(lists[c], top.scores.tolist(), strict=True):
                if row not in best or score > best[row][0]:  # equal cosines: the earlier concept
                    best[row] = (score, c)
        return [
            {row: "ambiguous" for row in rows if best[row][1] != c}
            | _pick(c, [row for row in rows if best[row][1] == c], settings, lookup, reserve)
            for c, rows in enumerate(lists)
        ]
    discarded: set[int] = set()
    while True:  # discarded images are replaced by the next ones, which may overlap again
        picked = [_pick(c, [r for r in rows if r not in discarded], settings, lookup) for c, rows in enumerate(lists)]
        times = Counter(row for fates in picked for row, fate in fates.items() if fate == "kept")
        twice = {row for row, n in times.items() if n > 1}
        if not twice:
            break
        discarded |= twice
    if reserve:  # nor may what is asked later be in two lists
        picked = [
            _pick(c, [r for r in rows if r not in discarded], settings, lookup, True) for c, rows in enumerate(lists)
        ]
        discarded |= {row for row, n in Counter(row for rows in lists for row in rows).items() if n > 1}
    return [
        fates | {row: "ambiguous" for row in rows if row in discarded and fates.get(row) != "kept"}
        for rows, fates in zip(lists, picked, strict=True)
    ]


def _pick(
    concept: int, rows: Sequence[int], settings: RetrieveSettings, lookup: Lookup, reserve: bool = False
) -> dict[int, str]:
    """Row → "kept" for the first `per_class` rows that pass the additional rules, or the rule that a row fails.

    reserve: the following rows, which later rounds may ask, must pass the same rules beside all kept ones; with
    `near_copy_cosine`, whose check takes long, RESERVE × `per_class` of them are checked, and others are not asked.
    """
    fate_of = _rules(concept, np.array(rows, np.int64), settings, lookup)
    fates: dict[int, str] = {}
    if settings.strata is not None and lookup.strata is not None and rows:
        strata = lookup.strata(np.array(rows, np.int64))
        share, remainder = divmod(settings.per_class, settings.strata)
        drawn = rng_for(lookup.seed, "strata", lookup.bucket, concept).permutation(settings.strata)[:remainder].tolist()
        for stratum in range(settings.strata):
            _take(np.flatnonzero(strata == stratum).tolist(), rows, share + (stratum in drawn), fate_of, fates)
    missing = settings.per_class - sum(fate == "kept" for fate in fates.values())
    _take(range(len(rows)), rows, missing, fate_of, fates)
    if not (reserve and settings.has_rules):
        return fates
    further = dict(fates)
    wanted = len(rows) if settings.near_copy_cosine is None else RESERVE * settings.per_class
    _take(range(len(rows)), rows, wanted, fate_of, further)
    asked = {row for row, fate in fates.items() if fate == "kept"}
    later = {row: "surplus" if fate == "kept" and row not in asked else fate for row, fate in further.items()}
    return dict.fromkeys(rows, "unchecked") | later


def _take(
    positions: Sequence[int], rows: Sequence[int], wanted: int, fate_of: Callable[[int], str], fates: dict[int, str]
) -> None:
    """Add the fates of `positions` in `rows` until `wanted` more are kept."""
    for position in positions:
        if wanted <= 0:
            return
        if rows[position] not in fates:
            fates[rows[position]] = fate_of(position)
            wanted -= fates[rows[position]] == "kept"


def _rules(concept: int, rows: Ints, settings: RetrieveSettings, lookup: Lookup) -> Callable[[int], str]:
    """Position of an image of one concept, asked best first → its fate by the additional rules; a kept image counts for
    the checks of the following ones."""
    users = lookup.users(rows) if settings.per_user is not None and lookup.users else None
    vectors = lookup.vectors(rows) if settings.near_copy_cosine is not None and lookup.vectors else None
    margins = np.full(len(rows), np.inf)
    if settings.margin is not None and lookup.scores and len(rows):
        scores = lookup.scores(rows)
        margins = scores[:, concept] - np.delete(scores, concept, 1).max(1, initial=-np.inf)
    per_user: Counter[str] = Counter()
    accepted: list[int] = []

    def fate(position: int) -> str:
        user = users[position] if users is not None else None
        if margins[position] < (settings.margin or 0):
            return "small_margin"
        if user and per_user[user] >= (settings.per_user or 0):
            return "user_cap"
        if vectors is not None and (vectors[accepted] @ vectors[position] >= settings.near_copy_cosine).any():
            return "near_copy"
        if user:
            per_user[user] += 1
        accepted.append(position)
        return "kept"

    return fate


SHOWN = 12  # lines of a shortage


def check_enough(counts: Mapping[tuple[str, str], int], wanted: Mapping[str, int], what: str, way_out: str) -> None:
    """Raise Shortage with a table if a (bucket, class) of `counts` has fewer images than `wanted` for the class."""
    lacking = [(b, c, n) for (b, c), n in sorted(counts.items()) if n < wanted[c]]
    if lacking:
        lines = [f"  bucket {b:>12}  {c:<24} {n:>6} of {wanted[c]}" for b, c, n in lacking[:SHOWN]]
        table = "\n".join(lines + ([f"  and {len(lacking) - SHOWN:,} more"] if len(lacking) > SHOWN else []))
        raise Shortage(f"{what}:\n{table}\n", "", way_out)
