"""Paths on a plane of any two numbers."""

from __future__ import annotations

import numpy as np

from driftline.eval.plotting import charts
from driftline.eval.plotting.charts import Frame, Picture, Series, short, tag, text
from driftline.eval.plotting.colours import COLOURS

HEIGHT, MARGIN, SIDE = 420, 0.06, 64  # pixels; share of the range around the paths; pixels for the numbers at the left


def paths(series: Series, x_name: str, y_name: str, about: str) -> Picture:
    """name → (x, y) of a path, which begins at a white dot and ends at a full one. Dashed: where x or y is 0. about:
    above the chart."""
    ends = [_range([v for path in series.values() for v in path[axis]]) for axis in (0, 1)]
    wide = charts.WIDTH - SIDE - charts.RIGHT
    frame = Frame(SIDE, 32, wide, HEIGHT - 32 - charts.FOOT, ends[0], ends[1])
    foot, names = frame.top + frame.height, []
    rows: list[list[object]] = []
    parts = [text(frame.left, 14, about, size=12), text(frame.left, 28, y_name)]
    parts += [text(frame.left + wide / 2, foot + 36, x_name, "middle", 12)]
    parts += charts.grid(frame, ticks(*frame.y), lambda value: f"{value:.3g}")
    for value in ticks(*frame.x):
        parts.append(text(frame.at(value, frame.y[0])[0], foot + 16, f"{value:.3g}", "middle"))
    (x0, y0) = frame.at(0.0, 0.0)
    if frame.x[0] < 0 < frame.x[1]:
        parts.append(charts.dashed(x0, frame.top, x0, foot))
    if frame.y[0] < 0 < frame.y[1]:
        parts.append(charts.dashed(frame.left, y0, frame.left + wide, y0))
    for i, (name, (xs, ys)) in enumerate(series.items()):
        line = charts.drawn(name, i, frame, xs, ys, len(rows))
        colour = COLOURS[i % len(COLOURS)]
        looks = ((0, {"fill": "#ffffff", "stroke": colour}), (-1, {"fill": colour}))
        dots = [tag("circle", cx=x, cy=y, r=4, **look) for k, look in looks for x, y in [frame.at(xs[k], ys[k])]]
        parts.append(tag("g", line, *dots, data_n=name))
        rows += [[name, short(x), short(y)] for x, y in zip(xs, ys, strict=True)]
        names.append((frame.at(xs[-1], ys[-1])[1], name, i, ""))
    moved = [(n, xs[0], ys[0], xs[-1], ys[-1]) for n, (xs, ys) in series.items()]
    summary = "; ".join(f"{n} from {a:.3g}, {b:.3g} to {c:.3g}, {d:.3g}" for n, a, b, c, d in moved)
    label = f"{about}. Across: {x_name}; up: {y_name}. {summary}"
    return Picture(
        charts.whole([*parts, *charts.names_beside(names, frame)], label, frame), ["series", x_name, y_name], rows
    )


def ticks(low: float, high: float) -> list[float]:
    """At most seven round numbers between two.

    >>> ticks(-0.3, 2.1)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    power = 10.0 ** np.floor(np.log10((high - low) / 5))
    step = next(m * power for m in (1, 2, 5, 10) if (high - low) / (m * power) <= 6)
    return [float(round(k * step, 12)) for k in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def _range(values: list[float]) -> tuple[float, float]:
    """With space around them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    space = MARGIN * (high - low) or 1.0
    return low - space, high + space
