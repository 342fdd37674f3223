"""Charts as SVG: one picture for screens, print, dark mode, screen readers and files, with the numbers that it shows.

A chart is drawn for a page, or for paper of a width (`frames.WIDTHS`), where lines differ without colours, too.
`static/report.js` adds to a page's picture what needs a script: lines to hide, numbers under the pointer, a layout for
phones. It reads `data-n`, the name of what an element belongs to, and `data-row`, the row of the data that an element's
first point shows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from driftline.eval.plotting.frames import (
    PAGE,
    Band,
    Named,
    Sheet,
    cut,
    drawn,
    frame_of,
    grid,
    number,
    percents,
    references,
    round_numbers,
    ticks,
    whole,
)  # fmt: skip
from driftline.eval.plotting.svg import COLOURS, GREY, tag, text

ACCURACY = "accuracy"
AXIS, BAR = 40, 7  # charts of ranks: position of the axis, height of a bar


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    id: str
    """anchor"""
    title: str
    """heading, plain text"""
    html: str
    """content: plain text, or markup from a template"""
    folded: bool = False
    """whether readers must open it to see it"""


Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # name → x, y


@dataclass(frozen=True)
class Picture:
    """A chart, with the data that it shows."""

    draw: Callable[[Sheet], str]
    """trusted markup, for a page or for paper"""
    columns: Sequence[str] = ()
    """names of the data's columns; (): a table, which shows all that it has"""
    rows: Sequence[Sequence[Any]] = ()
    """the data: words and numbers"""

    @cached_property
    def svg(self) -> str:
        """As a page shows it."""
        return self.draw(PAGE)


@dataclass(frozen=True)
class Figure:
    """A chart with its title and caption."""

    title: str
    """text above the chart"""
    caption: str
    """text below the chart"""
    picture: Picture
    """its markup is trusted; title and caption are not"""


def lines(
    series: Series, x_name: str, log: float = 0, levels: Mapping[str, float] | None = None,
    marks: Mapping[str, float] | None = None, bands: Mapping[str, Band] | None = None, from_zero: bool = True,
    dots: bool = False, y_name: str = "", loose: Sequence[str] = (), share: bool = True,
    dates: Mapping[float, str] | None = None, like: Mapping[str, str] | None = None,
) -> Picture:  # fmt: skip
    """A line chart. series: name → (x, y). log: x on a scale of log2(x / log + 1); 0: linear. levels, marks: name → y
    or x of a dashed line. bands: name → low and high ends at the series' x, shaded. from_zero: whether the y axis
    begins at 0. dots: at each point, too. y_name: above the axis. loose: names that have dots alone. share: y is in
    0 … 1 and shown in per cent; else as it is. dates: x → what the axis and the data show in its place. like: name →
    the name whose colour its dashed line has."""
    bands, levels, dates, order = bands or {}, levels or {}, dates or {}, list(series)
    looks = [order.index(like[name]) + len(COLOURS) if like and name in like else i for i, name in enumerate(order)]
    of, what, show = (_percent, "per cent", _tenths) if share else (short, y_name or "value", number)
    shown = {name: f"{cut(name)}  {show(y[-1]) if len(y) else ''}".rstrip() for name, (_, y) in series.items()}
    xs = sorted({v for x, _ in series.values() for v in x}) or [0.0]
    summary = "; ".join(f"{name} ends at {show(y[-1])}" for name, (_, y) in series.items() if len(y))
    label = f"{'Accuracy in per cent' if share else what} over {x_name}. {summary}"

    def scale(x: float) -> float:
        return float(np.log2(x / log + 1)) if log else float(x)

    def draw(sheet: Sheet) -> str:
        y_axis = _ends_of_y(series, levels, bands, from_zero, share)
        above = y_name or (ACCURACY if sheet.inches else "")
        frame = frame_of(sheet, (xs[0], xs[-1]), y_axis, list(shown.values()), scale, above)
        parts = percents(frame) if share else grid(frame, np.linspace(*frame.y, 6).tolist(), number)
        whole_numbers = log or all(float(x).is_integer() for x in xs)
        values = sorted(dates) if dates else xs if whole_numbers else round_numbers(*frame.x)
        parts += ticks(frame, [x for x in values if xs[0] <= x <= xs[-1]], x_name, dates)
        parts += references(frame, levels, marks or {})
        parts += [text(frame.left, frame.top - 10, above)] if above else []
        row, names = 0, []
        for i, (name, (along, ys)) in zip(looks, series.items(), strict=True):
            band = None if name in loose else bands.get(name)
            parts.append(drawn(name, i, frame, along, ys, row, band, len(bands), dots, joined=name not in loose))
            row += len(along)
            names.append((frame.at(along[-1], ys[-1])[1] if len(along) else 0.0, name, i, shown[name]))
        return whole(parts, names, label, frame)

    columns = ["series", x_name, what, *(["low", "high"] if bands else [])]
    rows: list[list[Any]] = []
    for name, (along, ys) in series.items():
        intervals: Sequence[Sequence[float | None]] = bands.get(name, ([None] * len(along),) * 2)
        for x, y, *interval in zip(along, ys, *intervals, strict=True):
            rows.append([name, dates.get(x, short(x)), of(y), *map(of, interval if bands else ())])
    return Picture(draw, columns, rows)


def _ends_of_y(
    series: Series, levels: Mapping[str, float], bands: Mapping[str, Band], from_zero: bool, share: bool
) -> tuple[float, float]:
    """Around all values; bands of shares end at 0 and 1."""
    values = [v for _, y in series.values() for v in y] + list(levels.values())
    edges = [min(max(v, 0.0), 1.0) for ends in bands.values() for end in ends for v in end]
    low, high = min([*values, *edges], default=0.0), max([*values, *edges, 0.01])
    floor = float(np.floor(10 * low + (-1e-9 if low > 0 else 1e-9)) / 10) if share else low
    return min(0.0, floor) if from_zero else floor, _nice(high) if share else max(high, floor + 1)


