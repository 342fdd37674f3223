"""Charts as SVG: one picture for screens, print, dark mode, screen readers and files, with the numbers that it shows.

`static/report.js` adds to the same picture what needs a script: lines to hide, numbers under the pointer, a layout for
phones. It reads `data-n`, the name of what an element belongs to, and `data-row`, the row of the data that an element's
first point shows.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.eval.plotting.colours import COLOURS, GREY, dash

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, FOOT = 60, 270, 14, 42  # margins for the axis, the names, the top and the ticks
GAP = 14  # pixels between two names
LONG = 36  # characters of a name; the data have all of it
SHADED = 4  # with more bands, a page shows only the one under the pointer: they cover each other
EDGE, AXIS, BAR = 190, 40, 7  # charts of ranks: margins for names, position of the axis, height of a bar


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
Band = tuple[Sequence[float], Sequence[float]]  # low, high
Path = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Picture:
    """A chart, with the data that it shows."""

    svg: str
    """trusted markup"""
    columns: Sequence[str] = ()
    """names of the data's columns; (): a table, which shows all that it has"""
    rows: Sequence[Sequence[Any]] = ()
    """the data: words and numbers"""


@dataclass(frozen=True)
class Figure:
    """A chart with its title and caption."""

    title: str
    """text above the chart"""
    caption: str
    """text below the chart"""
    picture: Picture
    """its markup is trusted; title and caption are not"""


@dataclass(frozen=True)
class Frame:
    """The part of a picture in which values are drawn."""

    left: float
    """pixels, as the next three"""
    top: float
    width: float
    height: float
    x: tuple[float, float]
    """values at the left and right end"""
    y: tuple[float, float]
    """values at the bottom and the top"""
    scale: Callable[[float], float] = float
    """of x, before it is drawn"""

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        low, high = map(self.scale, self.x)
        across = (self.scale(x) - low) / (high - low) if high > low else 0.0
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, self.top + (1 - up) * self.height

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> Path:
        """Pixels of points."""
        return [self.at(x, y) for x, y in zip(xs, ys, strict=True)]


def lines(
    series: Series, x_name: str, log: float = 0, levels: Mapping[str, float] | None = None,
    marks: Mapping[str, float] | None = None, bands: Mapping[str, Band] | None = None, from_zero: bool = True,
    dots: bool = False, y_name: str = "", loose: Sequence[str] = (), share: bool = True,
) -> Picture:  # fmt: skip
    """A line chart. series: name → (x, y). log: x on a scale of log2(x / log + 1); 0: linear. levels, marks: name → y
    or x of a dashed line. bands: name → low and high ends at the series' x, shaded. from_zero: whether the y axis
    begins at 0. dots: at each point, too. y_name: above the axis. loose: names that have dots alone. share: y is in
    0 … 1 and shown in per cent; else as it is."""
    bands, levels = bands or {}, levels or {}
    of, what, show = (_percent, "per cent", _tenths) if share else (_as_is, y_name or "value", number)
    frame = _frame_of_lines(series, levels, bands, from_zero, y_name, share, log)
    xs = sorted({v for x, _ in series.values() for v in x}) or [0.0]
    grid_of = _percents(frame) if share else grid(frame, np.linspace(*frame.y, 6), number)
    parts = [*grid_of, *_ticks(frame, xs, x_name), *_references(frame, levels, marks or {})]
    parts += [text(frame.left, frame.top - 10, y_name)] if y_name else []
    row, ends = 0, []
    for i, (name, (along, ys)) in enumerate(series.items()):
        band = None if name in loose else bands.get(name)
        parts.append(drawn(name, i, frame, along, ys, row, band, len(bands), dots, joined=name not in loose))
        row += len(along)
        last = frame.at(along[-1], ys[-1])[1] if len(along) else 0.0
        ends.append((last, name, i, show(ys[-1]) if len(ys) else ""))
    summary = "; ".join(f"{name} ends at {show(y[-1])}" for name, (_, y) in series.items() if len(y))
    columns = ["series", x_name, what, *(["low", "high"] if bands else [])]
    rows: list[list[Any]] = []
    for name, (along, ys) in series.items():
        intervals: Sequence[Sequence[float | None]] = bands.get(name, ([None] * len(along),) * 2)
        for x, y, *interval in zip(along, ys, *intervals, strict=True):
            rows.append([name, short(x), of(y), *map(of, interval if bands else ())])
    label = f"{'Accuracy in per cent' if share else what} over {x_name}. {summary}"
    return Picture(whole([*parts, *names_beside(ends, frame)], label, frame), columns, rows)


