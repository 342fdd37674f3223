"""The page of a stream: a summary, three checks, steps, drift, what labels alone predict."""

from typing import Any, NamedTuple

import numpy as np

from driftline.curate.core.errors import DriftlineError
from driftline.curate.foreign.cells import span
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.markup import render, table
from driftline.eval.reporting.text import counted, named_steps
from driftline.stream_builder.measures.floors import Drift, drift
from driftline.stream_builder.measures.label_correlation import autocorrelation, blind_curve_of, labels_in_order
from driftline.stream_builder.measures.shift_distance import sharing
from driftline.stream_builder.stream import Stream


class Check(NamedTuple):
    """What a reader must know before the numbers."""

    what: str
    verdict: str
    because: str


def summary(stream: Stream) -> str:
    """Steps, time, classes and samples in one line."""
    days = [ends for step in stream.steps if (ends := step.days())]
    splits = [split for step in stream.steps for split in step.splits.values()]
    time = [f"{days[0][0]} to {days[-1][1]}"] if days else []
    prior = [f"{len(stream.prior):,} unlabelled before the first"] if stream.prior is not None else []
    shape = " × ".join(map(str, stream.x_shape)) or "texts"
    steps, classes = counted(len(stream.steps), "step"), f"{len(stream.classes)} classes"
    return ", ".join([steps, *time, classes, f"{sum(map(len, splits)):,} samples ({shape})", *prior]) + "."


def facts(stream: Stream) -> dict[str, str]:
    """What is recorded of the stream's origin."""
    known = (str, int, float)
    return {str(k).replace("_", " "): str(v) for k, v in stream.facts.items() if isinstance(v, known)}


def page(stream: Stream) -> dict[str, Any]:
    """What the template of a stream's page shows of a stream that is at hand."""
    found = _measured(stream)
    parts = [Section("steps", "Steps", _steps(stream))]
    parts += [Section(f.title.split()[0].lower(), f.title, render("figure", f, "")) for f in _figures(stream, found)]
    checks = [leakage(stream), contamination(stream), drifts(stream, found)]
    return {"summary": summary(stream), "checks": checks, "sections": parts, "facts": facts(stream)}


def figures(stream: Stream) -> list[Figure]:
    """The charts for which the stream has data."""
    return _figures(stream, _measured(stream))


def _figures(stream: Stream, found: Drift | None) -> list[Figure]:
    charts = [] if found is None else [_drift(stream, found)]
    try:
        return charts + ([chart] if (chart := _blind(stream)) else [])
    except DriftlineError:  # one sample
        return charts


def _measured(stream: Stream) -> Drift | None:
    try:
        return drift(stream) if stream.x_shape else None
    except DriftlineError:  # one step, no test split
        return None


def leakage(stream: Stream) -> Check:
    """Whether training and test share uploaders or near copies."""
    shared = stream.shared_with_training()
    if shared is None:
        return Check("Leakage", "not known", "the source names no uploaders.")
    if not shared:
        return Check("Leakage", "none", "no uploader or near-duplicate is in both training and test data.")
    text = f"{shared:.1%} of the test samples share an uploader or are near-duplicates: tests are too easy."
    return Check("Leakage", "found", text)


def contamination(stream: Stream) -> Check:
    """Whether the encoder may have seen the tests."""
    what, cutoff = "Encoder contamination", str(stream.facts.get("encoder_cutoff", "unknown"))
    if len(stream.x_shape) != 1 and "encoder_cutoff" not in stream.facts:
        return Check(what, "none", "samples are not encoded.")
    times = [split.time for step in stream.steps if (split := step.splits.get("test")) is not None]
    try:
        last = span(cutoff)[1]
    except ValueError:
        return Check(what, "not known", "until when the encoder was trained is not stated (--trained-until).")
    dated = [time for time in times if time is not None]
    if len(dated) < len(times) or not dated:
        return Check(what, "not known", f"the encoder was trained until {cutoff}; test samples have no times.")
    old = float(np.mean(np.concatenate(dated) <= last))
    text = f"the encoder was trained until {cutoff}; {old:.1%} of the test samples are not newer."
    return Check(what, "possible" if old else "none", text)


def _steps(stream: Stream) -> str:
    names = [n for n in ("train", "val", "test") if any(n in s.splits for s in stream.steps)]
    unlabelled = any(s.unlabelled is not None for s in stream.steps)
    dates = [step.days() for step in stream.steps]
    columns = ["step", *(["from", "to"] if any(dates) else []), *names, *(["unlabelled"] if unlabelled else [])]
    rows = []
    for step, ends in zip(stream.steps, dates, strict=True):
        cells = list(ends or ("–", "–")) if any(dates) else []
        cells += [f"{len(step.splits[n]):,}" if n in step.splits else "–" for n in names]
        cells += [f"{len(step.unlabelled):,}" if step.unlabelled is not None else "–"] if unlabelled else []
        rows.append([step.name, *cells])
    return table(columns, rows, "plain")


def drifts(stream: Stream, found: Drift | None) -> Check:
    """Whether the first step is farther from the last tests than chance alone gives."""
    if found is None:
        return Check("Drift", "not known", "one step, no test samples, or texts.")
    if found.floor is None:
        return Check("Drift", "not known", f"the floor of chance is {found.because}.")
    first = named_steps(stream)[0]
    if found.values[0] <= found.floor[0]:
        return Check("Drift", "not shown", f"step {first} is not farther from the last tests than chance alone gives.")
    ratio = found.values[0] / found.floor[0]
    return Check("Drift", "found", f"step {first} is {ratio:.2f} times as far from the last tests as chance gives.")


def _drift(stream: Stream, found: Drift) -> Figure:
    along, top = list(range(len(found.values))), max([*found.values, *(found.floor or ())]) or 1.0
    series, bands = {"to the last step's tests": (along, [v / top for v in found.values])}, {}
    if found.floor is not None:
        series |= {"floor of chance": (along, [v / top for v in found.floor])}
        bands = {"floor of chance": ([0.0] * len(along), series["floor of chance"][1])}
    dates: dict[float, str] = dict(enumerate(named_steps(stream)))
    picture = lines(series, "step", y_name="distance", dates=dates, bands=bands)
    caption = (
        f"Sliced Wasserstein distance of each step's training data, as a share of the largest. Floor: {found.because}."
    )
    caption += f" {sharing(stream)}"
    return Figure("Drift", caption.strip(), picture)


def _blind(stream: Stream) -> Figure | None:
    y = labels_in_order(stream)
    repetition = autocorrelation(y)
    if not repetition or len(y) < 2:
        return None
    lags, values = zip(*((lag, max(0.0, value)) for lag, value in repetition.items()), strict=True)
    picture = lines(
        {"the same label again": (list(lags), list(values))}, "samples later", log=True, y_name="above chance"
    )
    curve = blind_curve_of(stream)  # the suggested shift, too
    caption = (
        "How much more often than by chance the same label comes so many samples later; 100: always. Near 0: random "
        f"order. A line that begins high: a learner can score by repeating earlier labels. {stream.ties_text()} "
        f"Labels alone: {curve.best[0]:.1%} are right one sample later. {curve.text(curve.suggested)}"
    )
    return Figure("Label correlation", caption, picture)
