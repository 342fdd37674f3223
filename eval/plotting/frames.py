"""SVG by hand: elements, text, colours; the frame in which values are drawn, and the names beside it. Pages and files
have one layout."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Path = Sequence[tuple[float, float]]
COLOURS = (  # contrast above 3.6 with light and dark paper
    "#1b7fb3", "#d2521e", "#35883f", "#9656b4", "#a67c00", "#cf3270", "#0d8795", "#a0673f", "#6c7a84", "#6b8610",
)  # fmt: skip
DASHES = ("", "6 3", "2 3", "8 3 2 3")
GREY = "#8a949a"
SHADES = 40  # of a matrix, beyond its lightest; static/report.js has the same number
WIDTH, HEIGHT = 770, 308  # of a chart, in units: pixels of a page at its natural size
LEFT, RIGHT, TOP, FOOT = 60, 270, 14, 42  # margins for the axis, the names (at most), the top and the ticks
GAP = 14  # between two names
LONG = 36  # characters of a name; the data have all of it
LETTER = 5.8  # width of a character of 11 units, roughly
SHADED = 4  # with more bands, a page shows only the one under the pointer: they cover each other


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


def corners(path: Path) -> str:
    """The attribute `points` of a line."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def svg_of(parts: Sequence[str], description: str, height: float, width: float) -> str:
    """A whole picture. description: what it shows, in words."""
    style = f"width:100%;max-width:{1.16 * width:.0f}px;height:auto"  # on a page, text is as large as that around it
    size = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "style": style}
    return tag("svg", *parts, **size, role="img", aria_label=description)


def dash(i: int) -> str:
    """Dashes of the line at a position."""
    return DASHES[i // len(COLOURS) % len(DASHES)]


def colour(value: float, span: tuple[float, float]) -> str:
    """A cell's background: light for the lowest value of the page's matrices, dark blue for the highest.

    >>> colour(0.0, (0.0, 1.0)), colour(1.0, (0.0, 1.0))
    ('#f1f5f2', '#0b4f6c')
    """
    t = _place(value, span)
    ends = ((241, 245, 242), (11, 79, 108))
    return "#" + "".join(f"{round(a + (b - a) * t):02x}" for a, b in zip(*ends, strict=True))


def shade(value: float, span: tuple[float, float]) -> int:
    """Number of the style of a cell, whose colour is the nearest one to its own: a page has thousands of cells."""
    return round(SHADES * _place(value, span))


def _place(value: float, span: tuple[float, float]) -> float:
    """0 for the lowest value, 1 for the highest."""
    low, high = span
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0


def ink(value: float, span: tuple[float, float]) -> str:
    """A cell's text colour: black or white, for the higher contrast with `colour` (above 4.5)."""
    hexed = colour(value, span)
    parts = [int(hexed[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2
    return "#ffffff" if luminance < 0.179 else "#000000"


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
