"""Learners against each other, for a report: groups that do not differ, and a sentence for each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.eval.protocol import Document
from driftline.eval.rows import Run, groups
from driftline.eval.scoring.cells import Resampling
from driftline.eval.scoring.comparing import Comparison, compare
from driftline.eval.scoring.ranking import comparable, rival

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST = 40  # learners with a sentence for each pair


def facts_of(runs: Sequence[Run], document: Document, resampling: Resampling) -> list[dict[str, Any]]:
    """Each group of comparable results that can be tested, as plain data: positions of its learners in the document's
    results, which of them do not differ, and the p of every pair."""
    position = {id(result): i for i, result in enumerate(document["results"])}
    runs_of = groups(runs)
    per_group = []
    for group in comparable(document):
        members = sorted(position[id(r)] for r in group if rival(r))
        if len(members) < 2:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):  # a replicate may draw none of a small test's samples
            compared = compare([run for i in members for run in runs_of[i]], None, resampling)
        if compared is not None:
            per_group.append(_facts(compared, members))
    return per_group


def _facts(one: Comparison, members: Sequence[int]) -> dict[str, Any]:
    pairs = [
        {
            "of": [members[i], members[j]],
            "difference": [_plain(getattr(one.difference, end)[i, j]) for end in ("value", "low", "high")],
            "p": _plain(one.adjusted[i, j]),
            "p_outcomes": _plain(one.adjusted_outcomes[i, j]),
        }
        for i in range(len(members))
        for j in range(i + 1, len(members))
    ]
    return {
        "members": list(members),
        "ties": [[members[i] for i in tie] for tie in one.ties],
        "pairs": pairs,
    }


def _plain(value: Any) -> float | None:
    return round(float(value), 8) if math.isfinite(float(value)) else None


def letters(document: Document) -> dict[int, str]:
    """Position of a result → letters; two learners with a common letter do not differ. A learner that differs from all
    others has a letter of its own. {} if nothing was tested."""
    letters_of: dict[int, str] = {}
    for group in document.get("compared", ()):
        for k, tie in enumerate(group["ties"]):
            for i in tie:
                letters_of[i] = letters_of.get(i, "") + (LETTERS[k] if k < len(LETTERS) else "…")
    return letters_of


def best_tie(part: Document, names: Mapping[int, str]) -> list[str] | None:
    """Names of the results of a group that do not differ from its best one, itself first; None if nothing was tested.

    names: of the group's results, by position in the document."""
    ties = [group["ties"] for group in part.get("compared", ()) if {*group["members"]} <= names.keys()]
    return [names[i] for i in ties[0][0]] if ties and ties[0] else None


def p_text(p: float | None) -> str:
    """
    >>> p_text(0.0004), p_text(0.2), p_text(None)
    ('p < 0.001', 'p = 0.20', 'not testable')
    """
    return "not testable" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def tests_of_pairs(document: Document, names: Mapping[int, str]) -> list[list[Any]]:
    """For each pair that was tested: both names, the difference and the ends of its interval in points, p, and p of
    the exact test sample by sample; the page's script writes the sentence. names: of the results of one group, by
    position."""
    return [
        [*(names[i] for i in pair["of"]), *(end if end is None else round(100 * end, 1) for end in pair["difference"]),
         pair["p"], pair["p_outcomes"]]
        for group in document.get("compared", ())
        if len(group["members"]) <= MOST and {*group["members"]} <= names.keys()
        for pair in group["pairs"] if pair["difference"][0] is not None
    ]  # fmt: skip
