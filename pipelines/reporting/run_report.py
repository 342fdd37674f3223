"""The report of a whole run: images, counts, retrieval precision and settings around the scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.parsing import rows_of
from driftline.curate.release import Release
from driftline.eval.plotting.cells import timeline
from driftline.eval.plotting.charts import Figure, Section
from driftline.eval.protocol import Document
from driftline.eval.reporting.exports import FORMATS
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.report import write
from driftline.eval.reporting.text import named_steps
from driftline.pipelines.run.runner import status
from driftline.pipelines.stages.base import Context, parts_of
from driftline.pipelines.stages.state import folder_of
from driftline.pipelines.web.rendering import small
from driftline.stream_builder.stream import Stream

THUMBNAIL = 116  # pixels


def journey_report(
    context: Context, release: Release, stream: Stream, documents: Sequence[Document], out: Path,
    truth: Mapping[str, str] | None = None, extra: Sequence[Section] = (), title: str = "",
    formats: Sequence[str] = FORMATS,
) -> Path:  # fmt: skip
    """Write the site of `driftline.eval.reporting` with the run's sections; returns the path of its first page.

    documents: results; those on another build's stream are left out. truth: id → known class, for retrieval precision
    (default: labels of the source, if it has some).
    """
    dates = {step.name: date for step, date in zip(stream.steps, named_steps(stream), strict=True)}
    collection = over_time(folder_of(context.root, "bucket"))
    before = [
        Section("pictures", "The classes over time", pictures(release, dates)),
        Section("time", collection.title, render("figure", collection, "")),
    ]
    after = [Section("stages", "Photos in each stage", stages(status(context)))]
    if labels := truth if truth is not None else known_labels(context):
        shares = precision(folder_of(context.root, "retrieve"), labels, context)
        after.append(Section("precision", "Retrieval precision", precision_table(shares, dates)))
    after += list(extra)
    text = (context.root / "driftline.yaml").read_text(encoding="utf-8")
    after.append(Section("settings", "Settings of this run", render("listing", text), folded=True))
    current = [d for d in documents if d["stream"]["sha256"] == stream.sha256]
    title, notice = title or f"driftline: {release.name}", context.config.release.notice
    return write(current, out, title, notice, before, after, streams=[stream], formats=formats)


def pictures(release: Release, dates: Mapping[str, str]) -> str:
    """A table of thumbnails: a row per class, a column per bucket; of each, the first image in release order. dates:
    name of a bucket → its date."""
    ids: dict[tuple[int, str], str] = {}
    for id_, bucket, name in rows_of(release.table, "id", "bucket", "class"):
        ids.setdefault((bucket, name), id_)
    thumbs = {id_: small(data, THUMBNAIL) for id_, data in release.images(ids=set(ids.values()))}
    rows: list[list[Cell | str]] = []
    shown_names = {b["index"]: dates.get(str(b["name"]), str(b["name"])) for b in release.buckets}
    for name in release.classes:
        row = [(shown_names[b["index"]], ids.get((b["index"], name), "")) for b in release.buckets]
        cells = [Cell(f"{name}, {bucket}", image=thumbs[id_]) if id_ else "" for bucket, id_ in row]
        rows.append([Cell(name, kind="name"), *cells])
    heads = ["", *shown_names.values()]
    note = "One image per class and time bucket, the oldest bucket on the left."
    return render("soft", note) + table(heads, rows, "pictures")


def over_time(folder: Path) -> Figure:
    """Photos over time as a histogram; the shade alternates between buckets. folder: of the stage bucket."""
    members = pq.read_table(folder / "members.parquet", columns=["uploaded", "bucket"])
    names = {b["index"]: str(b["name"]) for b in read_json(folder / "buckets.json")}
    picture = timeline(members["uploaded"].to_numpy().astype(np.int64), members["bucket"].to_numpy(), names)
    caption = "Images by upload time. The shade changes at the start of a bucket; below: bucket names, then dates."
    return Figure("The collection over time", caption, picture)


def stages(entries: Sequence[Mapping[str, Any]]) -> str:
    """A table of every stage: read, kept, dropped by reason, seconds."""
    rows = []
    for e in entries:
        c = e["counts"] or {"read": 0, "kept": 0, "dropped": {}}
        dropped = ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in c["dropped"].items()) or "–"
        seconds = "–" if e["seconds"] is None else f"{e['seconds']:.1f}"
        rows.append([e["stage"], f"{c['read']:,}", f"{c['kept']:,}", Cell(dropped, kind="left"), seconds])
    return table(["stage", "read", "kept", Cell("dropped, by reason", kind="left"), "seconds"], rows, "plain")


def known_labels(context: Context) -> dict[str, str]:
    """id → concept name of the source's own label; empty if the source has no labels."""
    table = pq.read_table(parts_of(folder_of(context.root, "filter")), columns=["id", "label"])
    names = {(c.label or c.name): c.name for c in context.config.retrieve.concepts}
    labels = rows_of(table.filter(pc.is_valid(table["label"])), "id", "label")
    return {id_: names.get(label, "background") for id_, label in labels}


def precision(folder: Path, labels: Mapping[str, str], context: Context) -> dict[str, dict[str, tuple[int, int]]]:
    """concept → bucket name → (number of right candidates, number of candidates)."""
    table = pq.read_table(folder / "candidates.parquet", columns=["id", "bucket", "concept", "fate"])
    names = {b["index"]: str(b["name"]) for b in read_json(folder_of(context.root, "bucket") / "buckets.json")}
    shares: dict[str, dict[str, tuple[int, int]]] = {}
    for id_, bucket, concept, fate in rows_of(table, "id", "bucket", "concept", "fate"):
        if fate in ("kept", "background") and id_ in labels:
            cell = shares.setdefault(concept, {})
            right, n = cell.get(names[bucket], (0, 0))
            cell[names[bucket]] = (right + (labels[id_] == concept), n + 1)
    return shares


def precision_table(shares: Mapping[str, Mapping[str, tuple[int, int]]], dates: Mapping[str, str]) -> str:
    """Share of right candidates per concept and bucket, before validation. dates: name of a bucket → its date."""
    buckets = list(dict.fromkeys(b for cell in shares.values() for b in cell))
    rows = []
    for concept, cell in shares.items():
        values = [f"{cell[b][0] / cell[b][1]:.2f}" if b in cell else "–" for b in buckets]
        right, n = (sum(v[k] for v in cell.values()) for k in (0, 1))
        rows.append([concept, *values, render("strong", f"{right / n:.2f}")])
    note = "Share of retrieved candidates that show the concept, according to known labels, before people checked them."
    return render("soft", note) + table(["concept", *(dates.get(b, b) for b in buckets), "all"], rows, "plain")
