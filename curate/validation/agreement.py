"""Agreement of workers and aggregation of their answers: Fleiss' κ, Krippendorff's α, Dawid–Skene models.

Items, workers and labels are numbered from 0. A set of ticked checkboxes is one label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadInput

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SMALLEST = 1e-10  # least probability of an error; zero would make an answer impossible


@dataclass(frozen=True)
class Answers:
    """N answers: who gave which label to which item; (N,) each, numbered from 0."""

    items: Ints
    workers: Ints
    labels: Ints

    def __post_init__(self) -> None:
        if not len(self.items):
            raise BadInput("There are no answers.", "Expected at least one.")

    def counts(self) -> Floats:
        """(items, labels): how often each label was given."""
        table = np.zeros((int(self.items.max()) + 1, int(self.labels.max()) + 1))
        np.add.at(table, (self.items, self.labels), 1)
        return table


@dataclass(frozen=True)
class Aggregated:
    """The result of a model of workers."""

    probabilities: Floats
    """(items, labels)"""
    workers: Floats
    """one-coin: accuracies (workers,); Dawid–Skene: error rates (workers, true label, given label)"""


def pairwise(answers: Answers) -> float:
    """Share of equal pairs among all pairs of answers to one item. Raises BadInput if no item has two answers."""
    table = answers.counts()
    n = table.sum(1)
    pairs = (n * (n - 1)).sum()
    if pairs == 0:
        raise BadInput("No item has two answers.", "Expected some to compare.")
    return float((table * (table - 1)).sum() / pairs)


def fleiss_kappa(answers: Answers) -> float:
    """κ for items with an equal number of answers [Fleiss 1971]; items with another number than most are ignored.

    1: all agree, 0: agreement by chance, nan: only one label was given. Raises BadInput if no item has two answers.
    """
    table = answers.counts()
    sizes = table.sum(1)
    usual = float(np.bincount(sizes.astype(np.int64))[2:].argmax() + 2) if (sizes >= 2).any() else 0.0
    table = table[sizes == usual]
    if usual < 2 or not len(table):
        raise BadInput("No item has two answers.", "Expected some to compare.")
    observed = float(((table * (table - 1)).sum(1) / (usual * (usual - 1))).mean())
    chance = float(((table.sum(0) / table.sum()) ** 2).sum())
    return (observed - chance) / (1 - chance) if chance < 1 else float("nan")


def krippendorff_alpha(answers: Answers) -> float:
    """α for nominal labels [Krippendorff 2011], of items with two or more answers. nan if only one label was given.

    Raises BadInput if no item has two answers.
    """
    table = answers.counts()
    table = table[table.sum(1) >= 2]
    if not len(table):
        raise BadInput("No item has two answers.", "Expected some to compare.")
    n = table.sum(1, keepdims=True)
    disagree = float(((n * table - table**2) / (n - 1)).sum())
    totals = table.sum(0)
    total = totals.sum()
    expected = float((total**2 - (totals**2).sum()) / (total - 1))
    return 1 - disagree / expected if expected else float("nan")


def dawid_skene(answers: Answers, rounds: int = 200, tolerance: float = 1e-9) -> Aggregated:
    """EM for the labels and a confusion matrix per worker [Dawid & Skene 1979, sec. 3].

    Starts with the shares of votes; stops if no probability changes by more than `tolerance`, or after `rounds`.
    """
    n_labels, n_workers = int(answers.labels.max()) + 1, int(answers.workers.max()) + 1
    given = answers.workers * n_labels + answers.labels
    errors = np.zeros((n_workers, n_labels, n_labels))

    def update(probabilities: Floats, logs: Floats) -> Floats:
        for true in range(n_labels):  # errors: (worker, true, given)
            weights = probabilities[answers.items, true]
            errors[:, true] = np.bincount(given, weights, n_workers * n_labels).reshape(n_workers, n_labels)
        np.maximum(errors, SMALLEST, out=errors)
        errors[:] /= errors.sum(2, keepdims=True)
        log_errors = np.log(errors)
        for true in range(n_labels):
            logs[:, true] += np.bincount(answers.items, log_errors[answers.workers, true, answers.labels], len(logs))
        return errors

    return _maximise(answers, update, rounds, tolerance)


def one_coin(answers: Answers, rounds: int = 200, tolerance: float = 1e-9) -> Aggregated:
    """One-coin Dawid–Skene: each worker is correct with one probability, else gives any other label."""
    n_labels, n_workers = int(answers.labels.max()) + 1, int(answers.workers.max()) + 1
    given = np.bincount(answers.workers, minlength=n_workers).astype(np.float64)

    def update(probabilities: Floats, logs: Floats) -> Floats:
        right = np.bincount(answers.workers, probabilities[answers.items, answers.labels], n_workers)
        skill = np.clip(right / np.maximum(given, 1), SMALLEST, 1 - SMALLEST)
        wrong = np.log((1 - skill) / max(1, n_labels - 1))
        logs += np.bincount(answers.items, wrong[answers.workers], len(logs))[:, None]
        gains = (np.log(skill) - wrong)[answers.workers]
        logs += np.bincount(answers.items * n_labels + answers.labels, gains, logs.size).reshape(logs.shape)
        return np.asarray(skill)

    return _maximise(answers, update, rounds, tolerance)


def _maximise(
    answers: Answers, update: Callable[[Floats, Floats], Floats], rounds: int, tolerance: float
) -> Aggregated:
    """EM from the shares of votes. update: (probabilities, log-priors, to which it adds the answers) → workers."""
    table = answers.counts()
    probabilities = table / np.maximum(table.sum(1, keepdims=True), 1)
    for _ in range(rounds):
        logs = np.log(np.maximum(probabilities.mean(0), 1e-300))[None].repeat(len(probabilities), 0)
        workers = update(probabilities, logs)
        before, probabilities = probabilities, np.exp(logs - logs.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        if np.abs(probabilities - before).max() < tolerance:
            break
    return Aggregated(probabilities, workers)


def numbered_answers(
    items: Sequence[str], workers: Sequence[str], labels: Sequence[str]
) -> tuple[Answers, list[list[str]]]:
    """(answers with numbers in place of names, [names of items, of workers, of labels] in the order of the numbers)."""
    names = [sorted(set(column)) for column in (items, workers, labels)]
    numbers = [{name: i for i, name in enumerate(sorted_names)} for sorted_names in names]
    columns = (
        np.array([number[name] for name in column], np.int64)
        for number, column in zip(numbers, (items, workers, labels), strict=True)
    )
    return Answers(*columns), names


def summary(answers: Answers) -> dict[str, float | None]:
    """κ, α and the share of equal pairs; None if it cannot be computed from the answers."""
    values: dict[str, float | None] = {}
    for measure in (pairwise, fleiss_kappa, krippendorff_alpha):
        try:
            value = measure(answers)
        except BadInput:
            value = float("nan")
        values[measure.__name__] = None if np.isnan(value) else round(value, 6)
    return values


def worker_table(
    answers: Answers, aggregated: Aggregated, seconds: npt.NDArray[Any] | None = None
) -> list[dict[str, Any]]:
    """One row per worker: answers, share equal to the aggregated label, median seconds, longest run of one label.

    A low value is a reason to check a worker's answers, not to reject them.
    """
    best = aggregated.probabilities.argmax(1)
    rows = []
    for worker in range(int(answers.workers.max()) + 1):
        own = answers.workers == worker
        labels = answers.labels[own]
        runs = np.diff(np.flatnonzero(np.diff(labels, prepend=-1, append=-1)))
        rows.append(
            {
                "worker": worker,
                "answers": int(own.sum()),
                "agreement": float(np.mean(best[answers.items[own]] == labels)) if own.any() else None,
                "median_seconds": float(np.median(seconds[own])) if seconds is not None and own.any() else None,
                "longest_run": int(runs.max()) if len(runs) else 0,
            }
        )
    return rows
