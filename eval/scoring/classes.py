"""What one accuracy hides: recall of each class, balanced accuracy and macro-F1, from the outcomes of the tests that
decide the primary score. A class without tests has none of these, and enters no mean.

Counts (3, C): of each class the samples, the right answers, and all answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from driftline.eval.rows import Row

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def counts_of(rows: Sequence[Row], classes: int = 0) -> Counts | None:
    """The counts of some tests; None without tests, and where one has no outcomes. classes: C, if there are more than
    the tests have."""
    answers = [row.answers for row in rows]
    present = [one for one in answers if one is not None]
    if not present or len(present) < len(answers):
        return None
    label, predicted = (
        np.concatenate([getattr(one, name) for one in present]).astype(np.int64) for name in ("label", "predicted")
    )
    size = max(classes, int(label.max(initial=-1)) + 1, int(predicted.max(initial=-1)) + 1)
    return np.stack([np.bincount(which, minlength=size) for which in (label, label[label == predicted], predicted)])


def recall(counts: Counts) -> Floats:
    """(C,) share of each class's samples that are right; NaN for a class without samples.

    >>> recall(np.array([[4, 2, 0], [3, 1, 0], [4, 1, 1]]))
    array([0.75, 0.5 ,  nan])
    """
    n, right, _ = counts
    return np.where(n > 0, right / np.maximum(n, 1), np.nan)


def balanced_accuracy(counts: Counts) -> float:
    """Mean recall of the classes that have samples [Brodersen et al. 2010].

    >>> balanced_accuracy(np.array([[4, 2, 0], [3, 1, 0], [4, 1, 1]]))
    0.625
    """
    return float(np.nanmean(recall(counts)))


def macro_f1(counts: Counts) -> float:
    """Mean over the classes that have samples of F1, 2 · right / (samples + answers).

    >>> round(macro_f1(np.array([[4, 2, 0], [3, 1, 0], [4, 1, 1]])), 4)  # 6 / 8 and 2 / 3
    0.7083
    """
    n, right, answers = counts
    return float((2 * right / np.maximum(n + answers, 1))[n > 0].mean())


def constant(rows: Sequence[Row]) -> bool:
    """Whether each test has one answer for all of its samples, and some test has samples of several classes."""
    answers = [row.answers for row in rows if row.answers is not None and len(row.answers) > 1]
    several = any(np.ptp(one.label) > 0 for one in answers)
    return several and all(np.ptp(one.predicted) == 0 for one in answers)
