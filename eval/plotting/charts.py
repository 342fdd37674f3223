"""Charts: a picture as SVG, readable in print, in dark mode, by screen readers and without scripts; and for screens
with scripts the same data for Vega-Lite (see `vega`)."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from driftline.eval.plotting import vega
from driftline.eval.plotting.vega import COLOURS, DASHES

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, FOOT = 52, 270, 14, 42  # margins for the axis, the names, the top and the ticks
GAP = 14  # pixels between two names
SHADED = 4  # charts with more bands have none: they would cover each other
EDGE, AXIS, BAR = 190, 40, 7  # charts of ranks: margins for names, position of the axis, height of a bar


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    id: str
    """anchor"""
    title: str
    """heading, plain text"""
    html: str
    """content, already escaped"""
    folded: bool = False
    """whether readers must open it to see it"""


Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]
Band = tuple[Sequence[float], Sequence[float]]  # low, high
At = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Picture:
    """A chart, with the data that it shows."""

    svg: str
    """trusted markup"""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """for Vega-Lite, without data; {}: the SVG is all there is"""
    columns: Sequence[str] = ()
    """names of the data's columns"""
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


def lines(
    series: Series, x_name: str, log: bool = False, levels: Mapping[str, float] | None = None,
    marks: Mapping[str, float] | None = None, bands: Mapping[str, Band] | None = None, from_zero: bool = True,
) -> Picture:  # fmt: skip
    """A line chart. series: name → (x, y in 0 … 1). log: x on a scale of log2(x + 1). levels, marks: name → y or x of a
    dashed line. bands: name → low and high ends at the series' x, shaded. from_zero: whether the y axis begins at 0."""
    xs = [_scaled(v, log) for x, _ in series.values() for v in x] or [0.0]
    low_x, high_x = min(xs), max(xs)
    height = _height(len(series))
    bands = bands or {}
    values = [v for _, y in series.values() for v in y] + list((levels or {}).values())
    values += [v for ends in bands.values() for end in ends for v in end]
    top = _nice(max([*values, 0.01]))
    floor = 0.0 if from_zero else max(0.0, float(np.floor(10 * min([*values, top]) - 1e-9) / 10))

    def at(x: float, y: float) -> tuple[float, float]:
        share = (_scaled(x, log) - low_x) / (high_x - low_x) if high_x > low_x else 0.0
        return LEFT + share * (WIDTH - LEFT - RIGHT), height - FOOT - (y - floor) / (top - floor) * (
            height - TOP - FOOT
        )

    parts = [_grid(top, height, floor), *_ticks(sorted({v for x, _ in series.values() for v in x}), at, x_name, height)]
    for i, (name, (xs_of, _)) in enumerate(series.items()):
        if name in bands and len(bands) <= SHADED:
            low, high = (list(zip(xs_of, ends, strict=True)) for ends in bands[name])
            corners = [at(x, y) for x, y in high] + [at(x, max(y, floor)) for x, y in reversed(low)]
            parts.append(f"<polygon points='{_points(corners)}' fill='{COLOURS[i % len(COLOURS)]}' opacity='.15'/>")
    for name, level in (levels or {}).items():
        _, y = at(0.0, level)
        parts.append(_dashed(LEFT, y, WIDTH - RIGHT, y) + _text(LEFT + 4, y - 4, name, "start", 11))
    for name, mark in (marks or {}).items():
        x, _ = at(mark, floor)
        late = x > WIDTH - RIGHT - 60  # the names of lines are at the right
        text = _text(x - 4 if late else x + 4, TOP + 10, name, "end" if late else "start", 11)
        parts.append(_dashed(x, TOP, x, height - FOOT) + text)
    names = []
    for i, (name, (xs_of, ys_of)) in enumerate(series.items()):
        path = [at(a, b) for a, b in zip(xs_of, ys_of, strict=True)]
        parts.append(f"<polyline points='{_points(path)}' fill='none' {_stroke(i)}/>")
        names.append((path[-1][1] if path else 0.0, name, i, f"{100 * ys_of[-1]:.1f}" if len(ys_of) else ""))
    parts += _names(names, height)
    summary = "; ".join(f"{name} ends at {100 * ends[-1]:.1f}" for name, (_, ends) in series.items() if len(ends))
    svg = _svg(parts, f"Accuracy in per cent over {x_name}. {summary}", height)
    columns = ["series", x_name, "per cent", *(["low", "high"] if bands else [])]
    rows: list[list[Any]] = []
    for name, (xs_of, ys_of) in series.items():
        edges: Sequence[Sequence[float | None]] = bands.get(name, ([None] * len(xs_of),) * 2)
        for x, y, *interval in zip(xs_of, ys_of, *edges, strict=True):
            rows.append([name, short(x), _percent(y), *map(_percent, interval if bands else ())])
    scaled = {name: 100 * level for name, level in (levels or {}).items()}
    spec = vega.lines(list(series), columns, log, scaled, marks, bool(bands), zero=from_zero)
    return Picture(svg, spec, columns, rows)


