"""Every learner under every protocol on every stream, in one table; and results on several versions of one release,
which are never mixed, and compared only on what the versions share.

A column is a protocol with its settings on a stream, with the protocol's primary score.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from markupsafe import Markup

from driftline.eval.protocol import Document, Score, primary_of
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.text import detail, value_text
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ranking import bound, comparable, differing, labels, mean_of
from driftline.eval.timeline import shared

STABLE = ("stream", "published")  # other values of the setting `splits` draw from all buckets at once
NOTE = (
    "Scores on different versions are in different columns and tables, and no test compares them. Here is the mean "
    "accuracy on the cells that two versions share: learned up to a bucket, all buckets until then the same, tested on "
    "a bucket that is the same. Learners that see all buckets at once are left out."
)


def overview(documents: Sequence[Document]) -> str:
    """HTML of the table: a row for each learner, a column for each group of comparable results, its best bold; "" for
    one column. Several results of a learner in a column are one row each."""
    groups = [(d, *pair) for d in documents for pair in zip(comparable(d), differing(d), strict=True)]
    if len(groups) < 2:
        return ""
    heads, rows = list[str](["learner"]), dict[str, dict[int, Cell | str]]()
    for k, (document, group, settings) in enumerate(groups):
        score = primary_of(document)
        words = (document["protocol"], settings, document["stream"]["name"], score.label)
        heads.append(Markup("<br>").join(filter(None, words)))
        best = ranking.best(score, (result for result in group if not bound(result)))
        for result, name in zip(group, labels(group), strict=True):
            rows.setdefault(name, {})[k] = _cell(result, score, any(result is other for other in best))
        for entry in document.get("skipped", ()):
            if entry["learner"] != "all":
                cell = Cell("skipped", below=entry["because"], kind="soft skipped")
                rows.setdefault(entry["learner"], {}).setdefault(k, cell)
    lines = [[name, *(row.get(k, "–") for k in range(len(groups)))] for name, row in rows.items()]
    note = "Each protocol's ranking score (%), mean ± standard deviation over seeds."
    return Markup("").join([render("soft", note), table(heads, lines)])


def _cell(result: Mapping[str, Any], score: Score, best: bool) -> Cell | str:
    if (mean := mean_of(score, result)) is None:
        return "–"
    return Cell(value_text(score, mean), beside=detail(score, result), kind="best" * best)


def versions_section(documents: Sequence[Document]) -> str:
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
        splits = ranking.protocol_settings(a, result).get("splits", STABLE[0])
        if other is None or bound(result) or splits not in STABLE:
            continue
        matrices = [r["matrix"] for r in (result, other)]
        if not all(matrices) or result["seeds"] != other["seeds"]:
            continue
        cells = common.cells(ranking.uses_unlabelled(result["learner"]))
        values = [[matrix[i][j] for i, j in cells] for matrix in matrices]
        pairs = [pair for pair in zip(*values, strict=True) if None not in pair]
        if pairs:
            means = [sum(side) / len(pairs) for side in zip(*pairs, strict=True)]
            rows.append({"learner": name, "cells": len(pairs), "a": means[0], "b": means[1]})
    return rows


def _key(document: Document, result: Mapping[str, Any]) -> str:
    return repr(sorted(ranking.protocol_settings(document, dict(result)).items()))


def _pair(a: Document, b: Document) -> tuple[str, str, str]:
    """Heading, sentences and the table, which may be ""."""
    first, second = a["release"], b["release"]
    rows = compared(a, b)
    names = ", ".join(first["buckets"][i]["name"] for i in shared(first, second).same) or "none"
    text = f"The same buckets: {names}."
    if not rows:
        text += " No score may be compared: no learner has a matrix with a shared cell, on the same seeds, in both."
    cells = [[row["learner"], row["cells"], f"{100 * row['a']:.1f}", f"{100 * row['b']:.1f}"] for row in rows]
    shown = table(("learner", "cells", first["version"], second["version"]), cells) if rows else ""
    return f"{a['protocol']}: {first['name']} {first['version']} and {second['version']}", text, shown
