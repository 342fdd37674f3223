"""Audit of a release or a stream: balance, near-duplicates, drift, label correlation."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.seeding import rng_for, time_order
from driftline.curate.images.changes import KINDS, NONE, kinds_of
from driftline.curate.images.near_duplicates import copy_report, hashes_of, near_copies
from driftline.curate.metadata.clocks import reset_clocks
from driftline.curate.release import Release
from driftline.curate.release.drift import drift
from driftline.curate.release.settings import COPY_BITS
from driftline.eval.reporting.text import named_steps
from driftline.eval.scoring.aggregate import plain
from driftline.eval.scoring.retraining import smallest_ageing
from driftline.pipelines.run.run_folder import open_published
from driftline.pipelines.web.rendering import labels as bucket_labels
from driftline.stream_builder.builders.release import release_groups
from driftline.stream_builder.measures.label_correlation import correlation_of, correlation_of_stream
from driftline.stream_builder.splitting import drawn, sentence, ties_of
from driftline.stream_builder.stream import Stream

EXAMPLES = 20  # findings that are listed


def audit(path: Path, bits: int = COPY_BITS) -> dict[str, Any]:
    """Findings about the release (or run folder) or the stream at `path`.

    bits: of 64, in which hashes of near-duplicates may differ (`copies_by_hash`). Raises MissingFile for another
    folder.
    """
    opened = open_published(path)
    return audit_stream(opened) if isinstance(opened, Stream) else audit_release(opened, bits)


def audit_release(release: Release, bits: int = COPY_BITS) -> dict[str, Any]:
    """Findings about a release; the functions below say what each number means."""
    table = release.table
    columns = {
        name: table[name].to_pylist() for name in ("id", "bucket", "class", "label", "user", "uploaded", "sha256")
    }
    splits = {name: table[name].to_pylist() for name in release.facts["splits"]}
    group = near_copies(hashes_of(data for _, data in release.images()), bits)
    facts = {"id": columns["id"], "bucket": columns["bucket"], "class": columns["class"]} | splits
    y, uploaded = (np.array(columns[name], np.int64) for name in ("label", "uploaded"))
    ties, copies = ties_of(uploaded), copy_report(group, facts, EXAMPLES)
    findings: dict[str, Any] = {
        "kind": "release",
        "name": release.name,
        "images": len(table),
        "classes": len(release.classes),
        "class_names": release.classes,
        "bucket_names": {str(index): name for index, name in bucket_labels(release.buckets).items()},
        "balance": balance(columns["class"], columns["bucket"]),
        "near_copies": copies | {"bits": bits, "apart": _apart(copies["examples"], columns["id"], splits)},
        "prepared": prepared(table["changes"].to_pylist(), columns["bucket"]),
        "reset_clocks": reset_clocks(columns["uploaded"]),
        "contradicted_dates": release.facts["provenance"].get("contradicted_dates", {}),
        "undecided": release.facts["provenance"].get("undecided"),
        "uploaders": {name: uploaders(columns["user"], sides) for name, sides in splits.items()},
        "splits": release.facts["represented"],
        "label_correlation": correlation_of(y[time_order(uploaded, columns["id"])])
        | {"ties": ties, "ties_text": sentence(ties, len(y), drawn(0))},
    }
    if release.facts["features"]:
        name = release.facts["features"][:2][-1]  # those that chose the images recognise them in every bucket
        x = np.asarray(release.features(name), np.float32)
        bucket, side = np.array(columns["bucket"]), np.array(splits.get("split_0", ["train"] * len(table)))
        findings["drift"] = _drift(x, y, bucket, side, release_groups(release)) | {"features": name}
    return findings


def _apart(groups: Sequence[Sequence[str]], ids: Sequence[str], splits: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Of each group of ids, the splits in which it is on both sides."""
    place = {id_: i for i, id_ in enumerate(ids)}
    return [[name for name, sides in splits.items() if len({sides[place[i]] for i in group}) > 1] for group in groups]