def slopes(pairs: Mapping[str, tuple[float, float]], left: str, right: str) -> Picture:
    """A slope chart. pairs: name → two accuracies, connected by a line: crossing lines are changes of rank."""
    top, height = _nice(max(v for pair in pairs.values() for v in pair)), _height(len(pairs))
    begin, end, foot = LEFT + 40, WIDTH - RIGHT, height - FOOT + 20

    def at(y: float) -> float:
        return height - FOOT - y / top * (height - TOP - FOOT)

    parts = [_grid(top, height), _text(begin, foot, left, "middle", 13), _text(end, foot, right, "end", 13)]
    ends = []
    for i, (name, (a, b)) in enumerate(pairs.items()):
        parts.append(f"<line x1='{begin}' y1='{at(a):.1f}' x2='{end}' y2='{at(b):.1f}' {_stroke(i)}/>")
        for x, y in ((begin, a), (end, b)):
            parts.append(f"<circle cx='{x}' cy='{at(y):.1f}' r='3.5' fill='{COLOURS[i % len(COLOURS)]}'/>")
        ends.append((at(b), name, i, f"{100 * a:.1f} → {100 * b:.1f}"))
    parts += _names(ends, height)
    summary = "; ".join(f"{name} {100 * a:.1f} to {100 * b:.1f}" for name, (a, b) in pairs.items())
    svg = _svg(parts, f"Accuracy in per cent, {left} against {right}: {summary}", height)
    columns = ["series", "score", "per cent"]
    rows = [[name, x, _percent(y)] for name, pair in pairs.items() for x, y in zip((left, right), pair, strict=True)]
    return Picture(svg, vega.lines(list(pairs), columns, ordinal=True, points=True), columns, rows)


