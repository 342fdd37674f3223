"""Two sets of runs on the same streams against each other: `driftline compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.eval import outcomes
from driftline.eval import rows as row_files
from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import OF_LOGS, Document, primary_of
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.report import document_of, write
from driftline.eval.reporting.text import p_text
from driftline.eval.rows import Run, groups
from driftline.eval.scoring import ranking
from driftline.eval.scoring.comparing import ALPHA, compare
from driftline.eval.scoring.ranking import bound, labels, mean_of
from driftline.eval.scoring.significance import LEAST_SEEDS
from driftline.eval.scoring.sums import Resampling, clusters_of
from driftline.stream_builder.stream import Stream

NAMES = ("A", "B")


def two_runs(
    paths: Sequence[Path], out: Path, streams: Sequence[Stream] = (), title: str = ""
) -> tuple[Path, list[dict[str, Any]]]:
    """Write the report of two folders of rows, A and B, into `out`; returns its first page and the differences. Raises
    as `documents_of_both`."""
    documents, differences = documents_of_both(paths, streams)
    opening = Section("differences", "What changed", _table(differences, paths))
    title = title or f"{paths[0].name} against {paths[1].name}"
    return write(documents, out, title, streams=streams, opening=opening), differences


def documents_of_both(
    paths: Sequence[Path], streams: Sequence[Stream] = ()
) -> tuple[list[Document], list[dict[str, Any]]]:
    """Documents of the results in two folders of rows, A and B, and for each learner that both have, the primary score
    in A and B on the seeds of both, the difference B − A, its p after Holm over all learners, these seeds, those that
    are left out, and the settings that differ.

    Raises MissingFile for a folder without rows, BadConfig if A and B have no protocol and stream in common.
    """
    sides = [outcomes.find([path]) for path in paths]
    grouped = [row_files.grouped(runs) for runs, _ in sides]
    common = [key for key in grouped[0] if key in grouped[1]]
    if not common:
        have = "; ".join(
            f"{path}: {', '.join(sorted({f'{p} on {s}' for _, p, s in of})[:6])}"
            for path, of in zip(paths, grouped, strict=True)
        )
        problem = f"{paths[0]} and {paths[1]} have no protocol on the same stream in common."
        way_out = "Compare runs on one stream; driftline report compares what versions of one release share."
        raise BadConfig(problem, f"They have {have}.", way_out)
    by_digest = {stream.sha256: stream for stream in streams}
    documents: list[Document] = []
    differences = []
    for key in sorted(common):
        shared, left_out = _of_common_seeds([of[key] for of in grouped])
        shared = _of_common_tests(shared, paths)
        runs = [_named(run, name) for name, of in zip(NAMES, shared, strict=True) for run in of]
        document = document_of(runs, key, by_digest.get(key[0]), few=False)
        documents.append(document | {"skipped": [], "unread": [text for _, wrong in sides for text in wrong]})
        differences += _differences(runs, document, by_digest.get(key[0]), left_out)
    return documents, differences


def _of_common_seeds(sides: Sequence[Sequence[Run]]) -> tuple[list[list[Run]], dict[str, list[int]]]:
    """The runs of each side, of a learner that both have only with the seeds that both have, unless they have none in
    common; and learner → the seeds that are left out."""
    seeds = [{run.about["learner"]: set[int]() for run in side} for side in sides]
    for of_side, side in zip(seeds, sides, strict=True):
        for run in side:
            of_side[run.about["learner"]].add(run.about["seed"])
    common = {name: seeds[0][name] & seeds[1][name] for name in seeds[0] if name in seeds[1]}
    left_out = {name: sorted((seeds[0][name] | seeds[1][name]) - of) for name, of in common.items() if of}
    shared = [
        [run for run in side if run.about["seed"] not in left_out.get(run.about["learner"], ())] for side in sides
    ]
    return shared, left_out


def _of_common_tests(sides: list[list[Run]], paths: Sequence[Path]) -> list[list[Run]]:
    """Of versions of a log, which answer at other times, the tests of the periods that both answered in."""
    if sides[0][0].about["protocol"] != OF_LOGS:
        return sides
    tested = [{row.tested_on for run in side for row in run.rows} for side in sides]
    if not (common := set.intersection(*tested)):
        problem = f"No period has labels of both {paths[0]} and {paths[1]}."
        raise BadConfig(problem, "Expected one in which both versions answered.", "driftline age says how each ages.")
    return [[replace(run, rows=[row for row in run.rows if row.tested_on in common]) for run in side] for side in sides]


def _named(run: Run, name: str) -> Run:
    """With the folder in the learner's name, as a setting."""
    learner = run.about["learner"]
    inside = f"{learner[:-1]},run={name})" if learner.endswith(")") else f"{learner}(run={name})"
    about = {key: value for key, value in run.about.items() if key != "published"}
    return replace(run, about=about | {"learner": inside})


