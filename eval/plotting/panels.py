"""Small multiples: one small line chart for each of many groups."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from driftline.eval.plotting import vega
from driftline.eval.plotting.charts import Picture, number, short

WIDE, HIGH, LEFT, TOP, FOOT, ACROSS = 200, 130, 30, 20, 18, 4  # pixels of a panel; panels in a row
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # name → x, y in 0 … 1


def panels(charts: Mapping[str, Lines], x_name: str, marks: Mapping[str, float] | None = None) -> Picture:
    """title → lines; all charts have the same axes, y from 0 to 100 per cent. marks: name → x of a dashed line in
    each."""
    names = list(dict.fromkeys(name for chart in charts.values() for name in chart))
    looks = dict(zip(names, vega.styles(names), strict=True))
    xs = [x for chart in charts.values() for xs, _ in chart.values() for x in xs] or [0.0]
    low, high = min(xs), max(max(xs), min(xs) + 1e-9)
    parts, said = [], []
    for k, (title, chart) in enumerate(charts.items()):
        x0, y0 = k % ACROSS * WIDE + LEFT, k // ACROSS * HIGH + TOP
        width, height = WIDE - LEFT - 12, HIGH - TOP - FOOT
        short_title = title if len(title) <= 24 else f"{title[:23]}…"
        parts.append(_text(x0, y0 - 7, short_title, 12, "start"))
        for share in (0, 0.5, 1):
            y = y0 + height * (1 - share)
            ends = f"x1='{x0}' x2='{x0 + width}' y1='{y:.1f}' y2='{y:.1f}'"
            parts.append(
                f"<line {ends} stroke='currentColor' opacity='.15'/>" + _text(x0 - 4, y + 4, f"{100 * share:.0f}")
            )
        parts += [_text(x0 + at * width, y0 + height + 13, number(low + at * (high - low))) for at in (0.03, 1)]
        for name, mark in (marks or {}).items():
            x = x0 + (mark - low) / (high - low) * width
            ends = f"x1='{x:.1f}' x2='{x:.1f}' y1='{y0}' y2='{y0 + height}'"
            parts.append(f"<line {ends} stroke='currentColor' stroke-dasharray='4 4' opacity='.6'/>")
            parts.append(_text(x + 3, y0 + height - 4, name, anchor="start"))
        for name, (along, values) in chart.items():
            path = [
                f"{x0 + (x - low) / (high - low) * width:.1f},{y0 + height * (1 - y):.1f}"
                for x, y in zip(along, values, strict=True)
            ]
            colour, dash = looks[name]
            stroke = f"stroke='{colour}' stroke-width='1.6' stroke-dasharray='{dash}'"
            parts.append(f"<polyline points='{' '.join(path)}' fill='none' {stroke}/>")
            if len(values):
                said.append(f"{title}, {name}: {100 * values[0]:.0f} to {100 * values[-1]:.0f}")
    rows = [
        [name, short(x), round(100 * y, 2), title]
        for title, chart in charts.items()
        for name, (along, values) in chart.items()
        for x, y in zip(along, values, strict=True)
    ]
    height = -(-len(charts) // ACROSS) * HIGH + 6
    label = html.escape(f"Accuracy in per cent by {x_name}. {'; '.join(said[:60])}", quote=True)
    svg = (
        f"<svg viewBox='0 0 {ACROSS * WIDE} {height}' role='img' style='width:100%;max-width:62rem;height:auto' "
        f"aria-label='{label}'>{''.join(parts)}</svg>"
    )
    columns = ["series", x_name, "per cent", "panel"]
    return Picture(svg, vega.panels(names, columns, list(charts), marks), columns, rows)


def _text(x: float, y: float, text: str, size: int = 10, anchor: str = "end") -> str:
    attributes = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' fill='currentColor'"
    return f"<text {attributes}>{html.escape(text)}</text>"