def points(places: Mapping[str, tuple[float, float]], front: Sequence[str], x_name: str) -> Picture:
    """A scatter chart. places: name → x above 0, on a scale of log10, and y in 0 … 1. front: names in blue, with
    a dot behind them in the list; the others are grey. Numbers link dots and names."""
    height = _height(len(places))
    logs = {name: float(np.log10(max(x, 1.0))) for name, (x, _) in places.items()}
    low, high = np.floor(min(logs.values())), np.ceil(max(logs.values()) + 1e-9)
    top = _nice(max(y for _, y in places.values()))

    def at(name: str) -> tuple[float, float]:
        share = (logs[name] - low) / (high - low)
        y = height - FOOT - places[name][1] / top * (height - TOP - FOOT)
        return LEFT + share * (WIDTH - LEFT - RIGHT), y

    parts = [_grid(top, height), _text((LEFT + WIDTH - RIGHT) / 2, height - 6, x_name, "middle", 12)]
    for power in range(int(low), int(high) + 1):
        x = LEFT + (power - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        parts.append(_text(x, height - FOOT + 16, f"{10.0**power:,.0f}", "middle", 11))
    ends = []
    ordered = sorted(places, key=lambda name: at(name)[1])
    for i, name in enumerate(ordered, 1):
        x, y = at(name)
        colour = COLOURS[0] if name in front else "#8a949a"
        parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{colour}'/>")
        parts.append(_text(x + 6, y + (4 if i % 2 else -4), str(i), "start", 10))
        label = f"{i}  {name}  {100 * places[name][1]:.1f}" + ("  ●" if name in front else "")
        parts.append(_text(WIDTH - RIGHT + 20, TOP + GAP * i, label, "start", 11))
        ends.append(f"{name} {places[name][0]:,.0f} and {100 * places[name][1]:.1f}" + (", front" * (name in front)))
    svg = _svg(parts, f"{x_name} and accuracy in per cent: {'; '.join(ends)}", height)
    columns = ["learner", x_name, "per cent", "no other is better"]
    rows = [[n, max(x, 1.0), _percent(y), "yes" if n in front else "no"] for n, (x, y) in places.items()]
    return Picture(svg, vega.points(columns), columns, rows)


def ranked(order: Mapping[str, float], groups: Sequence[tuple[int, int]], difference: float) -> Picture:
    """A critical-difference diagram. order: name → mean rank, the best first. groups: first and last position of the
    names that a bar joins. difference: the critical difference, drawn above the axis."""
    names, values = list(order), list(order.values())
    most, left = max(len(names), 2), (len(names) + 1) // 2
    first = AXIS + 16 + BAR * len(groups)

    def at(rank: float) -> float:
        return EDGE + (rank - 1) / (most - 1) * (WIDTH - 2 * EDGE)

    parts = [_stroked(EDGE, AXIS, WIDTH - EDGE, AXIS)]
    for rank in range(1, most + 1, max(1, most // 10)):
        parts += [_stroked(at(rank), AXIS - 5, at(rank), AXIS), _text(at(rank), AXIS - 9, str(rank), "middle", 11)]
    end = at(1 + min(difference, most - 1))
    parts += [_stroked(EDGE, 12, end, 12, 2), _text(end + 6, 16, f"critical difference {difference:.2f}", "start", 11)]
    for k, (a, b) in enumerate(groups):
        y = AXIS + 8 + BAR * k
        parts.append(_stroked(at(values[a]) - 3, y, at(values[b]) + 3, y, 4, COLOURS[0]))
    for i, (name, value) in enumerate(order.items()):
        to_left = i < left
        y = first + 20 * (i if to_left else len(names) - 1 - i)
        side, anchor, gap = (EDGE - 8, "end", -4) if to_left else (WIDTH - EDGE + 8, "start", 4)
        parts += [_stroked(at(value), AXIS, at(value), y), _stroked(at(value), y, side, y)]
        parts.append(_text(side + gap, y + 4, f"{name[:24]} {value:.2f}", anchor, 12))
    summary = ", ".join(f"{name} {value:.2f}" for name, value in order.items())
    svg = _svg(parts, f"Mean ranks: {summary}. Critical difference {difference:.2f}.", first + 20 * left + 12)
    return Picture(svg, {}, ["learner", "mean rank"], [[name, short(value)] for name, value in order.items()])


def short(value: float) -> float:
    """To five digits: what a reader of a chart may see.

    >>> short(1234567.0), short(0.123456)
    (1234600.0, 0.12346)
    """
    return float(f"{value:.5g}")


def number(value: float) -> str:
    """
    >>> number(1400.0), number(2.5)
    ('1,400', '2.5')
    """
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.1f}"


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * float(share), 2)


def _height(n: int) -> float:
    """Height for n names."""
    return max(HEIGHT, TOP + GAP * n + FOOT // 2)


def _scaled(x: float, log: bool) -> float:
    return float(np.log2(x + 1)) if log else float(x)


def _nice(top: float) -> float:
    """The next higher tenth.

    >>> _nice(0.31)
    0.4
    """
    return float(min(1.0, np.ceil(top * 10 + 1e-9) / 10)) or 0.1


def _grid(top: float, height: float, floor: float = 0.0) -> str:
    parts = []
    for share in np.linspace(0, 1, 6):
        y = height - FOOT - share * (height - TOP - FOOT)
        ends = f"x1='{LEFT}' y1='{y:.1f}' x2='{WIDTH - RIGHT}' y2='{y:.1f}'"
        parts.append(f"<line {ends} stroke='currentColor' opacity='.15'/>")
        parts.append(_text(LEFT - 8, y + 4, f"{100 * (floor + share * (top - floor)):.0f}", "end", 11))
    return "".join(parts)


def _ticks(values: Sequence[float], at: At, name: str, height: float) -> list[str]:
    """As many of the values as there is space for, and the name of the axis."""
    ticks, last = [], -1e9
    for value in values:
        x, _ = at(value, 0)
        if x - last > 48:
            ticks.append(_text(x, height - FOOT + 16, number(value), "middle", 11))
            last = x
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*ticks, _text(middle, height - 6, name, "middle", 12)]


def _names(ends: Sequence[tuple[float, str, int, str]], height: float) -> list[str]:
    """Names at the right, in the order of their lines, without overlap and inside the chart."""
    ordered = sorted(ends)
    spots = [float(y) for y, *_ in ordered]
    for k in range(1, len(spots)):
        spots[k] = max(spots[k], spots[k - 1] + GAP)
    floor = height - 8
    for k in reversed(range(len(spots))):
        spots[k] = min(spots[k], floor)
        floor = spots[k] - GAP
    parts, x = [], WIDTH - RIGHT + 8
    for spot, (_, name, i, value) in zip(spots, ordered, strict=True):
        ends_at = f"x1='{x}' y1='{spot:.1f}' x2='{x + 16}' y2='{spot:.1f}'"
        parts.append(f"<line {ends_at} {_stroke(i)}/>" + _text(x + 21, spot + 4, f"{name}  {value}", "start", 11))
    return parts


def _stroke(i: int) -> str:
    dash = DASHES[i // len(COLOURS) % len(DASHES)]
    return f"stroke='{COLOURS[i % len(COLOURS)]}' stroke-width='2' stroke-dasharray='{dash}'"


def _stroked(x1: float, y1: float, x2: float, y2: float, width: float = 1, colour: str = "currentColor") -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' stroke-width='{width}'/>"


def _dashed(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='currentColor' stroke-dasharray='4 4' opacity='.6'/>"


def _text(x: float, y: float, text: str, anchor: str, size: int) -> str:
    attributes = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' fill='currentColor'"
    return f"<text {attributes}>{html.escape(text)}</text>"


def _points(path: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def _svg(parts: Sequence[str], description: str, height: float) -> str:
    label = html.escape(description, quote=True)
    return (
        f"<svg viewBox='0 0 {WIDTH} {height:.0f}' role='img' style='width:100%;max-width:56rem;height:auto' "
        f"aria-label='{label}'>{''.join(parts)}</svg>"
    )
