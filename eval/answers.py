"""Answers of a learner to test samples, with how sure they are: derived from what it gives, checked, counted."""

import time
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray
from driftline.eval.engine.scores import NO_ANSWER, best, sureness
from driftline.eval.learner import Labels, Learner
from driftline.eval.outcomes import ROUNDING, Tally
from driftline.eval.rows import Row
from driftline.stream_builder.step import Split

CHUNK = 8192  # samples predicted at once
Sure = tuple[Labels, Any]  # answers (N,), confidences (N,); None: not known


@cache
def answers_by_scores(kind: type) -> bool:
    """Whether `scores` answers and not `predict`: the one of both that the class or its nearest base defines."""
    own = (name for base in kind.__mro__ for name in ("predict", "scores") if name in vars(base))
    return next(own, "") == "scores"


def answers(learner: Learner, x: Any, n: int, ahead: int = 0) -> Labels:
    """The learner's answers (n,) for n samples. ahead: how many samples after the next one they come. Raises BadArray
    if they have another shape, or are no whole numbers."""
    predicted = learner.predict_ahead(x, ahead) if ahead else learner.predict(x)
    return _labels(learner, predicted[0] if isinstance(predicted, tuple) else predicted, n)


def sure_answers(learner: Learner, x: Any, n: int) -> Sure:
    """The same with confidences (n,). Raises BadArray."""
    kind = type(learner)
    if answers_by_scores(kind):
        scores = np.asarray(learner.scores(x))
        if scores.ndim != 2 or len(scores) != n:
            raise BadArray(f"{kind.__name__}.scores gave shape {scores.shape} for {n} samples.", "Expected (N, C).")
        labels = best(scores)
        return labels, sureness(scores, labels)
    predicted = learner.predict(x)
    labels, sure = predicted if isinstance(predicted, tuple) else (predicted, None)
    labels = _labels(learner, labels, n)
    if sure is not None and np.ndim(sure) == 2:
        shares = np.asarray(sure)
        there = (labels >= 0) & (labels < shares.shape[1])
        sure = np.where(there, shares[np.arange(n), np.where(there, labels, 0)], 0)
    return labels, checked_confidence(kind.__name__, sure, n)


def checked_confidence(name: str, values: Any, n: int) -> npt.NDArray[np.float64] | None:
    """What a learner gave as the confidence of n answers. Raises BadArray, which names the learner, if it has another
    shape or a value that is not in 0 … 1."""
    if values is None:
        return None
    confidence = np.asarray(values)
    if confidence.shape != (n,):
        problem = f"{name}.predict gave confidences of shape {confidence.shape} for {n} samples."
        raise BadArray(problem, "Expected (N,), or probabilities (N, C).")
    # Two ends cost half of what two masks do; NaN is neither.
    ends = (np.minimum.reduce(confidence), np.maximum.reduce(confidence)) if n else (0, 0)
    if not (ends[0] >= -ROUNDING and ends[1] <= 1 + ROUNDING):
        inside = (confidence >= -ROUNDING) & (confidence <= 1 + ROUNDING)
        problem = f"{name}.predict gave the confidence {confidence[int(inside.argmin())]!s} for a sample."
        raise BadArray(problem, "Expected a number from 0 to 1 for each answer, or labels alone.")
    return confidence


def _labels(learner: Learner, predicted: Any, n: int) -> Labels:
    """(n,) whole numbers; no answer, `NO_ANSWER` or None, is `NO_ANSWER`. `check_classes` needs the stream."""
    labels, name = np.asarray(predicted), f"{type(learner).__name__}.predict"
    if labels.shape != (n,):
        raise BadArray(f"{name} gave shape {labels.shape} for {n} samples.", f"Expected ({n},).")
    if labels.dtype.kind == "O":
        labels = np.array([NO_ANSWER if label is None else label for label in labels.tolist()])
    if labels.dtype.kind in "biu":
        return labels
    whole = np.isfinite(labels) & (labels == np.floor(labels)) if labels.dtype.kind == "f" else np.zeros(n, bool)
    if not whole.all():
        place = int(whole.argmin())
        problem = f"{name} answered {labels[place].item()!r} to sample {place} of {n} that were asked at once."
        raise BadArray(problem, f"Expected the number of a class, or {NO_ANSWER} for no answer.")
    return labels.astype(np.int64)


def evaluate_split(learner: Learner, split: Split, tested_on: str, begun: float, **at: int) -> Row:
    """Predict a split in chunks and count; the learner never sees the labels.

    begun: `time.process_time()` when the run began. at: `learned_to`, `seen`, `constant` and `corrections` of the
    row. Raises BadArray if the learner's answer has another shape than the labels.
    """
    tally = Tally(tested_on)
    for start in range(0, len(split), CHUNK):
        part = split.part(start, start + CHUNK)
        if part.position is None:  # nothing is recorded
            tally.add(None, part.y, answers(learner, part.x, len(part)))
        else:
            tally.add(part.position, part.y, *sure_answers(learner, part.x, len(part)))
    return tally.row(by_class=True, seconds=time.process_time() - begun, **at)
