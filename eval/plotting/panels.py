"""Small multiples: a small line chart for each of many groups; and a row for each of several names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftline.eval.plotting.charts import Picture, Series, short
from driftline.eval.plotting.frames import (
    FOOT,
    LETTER,
    Frame,
    Sheet,
    cut,
    drawn,
    grid,
    named,
    names_below,
    number,
    references,
    round_numbers,
    ticks,
)
from driftline.eval.plotting.svg import COLOURS, GREY, line, svg_of, tag, text

WIDE, HIGH, LEFT, TOP, BELOW = 200, 130, 30, 20, 18  # units of a panel
NAME = 180  # for a name
TALL = 1000  # of a picture, on paper: 9 inches
ROW, ABOVE = 22, 24  # units of a row of `strips`, and above the first one


def panels(groups: Mapping[str, Series], x_name: str, joined: bool = True) -> Picture:
    """title → lines; all charts have the same axes, y from 0 to 100 per cent or beyond. joined: False for dots
    alone."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    xs = [x for group in groups.values() for along, _ in group.values() for x in along] or [0.0]
    x_axis = (min(xs), max(max(xs), min(xs) + 1e-9))
    ys = [0.0, 1.0, *(y for group in groups.values() for _, shares in group.values() for y in shares)]
    rows: list[list[object]] = []
    ends: list[str] = []
    for title, group in groups.items():
        for name, (along, shares) in group.items():
            rows += [[name, short(x), round(100 * y, 2), title] for x, y in zip(along, shares, strict=True)]
            if len(shares):
                ends.append(f"{title}, {name}: {100 * shares[0]:.0f} to {100 * shares[-1]:.0f}")

    def draw(sheet: Sheet) -> str:
        across = round(sheet.width / WIDE)
        if sheet.inches and -(-len(groups) // across) * HIGH > TALL:
            across += 1
        wide = min(WIDE, int((sheet.width - 4) / across)) if sheet.inches else WIDE
        frame = Frame(LEFT, TOP, wide - LEFT - 12, HIGH - TOP - BELOW, x_axis, (min(ys), max(ys)), sheet=sheet)
        parts, row = [], 0
        for k, (title, group) in enumerate(groups.items()):
            place = f"translate({k % across * wide} {k // across * HIGH})"
            parts.append(tag("g", *_panel(title, group, frame, names, row, joined), transform=place))
            row += sum(len(along) for along, _ in group.values())
        height: float = -(-len(groups) // across) * HIGH + 6
        if sheet.inches:
            parts.append(text(LEFT, height + 8, f"across: {x_name}; up: per cent"))
            beside, height = names_below(
                [(0.0, name, i, cut(name)) for i, name in enumerate(names)], sheet, height + 26
            )
        else:
            of_row = [(LEFT + i % across * NAME, height + 10 + i // across * 18) for i in range(len(names))]
            beside = [
                named(name, x, y, cut(name), i) for i, (name, (x, y)) in enumerate(zip(names, of_row, strict=True))
            ]
            height += 6 + -(-len(names) // across) * 18
        label = f"Accuracy in per cent by {x_name}. {'; '.join(ends[:60])}"
        return svg_of([*parts, *beside], label, height, sheet.width if sheet.inches else across * wide + 12)

    return Picture(draw, ["series", x_name, "per cent", "panel"], rows)


def _panel(title: str, group: Series, frame: Frame, names: list[str], row: int, joined: bool) -> list[str]:
    """One chart. row: of its first point in the data."""
    right, foot = frame.left + frame.width, frame.top + frame.height
    long = int(frame.width / 6)
    parts = [text(frame.left, frame.top - 7, title if len(title) <= long else f"{title[: long - 1]}…", size=12)]
    size = 11 if frame.sheet.inches else 10
    parts += grid(frame, (0, 0.5, 1), lambda share: f"{100 * share:.0f}", size)
    parts += [text(frame.left, foot + 13, number(frame.x[0]), size=size)]
    parts += [text(right, foot + 13, number(frame.x[1]), "end", size)]
    for name, (along, shares) in group.items():
        parts.append(drawn(name, names.index(name), frame, along, shares, row, width=1.6, joined=joined))
        row += len(along)
    return parts


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
    """A value with its interval, and dots that it is compared with. name → its row; x on a linear scale. marks: name →
    x of a dashed line. scale: what all values are multiplied with, as 100 for shares."""
    values = [scale * v for s in rows.values() for v in (*s.dots, s.value, s.low, s.high) if v == v]  # not NaN
    values += [scale * v for v in marks.values()]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0

    def draw(sheet: Sheet) -> str:
        left = 12 + LETTER * max(len(cut(name)) for name in rows)
        size = (sheet.width - left - 24, ROW * len(rows))
        frame = Frame(left, ABOVE, *size, (low - room, high + room), (0, 1), sheet=sheet)
        parts = ticks(frame, round_numbers(*frame.x), x_name)
        parts += references(frame, {}, {name: scale * x for name, x in marks.items()})
        for i, (name, strip) in enumerate(rows.items()):
            y = ABOVE + ROW * (i + 0.5)
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
        return svg_of(parts, f"{x_name}: {shown}", ABOVE + size[1] + FOOT, sheet.width)

    data = [[name, *(_shown(scale * v) for v in (s.value, s.low, s.high)), len(s.dots)] for name, s in rows.items()]
    return Picture(draw, ["name", x_name, "low", "high", "draws"], data)


def _shown(value: float) -> float | None:
    return short(value) if value == value else None
