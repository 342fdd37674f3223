"""Routing: which images people answer. Those on which confident judges agree skip people, except a random audited
share.

The others go to people in the order of the expected information of one answer, per US dollar: the mutual information of
the image's label and the answer of a person, in bits, under the judges' posterior.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.parsing import rows_of
from driftline.curate.core.seeding import name_for
from driftline.curate.validation.asking.batches import expected_of

SUREST, LEAST_SURE = 0.99, 0.05  # limits of what a judge may say of its own certainty
PERSON = 0.9  # accuracy of a person, for the information of an answer
UNSURE = 0.8  # certainty of a judge that states none

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Route:
    """Where one image goes."""

    to: str
    """people, audit (people, drawn at random among those that judges agree on), skip (no person), unaffordable"""
    label: frozenset[str]
    """the most probable answer by the judges; empty without any"""
    probability: float
    """of `label`"""
    bits: float
    """expected information of one person's answer"""


@dataclass(frozen=True)
class Rules:
    """What routing depends on."""

    skip: bool
    """whether images may skip people at all"""
    confidence: float
    """least probability of the judges' answer that skips people"""
    audit_share: float
    """share of the images that would skip people which are audited, in each class and bucket"""
    affordable: int | None = None
    """most images that people answer, audited ones among them; None: any number"""
    seed: int = 0


def route(
    items: Sequence[Mapping[str, Any]],
    opinions: pa.Table,
    rules: Rules,
    distrusted: Collection[tuple[str, int]] = (),
) -> dict[str, Route]:
    """id → route of every item (id, bucket, concept).

    An image skips people if every trusted judge answered it, all gave one label set, none called it sensitive, and the
    joint probability is at least `rules.confidence`. distrusted: (worker, bucket) pairs whose opinions do not count.
    """
    ids = [item["id"] for item in items]
    unique = list(dict.fromkeys(ids))
    row_of = {id_: i for i, id_ in enumerate(unique)}
    posterior, sets, unanimous = _posterior(row_of, opinions, set(distrusted))
    best = posterior.argmax(1)
    labels = [sets[b] for b in best.tolist()]
    top = posterior[np.arange(len(unique)), best]
    bits = information(posterior)
    sure = unanimous & (top >= rules.confidence) if rules.skip else np.zeros(len(unique), bool)
    audited = _audited(items, row_of, sure, labels, rules)
    people = sorted(np.flatnonzero(~sure).tolist(), key=lambda i: information_first(bits[i], rules.seed, unique[i]))
    left = len(people) if rules.affordable is None else rules.affordable - len(audited)
    to = ["skip"] * len(unique)
    for place, i in enumerate(people):
        to[i] = "people" if place < left else "unaffordable"
    for i in audited:
        to[i] = "audit"
    return {id_: Route(to[i], labels[i], float(top[i]), float(bits[i])) for i, id_ in enumerate(unique)}


def _posterior(
    row_of: Mapping[str, int], opinions: pa.Table, distrusted: Collection[tuple[str, int]]
) -> tuple[Floats, list[frozenset[str]], npt.NDArray[np.bool_]]:
    """((N, L) probability of each label set; the L sets; (N,) whether all judges answered alike).

    Naive Bayes: a judge that is `confidence` sure errs in each other way equally often. Label sets nobody gave share
    the last column, the empty set.
    """
    numbers: dict[frozenset[str], int] = {frozenset(): 0}
    rows, chosen, sure = [], [], []
    good = np.ones(len(row_of), bool)
    answered = np.zeros(len(row_of), np.int64)
    names = ("id", "worker", "bucket", "labels", "fault", "confidence", "sensitive")
    for id_, worker, bucket, labels, fault, confidence, sensitive in rows_of(opinions, *names):
        if (row := row_of.get(id_)) is None or (worker, bucket) in distrusted:
            continue
        if fault is not None or sensitive:
            good[row] = False
        if fault is None:
            rows.append(row)
            chosen.append(numbers.setdefault(frozenset(labels), len(numbers)))
            sure.append(UNSURE if confidence is None else confidence)
            answered[row] += 1
    n_labels = max(2, len(numbers))
    p = np.clip(np.asarray(sure, np.float64), LEAST_SURE, SUREST)
    logs = np.zeros((len(row_of), n_labels))
    wrong = np.log((1 - p) / (n_labels - 1))
    where, what = np.asarray(rows, np.int64), np.asarray(chosen, np.int64)
    np.add.at(logs, (where, what), np.log(p) - wrong)
    posterior = np.exp(logs - logs.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    votes = np.zeros((len(row_of), n_labels), np.int64)
    np.add.at(votes, (where, what), 1)
    unanimous = good & (answered > 0) & (votes.max(1) == answered)
    sets = list(numbers)
    return posterior, sets + [frozenset()] * (n_labels - len(sets)), unanimous


def information(posterior: Floats) -> Floats:
    """(N,) mutual information in bits of the label and one person's answer. posterior: (N, L).

    >>> information(np.array([[1.0, 0.0], [0.5, 0.5]])).round(2).tolist()
    [0.0, 0.53]
    """
    others = (1 - PERSON) / (posterior.shape[1] - 1)
    answer = posterior * PERSON + (1 - posterior) * others
    noise = -(PERSON * np.log2(PERSON) + (1 - PERSON) * np.log2(others))
    return np.asarray(np.maximum(-(answer * np.log2(answer)).sum(1) - noise, 0.0))


def _audited(
    items: Sequence[Mapping[str, Any]],
    row_of: Mapping[str, int],
    sure: npt.NDArray[np.bool_],
    labels: Sequence[frozenset[str]],
    rules: Rules,
) -> list[int]:
    """Rows of the audited images: in each class and bucket, of those that judges accept and of those that they reject,
    the ones with the lowest random names, so that a larger share holds the smaller one. If fewer are affordable, every
    cell has one before any has two."""
    cells: dict[tuple[int, str, bool], list[tuple[str, int]]] = defaultdict(list)
    for item in items:
        row = row_of[item["id"]]
        if sure[row]:
            accepted = labels[row] == expected_of(item["concept"])
            cells[item["bucket"], item["concept"], accepted].append((audit_name(rules.seed, item["id"]), row))
    drawn = []
    for members in cells.values():
        wanted = int(np.ceil(rules.audit_share * len(members)))
        drawn += [(place, *member) for place, member in enumerate(sorted(members)[:wanted])]
    return list(dict.fromkeys(row for *_, row in sorted(drawn)))[: rules.affordable]


def information_first(bits: Any, seed: int, id_: str) -> tuple[float, str]:
    """Sorts images by information, equal ones at random: by id, one bucket or uploader would get all answers."""
    return -round(float(bits), 9), name_for(seed, "people", id_)


def audit_name(seed: int, id_: str) -> str:
    """The random name that orders the audited images."""
    return name_for(seed, "audit", id_)
