"""A plot of the collection over time: number of photos, and the cuts between buckets."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from driftline.curate.bucketing.assign import Bucket

BINS = 120
DARK, LIGHT, CUT = "#0b4f6c", "#4aa3c3", "#c8553d"


def timeline(uploaded: npt.NDArray[np.int64], buckets: Sequence[Bucket]) -> bytes:
    """uploaded (N,) seconds UTC → a PNG. Same input, same bytes (one matplotlib version)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    low, high = (int(uploaded.min()), int(uploaded.max()) + 1) if len(uploaded) else (0, 1)
    counts, edges = np.histogram(uploaded, BINS, (low, high))
    moments = edges.astype("datetime64[s]")
    axes.bar(moments[:-1], counts, np.diff(moments), align="edge", color=LIGHT, edgecolor=DARK, linewidth=0.3)
    for bucket in buckets:
        start = max(low, bucket.start if bucket.start is not None else low)
        end = min(high, bucket.end if bucket.end is not None else high)
        if start >= end:
            continue
        if start > low:
            axes.axvline(np.datetime64(start, "s"), color=CUT, linewidth=1)  # type: ignore[arg-type]
        middle = np.datetime64((start + end) // 2, "s")
        axes.annotate(
            bucket.name, (middle, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8
        )
    axes.set_ylabel("photos")
    axes.set_xlabel("date (UTC); lines: where buckets are cut")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
