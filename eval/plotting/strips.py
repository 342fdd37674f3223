"""One row for each of several names: a value with its interval, and dots that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftline.eval.plotting.charts import Picture, short
from driftline.eval.plotting.frames import FOOT, LETTER, Frame, Sheet, cut, number, references, round_numbers, ticks
from driftline.eval.plotting.svg import COLOURS, GREY, line, svg_of, tag, text

ROW, TOP = 22, 24  # units of a row, and above the first one


@dataclass(frozen=True)
class Strip:
    """What one row shows."""

    dots: Sequence[float]
    """grey"""
    value: float
    """a full dot"""
    low: float
    """end of its interval; NaN: not known"""
    high: float
    """the other end"""


def strips(rows: Mapping[str, Strip], x_name: str, marks: Mapping[str, float], scale: float = 1.0) -> Picture:
    """name → its row; x on a linear scale. marks: name → x of a dashed line. scale: what all values are multiplied
    with, as 100 for shares."""
    values = [scale * v for s in rows.values() for v in (*s.dots, s.value, s.low, s.high) if v == v]  # not NaN
    values += [scale * v for v in marks.values()]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0

    def draw(sheet: Sheet) -> str:
        left = 12 + LETTER * max(len(cut(name)) for name in rows)
        size = (sheet.width - left - 24, ROW * len(rows))
        frame = Frame(left, TOP, *size, (low - room, high + room), (0, 1), sheet=sheet)
        parts = ticks(frame, round_numbers(*frame.x), x_name)
        parts += references(frame, {}, {name: scale * x for name, x in marks.items()})
        for i, (name, strip) in enumerate(rows.items()):
            y = TOP + ROW * (i + 0.5)
            xs = [frame.at(scale * dot, 0)[0] for dot in strip.dots]
            inside = [tag("circle", cx=x, cy=y, r=3, fill=GREY, opacity=0.6) for x in xs]
            if strip.low == strip.low and strip.high == strip.high:
                ends = (frame.at(scale * end, 0)[0] for end in (strip.low, strip.high))
                inside.append(line(next(ends), y, next(ends), y, stroke=COLOURS[0], stroke_width=2))
            at = frame.at(scale * strip.value, 0)[0]
            inside.append(tag("circle", cx=at, cy=y, r=4.5, fill=COLOURS[0], data_row=i))
            inside.append(text(left - 8, y + 4, cut(name), "end"))
            parts.append(tag("g", *inside, data_n=name))
        shown = "; ".join(f"{name} {number(scale * strip.value)}" for name, strip in rows.items())
        return svg_of(parts, f"{x_name}: {shown}", TOP + size[1] + FOOT, sheet.width)

    data = [[name, *(_shown(scale * v) for v in (s.value, s.low, s.high)), len(s.dots)] for name, s in rows.items()]
    return Picture(draw, ["name", x_name, "low", "high", "draws"], data)


def _shown(value: float) -> float | None:
    return short(value) if value == value else None
