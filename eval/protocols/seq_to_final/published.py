"""The paper's own accuracies [Seq-to-Final, tables 8 to 14], one seed each, by sequence, network and learner.

Its `sft` is the highest test accuracy of three schedules (its summary script); it is compared with the best of ours.
Side modules of one layer are whole blocks in ConvNets: the paper prints those under -B.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

SIZES = (6000, 4000, 6000, 4000)


@cache
def table() -> dict[tuple[str, str, str], float]:
    """(sequence, network, learner) → accuracy."""
    text = files("eval.protocols.seq_to_final").joinpath("published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["sequence"], row["network"], row["learner"]): float(row["accuracy"]) for row in rows}


def value(notes: Mapping[str, Any], network: str, learner: str) -> float | None:
    """What the paper printed for this stream, network and method; None if it printed none, or for other samples.

    >>> stream = {"base": "cifar10", "sequence": "R:C:L", "sizes": [6000, 4000, 6000, 4000], "draws": "published"}
    >>> value(stream, "conv-1", "baseline"), value(stream | {"draws": "own"}, "conv-1", "baseline")
    (0.47, None)
    """
    same = notes.get("draws") == "published" and tuple(notes.get("sizes", ())) == SIZES
    return table().get((str(notes.get("sequence")), network, learner)) if same else None


def means() -> dict[str, dict[str, float]]:
    """Table 2: sequence → learner → mean over the paper's networks (8 for one-layer side modules, else 12).

    >>> round(means()["C:L:R"]["st-1"], 2), round(means()["C:L:R"]["ft"], 2)
    (0.55, 0.58)
    """
    accuracies: dict[str, dict[str, list[float]]] = {}
    for (sequence, _, learner), accuracy in table().items():
        accuracies.setdefault(sequence, {}).setdefault(learner, []).append(accuracy)
    return {s: {learner: sum(v) / len(v) for learner, v in row.items()} for s, row in accuracies.items()}
