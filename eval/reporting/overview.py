"""Every learner under every protocol on every stream, in one table, and which of them differ beyond chance.

A column is a protocol on a stream, by that protocol's first score. Ranks are means over columns; a learner has one
where it has a result in every column. Two differ where their mean ranks lie further apart than the critical difference
of Nemenyi's test [Demšar 2006, sec. 3.2.2].
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.plotting.charts import Figure, ranked
from eval.scoring.aggregate import labels

Column = tuple[str, str, str]  # protocol, stream, its hash
Cells = dict[str, dict[Column, Mapping[str, Any]]]  # learner → column → {"mean", "sd"}, "href" in a site
ALPHA = 0.05


def cells_of(documents: Sequence[Mapping[str, Any]]) -> tuple[list[Column], Cells]:
    """Columns in the documents' order, and first scores. Of a learner's several results in a column, each is one."""
    columns: list[Column] = []
    cells: Cells = {}
    for document in documents:
        told = [s for s in document.get("skipped", ()) if s["learner"] != "all"]
        if not document["results"]:
            continue
        column = (document["protocol"], document["stream"]["name"], document["stream"]["sha256"])
        columns.append(column)
        first = next(iter(document["results"][0]["scores"]))
        for result, name in zip(document["results"], labels(document["results"]), strict=True):
            where = {"href": f"{result['page']}#{result['anchor']}"} if "page" in result else {}
            cells.setdefault(name, {})[column] = {**result["scores"][first], **where}
        for one in told:
            cells.setdefault(one["learner"], {}).setdefault(column, {"mean": None, "because": one["because"]})
    return columns, cells


def ranks(columns: Sequence[Column], cells: Cells) -> dict[str, float]:
    """Learner → mean rank, 1 the best, ties shared; of learners with a mean in every column."""
    from scipy.stats import rankdata

    whole = [name for name, of in cells.items() if all(of.get(c, {}).get("mean") is not None for c in columns)]
    if not whole or not columns:
        return {}
    means = np.array([[cells[name][c]["mean"] for c in columns] for name in whole])
    mean_ranks = np.mean([rankdata(-column) for column in means.T], axis=0)
    return dict(sorted(zip(whole, mean_ranks.tolist(), strict=True), key=lambda pair: pair[1]))


def critical_difference(learners: int, columns: int, alpha: float = ALPHA) -> float:
    """How far mean ranks must lie apart: q √(k(k + 1) / 6N), q of the studentised range over √2.

    >>> round(critical_difference(4, 14), 2)  # [Demšar 2006, sec. 3.2.4]: 1.25
    1.25
    """
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - alpha, learners, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(learners * (learners + 1) / (6 * columns)))


def alike(order: Mapping[str, float], difference: float) -> list[tuple[int, int]]:
    """First and last position of the longest runs of learners, by rank, that do not differ.

    >>> alike({"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}, 1.0)
    [(0, 1), (1, 2)]
    """
    values = list(order.values())
    found: list[tuple[int, int]] = []
    for i, value in enumerate(values):
        j = max(k for k, other in enumerate(values) if other - value <= difference)
        if j > i and not any(first <= i and j <= last for first, last in found):
            found.append((i, j))
    return found


def table(columns: Sequence[Column], cells: Cells, order: Mapping[str, float]) -> str:
    """HTML: rows by mean rank, those without one last."""
    best = {
        c: max((of[c]["mean"] for of in cells.values() if of.get(c, {}).get("mean") is not None), default=None)
        for c in columns
    }
    head = "".join(f"<th scope='col'>{html.escape(p)}<br>{html.escape(stream)}</th>" for p, stream, _ in columns)
    rows = []
    for name in [*order, *(n for n in cells if n not in order)]:
        told = [_cell(cells[name].get(c), best[c]) for c in columns]
        rank = f"{order[name]:.2f}" if name in order else "–"
        rows.append(f"<tr><th scope='row'>{html.escape(name)}</th><td>{rank}</td>{''.join(told)}</tr>")
    return (
        "<table class='scores'><thead><tr><th scope='col'>learner</th><th scope='col'>mean rank</th>"
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _cell(score: Mapping[str, Any] | None, best: float | None) -> str:
    if score is not None and "because" in score:
        return f"<td class='soft'>skipped<br><span class='sd why'>{html.escape(score['because'])}</span></td>"
    if score is None or score["mean"] is None:
        return "<td>–</td>"
    mark = " class='best'" if score["mean"] == best else ""
    value = f"{100 * score['mean']:.1f}"
    link = f"<a class='n' href='{score['href']}'>{value}</a>" if "href" in score else value
    return f"<td{mark}>{link} <span class='sd'>± {100 * score['sd']:.1f}</span></td>"


def diagram(order: Mapping[str, float], difference: float) -> Figure:
    """Learners on an axis of mean ranks; a bar joins those that do not differ."""
    svg = ranked(order, alike(order, difference), difference)
    return Figure("Mean ranks", "A bar joins learners whose mean ranks do not differ (Nemenyi, 5 %).", svg)


def overview(documents: Sequence[Mapping[str, Any]]) -> str:
    """HTML of the table and, from three columns and three learners with a rank on, the diagram; "" for one column."""
    columns, cells = cells_of(documents)
    if len(columns) < 2:
        return ""
    order = ranks(columns, cells)
    parts = [
        "<p class='soft'>Each protocol's first score, per cent, mean ± standard deviation over seeds. Ranks are of "
        "learners that have a result in every column.</p>",
        f"<div class='scroll'>{table(columns, cells, order)}</div>",
    ]
    if len(columns) > 2 and len(order) > 2:
        figure = diagram(order, critical_difference(len(order), len(columns)))
        caption = f"<figcaption class='soft'>{figure.caption}</figcaption>"
        parts.append(f"<h3>{figure.title}</h3><figure><div class='scroll'>{figure.svg}</div>{caption}</figure>")
    return "".join(parts)
