"""Where a chart is drawn: the frame of its values, and the names beside it. Pages and files have one layout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from driftline.eval.plotting.svg import COLOURS, Path, corners, dash, dashed, line, svg_of, tag, text

WIDTH, HEIGHT = 770, 308  # of a chart, in units: pixels of a page at its natural size
LEFT, RIGHT, TOP, FOOT = 60, 270, 14, 42  # margins for the axis, the names (at most), the top and the ticks
GAP = 14  # between two names
LONG = 36  # characters of a name; the data have all of it
LETTER = 5.8  # width of a character of 11 units, roughly
SHADED = 4  # with more bands, a page shows only the one under the pointer: they cover each other


@dataclass(frozen=True)
class Frame:
    """The part of a picture in which values are drawn."""

    left: float
    """units, as the next three"""
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
        """Place of a point."""
        low, high = map(self.scale, self.x)
        across = (self.scale(x) - low) / (high - low) if high > low else 0.0
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, self.top + (1 - up) * self.height

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> Path:
        """Places of points."""
        return [self.at(x, y) for x, y in zip(xs, ys, strict=True)]


def frame_of(
    x: tuple[float, float], y: tuple[float, float], names: Sequence[str], scale: Callable[[float], float] = float,
    above: int = 0,
) -> Frame:  # fmt: skip
    """Beside these names, as they are shown. above: units for texts above the chart."""
    height = max(HEIGHT, TOP + GAP * len(names) + FOOT // 2) - TOP - FOOT
    right = min(RIGHT, 40 + LETTER * max(map(len, names), default=0))
    return Frame(LEFT, TOP + above, WIDTH - LEFT - right, height, x, y, scale)


def round_numbers(low: float, high: float) -> list[float]:
    """At most seven round numbers between two; the number itself if they are equal.

    >>> round_numbers(-0.3, 2.1)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    if high <= low:
        return [low]
    power = 10.0 ** np.floor(np.log10((high - low) / 5))
    step = next(m * power for m in (1, 2, 5, 10) if (high - low) / (m * power) <= 6 + 1e-9)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(round(k * step, 12)) for k in range(int(first), int(last) + 1)]


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


def percents(frame: Frame) -> list[str]:
    """The grid, with its values in per cent."""
    values = round_numbers(*frame.y)
    return grid(frame, values, lambda share: f"{100 * share:.0f}" + (" %" if share == values[-1] else ""))


def grid(frame: Frame, values: Sequence[float], of: Callable[[float], str]) -> list[str]:
    """Horizontal lines with their values."""
    parts = []
    for value in values:
        _, y = frame.at(frame.x[0], value)
        parts.append(line(frame.left, y, frame.left + frame.width, y, opacity=0.15))
        parts.append(text(frame.left - 8, y + 4, of(value), "end"))
    return parts


def ticks(frame: Frame, values: Sequence[float], name: str, dates: Mapping[float, str] | None = None) -> list[str]:
    """As many of the values, or of their dates, as there is space for, and the name of the axis."""
    places: list[tuple[float, str]] = []
    last, foot = -1e9, frame.top + frame.height
    for value in values:
        x, shown = frame.at(value, frame.y[0])[0], (dates or {}).get(value, number(value))
        space = LETTER * len(shown) / 2
        if x - space - last > 16:
            places.append((x, shown))
            last = x + space
    parts = [text(x, foot + 16, shown, "middle") for x, shown in places]
    return [*parts, text(frame.left + frame.width / 2, foot + 36, name, "middle", 12)]


def references(frame: Frame, levels: Mapping[str, float], marks: Mapping[str, float]) -> list[str]:
    """Dashed lines with their names, at a y or an x."""
    parts, right = [], frame.left + frame.width
    for name, level in levels.items():
        _, y = frame.at(frame.x[0], level)
        parts += [dashed(frame.left, y, right, y), text(frame.left + 4, y - 4, name)]
    for name, mark in marks.items():
        x, _ = frame.at(mark, frame.y[0])
        late = x > right - LETTER * len(name) - 8  # the names of lines are at the right
        beside = text(x - 4 if late else x + 4, frame.top + 10, name, "end" if late else "start")
        parts += [dashed(x, frame.top, x, frame.top + frame.height), beside]
    return parts


Band = tuple[Sequence[float], Sequence[float]]  # low, high


def drawn(
    name: str, i: int, frame: Frame, along: Sequence[float], values: Sequence[float], row: int,
    band: Band | None = None, bands: int = 0, dots: bool = False, joined: bool = True,
) -> str:  # fmt: skip
    """A line with its band. i: decides how it looks. row: of its first point in the data. bands: of the chart. joined:
    False for dots alone."""
    path, colour, inside = frame.path(along, values), COLOURS[i % len(COLOURS)], []
    if band is not None:
        low, high = ([min(max(y, frame.y[0]), frame.y[1]) for y in end] for end in band)
        outline = [*frame.path(along, high), *reversed(frame.path(along, low))]
        far = {"class_": "far", "opacity": 0.06} if bands > SHADED else {"opacity": 0.15}
        inside.append(tag("polygon", points=corners(outline), fill=colour, **far))
    look = {"stroke": colour, "stroke_width": 2, "stroke_dasharray": dash(i)}
    look |= {} if joined else {"stroke_opacity": 0}
    inside.append(tag("polyline", points=corners(path), fill="none", data_row=row, **look))
    if dots or not joined or len(path) == 1:
        inside += [tag("circle", cx=x, cy=y, r=3.5, fill=colour) for x, y in path]
    return tag("g", *inside, class_="series", data_n=name)


Named = tuple[float, str, int | None, str]  # y of a line's end, name, what decides its look (None: no line), shown


def whole(parts: Sequence[str], names: Sequence[Named], description: str, frame: Frame) -> str:
    """The whole of a chart with its names at the right, in the order of their lines."""
    foot, ordered = frame.top + frame.height + FOOT, sorted(names, key=lambda entry: entry[:2])
    spots, x = _apart([y for y, *_ in ordered], foot - 8), frame.left + frame.width + 8
    beside = [_named(name, x, y, shown, i) for y, (_, name, i, shown) in zip(spots, ordered, strict=True)]
    return svg_of([*parts, *beside], description, foot, WIDTH)


def _apart(spots: list[float], floor: float) -> list[float]:
    """Rising places of names, without overlap and above a floor."""
    for k in range(1, len(spots)):
        spots[k] = max(spots[k], spots[k - 1] + GAP)
    for k in reversed(range(len(spots))):
        spots[k] = min(spots[k], floor)
        floor = spots[k] - GAP
    return spots


def _named(name: str, x: float, y: float, shown: str, i: int | None) -> str:
    """A name beside a chart, with its line if it has one."""
    inside = []
    if i is not None:
        look = {"stroke": COLOURS[i % len(COLOURS)], "stroke_dasharray": dash(i)}
        inside.append(line(0, 0, 16, 0, stroke_width=2, **look))
    inside.append(text(12 if i is None else 21, 4, shown))
    return tag("g", *inside, class_="name", data_n=name, transform=f"translate({x:.0f} {y:.1f})")