def audit_stream(stream: Stream) -> dict[str, Any]:
    """Findings about a stream: balance, exact copies across splits, drift, label correlation in training order."""
    names = np.array(stream.classes)
    x, y, step, side, ids = [], [], [], [], []
    groups = [split.group for s in stream.steps for split in s.splits.values()]
    for s in stream.steps:
        for name, split in s.splits.items():
            x.append(np.asarray(split.x, np.float32).reshape(len(split), -1))
            y.append(split.y)
            step += [s.index] * len(split)
            side += [name] * len(split)
            ids += [str(i) for i in split.ids]
    rows, y_all = np.concatenate(x), np.concatenate(y)
    first: dict[bytes, int] = {}  # a row → its first index
    exact = np.array([first.setdefault(row.tobytes(), i) for i, row in enumerate(rows)], np.int64)
    linked = [group for group in groups if group is not None]
    of_row = np.concatenate(linked) if len(linked) == len(groups) else exact
    classes = names[y_all].tolist()
    return {
        "kind": "stream",
        "name": stream.name,
        "images": len(y_all),
        "classes": len(stream.classes),
        "class_names": list(stream.classes),
        "bucket_names": dict(zip((str(s.index) for s in stream.steps), named_steps(stream), strict=True)),
        "balance": balance(classes, step),
        "near_copies": copy_report(exact, {"id": ids, "bucket": step, "class": classes, "split": side}, EXAMPLES)
        | {"bits": 0},
        "label_correlation": correlation_of_stream(stream),
        "smallest_ageing": plain(smallest_ageing(stream)),
        "drift": _drift(rows, y_all, np.array(step), np.array(side), of_row),
    }


def balance(classes: Sequence[str], buckets: Sequence[int]) -> dict[str, Any]:
    """Images of each class in each bucket: the counts, the smallest, the largest, and the empty cells."""
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


def prepared(changes: Sequence[str | None], buckets: Sequence[int]) -> dict[str, dict[str, int]]:
    """kind of preparation (`changes.KINDS`) → bucket → images: what differs between buckets may be a shortcut to time.

    changes: of each image, the record of what was done to its file.
    """
    counts: dict[str, Counter[int]] = {kind: Counter() for kind in KINDS}
    for record, bucket in zip(changes, buckets, strict=True):
        for kind in kinds_of(record or NONE):
            counts[kind][bucket] += 1
    return {kind: {str(b): n for b, n in sorted(of.items())} for kind, of in counts.items() if of}


def uploaders(users: Sequence[str | None], sides: Sequence[str]) -> dict[str, Any]:
    """How many uploaders have photos in more than one part of a split, and the share of the largest uploader."""
    sides_of: dict[str, set[str]] = defaultdict(set)
    for user, side in zip(users, sides, strict=True):
        if user:
            sides_of[user].add(side)
    counts = Counter(u for u in users if u)
    both = {user for user, names in sides_of.items() if len(names) > 1}
    return {
        "uploaders": len(sides_of),
        "on_both_sides": len(both),
        "images_of_them": sum(counts[u] for u in both),
        "unknown": sum(not u for u in users),
        "largest_share": max(counts.values(), default=0) / max(1, len(users)),
    }


def _drift(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    bucket: npt.NDArray[Any],
    side: npt.NDArray[Any],
    group: npt.NDArray[np.int64],
) -> dict[str, Any]:
    """Where the sides share groups, which would make a bucket's own tests easy, other sides are drawn by group: "sides"
    is "drawn"."""
    shared = len(np.intersect1d(group[side == "test"], group[side == "train"])) > 0
    if shared:
        tested = draw_sides([bucket, y], group, float(np.mean(side == "test")), rng_for(0, "audit", "sides"))
        side = np.where(tested, "test", "train")
    return drift(x, y, bucket, side) | {"sides": "drawn" if shared else "own"}
