"""Agreement of workers and aggregation of their answers: Fleiss' κ, Krippendorff's α, the model of Dawid and Skene.

Items, workers and labels are numbered from 0. A set of ticked checkboxes is one label.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SMALLEST = 1e-10  # least probability of an error; zero would make an answer impossible
PRIOR = 10.0  # answers of the mean worker in each row of a worker's confusion matrix, chosen by simulation


@dataclass(frozen=True)
class Votes:
    """N answers: who gave which label to which item; (N,) each, numbered from 0."""

    items: Ints
    workers: Ints
    labels: Ints

    def counts(self) -> Floats:
        """(items, labels): how often each label was given."""
        table = np.zeros((int(self.items.max()) + 1, int(self.labels.max()) + 1))
        np.add.at(table, (self.items, self.labels), 1)
        return table


def pairwise(answers: Votes) -> float:
    """Share of equal pairs among all pairs of answers to one item; nan if no item has two answers."""
    table = answers.counts()
    n = table.sum(1)
    pairs = (n * (n - 1)).sum()
    return float((table * (table - 1)).sum() / pairs) if pairs else float("nan")


def fleiss_kappa(answers: Votes) -> float:
    """κ for items with an equal number of answers [Fleiss 1971]; items with another number than most are ignored.

    1: all agree, 0: agreement by chance, nan: only one label was given, or no item has two answers.
    """
    table = answers.counts()
    sizes = table.sum(1)
    usual = float(np.bincount(sizes.astype(np.int64))[2:].argmax() + 2) if (sizes >= 2).any() else 0.0
    table = table[sizes == usual]
    if usual < 2:
        return float("nan")
    observed = float(((table * (table - 1)).sum(1) / (usual * (usual - 1))).mean())
    chance = float(((table.sum(0) / table.sum()) ** 2).sum())
    return (observed - chance) / (1 - chance) if chance < 1 else float("nan")


def krippendorff_alpha(answers: Votes) -> float:
    """α for nominal labels [Krippendorff 2011], of items with two or more answers; nan if there is none, or only one
    label was given."""
    table = answers.counts()
    table = table[table.sum(1) >= 2]
    if not len(table):
        return float("nan")
    n = table.sum(1, keepdims=True)
    disagree = float(((n * table - table**2) / (n - 1)).sum())
    totals = table.sum(0)
    total = totals.sum()
    expected = float((total**2 - (totals**2).sum()) / (total - 1))
    return 1 - disagree / expected if expected else float("nan")


def dawid_skene(answers: Votes, rounds: int = 200, tolerance: float = 1e-9, prior: float = PRIOR) -> Floats:
    """(items, labels): probabilities by EM with a confusion matrix of each worker [Dawid & Skene 1979, sec. 3].

    Starts with the shares of votes; stops if no probability changes by more than `tolerance`, or after `rounds`.
    prior: answers by which each worker is known before, those of the mean worker, whose errors are equally frequent.
    With it, an item's probabilities come from what *other* items tell of its workers, and are nearly as often right as
    they say; those of the classical model (`prior` 0), which counts every answer twice, say .99 where .8 are right.
    """
    table = answers.counts()
    n_labels, n_workers = table.shape[1], int(answers.workers.max()) + 1
    pairs = answers.workers * n_labels + answers.labels
    counts = np.zeros((n_workers, n_labels, n_labels))  # (worker, true, given)
    probabilities = table / np.maximum(table.sum(1, keepdims=True), 1)
    unseen = 1.0 if prior else 0.0  # items of each label beside those that were asked
    for _ in range(rounds):
        shares = (probabilities.sum(0) + unseen) / (len(probabilities) + unseen * n_labels)
        logs = np.log(np.maximum(shares, 1e-300))[None].repeat(len(probabilities), 0)
        for true in range(n_labels):
            weights = probabilities[answers.items, true]
            counts[:, true] = np.bincount(pairs, weights, n_workers * n_labels).reshape(n_workers, n_labels)
        right = (float(np.trace(counts.sum(0))) + 1) / (len(pairs) + 2)  # with one right and one wrong answer more
        totals = counts.sum(2)
        for true in range(n_labels):
            own = probabilities[answers.items, true] if prior else 0.0
            usual = np.where(answers.labels == true, right, (1 - right) / max(1, n_labels - 1))
            chances = (counts[answers.workers, true, answers.labels] - own + prior * usual).clip(SMALLEST)
            chances /= (totals[answers.workers, true] - own + prior).clip(SMALLEST)
            logs[:, true] += np.bincount(answers.items, np.log(chances.clip(SMALLEST)), len(logs))
        before, probabilities = probabilities, np.exp(logs - logs.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        if np.abs(probabilities - before).max() < tolerance:
            break
    return probabilities


def summary(answers: Votes | None) -> dict[str, float | None]:
    """κ, α and the share of equal pairs; None if it cannot be computed from the answers."""
    values = {
        measure.__name__: float("nan") if answers is None else measure(answers)
        for measure in (pairwise, fleiss_kappa, krippendorff_alpha)
    }
    return {name: None if np.isnan(value) else round(value, 6) for name, value in values.items()}


def worker_table(answers: Votes, seconds: npt.NDArray[Any] | None = None) -> list[dict[str, Any]]:
    """One row per worker: answers, agreement with the others, median seconds, whether all answers are the same.

    agreement: share of the answers that are the most frequent one of the *other* workers to the same item (equally
    frequent ones count in parts), over items that others answered; None without any. A low agreement is a reason to
    check a worker's answers, not to reject them.
    """
    table = answers.counts()
    top = table.max(1)
    second = np.where(table == top[:, None], -1.0, table).max(1)
    alone = (table == top[:, None]).sum(1) == 1
    items, own_votes = answers.items, table[answers.items, answers.labels] - 1
    rival = np.where((own_votes + 1 == top[items]) & alone[items], np.maximum(second[items], 0), top[items])
    equals = 1 + (table == second[:, None]).sum(1)[items]  # only used where the rival is the second
    credit = np.where(own_votes > rival, 1.0, np.where((own_votes == rival) & (rival > 0), 1 / equals, 0.0))
    shared = table.sum(1)[items] > 1
    rows = []
    for worker in range(int(answers.workers.max()) + 1):
        own = np.flatnonzero(answers.workers == worker)
        compared = own[shared[own]]
        rows.append(
            {
                "worker": worker,
                "answers": len(own),
                "agreement": float(credit[compared].mean()) if len(compared) else None,
                "median_seconds": float(np.median(seconds[own])) if seconds is not None and len(own) else None,
                "one_answer": len(own) > 0 and bool((answers.labels[own] == answers.labels[own[0]]).all()),
            }
        )
    return rows
