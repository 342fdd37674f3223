"""Test samples that every learner loses, and those that only old models lose. With a picture if there is one, and the
id by which `driftline trace` finds the photo."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import Document, stored_protocol
from driftline.eval.reporting.markup import Cell, jpeg, render
from driftline.eval.rows import Run, groups
from driftline.eval.scoring.ranking import comparable
from driftline.stream_builder.step import CALENDAR
from driftline.stream_builder.stream import SPLITS, Stream

SHOWN, PIXELS = 12, 116
Thumbnails = Callable[[Sequence[str]], Mapping[str, bytes]]  # ids → JPEG of those that have a picture
Counts = npt.NDArray[np.int32]


def facts_of(runs: Sequence[Run], document: Document) -> list[dict[str, Any]]:
    """`lost_samples` of each group of comparable results that has outcomes, with the positions (`members`) of the
    group's results in the document."""
    position, runs_of = {id(result): i for i, result in enumerate(document["results"])}, groups(runs)
    per_group = []
    for group in comparable(document):
        members = sorted(position[id(result)] for result in group)
        seeing = [runs_of[i] for i in members if not document["results"][i].get("standing")]
        if lost := lost_samples(seeing):
            per_group.append({"members": members, **lost})
    return per_group


def lost_samples(learners: Sequence[Sequence[Run]]) -> dict[str, Any] | None:
    """Positions of samples in the stream and how often they were lost, as plain data; None without outcomes.

    learners: the runs of each, without upper bounds and learners that see no sample. A step's newest model is the last
    one that was trained before the step was tested, at the earliest; its oldest model is the first one. Learners that
    never change do not count for old models.
    """
    tested_of = {id(r.answers.sample): r.answers.sample for group in learners for run in group for r in run.rows
                 if r.answers is not None}  # fmt: skip
    top = max((int(sample.max(initial=0)) for sample in tested_of.values()), default=-1)  # runs share arrays
    label = np.full(top + 1, -1, np.int64)
    kinds = [counts for group in learners if (counts := _counts(group, top + 1, label)) is not None]
    if not kinds:
        return None
    fresh_n, fresh_right, old_n, old_right = map(np.stack, zip(*kinds, strict=True))
    tested = (fresh_n > 0).all(0)
    everyone = tested & (fresh_right == 0).all(0)
    learns = [(a[b > 0] != c[b > 0]).any() for a, b, c in zip(fresh_right, old_n, old_right, strict=True)]
    fresh_n, fresh_right, old_n, old_right = (part[learns] for part in (fresh_n, fresh_right, old_n, old_right))
    both = tested & (old_n > 0).all(0) & any(learns)
    only_old = both & (fresh_right == fresh_n).all(0) & (old_right == 0).all(0)
    return {
        "tested": int(tested.sum()), "learners": len(kinds), "everyone": _picked(everyone, label),
        "only_old": _picked(only_old, label) if both.any() else None,
    }  # fmt: skip


def _counts(group: Sequence[Run], size: int, label: npt.NDArray[np.int64]) -> tuple[Counts, ...] | None:
    """Tests and right answers of the freshest models, then of the oldest, over seeds; None without outcomes."""
    step_of = stored_protocol(group[0].about["protocol"]).roles.step
    counts = tuple(np.zeros(size, np.int32) for _ in range(4))
    for run in group:
        tests: dict[int, dict[int, Any]] = {}
        for row in run.rows:
            step = step_of(row)
            if step is None or row.answers is None or not 0 <= row.learned_to <= step:
                continue
            tests.setdefault(step, {})[row.learned_to] = row.answers
        if not tests:
            return None
        for models in tests.values():
            fresh, old = models[max(models)], models[min(models)]
            label[fresh.sample] = fresh.label
            for k, answers in enumerate((fresh, old) if fresh is not old else (fresh,)):
                counts[2 * k][answers.sample] += 1
                counts[2 * k + 1][answers.sample] += answers.label == answers.predicted
    return counts


def _picked(which: npt.NDArray[np.bool_], label: npt.NDArray[np.int64]) -> dict[str, Any]:
    """How many, and some of them from all of the stream."""
    places = np.flatnonzero(which)
    chosen = places[np.unique(np.linspace(0, len(places) - 1, min(SHOWN, len(places))).astype(int))]
    return {"count": len(places), "samples": chosen.tolist(), "labels": label[chosen].tolist()}


def section(lost: Mapping[str, Any], stream: Stream | None, thumbnails: Thumbnails | None = None) -> Section:
    """The lists as HTML. stream: for ids, dates, names of classes and pictures; else samples are numbers."""
    titles = {
        "everyone": f"Every learner is wrong on them, even newly trained ({{}} of {lost['tested']:,} test samples)",
        "only_old": "Only old models are wrong: every newly trained one is right, every oldest one wrong ({})",
    }
    lists = [(title, part) for name, title in titles.items() if (part := lost[name]) is not None]
    wanted = sorted({place for _, part in lists for place in part["samples"]})
    abouts = {} if stream is None else _about(stream, wanted)
    ids = [about["id"] for about in abouts.values()]
    pictures = thumbnails(ids) if thumbnails and ids else {}
    shown = []
    for title, part in lists:
        places = zip(part["samples"], part["labels"], strict=True)
        items = [_item(place, label, abouts.get(place), pictures, stream) for place, label in places]
        shown.append((title.format(f"{part['count']:,}"), items))
    content = render("samples", f"Over {lost['learners']} learners and all seeds.", bool(abouts), shown)
    return Section("samples", "Samples that learners lose", content)


def _about(stream: Stream, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Position → id, step, date and picture of these samples."""
    abouts: dict[int, dict[str, Any]] = {}
    start = 0
    for step in stream.steps:
        for split in (step.splits[name] for name in SPLITS if name in step.splits):
            inside = [place for place in positions if start <= place < start + len(split)]
            for place in inside:
                at, day, image = place - start, "", None
                if split.time is not None and CALENDAR[0] <= split.time[at] <= CALENDAR[1]:
                    day = datetime.fromtimestamp(int(split.time[at]), UTC).strftime("%Y-%m-%d")
                if len(getattr(split.x, "shape", ())) == 4 and split.x.shape[-1] == 3:
                    pixels = np.asarray(split.x[np.array([at])])[0]
                    image = pixels if pixels.dtype == np.uint8 else None
                abouts[place] = {"id": str(split.ids[at]), "day": day, "image": image, "step": step.name}
            start += len(split)
    return abouts


def _item(
    place: int, label: int, about: Mapping[str, Any] | None, pictures: Mapping[str, bytes], stream: Stream | None
) -> dict[str, Any]:
    """What the list shows of a sample."""
    if about is None or stream is None:
        return {"text": f"sample {place:,}, class {label}"}
    name = stream.classes[label] if 0 <= label < len(stream.classes) else str(label)
    image = pictures.get(about["id"]) or (b"" if about["image"] is None else jpeg(about["image"], PIXELS))
    when = about["day"] or f"step {about['step']}"
    picture = Cell(f"{name}, {when}", image=image) if image else ""
    return {"text": "", "name": name, "when": when, "id": about["id"], "picture": picture}