def _differences(
    runs: Sequence[Run], document: Document, stream: Stream | None, left_out: Mapping[str, Sequence[int]]
) -> list[dict[str, Any]]:
    """One entry for each learner that is in A and B. left_out: of each, seeds that only one of them has."""
    score, results, runs_of = primary_of(document), document["results"], groups(runs)
    plain = [name.replace("(run=A)", "").replace(",run=A)", ")") for name in labels(results)]
    at: dict[str, dict[str, int]] = {}
    for i, result in enumerate(results):
        side = NAMES[result["learner"].endswith("run=B)")]
        name = plain[i].replace("(run=B)", "").replace(",run=B)", ")")
        at.setdefault(name, {})[side] = i
    pairs = {name: (sides["A"], sides["B"]) for name, sides in at.items() if len(sides) == len(NAMES)}
    draws = Resampling(groups=clusters_of(runs, stream))
    entries = []
    for name, (a, b) in pairs.items():
        tested = compare([*runs_of[b], *runs_of[a]], None, draws)
        before, after = (mean_of(score, results[i]) for i in (a, b))
        entry: dict[str, Any] = {"protocol": document["protocol"], "stream": document["stream"]["name"]}
        entry |= {"learner": name, "score": score.name, "a": before, "b": after, "p": None}
        entry["bound"] = bound(results[a])
        own, other = (results[i]["settings"] for i in (a, b))
        keys = [key for key in own | other if own.get(key) != other.get(key)]
        entry["settings"] = {key: [own.get(key), other.get(key)] for key in keys}
        entry["seeds"] = [list(results[i]["seeds"]) for i in (a, b)]
        entry["left_out"] = list(left_out.get(name.partition(", ")[0], ()))
        whole = all(ranking.rank(score, results[i])[0] == 1 for i in (a, b))  # else the means are of other seeds
        entry["difference"] = after - before if whole and before is not None and after is not None else None
        entry["interval"] = None
        if tested is not None and whole:
            ends = [float(tested.difference.low[0, 1]), float(tested.difference.high[0, 1])]
            entry["interval"] = ends if np.isfinite(ends).all() else None
            # The versions of a log are these trained models: no seed would make others.
            p = (tested.p_outcomes if document["protocol"] == OF_LOGS else tested.p_score)[0, 1]
            entry["p"] = float(p) if np.isfinite(p) else None
        entries.append(entry)
    rivals = [entry for entry in entries if entry["p"] is not None and not entry.pop("bound")]
    highest = 0.0
    for k, entry in enumerate(sorted(rivals, key=lambda e: float(e["p"]))):  # Holm [1979]
        highest = max(highest, min(1.0, entry["p"] * (len(rivals) - k)))
        entry["p"] = highest
    return entries


def _table(differences: Sequence[dict[str, Any]], paths: Sequence[Path]) -> str:
    names = dict(zip(NAMES, paths, strict=True))
    if not differences:
        return render("differences", "No learner is in both.", names, "", "")
    clear = [e for e in differences if e["p"] is not None and e["p"] < ALPHA]
    higher = sum(e["difference"] > 0 for e in clear)
    tested = sum(e["p"] is not None for e in differences)
    answer = (
        f"Learners in both: {len(differences)}. B scores higher with {higher}, lower with {len(clear) - higher}; "
        f"no significant difference (5 %, Holm): {tested - len(clear)}; not testable: {len(differences) - tested}."
    )
    causes = f" Not testable: no seed in both, fewer than {LEAST_SEEDS}, or rows without outcomes."
    why = causes if tested < len(differences) else ""
    rows = []
    for e in differences:
        ends = "" if e["interval"] is None else " to ".join(f"{100 * end:+.1f}" for end in e["interval"])
        difference = Cell(_percent(e["difference"], "+").replace("-", "−"), ends.replace("-", "−"))
        p = p_text(e["p"]).removeprefix("p = ").removeprefix("p ")
        result = f"{e['protocol']} on {e['stream']}"  # last: a phone shows the numbers
        rows.append(
            [Cell(e["learner"], what_differs(e)), *(_percent(e[side]) for side in ("a", "b")), difference, p, result]
        )
    heads = ("learner", "A", "B", "B minus A", "p", "result")
    note = "Primary score of each protocol, per cent; differences in points, with 95 % intervals over seeds and test "
    return render("differences", answer, names, table(heads, rows), f"{note}samples.{why}")


def what_differs(entry: Mapping[str, Any]) -> str:
    """Of the two sides of a learner: settings, and seeds that are not compared; "" if they are alike."""
    parts = [f"{key} {a} → {b}" for key, (a, b) in entry["settings"].items()]
    if entry["left_out"]:
        parts.append(f"seeds {', '.join(map(str, entry['seeds'][0]))} of both")
    elif set(entry["seeds"][0]).isdisjoint(entry["seeds"][1]):
        parts.append("no seed in both")
    return "; ".join(parts)


def _percent(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{100 * value:{sign}.1f}"
