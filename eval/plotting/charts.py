"""Charts as SVG: one picture for screens, print, dark mode, screen readers and files, with the numbers that it shows.

`static/report.js` adds to a page's picture what needs a script: lines to hide, numbers under the pointer. It reads
`data-n`, the name of what an element belongs to, and `data-row`, the row of the data that an element's first point
shows. Files are SVG, and PNG and PDF that vl-convert (resvg, svg2pdf) makes of it, with the fonts that it uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadConfig
from driftline.eval.plotting import frames
from driftline.eval.plotting.frames import Band, Named, cut, drawn, frame_of, grid, number, round_numbers, tag, text

ACCURACY = "accuracy"
MARGIN = 0.06  # share of a range, around it
KINDS = (".svg", ".pdf", ".png")
INK, PAPER = "#14181a", "#ffffff"
FONTS = "Helvetica, Arial, Liberation Sans, sans-serif"
INCHES, PPI = 6.8, 300  # on paper: of `WIDTH` units, so that text has 7 to 8.3 pt; pixels of a PNG for an inch


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

    def save(self, path: str | Path) -> Path:
        """Write it as SVG, PDF or PNG, by the suffix, 6.8 in wide. Raises BadConfig for another suffix."""
        return save(self.picture, Path(path))

    def _repr_svg_(self) -> str:
        return standalone(self.picture.svg)


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
    last = len(frames.COLOURS)
    looks = [order.index(like[name]) + last if like and name in like else i for i, name in enumerate(order)]
    of, what, show = (_percent, "%", _tenths) if share else (short, y_name or "value", number)
    shown = {name: f"{cut(name)}  {show(y[-1]) if len(y) else ''}".rstrip() for name, (_, y) in series.items()}
    xs = sorted({v for x, _ in series.values() for v in x}) or [0.0]
    summary = "; ".join(f"{name} ends at {show(y[-1])}" for name, (_, y) in series.items() if len(y))
    label = f"{'Accuracy (%)' if share else what} over {x_name}. {summary}"

    def scale(x: float) -> float:
        return float(np.log2(x / log + 1)) if log else float(x)

    y_axis, above = _ends_of_y(series, levels, bands, from_zero, share), y_name or ACCURACY * share
    frame = frame_of((xs[0], xs[-1]), y_axis, list(shown.values()), scale, 18 * bool(above))
    parts = frames.percents(frame) if share else grid(frame, np.linspace(*frame.y, 6).tolist(), number)
    whole_numbers = log or all(float(x).is_integer() for x in xs)
    values = sorted(dates) if dates else xs if whole_numbers else round_numbers(*frame.x)
    parts += frames.ticks(frame, [x for x in values if xs[0] <= x <= xs[-1]], x_name, dates)
    parts += frames.references(frame, levels, marks or {})
    parts += [text(frame.left, frame.top - 10, above)] if above else []
    row, names = 0, list[Named]()
    for i, (name, (along, ys)) in zip(looks, series.items(), strict=True):
        band = None if name in loose else bands.get(name)
        parts.append(drawn(name, i, frame, along, ys, row, band, len(bands), dots, joined=name not in loose))
        row += len(along)
        names.append((frame.at(along[-1], ys[-1])[1] if len(along) else 0.0, name, i, shown[name]))
    columns = ["series", x_name, what, *(["low", "high"] if bands else [])]
    rows: list[list[Any]] = []
    for name, (along, ys) in series.items():
        intervals: Sequence[Sequence[float | None]] = bands.get(name, ([None] * len(along),) * 2)
        for x, y, *interval in zip(along, ys, *intervals, strict=True):
            rows.append([name, dates.get(x, short(x)), of(y), *map(of, interval if bands else ())])
    return Picture(frames.whole(parts, names, label, frame), columns, rows)


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
    top = _nice(max([*levels.values(), *(v for values in series.values() for v in values)]))
    frame = frame_of((-0.06, 1), (0.0, top), list(shown.values()), above=18)
    foot = frame.top + frame.height + 20
    parts = [*frames.percents(frame), text(frame.left, frame.top - 10, ACCURACY)]
    parts += frames.references(frame, levels, {})
    for place, column in zip(places, columns, strict=True):
        parts.append(text(frame.at(place, 0)[0], foot, column, "end" if place == 1 else "middle", 13))
    row, names = 0, list[Named]()
    for i, (name, values) in enumerate(series.items()):
        parts.append(drawn(name, i, frame, places[: len(values)], values, row, dots=True))
        names.append((frame.at(1, values[-1])[1], name, i, shown[name]))
        row += len(values)
    rows = [[n, x, _percent(y)] for n, values in series.items() for x, y in zip(columns, values, strict=False)]
    label = f"Accuracy (%), {', '.join(columns)}: {summary}"
    return Picture(frames.whole(parts, names, label, frame), ["series", "score", "%"], rows)


def scatter(
    places: Mapping[str, tuple[float, ...]], front: Sequence[str], x_name: str, y_name: str, size: str = ""
) -> Picture:
    """name → x, y (a share). size: what a third number is, above 0, which the area of a dot shows; then x is a share,
    too, else it is above 0 and on a scale of log10. front: names whose dots a line joins, blue. Numbers link dots and
    names; dots that lie on each other have one label with all of their numbers."""
    xs, ys = ([place[axis] for place in places.values()] for axis in (0, 1))
    ends = _range(xs) if size else (10 ** np.floor(log10(min(xs))), 10 ** np.ceil(log10(max(xs)) + 1e-9))
    sizes = [log10(max(place[2], 1.0)) if size else 0.0 for place in places.values()]
    radius = [5 + 9 * (one - min(sizes)) / ((max(sizes) - min(sizes)) or 1.0) if size else 4.0 for one in sizes]
    values = [f"{100 * x:.1f}, {100 * y:.1f}" if size else f"{100 * y:.1f}" for x, y in zip(xs, ys, strict=True)]
    shown = [f"{i}  {cut(name)}  {value}" for i, (name, value) in enumerate(zip(places, values, strict=True), 1)]
    frame = frame_of(ends, _range(ys), shown, float if size else log10, 18)
    parts = [text(frame.left, frame.top - 10, f"{y_name}, %")]
    parts += grid(frame, _shares(*frame.y), lambda share: f"{100 * share:.3g}")
    along = _shares(*ends) if size else [10.0**k for k in range(round(log10(ends[0])), round(log10(ends[1])) + 1)]
    parts += (
        frames.ticks(frame, along, f"{x_name}, %", {x: f"{100 * x:.3g}" for x in along})
        if size
        else frames.ticks(frame, along, x_name)
    )
    path = frames.corners([frame.at(*places[name][:2]) for name in sorted(front, key=lambda n: places[n][0])])
    parts.append(tag("polyline", points=path, fill="none", stroke=frames.COLOURS[0], stroke_width=1.5))
    spots = [frame.at(x, y) for x, y in zip(xs, ys, strict=True)]
    alike = [next(j for j, b in enumerate(spots) if abs(a[0] - b[0]) + abs(a[1] - b[1]) < 8) for a in spots]
    for i in sorted(range(len(spots)), key=lambda k: -radius[k]):  # the small ones above
        name, (x, y) = list(places)[i], spots[i]
        colour = frames.COLOURS[0] if name in front else frames.GREY
        look = {"fill": colour, "fill_opacity": 0.25, "stroke": colour, "stroke_width": 1.5}
        parts.append(tag("g", tag("circle", cx=x, cy=y, r=radius[i], data_row=i, **look), data_n=name))
    firsts = sorted(set(alike))
    together = {spots[k]: ", ".join(str(i + 1) for i in range(len(spots)) if alike[i] == k) for k in firsts}
    for k, (x, y) in zip(firsts, _labels_of(together, frame.left + frame.width + 14), strict=True):
        side = int(np.sign(round(x - spots[k][0])))
        parts.append(text(x + side * (radius[k] - 3), y, together[spots[k]], ("middle", "start", "end")[side]))
    rising = [frame.top + i / len(shown) for i in range(len(shown))]  # in their order, as close as they may be
    names: list[Named] = [(y, name, None, one) for y, name, one in zip(rising, places, shown, strict=True)]
    label = f"{x_name} and {y_name} (%): {'; '.join(shown)}. Front: {', '.join(front)}"
    columns = ["learner", x_name, y_name, *([size] if size else []), "no other is better"]
    rows = [[n, _percent(x) if size else short(x), _percent(y), *more, "yes" if n in front else "no"]
            for n, (x, y, *more) in places.items()]  # fmt: skip
    return Picture(frames.whole(parts, names, label, frame), columns, rows)


def front(places: Mapping[str, tuple[float, ...]]) -> list[str]:
    """The Pareto front of accuracies: names for which no other has at least as high ones, and is better in one.

    >>> front({"a": (0.5, 0.5), "b": (0.9, 0.1), "c": (0.4, 0.5)})
    ['a', 'b']
    """
    values = np.array(list(places.values()))
    beaten = [bool(((values >= own).all(1) & (values > own).any(1)).any()) for own in values]
    return [name for name, is_beaten in zip(places, beaten, strict=True) if not is_beaten]


def _labels_of(dots: Mapping[tuple[float, float], str], end: float) -> list[tuple[float, float]]:
    """Where the text of each dot is: the first place around it that is free and ends before `end`."""
    ways = [(11, 0), (11, -9), (11, 10), (-11, 0), (-11, -9), (-11, 10), (0, -11), (0, 12), (22, 0), (-22, 0), (0, -22)]
    taken, labels = list(dots), []
    for (x, y), shown in dots.items():
        near = [(x + a, y + b) for a, b in ways if a <= 0 or x + a + 6 * len(shown) < end]
        free = [(p, q) for p, q in near if all(abs(p - u) > 10 or abs(q - v) > 8 for u, v in taken)]
        spot = free[0] if free else (x + 11, y)
        taken.append(spot)
        labels.append((spot[0], spot[1] + 4))
    return labels


def paths(series: Series, x_name: str, y_name: str, about: str) -> Picture:
    """name → (x, y) of a path, which begins at a white dot and ends at a full one. Dashed: where x or y is 0. about:
    above the chart."""
    ends = [_range([v for path in series.values() for v in path[axis]]) for axis in (0, 1)]
    moved = [(n, xs[0], ys[0], xs[-1], ys[-1]) for n, (xs, ys) in series.items()]
    summary = "; ".join(f"{n} from {a:.3g}, {b:.3g} to {c:.3g}, {d:.3g}" for n, a, b, c, d in moved)
    frame = frame_of(ends[0], ends[1], list(map(cut, series)), above=32)
    foot, right = frame.top + frame.height, frame.left + frame.width
    parts = [text(frame.left, 14, about, size=12), text(frame.left, 32, y_name)]
    parts += grid(frame, round_numbers(*frame.y), lambda value: f"{value:.3g}")
    along = round_numbers(*frame.x)
    parts += frames.ticks(frame, along, x_name, {x: f"{x:.3g}" for x in along})
    (x0, y0) = frame.at(0.0, 0.0)
    parts += [frames.dashed(x0, frame.top, x0, foot)] if frame.x[0] < 0 < frame.x[1] else []
    parts += [frames.dashed(frame.left, y0, right, y0)] if frame.y[0] < 0 < frame.y[1] else []
    row, names = 0, list[Named]()
    for i, (name, (xs, ys)) in enumerate(series.items()):
        colour = frames.COLOURS[i % len(frames.COLOURS)]
        looks = ((0, {"fill": "#ffffff", "stroke": colour}), (-1, {"fill": colour}))
        dots = [tag("circle", cx=x, cy=y, r=4, **look) for k, look in looks for x, y in [frame.at(xs[k], ys[k])]]
        parts.append(tag("g", drawn(name, i, frame, xs, ys, row), *dots, data_n=name))
        row += len(xs)
        names.append((frame.at(xs[-1], ys[-1])[1], name, i, cut(name)))
    rows = [[name, short(x), short(y)] for name, (xs, ys) in series.items() for x, y in zip(xs, ys, strict=True)]
    label = f"{about}. Across: {x_name}; up: {y_name}. {summary}"
    return Picture(frames.whole(parts, names, label, frame), ["series", x_name, y_name], rows)


def _shares(low: float, high: float) -> list[float]:
    """Round numbers that a share may have."""
    return [value for value in round_numbers(low, high) if 0 <= value <= 1]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """With space around them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    space = MARGIN * (high - low) or MARGIN * abs(high) or 1.0
    return low - space, high + space


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


