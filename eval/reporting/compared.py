"""Learners against each other, for a report: groups that do not differ, and who is ahead when old."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from driftline.eval.protocol import Document, stored_protocol
from driftline.eval.reporting.ageing import retrained
from driftline.eval.rows import Row, Run, groups, new_models
from driftline.eval.scoring.ageing import Ageing
from driftline.eval.scoring.bands import Array, Band
from driftline.eval.scoring.comparing import adjusted, compare, ties_of
from driftline.eval.scoring.ranking import comparable, rival

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def facts_of(runs: Sequence[Run], document: Document, clusters: Array | None) -> list[dict[str, Any]]:
    """Each group of comparable results that can be tested: positions of its learners in the document's results
    (`members`), their scores with intervals (`score`), which do not differ (`ties`), and the p of every pair."""
    per_group, runs_of = [], groups(runs)
    position = {id(result): i for i, result in enumerate(document["results"])}
    for group in comparable(document):
        members = sorted(position[id(r)] for r in group if rival(r))
        if len(members) < 2:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):  # a replicate may draw none of a small test's samples
            comparison = compare([runs_of[i] for i in members], clusters)
        if comparison is None:
            continue
        of_outcomes = adjusted(comparison.p_outcomes)
        pairs = [
            {
                "of": [members[i], members[j]],
                "difference": [float(getattr(comparison.difference, end)[i, j]) for end in ("value", "low", "high")],
                "p": float(comparison.adjusted[i, j]),
                "p_outcomes": float(of_outcomes[i, j]),
            }
            for i, j in combinations(range(len(members)), 2)
        ]
        ties = [[members[i] for i in tie] for tie in comparison.ties]
        per_group.append({"members": members, "score": comparison.score, "ties": ties, "pairs": pairs})
    return per_group


def old_of(
    runs: Sequence[Run], document: Document, aged: Sequence[Ageing | None], clusters: Array | None
) -> list[dict[str, Any]]:
    """The same by accuracy at the oldest age of the curves, on the same test samples: of each group of comparable
    results those that are retrained and tested together (`members`), in the order of that accuracy, with the number of
    test samples of one run. ties: as `facts_of`, with too few seeds of these trained models alone; [] if it cannot
    be tested."""
    per_group, runs_of, step_of = [], groups(runs), stored_protocol(document["protocol"]).roles.step
    for group in comparable(document):
        position = {id(result): i for i, result in enumerate(document["results"])}
        places = [position[id(r)] for r in group if rival(r) and r.get("standing") != "blind"]
        pairs = [(i, one) for i in places if (one := aged[i]) and len(one.curve.tested) and retrained(one)]
        pairs = [(i, one) for i, one in pairs if np.array_equal(one.curve.tested, pairs[0][1].curve.tested)]
        if not pairs or len(pairs[0][1].curve.age) < 2:
            continue
        first = pairs[0][1]
        lag, steps = int(first.lags[first.base + len(first.curve.age) - 1]), first.curve.tested.tolist()

        def decisive(rows: Sequence[Row], lag: int = lag, steps: Sequence[int] = steps) -> list[Row]:
            placed = new_models(rows, step_of)
            return [placed[j - lag, j] for j in steps if (j - lag, j) in placed]

        chosen = sorted(pairs, key=lambda pair: -float(pair[1].curve.accuracy.value[-1]))
        members = [i for i, _ in chosen]
        samples = sum(row.n for row in decisive(runs_of[members[0]][0].rows))
        apart = compare([runs_of[i] for i in members], clusters, decisive) if len(members) > 1 else None
        ties = () if apart is None else ties_of(np.arange(len(members)), apart.adjusted)
        if apart is not None and not ties:  # too few seeds: of these trained models, over other test samples
            ties = ties_of(np.arange(len(members)), adjusted(apart.p_outcomes))
        per_group.append({"members": members, "ties": [[members[i] for i in tie] for tie in ties], "samples": samples})
    return per_group


def letters(document: Document) -> dict[int, str]:
    """Position of a result → letters; two learners with a common letter do not differ. A learner that differs from all
    others has a letter of its own. {} if nothing was tested."""
    letters_of: dict[int, str] = {}
    for group in document.get("compared", ()):
        for k, tie in enumerate(group["ties"]):
            for i in tie:
                letters_of[i] = letters_of.get(i, "") + (LETTERS[k] if k < len(LETTERS) else "…")
    return letters_of


def scores_of_members(group: Mapping[str, Any] | None) -> dict[int, Band]:
    """Position of a result → its primary score with the interval over seeds and test samples."""
    return {} if group is None else {i: group["score"][k] for k, i in enumerate(group["members"])}
