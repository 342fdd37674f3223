"""Every learner under every protocol on every stream, in one table; and results on several versions of one release,
which are never mixed, and compared only on what the versions share.

A column is a protocol with its settings on a stream, with the protocol's primary score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from markupsafe import Markup

from driftline.eval.protocol import Document, Score, primary_of
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.text import detail, value_text
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ranking import bound, comparable, differing, labels, mean_of
from driftline.eval.scoring.timeline import shared

STABLE = ("stream", "published")  # other values of the setting `splits` draw from all buckets at once
NOTE = (
    "Scores on different versions are in different columns and tables, and no test compares them. Here is the mean "
    "accuracy on the cells that two versions share: learned up to a bucket, all buckets until then the same, tested on "
    "a bucket that is the same. Learners that see all buckets at once are left out."
)


@dataclass(frozen=True)
class Column:
    """A protocol with its settings on a stream."""

    protocol: str
    settings: str
    """that distinguish it from other columns of the same protocol and stream"""
    stream: str
    sha256: str
    """of the stream"""
    score: Score
    """the protocol's primary score"""


Cells = dict[str, dict[Column, Mapping[str, Any]]]  # learner → column → a result, or {"because"} if it was skipped


def cells_of(documents: Sequence[Document]) -> tuple[list[Column], Cells]:
    """Columns in the documents' order, one for each group of comparable results. Several results of a learner in a
    column are one row each."""
    columns: list[Column] = []
    cells: Cells = {}
    for document in documents:
        stream = document["stream"]
        for group, settings in zip(comparable(document), differing(document), strict=True):
            score = primary_of(document)
            column = Column(document["protocol"], settings, stream["name"], stream["sha256"], score)
            columns.append(column)
            for result, name in zip(group, labels(group), strict=True):
                cells.setdefault(name, {})[column] = result
            for entry in document.get("skipped", ()):
                if entry["learner"] != "all":
                    skipped = {"scores": {}, "because": entry["because"]}
                    cells.setdefault(entry["learner"], {}).setdefault(column, skipped)
    return columns, cells


def grid(columns: Sequence[Column], cells: Cells) -> str:
    """The table: a row for each learner, the best of a column bold."""
    best = {
        c: ranking.best(c.score, (row[c] for row in cells.values() if c in row and not bound(row[c]))) for c in columns
    }
    lines = [[c.protocol, c.settings, c.stream, c.score.label] for c in columns]
    heads = [Markup("<br>").join(part for part in parts if part) for parts in lines]
    rows = [[name, *(_cell(row.get(c), c.score, best[c]) for c in columns)] for name, row in cells.items()]
    return table(["learner", *heads], rows)


def _cell(result: Mapping[str, Any] | None, score: Score, best: Sequence[Mapping[str, Any]]) -> Cell | str:
    if result is not None and "because" in result:
        return Cell("skipped", below=result["because"], kind="soft skipped")
    if result is None or mean_of(score, result) is None:
        return "–"
    kind = "best" if any(result is other for other in best) else ""
    return Cell(value_text(score, mean_of(score, result)), beside=detail(score, result), kind=kind)


def overview(documents: Sequence[Document]) -> str:
    """HTML of the table; "" for one column."""
    columns, cells = cells_of(documents)
    if len(columns) < 2:
        return ""
    note = "Each protocol's primary score, per cent, mean ± standard deviation over seeds."
    return Markup("").join([render("soft", note), grid(columns, cells)])


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
