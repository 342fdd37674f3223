"""Results on several versions of one release: they are never mixed, and compared only on what the versions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from driftline.eval.protocol import Document
from driftline.eval.reporting.markup import render, table
from driftline.eval.scoring.ranking import bound, labels, protocol_settings, uses_unlabelled
from driftline.eval.scoring.versions import Version, shared, version_of

STABLE = ("stream", "published")  # other values of the setting `splits` draw from all buckets at once
NOTE = (
    "Scores on different versions are in different columns and tables, and no test compares them. Here is the mean "
    "accuracy on the cells that two versions share: learned up to a bucket, all buckets until then the same, tested on "
    "a bucket that is the same. Learners that see all buckets at once are left out."
)


def section(documents: Sequence[Document]) -> str:
    """HTML about every two documents of one protocol on two versions of a release; "" if there are none."""
    versioned = [(d, version_of(d.get("release"))) for d in documents if d["results"]]
    parts = [
        _pair(a, one, b, two)
        for (a, one), (b, two) in combinations(versioned, 2)
        if one is not None and two is not None and a["protocol"] == b["protocol"]
        and one.name == two.name and one.version != two.version
    ]  # fmt: skip
    return render("versions", NOTE, parts) if parts else ""


def compared(a: Document, one: Version, b: Document, two: Version) -> list[dict[str, Any]]:
    """Learners with the same settings in both documents: `learner`, mean accuracy on the shared `cells` in `a` and
    `b`."""
    common, rows = shared(one, two), []
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


def _pair(a: Document, one: Version, b: Document, two: Version) -> tuple[str, str, str]:
    """Heading, sentences and the table, which may be ""."""
    common, rows = shared(one, two), compared(a, one, b, two)
    names = ", ".join(one.steps[i][0] for i in common.same) or "none"
    text = f"The same buckets: {names}."
    if not rows:
        text += " No score may be compared: no learner has a matrix with a shared cell, on the same seeds, in both."
    cells = [[row["learner"], row["cells"], f"{100 * row['a']:.1f}", f"{100 * row['b']:.1f}"] for row in rows]
    shown = table(("learner", "cells", one.version, two.version), cells) if rows else ""
    return f"{a['protocol']}: {one} and {two.version}", text, shown
