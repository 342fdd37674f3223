"""A collection over time: how many photos, and in which bucket."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from driftline.eval.plotting.charts import Picture
from driftline.eval.plotting.frames import WIDTH, Frame, grid, round_numbers
from driftline.eval.plotting.frames import number as number_text
from driftline.eval.plotting.svg import GREY, svg_of, tag, text

BINS = 66  # bars
SHADES = ("#1e6fa0", "#4aa3c3")  # of buckets, in turn
HIGH, LEFT, TOP, FOOT = 180, 56, 12, 52  # units


def timeline(times: npt.NDArray[np.int64], bucket: npt.NDArray[np.int64], names: Mapping[int, str]) -> Picture:
    """A histogram. times: (N,) int64, seconds UTC. bucket: (N,) integers, the bucket of each photo, below 0 for none
    (grey). names: number of a bucket → its name, in the order of time."""
    low, high = (int(times.min()), int(times.max()) + 1) if len(times) else (0, 1)
    edges = np.linspace(low, high, BINS + 1)
    top = max(1, int(np.histogram(times, edges)[0].max()))
    inside = {number: times[bucket < 0 if number < 0 else bucket == number] for number in (-1, *names)}
    counts = {number: np.histogram(of_bucket, edges)[0] for number, of_bucket in inside.items()}
    sizes = ", ".join(f"{name}: {int((bucket == number).sum())}" for number, name in names.items())

    frame = Frame(LEFT, TOP, WIDTH - LEFT - 16, HIGH - TOP - FOOT, (low, high), (0, top))
    foot, width = frame.top + frame.height, frame.width / BINS - 1
    steps = [value for value in round_numbers(0, top) if value.is_integer()]
    parts, below = grid(frame, steps, number_text), np.zeros(BINS, np.int64)
    last = -1e9
    for k, number in enumerate(inside):
        fill = GREY if number < 0 else SHADES[(k - 1) % len(SHADES)]
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
    svg = svg_of(parts, f"Photos over time. Bucket sizes {sizes}", HIGH, WIDTH)
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
