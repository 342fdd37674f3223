"""The paper's own accuracies [Seq-to-Final, tables 8 to 14], one seed each, by sequence, network and learner.

Its `sft` is the highest test accuracy of three schedules (its summary script); it is compared with the best of ours.
Side modules of one layer are whole blocks in ConvNets: the paper prints those under -B.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from driftline.eval.settings import spec_of

ONE_LAYER = ("st-1", "sst-1", "jst-1")  # ConvNets' values stand under -B: means are over the other eight networks
EXACT = {  # settings of the protocol that made the values
    "fidelity": "paper-code", "budget": "paper", "epochs": 100, "precision": "float32",
    "lrs": "", "adjacents": "", "val_share": 0.0, "fits": 0,
}  # fmt: skip
# Training samples of each step, for 2 to 8 steps [sections 5.1 and D; code].
SIZES = {
    tuple(1000 * n for n in sizes)
    for sizes in (
        (16, 4), (10, 6, 4), (6, 4, 6, 4), (4, 4, 4, 4, 4), (4, 3, 3, 3, 3, 4), (4, 2, 3, 2, 3, 2, 4),
        (4, 2, 2, 2, 2, 2, 2, 4),
    )
}  # fmt: skip


@cache
def table() -> dict[tuple[str, str, str], float]:
    """(sequence, network, learner) → accuracy."""
    text = files("driftline.eval.protocols.seq_to_final").joinpath("published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["sequence"], row["network"], row["learner"]): float(row["accuracy"]) for row in rows}


def value(result: Mapping[str, Any]) -> float | None:
    """What the paper printed for one of a document's results; None if it printed nothing, or for other samples or
    settings.

    The paper's draws of CIFAR are published for sequences of four steps. For table 14 (only rotations, Res-4) and for
    the portraits there are none: there the sizes and the rendering must be the paper's.

    >>> notes = {"base": "cifar10", "sequence": "R:C:L", "sizes": [6000, 4000, 6000, 4000], "fidelity": "paper-code"}
    >>> result = {"learner": "baseline", "settings": EXACT | {"network": "conv-1"}}
    >>> value(result | {"told": notes | {"draws": "published"}}), value(result | {"told": notes | {"draws": "own"}})
    (0.47, None)
    """
    learner, settings = result["learner"], result["settings"]
    printed = table().get((_sequence(result.get("told", {})), str(settings.get("network")), learner))
    if printed is None:  # also for learners of other modules, which are not imported
        return None
    own = {key: default for key, default in spec_of(learner)().settings().items() if key not in ("device",)}
    same = all(settings.get(key, default) == default for key, default in (EXACT | own).items())
    return printed if same else None


def _sequence(notes: Mapping[str, Any]) -> str:
    """The name of a stream's sequence in the table; "" if its samples are not the paper's."""
    sequence = str(notes.get("sequence", ""))
    if notes.get("fidelity") != "paper-code":
        return ""
    if notes.get("from") == "portraits":
        return "portraits"
    if not any(name == sequence for name, *_ in table()) or tuple(notes.get("sizes", ())) not in SIZES:
        return ""
    table_14 = set(sequence) <= set("R:") and notes.get("base") == "cifar10"
    return sequence if notes.get("draws") == "published" or table_14 else ""


def counts_in_mean(network: str, learner: str) -> bool:
    """Whether a mean over networks, as in table 2, includes a network: not ConvNets for one-layer side modules."""
    return not (learner in ONE_LAYER and network.startswith("conv-"))
