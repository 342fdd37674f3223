"""Paths and places on a plane of two numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log

from driftline.eval.plotting.charts import Picture, Series, labels_of, short
from driftline.eval.plotting.frames import Named, Sheet, cut, drawn, frame_of, grid, round_numbers, ticks, whole
from driftline.eval.plotting.svg import COLOURS, GREY, corners, dashed, tag, text

MARGIN, SIDE = 0.06, 64  # share of the range around the paths; space for the numbers at the left


def paths(series: Series, x_name: str, y_name: str, about: str) -> Picture:
    """name → (x, y) of a path, which begins at a white dot and ends at a full one. Dashed: where x or y is 0. about:
    above the chart."""
    ends = [_range([v for path in series.values() for v in path[axis]]) for axis in (0, 1)]
    moved = [(n, xs[0], ys[0], xs[-1], ys[-1]) for n, (xs, ys) in series.items()]
    summary = "; ".join(f"{n} from {a:.3g}, {b:.3g} to {c:.3g}, {d:.3g}" for n, a, b, c, d in moved)

    def draw(sheet: Sheet) -> str:
        frame = frame_of(sheet, ends[0], ends[1], list(map(cut, series)), left=SIDE)
        frame = replace(frame, top=frame.top + 18, height=frame.height + (62 if sheet.below else 44))
        foot, right = frame.top + frame.height, frame.left + frame.width
        parts = [text(frame.left, 14, about, size=12), text(frame.left, 28, y_name)]
        parts += [text(frame.left + frame.width / 2, foot + 36, x_name, "middle", 12)]
        parts += grid(frame, round_numbers(*frame.y), lambda value: f"{value:.3g}")
        for value in round_numbers(*frame.x):
            parts.append(text(frame.at(value, frame.y[0])[0], foot + 16, f"{value:.3g}", "middle"))
        (x0, y0) = frame.at(0.0, 0.0)
        parts += [dashed(x0, frame.top, x0, foot)] if frame.x[0] < 0 < frame.x[1] else []
        parts += [dashed(frame.left, y0, right, y0)] if frame.y[0] < 0 < frame.y[1] else []
        names: list[Named] = []
        row = 0
        for i, (name, (xs, ys)) in enumerate(series.items()):
            colour = COLOURS[i % len(COLOURS)]
            looks = ((0, {"fill": "#ffffff", "stroke": colour}), (-1, {"fill": colour}))
            dots = [tag("circle", cx=x, cy=y, r=4, **look) for k, look in looks for x, y in [frame.at(xs[k], ys[k])]]
            parts.append(tag("g", drawn(name, i, frame, xs, ys, row), *dots, data_n=name))
            row += len(xs)
            names.append((frame.at(xs[-1], ys[-1])[1], name, i, cut(name)))
        return whole(parts, names, f"{about}. Across: {x_name}; up: {y_name}. {summary}", frame)

    rows = [[name, short(x), short(y)] for name, (xs, ys) in series.items() for x, y in zip(xs, ys, strict=True)]
    return Picture(draw, ["series", x_name, y_name], rows)


def trade(
    places: Mapping[str, tuple[float, float, float]], front: Sequence[str], x_name: str, y_name: str, size: str
) -> Picture:
    """name → x, y (shares) and a size of its dot, above 0. front: names whose dots a line joins, blue. Numbers link
    dots and names; dots that lie on each other have one label with all of their numbers."""
    ends = [_range([place[axis] for place in places.values()]) for axis in (0, 1)]
    sizes = [max(one, 1.0) for *_, one in places.values()]
    span = log(max(sizes) / min(sizes)) if places else 0.0
    radius = [5 + 9 * log(one / min(sizes)) / span if span else 7.0 for one in sizes]
    shown = [f"{i}  {cut(n)}  {100 * x:.1f}, {100 * y:.1f}" for i, (n, (x, y, _)) in enumerate(places.items(), 1)]
    label = f"{x_name} and {y_name} in per cent: {'; '.join(shown)}. Front: {', '.join(front)}"

    def draw(sheet: Sheet) -> str:
        frame = frame_of(sheet, ends[0], ends[1], shown, y_name=y_name)
        along = round_numbers(*frame.x)
        parts = [text(frame.left, frame.top - 10, f"{y_name}, %")]
        parts += grid(frame, round_numbers(*frame.y), lambda share: f"{100 * share:.3g}")
        parts += ticks(frame, along, f"{x_name}, %", {x: f"{100 * x:.3g}" for x in along})
        path = corners([frame.at(*places[name][:2]) for name in sorted(front, key=lambda n: places[n][0])])
        parts.append(tag("polyline", points=path, fill="none", stroke=COLOURS[0], stroke_width=1.5))
        spots = [frame.at(x, y) for x, y, _ in places.values()]
        alike = [next(j for j, b in enumerate(spots) if abs(a[0] - b[0]) + abs(a[1] - b[1]) < 8) for a in spots]
        for i in sorted(range(len(spots)), key=lambda k: -radius[k]):  # the small ones above
            name, (x, y) = list(places)[i], spots[i]
            colour = COLOURS[0] if name in front else GREY
            look = {"fill": colour, "fill_opacity": 0.25, "stroke": colour, "stroke_width": 1.5}
            parts.append(tag("g", tag("circle", cx=x, cy=y, r=radius[i], data_row=i, **look), data_n=name))
        firsts = sorted(set(alike))
        for k, (x, y) in zip(firsts, labels_of([spots[k] for k in firsts]), strict=True):
            together = ", ".join(str(i + 1) for i in range(len(spots)) if alike[i] == k)
            shift = radius[k] - 3 if x > spots[k][0] else 0
            parts.append(text(x + shift, y, together, "start" if shift else "middle", size=11))
        rising = [frame.top + i / max(1, len(shown)) for i in range(len(shown))]
        names: list[Named] = [(y, n, None, one) for y, n, one in zip(rising, places, shown, strict=True)]
        return whole(parts, names, label, frame)

    rows = [
        [n, *(round(100 * v, 2) for v in (x, y)), one, "yes" if n in front else "no"]
        for n, (x, y, one) in places.items()
    ]
    return Picture(draw, ["learner", x_name, y_name, size, "no other is better"], rows)


def _range(values: list[float]) -> tuple[float, float]:
    """With space around them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    space = MARGIN * (high - low) or 1.0
    return low - space, high + space
