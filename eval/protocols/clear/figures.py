"""CLEAR's tables over several features of one release: network × features × method [CLEAR, supplement, tables 6–9]."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from eval.scoring.aggregate import labels


def across(documents: Sequence[Mapping[str, Any]]) -> str:
    """A row for each network and method, a column for each stream, its first two scores in a cell: an HTML table, empty
    where there is one stream."""
    if len({d["stream"]["sha256"] for d in documents}) < 2:
        return ""
    columns = [(d["stream"]["name"], d["stream"].get("page", "")) for d in documents]
    cells: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for i, document in enumerate(documents):
        for result, name in zip(document["results"], labels(document["results"]), strict=True):
            cells.setdefault((str(result["settings"].get("net", "–")), name), {})[i] = result
    best = {i: max((_mean(of[i]) for of in cells.values() if i in of), default=0.0) for i in range(len(columns))}
    head = "".join(f"<th scope='col'><a href='{page}'>{html.escape(name)}</a></th>" for name, page in columns)
    rows = []
    for (net, name), of in sorted(cells.items()):
        told = "".join(_cell(of.get(i), best[i]) for i in range(len(columns)))
        rows.append(f"<tr><th scope='row'>{html.escape(net)}</th><td class='left'>{html.escape(name)}</td>{told}</tr>")
    return (
        "<table class='scores'><thead><tr><th scope='col'>network</th><th scope='col'>method</th>"
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _mean(result: Mapping[str, Any]) -> float:
    return float(next(iter(result["scores"].values()))["mean"] or 0.0)


def _cell(result: Mapping[str, Any] | None, best: float) -> str:
    if result is None:
        return "<td>–</td>"
    first, second = (
        f"{100 * score['mean']:.1f} ± {100 * score['sd']:.1f}" if score["mean"] is not None else "–"
        for score in list(result["scores"].values())[:2]
    )
    mark = " class='best'" if _mean(result) == best else ""
    link = f"<a class='n' href='{result['page']}#{result['anchor']}'>{first}</a>" if "page" in result else first
    return f"<td{mark}>{link}<br><span class='sd'>{second}</span></td>"
