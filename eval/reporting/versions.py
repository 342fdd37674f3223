"""Results on several versions of one release: they are never mixed, and compared only on what the versions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from driftline.eval.protocol import Document
from driftline.eval.reporting.markup import render, table
from driftline.eval.scoring.ranking import bound, labels, protocol_settings, uses_unlabelled
from driftline.eval.scoring.versions import shared

STABLE = ("stream", "published")  # other values of the setting `splits` draw from all buckets at once
NOTE = (
    "Scores on different versions are in different columns and tables, and no test compares them. Here is the mean "
    "accuracy on the cells that two versions share: learned up to a bucket, all buckets until then the same, tested on "
    "a bucket that is the same. Learners that see all buckets at once are left out."
)


def section(documents: Sequence[Document]) -> str:
    """HTML about every two documents of one protocol on two versions of a release; "" if there are none."""
    parts = [
        _pair(a, b)
        for a, b in combinations([d for d in documents if d["results"] and "release" in d], 2)
        if a["protocol"] == b["protocol"] and a["release"]["name"] == b["release"]["name"]
        and a["release"]["version"] != b["release"]["version"]
    ]  # fmt: skip
    return render("versions", NOTE, parts) if parts else ""


def compared(a: Document, b: Document) -> list[dict[str, Any]]:
    """Learners with the same settings in both documents: `learner`, mean accuracy on the shared `cells` in `a` and
    `b`."""
    common, rows = shared(a["release"], b["release"]), []
    others = {(name, _key(b, r)): r for name, r in zip(labels(b["results"]), b["results"], strict=True)}
    for name, result in zip(labels(a["results"]), a["results"], strict=True):
        other = others.get((name, _key(a, result)))
        splits = protocol_settings(a, result).get("splits", STABLE[0])
        if other is None or bound(result) or splits not in STABLE:
            continue
        matrices = [r["matrix"] for r in (result, other)]
        if not all(matrices) or result["seeds"] != other["seeds"]:
            continue
        cells = common.cells(uses_unlabelled(result["learner"]))
        values = [[matrix[i][j] for i, j in cells] for matrix in matrices]
        pairs = [pair for pair in zip(*values, strict=True) if None not in pair]
        if pairs:
            means = [sum(side) / len(pairs) for side in zip(*pairs, strict=True)]
            rows.append({"learner": name, "cells": len(pairs), "a": means[0], "b": means[1]})
    return rows


def _key(document: Document, result: Mapping[str, Any]) -> str:
    return repr(sorted(protocol_settings(document, dict(result)).items()))


def _pair(a: Document, b: Document) -> tuple[str, str, str]:
    """Heading, sentences and the table, which may be ""."""
    one, two = a["release"], b["release"]
    rows = compared(a, b)
    names = ", ".join(one["buckets"][i]["name"] for i in shared(one, two).same) or "none"
    text = f"The same buckets: {names}."
    if not rows:
        text += " No score may be compared: no learner has a matrix with a shared cell, on the same seeds, in both."
    cells = [[row["learner"], row["cells"], f"{100 * row['a']:.1f}", f"{100 * row['b']:.1f}"] for row in rows]
    shown = table(("learner", "cells", one["version"], two["version"]), cells) if rows else ""
    return f"{a['protocol']}: {one['name']} {one['version']} and {two['version']}", text, shown