def slopes(
    series: Mapping[str, Sequence[float]], columns: Sequence[str], levels: Mapping[str, float] | None = None
) -> Picture:
    """A slope chart. series: name → accuracies in the columns, or in the first of them, connected by a line: crossing
    lines are changes of rank. levels: name → y of a dashed line."""
    shown = {name: f"{cut(name)}  {' → '.join(map(_tenths, values))}" for name, values in series.items()}
    summary = "; ".join(f"{name} {' to '.join(map(_tenths, values))}" for name, values in series.items())
    places, levels = [k / (len(columns) - 1) for k in range(len(columns))], levels or {}

    def draw(sheet: Sheet) -> str:
        y_axis = (0.0, _nice(max([*levels.values(), *(v for values in series.values() for v in values)])))
        frame = frame_of(sheet, (-0.06, 1), y_axis, list(shown.values()), y_name=ACCURACY)
        foot = frame.top + frame.height + 20
        parts = [*percents(frame), text(frame.left, frame.top - 10, ACCURACY), *references(frame, levels, {})]
        for place, column in zip(places, columns, strict=True):
            parts.append(text(frame.at(place, 0)[0], foot, column, "end" if place == 1 else "middle", 13))
        names: list[Named] = []
        row = 0
        for i, (name, values) in enumerate(series.items()):
            parts.append(drawn(name, i, frame, places[: len(values)], values, row, dots=True))
            names.append((frame.at(1, values[-1])[1], name, i, shown[name]))
            row += len(values)
        return whole(parts, names, f"Accuracy in per cent, {', '.join(columns)}: {summary}", frame)

    rows = [[n, x, _percent(y)] for n, values in series.items() for x, y in zip(columns, values, strict=False)]
    return Picture(draw, ["series", "score", "per cent"], rows)


def points(places: Mapping[str, tuple[float, float]], front: Sequence[str], x_name: str) -> Picture:
    """A scatter chart. places: name → x above 0, on a scale of log10, and y in 0 … 1. front: names in blue, with
    a dot behind them in the list; the others are grey rings. Numbers link dots and names."""
    sizes = {name: max(x, 1.0) for name, (x, _) in places.items()}
    low, high = np.floor(np.log10(min(sizes.values()))), np.ceil(np.log10(max(sizes.values())) + 1e-9)
    powers = [10.0**power for power in range(int(low), int(high) + 1)]
    order = sorted(places, key=lambda name: -places[name][1])
    ahead = {name: "  ●" if name in front else "" for name in order}
    shown = [f"{i}  {cut(n)}  {100 * places[n][1]:.1f}{ahead[n]}" for i, n in enumerate(order, 1)]
    ends = [f"{n} {places[n][0]:,.0f} and {100 * places[n][1]:.1f}" + (", front" * (n in front)) for n in order]

    def draw(sheet: Sheet) -> str:
        y_axis = (0.0, _nice(max(y for _, y in places.values())))
        frame = frame_of(sheet, (powers[0], powers[-1]), y_axis, shown, lambda x: float(np.log10(x)), ACCURACY)
        parts = [*percents(frame), *ticks(frame, powers, x_name), text(frame.left, frame.top - 10, ACCURACY)]
        spots = {name: frame.at(sizes[name], places[name][1]) for name in order}
        beside = labels_of(list(spots.values()))
        for i, (name, (x, y)) in enumerate(spots.items()):
            look = {"fill": COLOURS[0]} if ahead[name] else {"fill": "none", "stroke": GREY, "stroke_width": 2}
            dot = tag("circle", cx=x, cy=y, r=4 if ahead[name] else 3, data_row=list(places).index(name), **look)
            parts.append(
                tag("g", dot, text(*beside[i], str(i + 1), "middle", size=10 + bool(sheet.inches)), data_n=name)
            )
        rising = [frame.top + i / len(order) for i in range(len(order))]  # in their order, as close as they may be
        names: list[Named] = [(y, name, None, label) for y, name, label in zip(rising, order, shown, strict=True)]
        return whole(parts, names, f"{x_name} and accuracy in per cent: {'; '.join(ends)}", frame)

    rows = [[n, sizes[n], _percent(y), "yes" if n in front else "no"] for n, (_, y) in places.items()]
    return Picture(draw, ["learner", x_name, "per cent", "no other is better"], rows)


def labels_of(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where the number of each dot is: the first place around it that no dot and no other number covers."""
    ways = [(11, 0), (11, -9), (11, 10), (-11, 0), (-11, -9), (-11, 10), (0, -11), (0, 12), (22, 0), (-22, 0), (0, -22)]
    taken, labels = list(dots), []
    for x, y in dots:
        free = [(x + a, y + b) for a, b in ways if all(abs(x + a - u) > 10 or abs(y + b - v) > 8 for u, v in taken)]
        spot = free[0] if free else (x + 11, y)
        taken.append(spot)
        labels.append((spot[0], spot[1] + 4))
    return labels


def short(value: float | None) -> float | None:
    """To five digits: what a reader of a chart may see.

    >>> short(1234567.0), short(0.123456)
    (1234600.0, 0.12346)
    """
    return None if value is None else float(f"{value:.5g}")


def _tenths(share: float) -> str:
    return f"{100 * share:.1f}"


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * float(share), 2)


def _nice(top: float) -> float:
    """The next higher tenth.

    >>> _nice(0.31)
    0.4
    """
    return float(np.ceil(top * 10 + (1e-9 if top < 1 else -1e-9)) / 10) or 0.1
