"""Looking a release or a stream over before anyone trusts it: balance, copies, leaks, noise, drift, correlation."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import MissingFile
from curate.images.near_duplicates import CopyRules, copy_report, near_copies, perceptual_hashes, thumbnail
from curate.release import Release
from stream_builder.measures.label_correlation import Curve, autocorrelation, blind_curve
from stream_builder.stream import Stream

NEIGHBOURS = 10  # of the label-noise estimate
BLOCK = 2048
EXAMPLES = 20


def audit(path: Path, against: Path | None = None, bits: int = 4) -> dict[str, Any]:
    """What is to be known of the release (or run folder) or stream at `path`.

    against: another release; images that both hold are counted. bits: perceptual hashes that differ in at most so many
    of 64 bits are near copies. Raises MissingFile for a folder that is neither.
    """
    if (path / "stream.json").is_file():
        return audit_stream(Stream.load(path))
    try:
        release = Release.open(path)
    except MissingFile:
        raise MissingFile(
            f"{path} is neither a release, nor a run that published one, nor a stream.",
            "Expected release.json or stream.json.",
        ) from None
    return audit_release(release, Release.open(against) if against else None, bits)


def audit_release(release: Release, other: Release | None = None, bits: int = 4) -> dict[str, Any]:
    """Of a release; see the module's parts for what each figure means."""
    table = release.table
    columns = {
        name: table[name].to_pylist() for name in ("id", "bucket", "class", "label", "user", "uploaded", "sha256")
    }
    splits = {name: table[name].to_pylist() for name in release.facts["splits"]}
    of = picture_hashes(release)
    group = near_copies(of, None, len(of), CopyRules(bits))
    known = {"id": columns["id"], "bucket": columns["bucket"], "class": columns["class"]} | splits
    order = np.lexsort((np.array(columns["id"], np.str_), np.array(columns["uploaded"], np.int64)))
    y = np.array(columns["label"], np.int64)
    found: dict[str, Any] = {
        "kind": "release",
        "name": release.name,
        "images": len(table),
        "classes": len(release.classes),
        "balance": balance(columns["class"], columns["bucket"]),
        "near_copies": copy_report(group, known, EXAMPLES) | {"bits": bits},
        "uploaders": {name: uploaders(columns["user"], sides) for name, sides in splits.items()},
        "label_correlation": correlation(y[order]),
    }
    if release.facts["features"]:
        name = release.facts["features"][0]
        x = np.asarray(release.features(name), np.float32)
        found["features"] = name
        found["label_noise"] = label_noise(x, y, columns["id"])
        sides = splits.get("split_0", ["train"] * len(table))
        found["drift"] = drift(x, y, np.array(columns["bucket"]), np.array(sides))
    if other is not None:
        found["overlap"] = overlap(release, of, other, bits)
    return found


def audit_stream(stream: Stream) -> dict[str, Any]:
    """Of a stream: balance, exact copies across splits, drift, label correlation of its training order."""
    flat = stream.flat("train")
    names = np.array(stream.classes)
    x, y, step, side, ids = [], [], [], [], []
    for s in stream.steps:
        for name, split in s.splits.items():
            x.append(np.asarray(split.x, np.float32).reshape(len(split), -1))
            y.append(split.y)
            step += [s.index] * len(split)
            side += [name] * len(split)
            ids += [str(i) for i in split.ids]
    rows, labels = np.concatenate(x), np.concatenate(y)
    exact = same_rows(rows)
    classes = names[labels].tolist()
    return {
        "kind": "stream",
        "name": stream.name,
        "images": len(labels),
        "classes": len(stream.classes),
        "balance": balance(classes, step),
        "near_copies": copy_report(exact, {"id": ids, "bucket": step, "class": classes, "split": side}, EXAMPLES)
        | {"bits": 0},
        "label_correlation": correlation(flat.y),
        "label_noise": label_noise(rows, labels, ids),
        "drift": drift(rows, labels, np.array(step), np.array(side)),
    }


def picture_hashes(release: Release) -> npt.NDArray[np.uint64]:
    """(N,) perceptual hashes of a release's images, in the order of its table."""
    import torch

    out, batch = [], []
    for _, data in release.images():
        batch.append(thumbnail(data))
        if len(batch) == BLOCK:
            out.append(perceptual_hashes(torch.stack(batch)))
            batch.clear()
    if batch:
        out.append(perceptual_hashes(torch.stack(batch)))
    return np.concatenate(out) if out else np.zeros(0, np.uint64)


