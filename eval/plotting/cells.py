"""Tables of numbers as coloured cells."""

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.eval.plotting.frames import LETTER, Sheet
from driftline.eval.plotting.svg import colour, ink, svg_of, tag, text

WIDE, HIGH, GAP = 46, 22, 24  # of a cell, at most; between two tables
Rows = Mapping[str, Sequence[float | None]]  # name of a row → its cells


def cells(
    tables: Mapping[str, Rows], columns: Sequence[str], span: tuple[float, float], digits: int, sheet: Sheet,
    label: str, framed: bool = False,
) -> str:  # fmt: skip
    """Tables side by side where the sheet has space, else below each other. tables: title → rows. span: values of the
    lightest and the darkest cell. digits: after the point; cells that are too small for them have none. framed: the
    diagonal has a frame."""
    left = 12 + LETTER * max((len(name) for rows in tables.values() for name in rows), default=0)
    beside = len(tables) > 1 and left + len(tables) * (GAP + 30 * len(columns)) <= sheet.width
    across = len(tables) if beside else 1
    wide = min(WIDE, (sheet.width - left - 4 - GAP * (across - 1)) / (across * max(1, len(columns))))
    upright = max(map(len, columns), default=0) * LETTER > wide
    head = 28 + (LETTER * max(map(len, columns), default=0) if upright else 12)
    parts, top, height = [], 0.0, 0.0
    for k, (title, rows) in enumerate(tables.items()):
        x0 = left + (k * (wide * len(columns) + GAP) if beside else 0)
        parts.append(text(x0, top + 14, title, size=12))
        for j, name in enumerate(columns):
            x, y = x0 + wide * (j + 0.5), top + head - 6
            turned: dict[str, Any] = {"transform": f"rotate(-90 {x + 4:.1f} {y:.1f})"} if upright else {}
            parts.append(text(x + 4 * upright, y, name, "start" if upright else "middle", **turned))
        for i, (name, values) in enumerate(rows.items()):
            y = top + head + HIGH * i
            parts += [text(left - 8, y + 15, name, "end")] if k == 0 or not beside else []
            for j, value in enumerate(values):
                if value is not None:
                    frame = {"stroke": "#c2410c", "stroke_width": 2} if framed and i == j else {}
                    parts += _cell(x0 + wide * j, y, wide, value, span, digits, frame)
        height = top + head + HIGH * len(rows) + 8
        top = top if beside else height + 8
    return svg_of(parts, label, height, sheet.width if sheet.inches else left + across * (wide * len(columns) + GAP))


def _cell(
    x: float, y: float, wide: float, value: float, span: tuple[float, float], digits: int, frame: Mapping[str, object]
) -> list[str]:
    parts = [tag("rect", x=x + 1, y=y + 1, width=wide - 2, height=HIGH - 2, fill=colour(value, span), **frame)]
    shown = f"{value:.{digits}f}"
    if LETTER * len(shown) <= wide + 2:
        parts.append(
            tag("text", shown, x=x + wide / 2, y=y + 15, fill=ink(value, span), text_anchor="middle", font_size=11)
        )
    return parts
