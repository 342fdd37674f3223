"""Accuracy of cells without labels, by what scores and answers say; each method with its own past error on this log.

The source of a version is its first complete cell: what a method says of the later ones is compared with their labels,
by the time between, before it is shown where labels lack. All methods are blind to concept drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.seeding import rng_for
from driftline.eval.protocols.adaptation.estimates import atc, doc, gde
from driftline.eval.scoring.bands import Floats
from driftline.eval.service_log.cells import Cells
from driftline.eval.service_log.class_scores import mlls, without
from driftline.eval.service_log.reading import NONE, Log

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
METHODS = ("cbpe", "atc", "doc", "gde", "bbse", "mlls")
FOLDS, ECE_BINS = 10, 10  # when a calibration is used, as NannyML has it
MOST = 200_000  # source scores that a calibration is fitted to
DIFFERENT = 3  # scores: with fewer a confidence says nothing


@dataclass(frozen=True)
class Estimates:
    """K cells, M methods."""

    value: dict[str, Floats]
    """method → (K,) accuracy; NaN: the method says nothing"""
    since: Ints
    """(K,) periods since the version's source; below 1: the source itself, or none"""
    error: dict[str, dict[int, float]]
    """method → periods since the source → mean absolute error on cells with labels"""
    silent: dict[str, str]
    """method → why it says nothing"""


def estimates(
    log: Log, cells: Cells, rows: list[Ints], sources: Sequence[Any], columns: Mapping[str, str], seed: int = 0
) -> Estimates:  # fmt: skip
    """Of each cell after the source of its version. rows: of each cell (`rows_of_cells`). sources, columns: of the log,
    for the scores of all classes."""
    size, use = len(cells), cells.usable
    source = np.full(size, NONE, np.int64)
    for version in np.unique(cells.version).tolist():
        if len(first := np.flatnonzero(use & (cells.version == version))):
            source[cells.version == version] = first[0]
    since = np.where(source >= 0, cells.period - cells.period[source], 0)
    value = {method: np.full(size, np.nan) for method in METHODS}
    silent: dict[str, str] = {}
    if log.score is None:
        silent |= dict.fromkeys(("cbpe", "atc", "doc"), "the log has no scores")
    elif _levels(log.score) < DIFFERENT:
        silent |= dict.fromkeys(("cbpe", "atc", "doc"), "all scores are the same, or 0 and 1")
    for first in np.unique(source[source >= 0]).tolist():
        later = np.flatnonzero((source == first) & (since > 0))
        if "cbpe" not in silent:
            _by_score(log, rows, first, later, value, rng_for(seed, "cbpe", str(first)))
        value["bbse"][later] = [_bbse(log, rows[first], rows[k]) for k in later.tolist()]
    if why := without(sources, columns, log.classes):
        silent["mlls"] = why
    else:
        value["mlls"] = mlls(sources, columns, log, rows, source, np.flatnonzero((source >= 0) & (since > 0)), seed)
    value["gde"] = _agreement(log, cells, rows)
    if not np.isfinite(value["gde"]).any():
        silent["gde"] = "no two versions answered the same inputs"
    errors: dict[str, dict[int, float]] = {}
    for method, of in value.items():
        past = use & (since > 0) & np.isfinite(of)
        errors[method] = {
            age: float(np.abs(of - cells.accuracy)[past & (since == age)].mean())
            for age in np.unique(since[past]).tolist()
        }
    return Estimates(value, since, errors, silent)


def _levels(score: npt.NDArray[np.float32]) -> int:
    return len(np.unique(score[np.isfinite(score)][:MOST]))


def _by_score(
    log: Log, rows: list[Ints], first: int, later: Ints, value: dict[str, Floats], rng: np.random.Generator
) -> None:  # fmt: skip
    assert log.score is not None
    of = rows[first]
    of = of[(log.label[of] != NONE) & np.isfinite(log.score[of])]
    if not len(of):
        return
    score, right = log.score[of].astype(np.float64), log.label[of] == log.prediction[of]
    curve = calibration(score, right, rng)
    for k in later.tolist():
        target = log.score[rows[k]].astype(np.float64)
        target = target[np.isfinite(target)]
        if len(target):
            value["atc"][k], value["doc"][k] = atc(score, right, target), doc(score, right, target)
            value["cbpe"][k] = float((target if curve is None else np.interp(target, *curve)).mean())


