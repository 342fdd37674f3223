"""How far people agree, and what they say together: Fleiss' κ, Krippendorff's α, Dawid and Skene's models of workers.

Answers are flat: item, worker, label, one number each from 0. A set of ticked boxes is one label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import IncompatibleStream

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SMALLEST = 1e-10  # a probability of an error; zero would forbid what the next worker may do


@dataclass(frozen=True)
class Answers:
    """items, workers, labels: (N,) int64 each, from 0."""

    items: Ints
    workers: Ints
    labels: Ints

    def __post_init__(self) -> None:
        if not len(self.items):
            raise IncompatibleStream("There are no answers.", "Expected at least one.")

    def counts(self) -> Floats:
        """(items, labels) how often each label was given."""
        table = np.zeros((int(self.items.max()) + 1, int(self.labels.max()) + 1))
        np.add.at(table, (self.items, self.labels), 1)
        return table


@dataclass(frozen=True)
class Judged:
    """probabilities: (items, labels). workers: (workers,) accuracies for one coin, (workers, true, given) for the full
    model."""

    probabilities: Floats
    workers: Floats


def pairwise(answers: Answers) -> float:
    """Share of pairs of answers to one item that are equal. Raises IncompatibleStream when no item has two."""
    table = answers.counts()
    n = table.sum(1)
    pairs = (n * (n - 1)).sum()
    if pairs == 0:
        raise IncompatibleStream("No item has two answers.", "Expected some to compare.")
    return float((table * (table - 1)).sum() / pairs)


def fleiss_kappa(answers: Answers) -> float:
    """κ of items with equally many answers [Fleiss 1971]; items with another number than most are left out.

    1: all agree, 0: as by chance. nan where only one label was ever given.
    """
    table = answers.counts()
    sizes = table.sum(1)
    usual = float(np.bincount(sizes.astype(np.int64))[2:].argmax() + 2) if (sizes >= 2).any() else 0.0
    table = table[sizes == usual]
    if usual < 2 or not len(table):
        raise IncompatibleStream("No item has two answers.", "Expected some to compare.")
    observed = float(((table * (table - 1)).sum(1) / (usual * (usual - 1))).mean())
    chance = float(((table.sum(0) / table.sum()) ** 2).sum())
    return (observed - chance) / (1 - chance) if chance < 1 else float("nan")


def krippendorff_alpha(answers: Answers) -> float:
    """α for nominal labels [Krippendorff 2011]; items with one answer say nothing. nan for one label only."""
    table = answers.counts()
    table = table[table.sum(1) >= 2]
    if not len(table):
        raise IncompatibleStream("No item has two answers.", "Expected some to compare.")
    n = table.sum(1, keepdims=True)
    disagree = float(((n * table - table**2) / (n - 1)).sum())
    totals = table.sum(0)
    whole = totals.sum()
    expected = float((whole**2 - (totals**2).sum()) / (whole - 1))
    return 1 - disagree / expected if expected else float("nan")


def dawid_skene(answers: Answers, rounds: int = 200, tolerance: float = 1e-9) -> Judged:
    """Each worker has a confusion matrix; labels and matrices are found together [Dawid & Skene 1979, sec. 3].

    Begins with the shares of votes; ends when no probability moves by more than `tolerance`.
    """
    probabilities = _shares(answers)
    n_labels, n_workers = probabilities.shape[1], int(answers.workers.max()) + 1
    given = answers.workers * n_labels + answers.labels
    errors = np.zeros((n_workers, n_labels, n_labels))
    for _ in range(rounds):
        for true in range(n_labels):  # errors: (worker, true, given)
            weights = probabilities[answers.items, true]
            errors[:, true] = np.bincount(given, weights, n_workers * n_labels).reshape(n_workers, n_labels)
        errors = np.maximum(errors, SMALLEST)
        errors /= errors.sum(2, keepdims=True)
        logs = np.log(np.maximum(probabilities.mean(0), 1e-300))[None].repeat(len(probabilities), 0)
        said = np.log(errors)
        for true in range(n_labels):
            logs[:, true] += np.bincount(answers.items, said[answers.workers, true, answers.labels], len(logs))
        moved, probabilities = _normal(logs, probabilities)
        if moved < tolerance:
            break
    return Judged(probabilities, errors)


def one_coin(answers: Answers, rounds: int = 200, tolerance: float = 1e-9) -> Judged:
    """Each worker is right with one probability and otherwise picks any other label [one-coin Dawid–Skene]."""
    probabilities = _shares(answers)
    n_labels, n_workers = probabilities.shape[1], int(answers.workers.max()) + 1
    given = np.bincount(answers.workers, minlength=n_workers).astype(np.float64)
    skill = np.ones(n_workers)
    for _ in range(rounds):
        right = np.bincount(answers.workers, probabilities[answers.items, answers.labels], n_workers)
        skill = np.clip(right / np.maximum(given, 1), SMALLEST, 1 - SMALLEST)
        wrong = np.log((1 - skill) / max(1, n_labels - 1))
        logs = np.log(np.maximum(probabilities.mean(0), 1e-300))[None].repeat(len(probabilities), 0)
        logs += np.bincount(answers.items, wrong[answers.workers], len(logs))[:, None]
        right = np.bincount(
            answers.items * n_labels + answers.labels, (np.log(skill) - wrong)[answers.workers], logs.size
        )
        logs += right.reshape(logs.shape)
        moved, probabilities = _normal(logs, probabilities)
        if moved < tolerance:
            break
    return Judged(probabilities, skill)


def _shares(answers: Answers) -> Floats:
    table = answers.counts()
    return np.asarray(table / np.maximum(table.sum(1, keepdims=True), 1))


def _normal(logs: Floats, before: Floats) -> tuple[float, Floats]:
    """Probabilities from log-likelihoods, and how far they moved."""
    after = np.exp(logs - logs.max(1, keepdims=True))
    after /= after.sum(1, keepdims=True)
    return float(np.abs(after - before).max()), after


def coded(items: Sequence[str], workers: Sequence[str], labels: Sequence[str]) -> tuple[Answers, list[list[str]]]:
    """Names → numbers, and the names of items, workers and labels in the order of their numbers."""
    names = [sorted(set(column)) for column in (items, workers, labels)]
    numbers = [{name: i for i, name in enumerate(some)} for some in names]
    columns = (
        np.array([number[name] for name in column], np.int64)
        for number, column in zip(numbers, (items, workers, labels), strict=True)
    )
    return Answers(*columns), names


def summary(answers: Answers) -> dict[str, float | None]:
    """κ, α and the share of equal pairs; None where the answers do not allow one."""
    found: dict[str, float | None] = {}
    for name, measure in (
        ("pairwise", pairwise),
        ("fleiss_kappa", fleiss_kappa),
        ("krippendorff_alpha", krippendorff_alpha),
    ):
        try:
            value = measure(answers)
        except IncompatibleStream:
            value = float("nan")
        found[name] = None if np.isnan(value) else round(value, 6)
    return found


def worker_table(answers: Answers, judged: Judged, seconds: npt.NDArray[Any] | None = None) -> list[dict[str, Any]]:
    """One row a worker: answers, share that agrees with the others' joint label, median seconds, longest run of one
    label. A low figure is a reason to look, never one to reject."""
    best = judged.probabilities.argmax(1)
    rows = []
    for worker in range(int(answers.workers.max()) + 1):
        mine = answers.workers == worker
        labels = answers.labels[mine]
        runs = np.diff(np.flatnonzero(np.diff(labels, prepend=-1, append=-1)))
        rows.append(
            {
                "worker": worker,
                "answers": int(mine.sum()),
                "agreement": float(np.mean(best[answers.items[mine]] == labels)) if mine.any() else None,
                "median_seconds": float(np.median(seconds[mine])) if seconds is not None and mine.any() else None,
                "longest_run": int(runs.max()) if len(runs) else 0,
            }
        )
    return rows
