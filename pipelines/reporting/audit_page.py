"""An audit as one HTML page, and as sentences."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{border:1px solid #9aa;padding:.25rem .6rem;text-align:right}"
    "td:first-child,th:first-child{text-align:left}div{overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{background:#10181d;color:#e8eef1}}"
)


def page(findings: Mapping[str, Any]) -> str:
    """The findings of an audit as one self-contained HTML page."""
    parts = [f"<h1>Audit of {html.escape(str(findings['name']))}</h1>", _summary(findings)]
    balance = findings["balance"]
    head = ["class", *map(str, balance["buckets"])]
    rows = [[name, *map(str, counts)] for name, counts in balance["counts"].items()]
    parts.append("<h2>Class balance</h2>" + _table(head, rows))
    if "drift" in findings:
        d = findings["drift"]
        cells = [
            [str(b), *("–" if v is None else f"{v:.3f}" for v in row)]
            for b, row in zip(d["buckets"], d["matrix"], strict=True)
        ]
        parts.append(
            "<h2>Drift</h2>"
            "<p>Accuracy of nearest class means: trained on one bucket (row), tested on another (column).</p>"
            + _table(["trained on", *map(str, d["buckets"])], cells)
            + _table(["distance", "accuracy"], [[k, f"{v:.3f}"] for k, v in d["by_distance"].items()])
        )
    blind = findings["label_correlation"]["blind"]
    if blind:
        rows = [
            [str(s), f"{b:.3f} ± {h:.3f}", str(k)]
            for s, b, h, k in zip(blind["shifts"], blind["best"], blind["half_width"], blind["best_k"], strict=True)
        ]
        parts.append(
            f"<h2>Label correlation</h2><p>A classifier that only repeats labels. Chance: {blind['chance']:.3f}.</p>"
            + _table(["shift S", "accuracy", "best k"], rows)
        )
    if "label_noise" in findings:
        rows = [
            [str(s[k]) for k in ("id", "label", "neighbours", "votes")]
            for s in findings["label_noise"]["most_suspicious"]
        ]
        parts.append("<h2>Labels to check</h2>" + _table(["id", "label", "label of its neighbours", "votes"], rows))
    copies = [[", ".join(map(str, g))] for g in findings["near_copies"]["examples"]]
    parts.append("<h2>Near-duplicates</h2>" + _table(["groups"], copies))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Audit of {html.escape(str(findings['name']))}</title><style>{STYLE}</style></head><body>"
        f"{''.join(parts)}</body></html>"
    )


def lines(findings: Mapping[str, Any]) -> list[str]:
    """One sentence for each finding."""
    copies = findings["near_copies"]
    across = ", ".join(f"{n} across {name}" for name, n in copies["groups_across"].items())
    cells = findings["balance"]
    sentences = [
        f"{findings['images']:,} images, {findings['classes']} classes, "
        f"{cells['fewest']} to {cells['most']} images per class and bucket"
        + (f" ({len(cells['empty'])} without images)" if cells["empty"] else ""),
        f"near-duplicates: {copies['images_in_groups']:,} images in {copies['groups']:,} groups ({across})",
    ]
    if u := findings.get("uploaders", {}).get("split_0"):
        sentences.append(
            f"uploaders: {u['on_both_sides']} of {u['uploaders']:,} in both parts of split_0 "
            f"({u['images_of_them']} images); the largest has {u['largest_share']:.1%} of the images; "
            f"{u['unknown']:,} images have no uploader"
        )
    if "label_noise" in findings:
        sentences.append(f"labels: {findings['label_noise']['share']:.1%} have mostly neighbours of one other class")
    if "drift" in findings:
        by = findings["drift"]["by_distance"]
        last = max(by, key=int)
        if "0" in by:
            sentences.append(
                f"drift: nearest class means have accuracy {by['0']:.1%} in-domain, {by[last]:.1%} {last} buckets later"
            )
    s = findings["label_correlation"]["suggested_shift"]
    sentences.append(f"label correlation: suggested shift S = {'none found' if s is None else s}")
    if "overlap" in findings:
        o = findings["overlap"]
        sentences.append(
            f"overlap with {o['with']}: {o['same_bytes']} images with the same bytes, "
            f"{o['near_copies']} near-duplicates"
        )
    return sentences


def _summary(findings: Mapping[str, Any]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines(findings)) + "</ul>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    top = "".join(f"<th scope='col'>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<div><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
