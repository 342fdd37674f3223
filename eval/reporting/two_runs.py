"""Two sets of runs on the same streams against each other: `driftline compare`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.eval import predictions
from driftline.eval import rows as row_files
from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import Document, primary_of
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.report import document_of, write
from driftline.eval.reporting.text import ends, p_text, points
from driftline.eval.rows import Run, groups
from driftline.eval.scoring import ranking
from driftline.eval.scoring.bands import Array, holm
from driftline.eval.scoring.comparing import ALPHA, compare
from driftline.eval.scoring.ranking import bound, labels, mean_of
from driftline.eval.scoring.sums import clusters_of
from driftline.stream_builder.stream import Stream

NAMES = ("A", "B")


def two_runs(
    paths: Sequence[Path], out: Path, streams: Sequence[Stream] = (), title: str = ""
) -> tuple[Path, list[dict[str, Any]]]:
    """Write the report of two folders of rows, A and B, into `out`; returns its first page, and for each learner that
    both have, the primary score in A and B on the seeds of both, the difference B − A, its p after Holm over all
    learners, these seeds, those that are left out, and the settings that differ.

    Raises MissingFile for a folder without rows, BadConfig if A and B have no protocol and stream in common.
    """
    sides = [predictions.find([path]) for path in paths]
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
    entries = []
    for key in sorted(common):
        shared, left_out = _of_common_seeds([of[key] for of in grouped])
        stream = by_digest.get(key[0])
        both = [
            document_of(runs, key, stream, few=False) | {"side": name, "skipped": [], "unread": unread}
            for name, runs, (_, unread) in zip(NAMES, shared, sides, strict=True)
        ]
        documents += both
        clusters = clusters_of([run for runs in shared for run in runs], stream)
        entries += _differences(shared, both, clusters, left_out)
    opening = Section("differences", "What changed", _table(entries, paths))
    title = title or f"{paths[0].name} against {paths[1].name}"
    return write(documents, out, title, streams=streams, opening=opening), entries


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


def _differences(
    sides: Sequence[Sequence[Run]], documents: Sequence[Document], clusters: Array | None,
    left_out: Mapping[str, Sequence[int]],
) -> list[dict[str, Any]]:  # fmt: skip
    """One entry for each learner that is in A and B. left_out: of each, seeds that only one of them has."""
    named = [
        dict(zip(labels(document["results"]), zip(document["results"], groups(runs), strict=True), strict=True))
        for document, runs in zip(documents, sides, strict=True)
    ]
    about, score = documents[0], primary_of(documents[0])
    entries, rivals = [], []
    for name in (name for name in named[0] if name in named[1]):
        (own, a), (other, b) = (of_side[name] for of_side in named)
        before, after = mean_of(score, own), mean_of(score, other)
        keys = [k for k in own["settings"] | other["settings"] if own["settings"].get(k) != other["settings"].get(k)]
        whole = all(ranking.rank(score, one)[0] == 1 for one in (own, other))  # else the means are of other seeds
        apart = after - before if whole and before is not None and after is not None else None
        tested = compare([b, a], clusters) if whole else None
        of = [] if tested is None else [tested.difference.low, tested.difference.high]
        interval = [float(end[0, 1]) for end in of if np.isfinite(end[0, 1])]
        p = np.nan if tested is None else tested.p_score[0, 1]
        entries.append({
            "protocol": about["protocol"], "stream": about["stream"]["name"], "learner": name, "score": score.name,
            "a": before, "b": after, "p": None if np.isnan(p) else float(p),
            "settings": {key: [own["settings"].get(key), other["settings"].get(key)] for key in keys},
            "seeds": [list(own["seeds"]), list(other["seeds"])],
            "left_out": list(left_out.get(name.partition(", ")[0], ())), "uploaders": about.get("uploaders", ""),
            "difference": apart, "interval": interval or None,
        })  # fmt: skip
        rivals += [entries[-1]] if entries[-1]["p"] is not None and not bound(own) else []
    for entry, adjusted in zip(rivals, holm(np.array([entry["p"] for entry in rivals])).tolist(), strict=True):
        entry["p"] = adjusted
    return entries


def _table(entries: Sequence[dict[str, Any]], paths: Sequence[Path]) -> str:
    names = dict(zip(NAMES, paths, strict=True))
    if not entries:
        return render("differences", "No learner is in both.", names, "", "")
    clear = [e for e in entries if e["p"] is not None and e["p"] < ALPHA]
    higher = sum(e["difference"] > 0 for e in clear)
    tested = sum(e["p"] is not None for e in entries)
    answer = (
        f"Learners in both: {len(entries)}. B scores higher with {higher}, lower with {len(clear) - higher}; "
        f"no significant difference (5 %, Holm): {tested - len(clear)}; not testable: {len(entries) - tested}."
    )
    causes = " Not testable: no seed in both, only one, or results without per-sample predictions."
    why = causes * (tested < len(entries))
    why += " Uploaders are not known: give --stream." * any(e["uploaders"] == "not known" for e in entries)
    rows = []
    for e in entries:
        difference = Cell(points(e["difference"], signed=True), "" if e["interval"] is None else ends(*e["interval"]))
        p = p_text(e["p"]).removeprefix("p = ").removeprefix("p ")
        result = f"{e['protocol']} on {e['stream']}"  # last: a phone shows the numbers
        rows.append([Cell(e["learner"], what_differs(e)), points(e["a"]), points(e["b"]), difference, p, result])
    heads = ("learner", "A", "B", "B minus A", "p", "result")
    note = (
        "Ranking score of each protocol (%); differences in percentage points, with 95 % intervals over seeds and test "
    )
    return render("differences", answer, names, table(heads, rows), f"{note}samples.{why}")


def what_differs(entry: Mapping[str, Any]) -> str:
    """Of the two sides of a learner: settings, and seeds that are not compared; "" if they are alike."""
    parts = [f"{key} {a} → {b}" for key, (a, b) in entry["settings"].items()]
    if entry["left_out"]:
        parts.append(f"seeds {', '.join(map(str, entry['seeds'][0]))} of both")
    elif set(entry["seeds"][0]).isdisjoint(entry["seeds"][1]):
        parts.append("no seed in both")
    return "; ".join(parts)
