"""Paths on a plane of any two numbers."""

from __future__ import annotations

from dataclasses import replace

from driftline.eval.plotting.charts import Picture, Series, short
from driftline.eval.plotting.colours import COLOURS
from driftline.eval.plotting.frames import Named, Sheet, cut, drawn, frame_of, grid, round_numbers, whole
from driftline.eval.plotting.svg import dashed, tag, text

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


def _range(values: list[float]) -> tuple[float, float]:
    """With space around them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    space = MARGIN * (high - low) or 1.0
    return low - space, high + space
