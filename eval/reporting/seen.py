"""What the stream's encoder may have seen, for a report."""

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.eval.plotting.charts import Section
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.text import interval
from driftline.eval.rows import Run
from driftline.eval.scoring.encoder_cutoff import accuracy_before_and_after, end_of, newer_samples
from driftline.eval.scoring.sums import Resampling
from driftline.eval.scoring.timeline import record
from driftline.stream_builder.stream import Stream

SIDES = ("before", "after", "gap")


def seen_of(runs: Sequence[Run], stream: Stream | None, resampling: Resampling) -> dict[str, Any] | None:
    """What the stream's encoder may have seen, which steps are newer, and each learner's accuracy on both sides; None
    if the stream does not say."""
    if stream is None or "encoder_cutoff" not in stream.facts:
        return None
    about: dict[str, Any] = {
        key: str(stream.facts.get(f"encoder_{key}", "unknown")) for key in ("cutoff", "data", "source")
    }
    end = end_of(about["cutoff"])
    if end is None:
        return about | {"newer": [], "results": []}
    dates, newer = record(stream).get("dates", []), newer_samples(stream, end)
    about |= {"newer": [date >= end for date in dates], "results": []}
    if newer is not None:
        about["results"] = accuracy_before_and_after(runs, newer, stream, resampling)
    return about


def section(part: Mapping[str, Any]) -> Section:
    """What the encoder may have seen, and the gap in accuracy between samples that it may have seen and newer ones."""
    about = part["seen"]
    rows = [
        [r["label"], *(Cell(*interval(r["seen"][side])) for side in SIDES)] for r in part["results"] if r.get("seen")
    ]
    heads = ["learner", "samples that it may have seen", "newer samples", "gap"]
    newer = set(about["newer"])
    why = "All test samples are " + ("newer" if newer == {True} else "not newer")
    why = why if len(newer) == 1 else "The samples have no dates, or the rows no outcomes"
    values = (about, end_of(about["cutoff"]) is not None, table(heads, rows) if rows else "", why)
    return Section("seen", "What the encoder may have seen", render("seen", *values))