def _frame_of_lines(
    series: Series, levels: Mapping[str, float], bands: Mapping[str, Band], from_zero: bool, y_name: str, share: bool,
    log: float,
) -> Frame:  # fmt: skip
    """Around all values; bands of shares end at 0 and 1."""
    values = [v for _, y in series.values() for v in y] + list(levels.values())
    edges = [min(max(v, 0.0), 1.0) for ends in bands.values() for end in ends for v in end]
    low, high = min([*values, *edges], default=0.0), max([*values, *edges, 0.01])
    floor = float(np.floor(10 * low + (-1e-9 if low > 0 else 1e-9)) / 10) if share else low
    y_axis = (min(0.0, floor) if from_zero else floor, _nice(high) if share else max(high, floor + 1))
    xs = [v for x, _ in series.values() for v in x] or [0.0]
    scale = (lambda x: float(np.log2(x / log + 1))) if log else float
    return frame_of((min(xs), max(xs)), y_axis, len(series), scale, y_name)


def slopes(pairs: Mapping[str, tuple[float, float]], left: str, right: str) -> Picture:
    """A slope chart. pairs: name → two accuracies, connected by a line: crossing lines are changes of rank."""
    area = frame_of((0, 1), (0.0, _nice(max(v for pair in pairs.values() for v in pair))), len(pairs))
    frame = Frame(area.left + 40, area.top, area.width - 40, area.height, area.x, area.y)
    foot = frame.top + frame.height + 20
    parts = _percents(area)
    parts += [text(frame.left, foot, left, "middle", 13), text(frame.left + frame.width, foot, right, "end", 13)]
    ends = []
    for i, (name, (a, b)) in enumerate(pairs.items()):
        parts.append(drawn(name, i, frame, (0, 1), (a, b), 2 * i, dots=True))
        ends.append((frame.at(1, b)[1], name, i, f"{100 * a:.1f} → {100 * b:.1f}"))
    summary = "; ".join(f"{name} {100 * a:.1f} to {100 * b:.1f}" for name, (a, b) in pairs.items())
    label = f"Accuracy in per cent, {left} against {right}: {summary}"
    rows = [[name, x, _percent(y)] for name, pair in pairs.items() for x, y in zip((left, right), pair, strict=True)]
    return Picture(whole([*parts, *names_beside(ends, area)], label, area), ["series", "score", "per cent"], rows)


def points(places: Mapping[str, tuple[float, float]], front: Sequence[str], x_name: str) -> Picture:
    """A scatter chart. places: name → x above 0, on a scale of log10, and y in 0 … 1. front: names in blue, with
    a dot behind them in the list; the others are grey. Numbers link dots and names."""
    sizes = {name: max(x, 1.0) for name, (x, _) in places.items()}
    low, high = np.floor(np.log10(min(sizes.values()))), np.ceil(np.log10(max(sizes.values())) + 1e-9)
    top = _nice(max(y for _, y in places.values()))
    frame = frame_of((10.0**low, 10.0**high), (0.0, top), len(places), lambda x: float(np.log10(x)))
    powers = [10.0**power for power in range(int(low), int(high) + 1)]
    parts = [*_percents(frame), *_ticks(frame, powers, x_name)]
    place = {name: row for row, name in enumerate(places)}
    names, ends = [], []
    for i, name in enumerate(sorted(places, key=lambda name: -places[name][1]), 1):
        x, y = frame.at(sizes[name], places[name][1])
        ahead = name in front
        dot = tag("circle", cx=x, cy=y, r=4, fill=COLOURS[0] if ahead else GREY, data_row=place[name])
        parts.append(tag("g", dot, text(x + 6, y + (4 if i % 2 else -4), str(i), size=10), data_n=name))
        shown = f"{i}  {cut(name)}  {100 * places[name][1]:.1f}" + ("  ●" if ahead else "")
        names.append(named(name, TOP + GAP * i - 4, shown))
        ends.append(f"{name} {places[name][0]:,.0f} and {100 * places[name][1]:.1f}" + (", front" * ahead))
    svg = whole([*parts, *names], f"{x_name} and accuracy in per cent: {'; '.join(ends)}", frame)
    rows = [[n, sizes[n], _percent(y), "yes" if n in front else "no"] for n, (_, y) in places.items()]
    return Picture(svg, ["learner", x_name, "per cent", "no other is better"], rows)


