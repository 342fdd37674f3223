"""The report of a whole journey: pictures, counts, prompts and settings around the scores."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import read_json
from curate.release import Release
from eval.plotting.charts import Section
from eval.reporting.report import results_of, write
from pipelines.runner import folder_of, status
from pipelines.stage import Context, parts_of
from stream_builder.stream import Stream

THUMBNAIL = 64  # pixels


def journey_report(
    context: Context,
    release: Release,
    stream: Stream,
    runs: Path,
    out: Path,
    truth: Mapping[str, str] | None = None,
    extra: Sequence[Section] = (),
    title: str = "",
) -> Path:
    """truth: id → known class, for retrieval precision (default: labels in the table, where it has them).
    Returns the page's path."""
    notice = context.config.release.notice
    before = [
        Section("pictures", "What the classes looked like", pictures(release)),
        Section("time", "The collection over time", timeline(folder_of(context.root, "bucket"))),
    ]
    after = [Section("stages", "Every photo accounted for", stages(status(context)))]
    known = truth if truth is not None else known_labels(context)
    if known:
        found = precision(folder_of(context.root, "retrieve"), known, context)
        after.append(Section("precision", "Retrieval precision", precision_table(found)))
    after += list(extra)
    text = html.escape((context.root / "driftline.yaml").read_text(encoding="utf-8"))
    after.append(Section("settings", "Settings of this run", f"<pre>{text}</pre>"))
    ours = [d for d in results_of([runs]) if d["stream"]["sha256"] == stream.sha256]  # runs of an older build stay out
    return write(ours, out, title or f"driftline: {release.name}", notice, before, after, [stream])


