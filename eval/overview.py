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

from eval.figures import Figure
from eval.summary import labels

Column = tuple[str, str, str]  # protocol, stream, its hash
Cells = dict[str, dict[Column, Mapping[str, Any]]]  # learner → column → {"mean", "sd"}
ALPHA = 0.05
WIDE, EDGE, ROW = 860, 190, 20  # pixels: the diagram, its margins for names, a line of names


def cells_of(documents: Sequence[Mapping[str, Any]]) -> tuple[list[Column], Cells]:
    """Columns in the documents' order, and first scores. Of a learner's several results in a column, each is one."""
    columns: list[Column] = []
    cells: Cells = {}
    for document in documents:
        if not document["results"]:
            continue
        column = (document["protocol"], document["stream"]["name"], document["stream"]["sha256"])
        columns.append(column)
        first = next(iter(document["results"][0]["scores"]))
        for result, name in zip(document["results"], labels(document["results"]), strict=True):
            cells.setdefault(name, {})[column] = result["scores"][first]
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
    if score is None or score["mean"] is None:
        return "<td>–</td>"
    mark = " class='best'" if score["mean"] == best else ""
    return f"<td{mark}>{100 * score['mean']:.1f} <span class='sd'>± {100 * score['sd']:.1f}</span></td>"


def diagram(order: Mapping[str, float], difference: float) -> Figure:
    """Learners on an axis of mean ranks; a bar joins those that do not differ."""
    names, values = list(order), list(order.values())
    most = max(len(names), 2)
    left = (len(names) + 1) // 2
    groups = alike(order, difference)
    axis = 40
    first_line = axis + 16 + 7 * len(groups)
    high = first_line + ROW * left + 12

    def at(rank: float) -> float:
        return EDGE + (rank - 1) / (most - 1) * (WIDE - 2 * EDGE)

    parts = [f"<line x1='{EDGE}' y1='{axis}' x2='{WIDE - EDGE}' y2='{axis}' stroke='currentColor'/>"]
    for rank in range(1, most + 1, max(1, most // 10)):
        x = at(rank)
        parts.append(f"<line x1='{x:.1f}' y1='{axis - 5}' x2='{x:.1f}' y2='{axis}' stroke='currentColor'/>")
        parts.append(
            f"<text x='{x:.1f}' y='{axis - 9}' text-anchor='middle' font-size='11' fill='currentColor'>{rank}</text>"
        )
    end = at(1 + min(difference, most - 1))
    parts.append(f"<line x1='{at(1):.1f}' y1='12' x2='{end:.1f}' y2='12' stroke='currentColor' stroke-width='2'/>")
    parts.append(
        f"<text x='{end + 6:.1f}' y='16' font-size='11' fill='currentColor'>critical difference {difference:.2f}</text>"
    )
    for k, (a, b) in enumerate(groups):
        y = axis + 8 + 7 * k
        parts.append(
            f"<line x1='{at(values[a]) - 3:.1f}' y1='{y}' x2='{at(values[b]) + 3:.1f}' y2='{y}' "
            "stroke='#0b6e99' stroke-width='4'/>"
        )
    for i, (name, value) in enumerate(order.items()):
        to_left = i < left
        y = first_line + ROW * (i if to_left else len(names) - 1 - i)
        edge, anchor = (EDGE - 8, "end") if to_left else (WIDE - EDGE + 8, "start")
        parts.append(f"<path d='M{at(value):.1f} {axis}V{y}H{edge}' fill='none' stroke='currentColor' opacity='.6'/>")
        parts.append(
            f"<text x='{edge + (-4 if to_left else 4)}' y='{y + 4}' text-anchor='{anchor}' font-size='12' "
            f"fill='currentColor'>{html.escape(name[:24])} {value:.2f}</text>"
        )
    told = ", ".join(f"{name} {value:.2f}" for name, value in order.items())
    label = html.escape(f"Mean ranks: {told}. Critical difference {difference:.2f}.", quote=True)
    svg = f"<svg viewBox='0 0 {WIDE} {high}' width='{WIDE}' role='img' aria-label=\"{label}\">{''.join(parts)}</svg>"
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
        parts.append(
            f"<h3>{figure.title}</h3><figure style='margin:0'><div class='scroll'>{figure.svg}</div>{caption}</figure>"
        )
    return "".join(parts)
