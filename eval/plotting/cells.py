"""Tables of coloured cells, a strip for each of several names, and a histogram of a collection over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.plotting import frames
from driftline.eval.plotting.charts import Picture, short
from driftline.eval.plotting.frames import COLOURS, GREY, LETTER, WIDTH, Frame, cut, line, svg_of, tag, text

WIDE, HIGH, GAP = 46, 22, 24  # of a cell, at most; between two tables
ROW, ABOVE = 22, 24  # units of a row of `strips`, and above the first one
Rows = Mapping[str, Sequence[float | None]]  # name of a row → its cells
BINS = 66  # bars of a histogram
OF_BUCKETS = ("#1e6fa0", "#4aa3c3")  # in turn


def cells(
    tables: Mapping[str, Rows], columns: Sequence[str], span: tuple[float, float], label: str,
    heads: tuple[str, str], framed: bool = False,
) -> Picture:  # fmt: skip
    """Tables of shares side by side where there is space, else below each other. tables: title → rows. span: values of
    the lightest and the darkest cell; a cell that is too small for its number has none. heads: what rows and columns
    are. framed: the diagonal has a frame."""
    left = 12 + 1.2 * LETTER * max((len(name) for rows in tables.values() for name in rows), default=0)
    beside = len(tables) > 1 and left + len(tables) * (GAP + 30 * len(columns)) <= WIDTH
    across = len(tables) if beside else 1
    wide = min(WIDE, (WIDTH - left - 4 - GAP * (across - 1)) / (across * max(1, len(columns))))
    upright = max(map(len, columns), default=0) * LETTER > wide
    head = 28 + (LETTER * max(map(len, columns), default=0) if upright else 12)
    parts, top, height = [], 0.0, 0.0
    for k, (title, of_title) in enumerate(tables.items()):
        x0 = left + (k * (wide * len(columns) + GAP) if beside else 0)
        parts.append(text(x0, top + 14, title, size=12))
        for j, name in enumerate(columns):
            x, y = x0 + wide * (j + 0.5), top + head - 6
            turned: dict[str, Any] = {"transform": f"rotate(-90 {x + 4:.1f} {y:.1f})"} if upright else {}
            parts.append(text(x + 4 * upright, y, name, "start" if upright else "middle", **turned))
        for i, (name, values) in enumerate(of_title.items()):
            y = top + head + HIGH * i
            parts += [text(left - 8, y + 15, name, "end")] if k == 0 or not beside else []
            for j, value in enumerate(values):
                if value is not None:
                    frame = {"stroke": "#c2410c", "stroke_width": 2} if framed and i == j else {}
                    parts += _cell(x0 + wide * j, y, wide, value, span, frame)
        height = top + head + HIGH * len(of_title) + 8
        top = top if beside else height + 8
    rows = [[title, name, column, round(100 * value, 2)] for title, of_title in tables.items()
            for name, values in of_title.items() for column, value in zip(columns, values, strict=False)
            if value is not None]  # fmt: skip
    svg = svg_of(parts, label, height, left + across * (wide * len(columns) + GAP))
    return Picture(svg, ["name", *heads, "%"], rows)


def _cell(
    x: float, y: float, wide: float, value: float, span: tuple[float, float], frame: Mapping[str, object]
) -> list[str]:
    parts = [tag("rect", x=x + 1, y=y + 1, width=wide - 2, height=HIGH - 2, fill=frames.colour(value, span), **frame)]
    shown = f"{100 * value:.1f}"
    if LETTER * len(shown) <= wide + 2:
        look = {"fill": frames.ink(value, span), "text_anchor": "middle", "font_size": 11}
        parts.append(tag("text", shown, x=x + wide / 2, y=y + 15, **look))
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

    left = 20 + LETTER * max(len(cut(name)) for name in rows)
    size = (WIDTH - left - 24, ROW * len(rows))
    frame = Frame(left, ABOVE, *size, (low - room, high + room), (0, 1))
    parts = frames.ticks(frame, frames.round_numbers(*frame.x), x_name)
    parts += frames.references(frame, {}, {name: scale * x for name, x in marks.items()})
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
    shown = "; ".join(f"{name} {frames.number(scale * strip.value)}" for name, strip in rows.items())
    svg = svg_of(parts, f"{x_name}: {shown}", ABOVE + size[1] + frames.FOOT, WIDTH)
    data = [
        [name, *(short(scale * v) if v == v else None for v in (s.value, s.low, s.high)), len(s.dots)]
        for name, s in rows.items()
    ]
    return Picture(svg, ["name", x_name, "low", "high", "draws"], data)


def timeline(times: npt.NDArray[np.int64], bucket: npt.NDArray[np.int64], names: Mapping[int, str]) -> Picture:
    """A histogram. times: (N,) int64, seconds UTC. bucket: (N,) integers, the bucket of each photo, below 0 for none
    (grey). names: number of a bucket → its name, in the order of time."""
    low, high = (int(times.min()), int(times.max()) + 1) if len(times) else (0, 1)
    edges = np.linspace(low, high, BINS + 1)
    top = max(1, int(np.histogram(times, edges)[0].max()))
    inside = {number: times[bucket < 0 if number < 0 else bucket == number] for number in (-1, *names)}
    counts = {number: np.histogram(of_bucket, edges)[0] for number, of_bucket in inside.items()}
    sizes = ", ".join(f"{name}: {int((bucket == number).sum())}" for number, name in names.items())

    frame = Frame(56, 12, WIDTH - 72, 116, (low, high), (0, top))
    foot, width = frame.top + frame.height, frame.width / BINS - 1
    steps = [value for value in frames.round_numbers(0, top) if value.is_integer()]
    parts, below = frames.grid(frame, steps, frames.number), np.zeros(BINS, np.int64)
    last = -1e9
    for k, number in enumerate(inside):
        fill = GREY if number < 0 else OF_BUCKETS[(k - 1) % len(OF_BUCKETS)]
        for i in np.flatnonzero(counts[number]):
            (x, y), height = frame.at(edges[i], below[i] + counts[number][i]), counts[number][i] / top * frame.height
            parts.append(tag("rect", x=x, y=y, width=width, height=height, fill=fill))
        below += counts[number]
        middle = frame.at(float(inside[number].mean()), 0)[0] if len(inside[number]) else 0.0
        if number >= 0 and len(inside[number]) and middle - last > 7 * len(names[number]):
            parts.append(text(middle, foot + 16, names[number], "middle", 13))
            last = middle
    dates = [(frame.at(at, 0)[0], shown) for at, shown in _dates(low, high, int(WIDTH / 80))]
    parts += [text(x, foot + 38, shown, "middle") for x, shown in dates]
    days = edges.astype("datetime64[s]").astype("datetime64[D]").astype(str)
    filled = [(number, i) for number, of in counts.items() for i in np.flatnonzero(of)]
    rows = [[names.get(number, "none"), str(days[i]), int(counts[number][i])] for number, i in filled]
    svg = svg_of(parts, f"Photos over time. Bucket sizes {sizes}", 180, WIDTH)
    return Picture(svg, ["bucket", "from", "photos"], rows)


def _dates(low: int, high: int, most: int) -> list[tuple[int, str]]:
    """Starts of years, of months in a short time, or of days: (seconds, text), as many as `most`."""
    for unit in ("Y", "M", "D"):
        first, last = (np.datetime64(end, "s").astype(f"datetime64[{unit}]") + 1 for end in (low, high))
        starts = np.arange(first, last)
        if len(starts) > 1:
            break
    shown = starts[:: -(-len(starts) // most) or 1]
    return [(int(start.astype("datetime64[s]").astype(np.int64)), str(start)) for start in shown]