def pictures(release: Release, each: int = 1) -> str:
    """A table of thumbnails: one row a class, one column a bucket; the first images of each in release order."""
    from PIL import Image, ImageOps

    ids: dict[tuple[int, str], str] = {}
    for id_, bucket, name in zip(*(release.table[c].to_pylist() for c in ("id", "bucket", "class")), strict=True):
        ids.setdefault((bucket, name), id_)
    wanted = set(ids.values())
    thumbs: dict[str, str] = {}
    for id_, data in release.images():
        if id_ in wanted:
            with Image.open(io.BytesIO(data)) as image:
                small = ImageOps.fit(image.convert("RGB"), (THUMBNAIL, THUMBNAIL))
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=72)
            thumbs[id_] = base64.b64encode(buffer.getvalue()).decode()
    heads = "".join(f"<th scope='col'>{html.escape(str(b['name']))}</th>" for b in release.buckets)
    rows = []
    for name in release.classes:
        cells = []
        for b in release.buckets:
            id_ = ids.get((b["index"], name), "")
            alt = html.escape(f"{name}, bucket {b['name']}", quote=True)
            cells.append(
                f"<td><img alt='{alt}' src='data:image/jpeg;base64,{thumbs[id_]}'></td>" if id_ else "<td></td>"
            )
        rows.append(f"<tr><th scope='row' class='name'>{html.escape(name)}</th>{''.join(cells)}</tr>")
    return (
        "<p class='soft'>One image of each class from each time bucket, oldest left.</p><div class='scroll'>"
        f"<table class='pictures'><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def timeline(folder: Path, bins: int = 66) -> str:
    """Images over time as an SVG, one shade a bucket, cut points marked."""
    members = pq.read_table(folder / "members.parquet", columns=["uploaded", "bucket"])
    buckets = read_json(folder / "buckets.json")
    when = members["uploaded"].to_numpy().astype(np.int64)
    of = members["bucket"].to_numpy()
    low, high = int(when.min()), int(when.max()) + 1
    edges = np.linspace(low, high, bins + 1)
    width, height, foot = 1000, 150, 34
    top = max(1, int(np.histogram(when, edges)[0].max()))

    def label(x: float, y: int, size: int, text: str) -> str:
        where = f"x='{x:.0f}' y='{y}' font-size='{size}' text-anchor='middle' fill='currentColor'"
        return f"<text {where}>{html.escape(text)}</text>"

    marks = []
    for b in buckets:
        inside = of == b["index"]
        below = np.histogram(when[of < b["index"]], edges)[0]
        fill = "#0b4f6c" if b["index"] % 2 == 0 else "#4aa3c3"
        for i, n in enumerate(np.histogram(when[inside], edges)[0].tolist()):
            x, y = i * width / bins, height - (n + int(below[i])) / top * height
            size = f"width='{width / bins - 1:.1f}' height='{n / top * height:.1f}'"
            marks.append(f"<rect x='{x:.1f}' y='{y:.1f}' {size} fill='{fill}'/>" if n else "")
        if inside.any():
            marks.append(label((when[inside].mean() - low) / (high - low) * width, height + 14, 13, str(b["name"])))
    first, last = (np.datetime64(t, "s").astype("datetime64[Y]") + 1 for t in (low, high))
    years = np.arange(first, last)
    for year in years[:: max(1, len(years) // 12)]:
        x = (year.astype("datetime64[s]").astype(np.int64) - low) / (high - low) * width
        marks.append(label(x, height + foot - 4, 11, str(year)))
    sizes = html.escape(", ".join(f"{b['name']}: {b['count']}" for b in buckets), quote=True)
    return (
        "<p class='soft'>Images by upload time; the shade changes where a bucket begins. "
        "Bucket names below, years under them.</p>"
        f"<svg viewBox='0 0 {width} {height + foot}' role='img' style='width:100%;max-width:62rem;height:auto' "
        f"aria-label='Images over time. Bucket sizes {sizes}'>{''.join(marks)}</svg>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int | None = None) -> str:
    """An HTML table; cells must be escaped already. left: the column that holds words."""

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = (" class='left'" if i == left else "" for i in range(len(cells)))
        return "<tr>" + "".join(f"<{tag}{k}>{c}</{tag}>" for k, c in zip(kinds, cells, strict=True)) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return (
        f"<div class='scroll'><table class='plain'><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table></div>"
    )


def stages(entries: Sequence[Mapping[str, Any]]) -> str:
    """Read, kept, dropped by reason and seconds of every stage."""
    rows = []
    for e in entries:
        c = e["counts"] or {"read": 0, "kept": 0, "dropped": {}}
        dropped = ", ".join(f"{html.escape(k.replace('_', ' '))} {v:,}" for k, v in c["dropped"].items()) or "–"
        seconds = "–" if e["seconds"] is None else f"{e['seconds']:.1f}"
        rows.append([e["stage"], f"{c['read']:,}", f"{c['kept']:,}", dropped, seconds])
    return _table(["stage", "read", "kept", "dropped, by reason", "seconds"], rows, left=3)


def known_labels(context: Context) -> dict[str, str]:
    """id → the source's own label, named as the concepts are; empty where the source has none."""
    files = parts_of(folder_of(context.root, "filter"))
    table = pq.read_table(files, columns=["id", "label"])
    table = table.filter(pc.is_valid(table["label"]))
    names = {(c.label or c.name): c.name for c in context.config.retrieve.concepts}
    return {
        i: names.get(label, "background")
        for i, label in zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True)
    }


def precision(folder: Path, known: Mapping[str, str], context: Context) -> dict[str, dict[str, tuple[int, int]]]:
    """concept → bucket name → (right, candidates)."""
    table = pq.read_table(folder / "candidates.parquet", columns=["id", "bucket", "concept", "fate"])
    names = {b["index"]: str(b["name"]) for b in read_json(folder_of(context.root, "bucket") / "buckets.json")}
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for id_, bucket, concept, fate in zip(*(c.to_pylist() for c in table.columns), strict=True):
        if fate in ("kept", "background") and id_ in known:
            cell = found.setdefault(concept, {})
            right, n = cell.get(names[bucket], (0, 0))
            cell[names[bucket]] = (right + (known[id_] == concept), n + 1)
    return found


def precision_table(found: Mapping[str, Mapping[str, tuple[int, int]]]) -> str:
    """Share of candidates that are right, per concept and bucket, before people looked."""
    buckets = list(dict.fromkeys(b for cell in found.values() for b in cell))
    rows = []
    for concept, cell in found.items():
        values = [f"{cell[b][0] / cell[b][1]:.2f}" if b in cell else "–" for b in buckets]
        right, n = (sum(v[k] for v in cell.values()) for k in (0, 1))
        rows.append([html.escape(concept), *values, f"<strong>{right / n:.2f}</strong>"])
    return (
        "<p class='soft'>Share of retrieved candidates that show what was asked, by the known labels, before any "
        "person checked them.</p>" + _table(["concept", *map(html.escape, buckets), "all"], rows)
    )