def calibration(score: Floats, right: Bools, rng: np.random.Generator) -> tuple[Floats, Floats] | None:
    """Scores and the share of right answers at them, isotonic; None: scores as they are. score, right: (N,).

    A calibration is used only if it is better in each of ten folds, by the calibration error over ten bins
    [NannyML 0.13, CBPE]."""
    if len(score) > MOST:
        chosen = rng.choice(len(score), MOST, replace=False)
        score, right = score[chosen], right[chosen]
    fold = rng.permutation(len(score)) % FOLDS
    for k in range(FOLDS):
        inside, outside = fold != k, fold == k
        if not outside.any() or not inside.any():
            return None
        curve = _isotonic(score[inside], right[inside])
        if not _ece(np.interp(score[outside], *curve), right[outside]) < _ece(score[outside], right[outside]):
            return None
    return _isotonic(score, right)


def _isotonic(score: Floats, right: Bools) -> tuple[Floats, Floats]:
    from scipy.optimize import isotonic_regression

    levels, place, count = np.unique(score, return_inverse=True, return_counts=True)
    share = isotonic_regression(np.bincount(place, right) / count, weights=count.astype(np.float64)).x
    step = np.concatenate([[True], share[1:] != share[:-1], [True]])
    corner = step[1:] | step[:-1]  # between two equal shares nothing is interpolated
    return levels[corner], share[corner]


def _ece(score: Floats, right: Bools) -> float:
    of = np.clip((score * ECE_BINS).astype(np.int64), 0, ECE_BINS - 1)
    return float(np.abs(np.bincount(of, score - right, ECE_BINS)).sum() / len(score))


def _bbse(log: Log, source: Ints, target: Ints) -> float:
    """Class frequencies of the target from how often each class is answered [Lipton et al. 2018, eq. 3], and the
    source's recall of each class."""
    labelled = source[log.label[source] != NONE]
    classes = np.unique(np.concatenate([log.label[labelled], log.prediction[labelled]]))
    answers = np.bincount(log.prediction[target], minlength=len(log.classes))[classes]
    if not answers.any():
        return float("nan")
    size = len(classes)
    label, answer = (np.searchsorted(classes, of[labelled]) for of in (log.label, log.prediction))
    joint = np.bincount(answer * size + label, minlength=size * size).reshape(size, size) / len(labelled)
    weight = np.clip(np.linalg.lstsq(joint, answers / answers.sum(), rcond=1e-3)[0], 0, None)
    prior = joint.sum(0)
    if not (total := float((weight * prior).sum())) > 0:
        return float("nan")
    return float((weight * np.diagonal(joint)).sum() / total)


def _agreement(log: Log, cells: Cells, rows: list[Ints]) -> Floats:
    """(K,) how often a version agrees with the one in the same period that answered most of its inputs."""
    value = np.full(len(cells), np.nan)
    for period in np.unique(cells.period).tolist():
        places = np.flatnonzero(cells.period == period).tolist()
        pairs = {frozenset(pair): _agreed(log, *(rows[k] for k in pair)) for pair in combinations(places, 2)}
        for k in places:
            of = [pairs[frozenset((k, other))] for other in places if other != k]
            value[k] = max(of, key=itemgetter(0), default=(0, np.nan))[1]
    return value


def _agreed(log: Log, one: Ints, two: Ints) -> tuple[int, float]:
    """How many inputs two cells share, and how often their answers agree."""
    ids = np.sort(np.concatenate([log.id[one], log.id[two]]))
    if not (ids[1:] == ids[:-1]).any():  # a tenth of the time of the intersection
        return 0, float("nan")
    _, mine, theirs = np.intersect1d(log.id[one], log.id[two], True, return_indices=True)
    answers = (log.prediction[of].astype(np.int64) for of in (one[mine], two[theirs]))
    return len(mine), gde(*answers)
