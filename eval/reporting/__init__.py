"""Scores → a site of HTML pages, CSV and LaTeX. Here: a score as pages, tables and leaderboards print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.eval.protocol import Document, Score
from driftline.eval.scoring.ranking import entry_of, mean_of

DECIMALS = {"share": 1, "corrections": 0, "microseconds": 0}  # of a printed score, by unit; others: up to 3


def value_text(score: Score, value: float | None) -> str:
    """A value; shares are in per cent, values of other units as they are.

    >>> value_text(Score("accuracy", "accuracy"), 0.5), value_text(Score("cost", "cost", False, "corrections"), None)
    ('50.0', '–')
    >>> [value_text(Score("asked", "asked", unit="labels"), value) for value in (1200.0, 2.5)]
    ['1200', '2.5']
    """
    if value is None:
        return "–"
    if score.unit not in DECIMALS:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{100 * value if score.unit == 'share' else value:.{DECIMALS[score.unit]}f}"


def detail(score: Score, result: Document) -> str:
    """What is printed behind the mean of one of a document's results: the standard deviation if there are several
    seeds, and how many seeds got there if some did not.

    >>> values = {"mean": 3.0, "sd": 1.0, "values": [2.0, None, 4.0]}
    >>> detail(Score("cost", "cost", False, "corrections"), {"scores": {"cost": values}})
    '± 1 (2/3)'
    """
    entry = entry_of(score, result)
    values = entry.get("values", [])
    reached = sum(value is not None for value in values)
    deviation = [f"± {value_text(score, entry['sd'])}"] if reached > 1 else []
    return " ".join(deviation + ([f"({reached}/{len(values)})"] if reached < len(values) else []))


def spread(score: Score, result: Document) -> str:
    """Mean and detail."""
    return f"{value_text(score, mean_of(score, result))} {detail(score, result)}".rstrip()


def remarks(result: Document) -> list[str]:
    """What a table says below the name of one of a document's results.

    >>> remarks({"same_as": "substrate", "code": "other"})
    ['same answers as substrate', 'rows of other code']
    """
    same = [f"same answers as {result['same_as']}"] if "same_as" in result else []
    same += [result["mark"]] if result.get("mark") else []
    constant = ["one answer for all samples of a test"] if result.get("constant") else []
    return same + constant + ["rows of other code"] * (result.get("code") == "other")


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "test"), counted(1200, "pair")
    ('1 test', '1,200 pairs')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def chance_note(shown: Sequence[Mapping[str, Any]]) -> str:
    """What chance is, in per cent over the tests."""
    if not (values := [facts["chance"] for facts in shown if facts["chance"] is not None]):
        return ""
    low, high = (f"{100 * end:.1f}" for end in (min(values), max(values)))
    of = "training" if all(facts["chance_by"] == "training" for facts in shown) else "all test"
    part = low if low == high else f"{low} to {high}"
    return f"Chance, {part} %, is the answer that is always the most frequent class of the {of} samples."