def same_rows(x: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """(N,) group of equal rows: the first of them."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(row.tobytes(), i) for i, row in enumerate(x)], np.int64)


def balance(classes: Sequence[str], buckets: Sequence[int]) -> dict[str, Any]:
    """Images of each class in each bucket: fewest, most, and the cells that have none."""
    cells = Counter(zip(classes, buckets, strict=True))
    names, numbers = sorted(set(classes)), sorted(set(buckets))
    sizes = {c: [cells[c, b] for b in numbers] for c in names}
    return {
        "buckets": numbers,
        "counts": sizes,
        "fewest": min(map(min, sizes.values())),
        "most": max(map(max, sizes.values())),
        "empty": [[c, b] for c in names for b in numbers if not cells[c, b]],
    }


def uploaders(users: Sequence[str | None], sides: Sequence[str]) -> dict[str, Any]:
    """How many uploaders have photos on more than one side of a split, and the largest uploader's share."""
    of: dict[str, set[str]] = defaultdict(set)
    for user, side in zip(users, sides, strict=True):
        if user:
            of[user].add(side)
    known = Counter(u for u in users if u)
    both = {u for u, s in of.items() if len(s) > 1}
    return {
        "uploaders": len(of),
        "on_both_sides": len(both),
        "images_of_them": sum(known[u] for u in both),
        "unknown": sum(not u for u in users),
        "largest_share": max(known.values(), default=0) / max(1, len(users)),
    }


def label_noise(x: npt.NDArray[np.float32], y: npt.NDArray[np.int64], ids: Sequence[str]) -> dict[str, Any]:
    """Images most of whose NEIGHBOURS (cosine) bear one other label: an upper bound where classes look alike."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    unit = (x / np.maximum(lengths, 1e-12)).astype(np.float32)
    k = min(NEIGHBOURS, len(x) - 1)
    suspects: list[dict[str, Any]] = []
    for low in range(0, len(x) if k > 0 else 0, BLOCK):
        scores = unit[low : low + BLOCK] @ unit.T
        scores[np.arange(len(scores)), np.arange(low, low + len(scores))] = -np.inf
        near = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        for i, labels in enumerate(y[near].tolist()):
            label, votes = Counter(labels).most_common(1)[0]
            if label != y[low + i] and votes > k / 2:
                suspects.append({"id": ids[low + i], "label": int(y[low + i]), "neighbours": label, "votes": votes})
    suspects.sort(key=lambda s: (-s["votes"], s["id"]))
    return {"neighbours": k, "share": len(suspects) / max(1, len(x)), "most_suspicious": suspects[:EXAMPLES]}


def drift(
    x: npt.NDArray[np.float32], y: npt.NDArray[np.int64], bucket: npt.NDArray[Any], side: npt.NDArray[Any]
) -> dict[str, Any]:
    """Nearest class means of each bucket's training images, tried on every bucket's test images: the matrix, and its
    mean over the distance between buckets (0: in-domain; positive: forward in time)."""
    numbers = sorted(set(bucket.tolist()))
    classes = int(y.max()) + 1
    tests = [np.flatnonzero((bucket == b) & (side == "test")) for b in numbers]
    matrix: list[list[float | None]] = []
    for b in numbers:
        train = np.flatnonzero((bucket == b) & (side == "train"))
        if not len(train):
            matrix.append([None] * len(numbers))
            continue
        sums = np.zeros((classes, x.shape[1]))
        np.add.at(sums, y[train], x[train])
        counts = np.bincount(y[train], minlength=classes)
        means = sums / np.maximum(counts, 1)[:, None]
        row: list[float | None] = []
        for test in tests:
            scores = x[test] @ means.T - (means**2).sum(1) / 2
            scores[:, counts == 0] = -np.inf
            row.append(float(np.mean(scores.argmax(1) == y[test])) if len(test) else None)
        matrix.append(row)
    by: dict[int, list[float]] = defaultdict(list)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            if value is not None:
                by[j - i].append(value)
    return {
        "buckets": numbers,
        "matrix": matrix,
        "by_distance": {str(d): float(np.mean(v)) for d, v in sorted(by.items())},
    }


def correlation(y: npt.NDArray[np.int64]) -> dict[str, Any]:
    """How much labels in time order tell of the next: autocorrelation, the blind classifier's curve, suggested S."""
    if len(y) < 2:
        return {"autocorrelation": {}, "blind": None, "suggested_shift": None}
    shifts = (0, *(2**e for e in range(1, 18) if 2**e < len(y) // 4))
    curve: Curve = blind_curve(y, shifts, tuple(k for k in (1, 2, 5, 10, 50, 250, 1000) if k <= max(1, len(y) // 4)))
    return {
        "autocorrelation": {str(lag): value for lag, value in autocorrelation(y).items()},
        "blind": curve.plain(),
        "suggested_shift": curve.suggested,
    }


def overlap(release: Release, of: npt.NDArray[np.uint64], other: Release, bits: int) -> dict[str, Any]:
    """Images that another release holds, too: the same bytes, and near copies."""
    mine, theirs = (set(r.table["sha256"].to_pylist()) for r in (release, other))
    both = np.concatenate([of, picture_hashes(other)])
    group = near_copies(both, None, len(both), CopyRules(bits))
    n = len(of)
    shared = set(group[:n].tolist()) & set(group[n:].tolist())
    return {
        "with": other.name,
        "same_bytes": len(mine & theirs),
        "near_copies": int(np.isin(group[:n], list(shared)).sum()),
    }


def page(found: Mapping[str, Any]) -> str:
    """One self-contained HTML page."""
    parts = [f"<h1>Audit of {html.escape(str(found['name']))}</h1>", _summary(found)]
    balance_ = found["balance"]
    head = ["class", *map(str, balance_["buckets"])]
    rows = [[name, *map(str, counts)] for name, counts in balance_["counts"].items()]
    parts.append("<h2>Class balance</h2>" + _table(head, rows))
    if "drift" in found:
        d = found["drift"]
        cells = [
            [str(b), *("–" if v is None else f"{v:.3f}" for v in row)]
            for b, row in zip(d["buckets"], d["matrix"], strict=True)
        ]
        parts.append(
            "<h2>Drift</h2><p>Nearest class means of one bucket (row) tried on another (column).</p>"
            + _table(["trained on", *map(str, d["buckets"])], cells)
            + _table(["distance", "accuracy"], [[k, f"{v:.3f}"] for k, v in d["by_distance"].items()])
        )
    blind = found["label_correlation"]["blind"]
    if blind:
        rows = [
            [str(s), f"{b:.3f} ± {h:.3f}", str(k)]
            for s, b, h, k in zip(blind["shifts"], blind["best"], blind["half_width"], blind["best_k"], strict=True)
        ]
        parts.append(
            f"<h2>Label correlation</h2><p>A classifier that only repeats labels; at chance: {blind['chance']:.3f}.</p>"
            + _table(["shift S", "accuracy", "best k"], rows)
        )
    if "label_noise" in found:
        rows = [
            [str(s[k]) for k in ("id", "label", "neighbours", "votes")] for s in found["label_noise"]["most_suspicious"]
        ]
        parts.append("<h2>Labels to look at</h2>" + _table(["id", "label", "its neighbours' label", "votes"], rows))
    copies = [[", ".join(map(str, g))] for g in found["near_copies"]["examples"]]
    parts.append("<h2>Near copies</h2>" + _table(["groups"], copies))
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;margin:1rem 0}"
        "td,th{border:1px solid #9aa;padding:.25rem .6rem;text-align:right}"
        "td:first-child,th:first-child{text-align:left}div{overflow-x:auto}"
        "@media(prefers-color-scheme:dark){body{background:#10181d;color:#e8eef1}}"
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Audit of {html.escape(str(found['name']))}</title><style>{style}</style></head><body>"
        f"{''.join(parts)}</body></html>"
    )


def lines(found: Mapping[str, Any]) -> list[str]:
    """The findings, a sentence each."""
    copies = found["near_copies"]
    across = ", ".join(f"{n} across {name}" for name, n in copies["groups_across"].items())
    b = found["balance"]
    said = [
        f"{found['images']:,} images, {found['classes']} classes; a class has {b['fewest']} to {b['most']} in a bucket"
        + (f", {len(b['empty'])} cells are empty" if b["empty"] else ""),
        f"near copies: {copies['images_in_groups']:,} images in {copies['groups']:,} groups ({across})",
    ]
    for name, u in found.get("uploaders", {}).items():
        if name == "split_0":
            said.append(
                f"uploaders: {u['on_both_sides']} of {u['uploaders']:,} on both sides of {name} "
                f"({u['images_of_them']} images); the largest has {u['largest_share']:.1%}; {u['unknown']:,} images "
                "without"
            )
    if "label_noise" in found:
        said.append(f"labels: {found['label_noise']['share']:.1%} have mostly neighbours of one other class")
    if "drift" in found:
        by = found["drift"]["by_distance"]
        last = max(by, key=int)
        if "0" in by:
            said.append(f"drift: nearest means are right {by['0']:.1%} in-domain, {by[last]:.1%} {last} buckets later")
    s = found["label_correlation"]["suggested_shift"]
    said.append(f"label correlation: suggested shift S = {'none in reach' if s is None else s}")
    if "overlap" in found:
        o = found["overlap"]
        said.append(
            f"overlap with {o['with']}: {o['same_bytes']} images of the same bytes, {o['near_copies']} near copies"
        )
    return said


def _summary(found: Mapping[str, Any]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines(found)) + "</ul>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    top = "".join(f"<th scope='col'>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<div><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
