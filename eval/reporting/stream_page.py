"""The page of a stream: steps, drift, what labels alone predict, pictures."""

from __future__ import annotations

import io

import numpy as np

from driftline.curate.core.errors import DriftlineError
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.step_names import named_steps
from driftline.stream_builder.measures.label_correlation import autocorrelation, blind_curve_of, labels_in_order
from driftline.stream_builder.measures.shift_distance import drift, sharing
from driftline.stream_builder.stream import Stream

CLASSES, STEPS, THUMBNAIL = 30, 12, 56  # of pictures, at most; pixels


def facts(stream: Stream) -> dict[str, str]:
    """Properties of the whole stream."""
    shape = " × ".join(map(str, stream.x_shape)) or "texts"
    properties = {"steps": str(len(stream.steps)), "classes": str(len(stream.classes)), "shape of a sample": shape}
    if stream.prior is not None:
        properties["unlabelled, before the first step"] = f"{len(stream.prior):,}"
    properties["shared uploaders"] = shared_text(stream)
    plain = {
        str(key).replace("_", " "): str(value)
        for key, value in stream.facts.items()
        if isinstance(value, str | int | float)
    }
    plain.pop("shared with training", None)
    return properties | plain


def shared_text(stream: Stream) -> str:
    """The share of test samples that share an uploader with, or are near copies of, training samples."""
    shared = stream.shared_with_training()
    if shared is None:
        return "not known: the source names no uploaders"
    text = f"{shared:.1%} of the test samples share an uploader, or are near copies of, a training sample"
    return text + (": tests in the same step are too easy" if shared else "")


def sections(stream: Stream) -> list[Section]:
    """The sections for which the stream has data."""
    parts = [Section("steps", "Steps", _steps(stream))]
    parts += [Section(f.title.split()[0].lower(), f.title, render("figure", f, "")) for f in figures(stream)]
    return parts + ([part] if (part := _pictures(stream)) else [])


def figures(stream: Stream) -> list[Figure]:
    """The charts for which the stream has data."""
    charts = []
    for make in (_drift, _blind):
        try:
            chart = make(stream)
        except DriftlineError:  # one step, no test split, texts: nothing can be measured
            continue
        charts += [chart] if chart else []
    return charts


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


def _drift(stream: Stream) -> Figure | None:
    if len(stream.steps) < 2 or not stream.x_shape:
        return None
    distances = drift(stream)
    top = max(distances) or 1.0
    shares = [distance / top for distance in distances]
    series = {"to the last step's test data": (list(range(len(distances))), shares)}
    dates: dict[float, str] = dict(enumerate(named_steps(stream)))
    picture = lines(series, "step", y_name="distance", dates=dates)
    caption = "Sliced Wasserstein distance in the space of the principal components, as a share of the largest."
    caption = f"{caption} {sharing(stream)}".strip()
    return Figure("Drift", caption, picture)


def _blind(stream: Stream) -> Figure | None:
    y = labels_in_order(stream)
    repetition = autocorrelation(y)
    if not repetition or len(y) < 2:
        return None
    lags, values = zip(*((lag, max(0.0, value)) for lag, value in repetition.items()), strict=True)
    picture = lines(
        {"the same label again": (list(lags), list(values))}, "samples later", log=True, y_name="above chance"
    )
    caption = (
        "How much more often than by chance the same label comes so many samples later; 100: always. Near 0: random "
        f"order. A line that begins high: a learner can score by repeating earlier labels. {stream.ties_text()} "
        f"Labels alone: {_alone(stream)}"
    )
    return Figure("Label correlation", caption, picture)


def _alone(stream: Stream) -> str:
    """The blind classifier's accuracy and the suggested shift."""
    curve = blind_curve_of(stream)
    return f"{curve.best[0]:.1%} are right one sample later. {curve.text(curve.suggested)}"


def _pictures(stream: Stream) -> Section | None:
    from PIL import Image

    shape = stream.x_shape
    if len(shape) != 3 or shape[-1] != 3 or any("train" not in s.splits for s in stream.steps):
        return None
    steps, dates = (
        list(stream.steps),
        {s.index: name for s, name in zip(stream.steps, named_steps(stream), strict=True)},
    )
    steps = steps[:: max(1, -(-len(stream.steps) // STEPS))]
    rows = []
    for label, name in list(enumerate(stream.classes))[:CLASSES]:
        cells: list[Cell | str] = [Cell(name, kind="name")]
        for step in steps:
            first = np.flatnonzero(step["train"].y == label)[:1]
            if not len(first):
                cells.append("")
                continue
            image = Image.fromarray(np.asarray(step["train"].x[first])[0]).resize((THUMBNAIL, THUMBNAIL))
            file = io.BytesIO()
            image.save(file, "JPEG", quality=72)
            cells.append(Cell(f"{name}, {dates[step.index]}", image=file.getvalue()))
        rows.append(cells)
    heads = ["", *(dates[step.index] for step in steps)]
    return Section("pictures", "What the classes look like", table(heads, rows, "pictures"))