def save(picture: Picture, path: Path) -> Path:
    """Write a chart by the suffix of `path`. The same chart gives the same bytes as SVG and PNG; a PDF numbers its
    objects in any order. Raises BadConfig for another suffix."""
    if path.suffix == ".svg":
        data = standalone(picture.svg).encode()
    elif path.suffix in KINDS:
        import vl_convert

        in_points = standalone(picture.svg, unit="")  # vl-convert: a number without a unit is in pt
        of_kind = vl_convert.svg_to_pdf if path.suffix == ".pdf" else lambda svg: vl_convert.svg_to_png(svg, ppi=PPI)
        data = bytes(of_kind(in_points))
    else:
        raise BadConfig(f"The file of a chart is {path.name!r}.", f"Expected a name that ends in {', '.join(KINDS)}.")
    write_bytes(path, data)
    return path


def save_kinds(picture: Picture, out: Path, stem: str) -> list[Path]:
    """Write a chart as `out`/`stem` with each of `KINDS`."""
    return [save(picture, out / f"{stem}{kind}") for kind in KINDS]


def standalone(svg: str, unit: str = "in") -> str:
    """A picture as a file of its own: on white paper, in dark ink, of a size. unit: of the size, in or "" for pt."""
    width, height = map(float, svg.partition("viewBox='0 0 ")[2].partition("'")[0].split())
    ends = [f"{end * INCHES * (1 if unit else 72) / frames.WIDTH:.4g}{unit}" for end in (width, height)]
    head = f"<svg xmlns='http://www.w3.org/2000/svg' font-family='{FONTS}' "
    begin = f"{head}width='{ends[0]}' height='{ends[1]}' color='{INK}' "
    paper = tag("rect", width="100%", height="100%", fill=PAPER)
    opening, _, content = svg.removeprefix("<svg ").partition(">")
    opening = opening.partition(" style='")[0] + opening.partition(" style='")[2].partition("'")[2]
    return f"{begin}{opening}>{paper}{content}"