def ranked(order: Mapping[str, float], groups: Sequence[tuple[int, int]], difference: float) -> Picture:
    """A critical-difference diagram. order: name → mean rank, the best first. groups: first and last position of the
    names that a bar joins. difference: the critical difference, drawn above the axis."""
    names, values = list(order), list(order.values())
    most, left = max(len(names), 2), (len(names) + 1) // 2
    first = AXIS + 16 + BAR * len(groups)

    def at(rank: float) -> float:
        return EDGE + (rank - 1) / (most - 1) * (WIDTH - 2 * EDGE)

    parts = [line(EDGE, AXIS, WIDTH - EDGE, AXIS)]
    for rank in range(1, most + 1, max(1, most // 10)):
        parts += [line(at(rank), AXIS - 5, at(rank), AXIS), text(at(rank), AXIS - 9, str(rank), "middle", 11)]
    end = at(1 + min(difference, most - 1))
    parts += [line(EDGE, 12, end, 12, stroke_width=2), text(end + 6, 16, f"critical difference {difference:.2f}")]
    for k, (a, b) in enumerate(groups):
        y = AXIS + 8 + BAR * k
        parts.append(line(at(values[a]) - 3, y, at(values[b]) + 3, y, stroke=COLOURS[0], stroke_width=4))
    for i, (name, value) in enumerate(order.items()):
        to_left = i < left
        y = first + 20 * (i if to_left else len(names) - 1 - i)
        side, anchor, gap = (EDGE - 8, "end", -4) if to_left else (WIDTH - EDGE + 8, "start", 4)
        parts += [line(at(value), AXIS, at(value), y), line(at(value), y, side, y)]
        parts.append(text(side + gap, y + 4, f"{name[:24]} {value:.2f}", anchor, 12))
    summary = ", ".join(f"{name} {value:.2f}" for name, value in order.items())
    svg = svg_of(parts, f"Mean ranks: {summary}. Critical difference {difference:.2f}.", first + 20 * left + 12)
    return Picture(svg, ["learner", "mean rank"], [[name, short(value)] for name, value in order.items()])


def short(value: float) -> float:
    """To five digits: what a reader of a chart may see.

    >>> short(1234567.0), short(0.123456)
    (1234600.0, 0.12346)
    """
    return float(f"{value:.5g}")


def number(value: float) -> str:
    """
    >>> number(1400.0), number(2.5), number(0.001)
    ('1,400', '2.5', '0.001')
    """
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.1 else f"{value:.2g}"


def cut(name: str) -> str:
    """A name as it fits beside a chart."""
    return name if len(name) <= LONG else f"{name[: LONG - 1]}…"


def _tenths(share: float) -> str:
    return f"{100 * share:.1f}"


def _as_is(value: float | None) -> float | None:
    return None if value is None else short(value)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * float(share), 2)


def _nice(top: float) -> float:
    """The next higher tenth.

    >>> _nice(0.31)
    0.4
    """
    return float(np.ceil(top * 10 + (1e-9 if top < 1 else -1e-9)) / 10) or 0.1


def frame_of(
    x: tuple[float, float],
    y: tuple[float, float],
    names: int,
    scale: Callable[[float], float] = float,
    y_name: str = "",
) -> Frame:
    """Beside the names of so many lines, and below the name of the axis."""
    height, top = max(HEIGHT, TOP + GAP * names + FOOT // 2), TOP + (18 if y_name else 0)
    return Frame(LEFT, top, WIDTH - LEFT - RIGHT, height - top - FOOT, x, y, scale)


def _percents(frame: Frame) -> list[str]:
    """The grid, with its values in per cent."""
    top = frame.y[1]
    return grid(frame, np.linspace(*frame.y, 6), lambda share: f"{100 * share:.0f}" + (" %" if share == top else ""))


def grid(frame: Frame, values: Sequence[float] | Any, of: Callable[[float], str], size: int = 11) -> list[str]:
    """Horizontal lines with their values."""
    parts = []
    for value in values:
        _, y = frame.at(frame.x[0], value)
        parts.append(line(frame.left, y, frame.left + frame.width, y, opacity=0.15))
        parts.append(text(frame.left - 8, y + 4, of(value), "end", size))
    return parts


def _ticks(frame: Frame, values: Sequence[float], name: str) -> list[str]:
    """As many of the values as there is space for, and the name of the axis. A phone has space for every other one."""
    ticks: list[str] = []
    last, foot = -1e9, frame.top + frame.height
    for value in values:
        x, _ = frame.at(value, frame.y[0])
        if x - last > 48:
            ticks.append(text(x, foot + 16, number(value), "middle", class_="tick odd" if len(ticks) % 2 else "tick"))
            last = x
    return [*ticks, text(frame.left + frame.width / 2, foot + 36, name, "middle", 12, class_="tick")]


def _references(frame: Frame, levels: Mapping[str, float], marks: Mapping[str, float]) -> list[str]:
    """Dashed lines with their names, at a y or an x."""
    parts, right = [], frame.left + frame.width
    for name, level in levels.items():
        _, y = frame.at(frame.x[0], level)
        parts += [dashed(frame.left, y, right, y), text(frame.left + 4, y - 4, name)]
    for name, mark in marks.items():
        x, _ = frame.at(mark, frame.y[0])
        late = x > right - 60  # the names of lines are at the right
        beside = text(x - 4 if late else x + 4, frame.top + 10, name, "end" if late else "start")
        parts += [dashed(x, frame.top, x, frame.top + frame.height), beside]
    return parts


def drawn(
    name: str, i: int, frame: Frame, along: Sequence[float], values: Sequence[float], row: int,
    band: Band | None = None, bands: int = 0, dots: bool = False, width: float = 2, joined: bool = True,
) -> str:  # fmt: skip
    """A line with its band. i: decides how it looks. row: of its first point in the data. bands: of the chart. joined:
    False for dots alone."""
    path, colour, inside = frame.path(along, values), COLOURS[i % len(COLOURS)], []
    if band is not None:
        low, high = ([min(max(y, frame.y[0]), frame.y[1]) for y in end] for end in band)
        corners = [*frame.path(along, high), *reversed(frame.path(along, low))]
        far = {"class_": "far", "opacity": 0.06} if bands > SHADED else {"opacity": 0.15}
        inside.append(tag("polygon", points=_points(corners), fill=colour, **far))
    look = {"stroke": colour, "stroke_width": width, "stroke_dasharray": dash(i)}
    look |= {} if joined else {"stroke_opacity": 0}
    inside.append(tag("polyline", points=_points(path), fill="none", data_row=row, **look))
    if dots or not joined or len(path) == 1:
        inside += [tag("circle", cx=x, cy=y, r=3.5, fill=colour) for x, y in path]
    return tag("g", *inside, class_="series", data_n=name)


def names_beside(ends: Sequence[tuple[float, str, int, str]], frame: Frame) -> list[str]:
    """Names at the right, in the order of their lines, without overlap and inside the chart."""
    ordered = sorted(ends)
    spots = [float(y) for y, *_ in ordered]
    for k in range(1, len(spots)):
        spots[k] = max(spots[k], spots[k - 1] + GAP)
    floor = frame.top + frame.height + FOOT - 8
    for k in reversed(range(len(spots))):
        spots[k] = min(spots[k], floor)
        floor = spots[k] - GAP
    pairs = zip(spots, ordered, strict=True)
    return [named(name, spot, f"{cut(name)}  {value}".rstrip(), i) for spot, (_, name, i, value) in pairs]


def named(name: str, y: float, shown: str, i: int | None = None, x: float = WIDTH - RIGHT + 8) -> str:
    """A name beside a chart, with its line if it has one."""
    look = {} if i is None else {"stroke": COLOURS[i % len(COLOURS)], "stroke_dasharray": dash(i)}
    inside = [line(0, 0, 16, 0, stroke_width=2, **look)] if look else []
    inside.append(text(21 if look else 12, 4, shown))
    return tag("g", *inside, class_="name", data_n=name, transform=f"translate({x:.0f} {y:.1f})")


def tag(kind: str, *inside: str, **attributes: object) -> str:
    """An element; inside: markup. Attributes are escaped, numbers have one decimal.

    >>> tag("g", class_="a", stroke_width=2.25, data_n="<'>")
    "<g class='a' stroke-width='2.2' data-n='&lt;&#x27;&gt;'></g>"
    """
    words = []
    for name, value in attributes.items():
        shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) and abs(value) >= 1 else str(value)
        words.append(f" {name.rstrip('_').replace('_', '-')}='{html.escape(shown, quote=True)}'")
    return f"<{kind}{''.join(words)}>{''.join(inside)}</{kind}>"


def line(x1: float, y1: float, x2: float, y2: float, **look: object) -> str:
    """A straight line, in the colour of the text unless `look` has another."""
    ends = {name: round(value, 1) for name, value in (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))}
    return tag("line", **ends, **{"stroke": "currentColor", **look})


def dashed(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin dashed line."""
    return line(x1, y1, x2, y2, stroke_dasharray="4 4", opacity=0.6)


def text(x: float, y: float, shown: str, anchor: str = "start", size: int = 11, **look: object) -> str:
    """Text in the colour of the page's; it is escaped."""
    place = {"x": round(x, 1), "y": round(y, 1), "text_anchor": anchor, "font_size": size, "fill": "currentColor"}
    return tag("text", html.escape(shown), **place, **look)


def _points(path: Path) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def whole(parts: Sequence[str], description: str, frame: Frame) -> str:
    """The whole of a chart with names at the right, which a narrow screen shows below."""
    return svg_of(parts, description, frame.top + frame.height + FOOT, data_narrow=frame.left + frame.width + 22)


def svg_of(parts: Sequence[str], description: str, height: float, width: float = WIDTH, **more: object) -> str:
    """A whole picture. description: what it shows, in words."""
    size = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "style": f"width:100%;max-width:{width + 36:.0f}px;height:auto"}
    return tag("svg", *parts, **size, role="img", aria_label=description, **more)
