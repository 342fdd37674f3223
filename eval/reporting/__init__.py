"""Scores → a site of HTML pages, CSV and LaTeX. Here: a score as pages, tables and leaderboards print it."""

from __future__ import annotations

from driftline.eval.protocol import Document, Score
from driftline.eval.scoring.ranking import entry_of, mean_of

DECIMALS = {"share": 1, "corrections": 0, "microseconds": 0}  # of a printed score, by unit; others: 3


def value_text(score: Score, value: float | None) -> str:
    """A value; shares are in per cent.

    >>> value_text(Score("accuracy", "accuracy"), 0.5), value_text(Score("cost", "cost", False, "corrections"), None)
    ('50.0', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value if score.unit == 'share' else value:.{DECIMALS.get(score.unit, 3)}f}"


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
