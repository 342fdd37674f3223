"""Logs of others that would be read without an error, and mean something else: each ends in a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.eval.logs.columns import number, seconds, text

if TYPE_CHECKING:
    import duckdb

FIRST = 100  # rows that are looked at
SCALE = 20  # classes; a log with more that are mostly decimal numbers is of a regression
DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.I)


def refuse_unreadable(
    relation: duckdb.DuckDBPyRelation, of: Mapping[str, str], kinds: Mapping[str, str], what: str
) -> None:
    """Raise BadInput for a column of times or scores whose first texts all say something else. of: role → column."""
    for role, column in of.items():
        if kinds[column] != "VARCHAR":
            continue
        cell = text(column, kinds[column])
        value = number(column) if role == "score" else f"coalesce({seconds(column, kinds[column])[0]}, 'nan'::DOUBLE)"
        stated = relation.project(f"{cell} AS cell, {value} AS value").filter("cell IS NOT NULL")
        first = stated.limit(FIRST).fetchall()
        if not first or not all(math.isnan(value) for _, value in first):
            continue
        problem = f"{what}: the {role} is {first[0][0]!r}."
        if role == "score":
            raise BadInput(problem, "Expected the confidence of each answer, 0 … 1.", "Map no score, or rewrite it.")
        raise BadInput(problem, "Expected dates such as 2026-07-31, or seconds since 1970.", "Rewrite the column.")


def refuse_other_names(classes: Sequence[str], prediction: npt.NDArray[np.int32], label: npt.NDArray[np.int32]) -> None:
    """Raise BadInput if predictions are numbers of a scale, or if no label is ever an answer. prediction, label (N,):
    numbers of classes; below 0: none."""
    answers = [classes[c] for c in np.unique(prediction).tolist()]
    decimal = sum(DECIMAL.fullmatch(one) is not None for one in answers)
    if 2 * decimal > len(answers) > SCALE:
        problem = f"The predictions are {len(answers):,} numbers such as {answers[0]}."
        raise BadInput(problem, "Expected classes.", "Numbers of a scale have no accuracy: cut them into classes.")
    counts = np.bincount(label[label >= 0], minlength=len(classes))
    labels = [classes[c] for c in np.flatnonzero(counts).tolist()]
    if counts.sum() >= FIRST and not set(labels) & set(answers):
        few = (", ".join(names[:3]) + (" …" if len(names) > 3 else "") for names in (labels, answers))
        problem = "No label is ever an answer: labels are {}, answers are {}.".format(*few)
        raise BadInput(problem, "Expected the same names.", "Rename the classes of one column.")
