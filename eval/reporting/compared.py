"""Learners against each other, for a report: groups that do not differ, who is ahead when old, and who is first by the
primary score, above answers that see no sample."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from markupsafe import Markup

from driftline.eval.protocol import MAJORITY, Document, Score, primary_of, stored_protocol
from driftline.eval.reporting.ageing import retrained
from driftline.eval.reporting.markup import render
from driftline.eval.reporting.text import counted, listed, value_text, within
from driftline.eval.rows import Row, Run, groups, new_models
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ageing import Ageing
from driftline.eval.scoring.aggregate import Comparisons
from driftline.eval.scoring.bands import Array, Band
from driftline.eval.scoring.comparing import adjusted, compare, ties_of
from driftline.eval.scoring.ranking import comparable, mean_of, rival

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Part = Mapping[str, Any]
Result = Mapping[str, Any]


def facts_of(comparisons: Comparisons) -> list[dict[str, Any]]:
    """Each group of comparable results that can be tested (`aggregate.compared`): positions of its learners in the
    document's results (`members`), their scores with intervals (`score`), which do not differ (`ties`), and the p of
    every pair."""
    per_group = []
    for members, comparison in comparisons:
        of_predictions = adjusted(comparison.p_predictions)
        pairs = [
            {
                "of": [members[i], members[j]],
                "difference": [float(getattr(comparison.difference, end)[i, j]) for end in ("value", "low", "high")],
                "p": float(comparison.adjusted[i, j]),
                "p_predictions": float(of_predictions[i, j]),
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
            ties = ties_of(np.arange(len(members)), adjusted(apart.p_predictions))
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


def competitors(results: Sequence[Result]) -> list[Result]:
    """Rivals that see samples; if there are none, rivals."""
    rivals = [r for r in results if rival(r)]
    return [r for r in rivals if r.get("standing") != "blind"] or rivals


def name_of(result: Result) -> Markup:
    """Its label in bold."""
    return render("strong", result["label"])


def labelled(part: Part) -> dict[int, Result]:
    """By position in the document."""
    return {r["place"]: r for r in part["results"]}


def range_of(values: Sequence[float], digits: int) -> str:
    """The least and the most of shares, in points; one number if they are equal in print.

    >>> range_of([-0.0004, 0.021], 1)
    '0.0 to 2.1'
    """
    ends = (round(100 * end, digits) + 0.0 for end in (min(values), max(values)))  # no negative zero
    low, high = (f"{end:.{digits}f}".replace("-", "−") for end in ends)
    return low if low == high else f"{low} to {high}"


def floors(part: Part) -> dict[str, float]:
    """What answers that see no sample reach by the primary score: references, and learners that are blind."""
    score = part["primary"] or primary_of(part)
    blind = {r["label"]: mean_of(score, r) for r in part["results"] if r.get("standing") == "blind"}
    known = {f"the {name}" if name == MAJORITY else name: v for name, v in ranking.references(part["results"]).items()}
    return known | {name: mean for name, mean in blind.items() if mean is not None}


def ranked(part: Part) -> tuple[str, Markup]:
    """Headline and key sentence by the primary score."""
    score: Score = part["primary"] or primary_of(part)
    results = competitors(part["results"])
    if not results or not (best := ranking.best(score, results)):
        return f"No learner can be ranked by {score.label}", Markup("None reached it with all of the most seeds.")
    group = part.get("tested")
    bands, by_place = scores_of_members(group), labelled(part)
    tie = [by_place[i] for i in group["ties"][0]] if group and group["ties"] else []
    first = [r for r in tie if any(r is other for other in results)] or best
    value = _value(score, best[0], bands)
    top = _floor(part)
    constant = Markup(" {} reaches {}.").format(_upper(top[0]), _shown(score, top[1])) if top else Markup()
    who = listed([name_of(r) for r in first])
    if len(results) == 1:
        return f"One learner is ranked by {score.label}", Markup("{}: {}.{}").format(who, value, constant)
    if not tie or not any(r is best[0] for r in tie):
        text = Markup("{} is first by {}, {}; differences were not tested.{}")
        return f"Which of {len(results)} learners is the best is not known", text.format(
            who, score.label, value, constant
        )
    if len(first) == 1:
        text = Markup("{} has the best {} of {} learners, {}, beyond chance.{}")
        return f"One learner is ahead by {score.label}", text.format(who, score.label, len(results), value, constant)
    means = [mean for r in first if (mean := mean_of(score, r)) is not None]
    shown = f"{value_text(score, min(means))} to {_shown(score, max(means))}"
    text = Markup("{} do not differ measurably in {}: {}.{}")
    return f"{len(first)} of {len(results)} learners are first together", text.format(who, score.label, shown, constant)


def _floor(part: Part) -> tuple[str, float] | None:
    """The highest of `floors`."""
    score: Score = part["primary"] or primary_of(part)
    return max(floors(part).items(), key=lambda pair: score.gain(pair[1]), default=None)


def below_all(part: Part) -> tuple[str, Markup] | None:
    """Headline and key sentence where no learner is shown to be above answers that see no sample (primary score)."""
    score: Score = part["primary"] or primary_of(part)
    top, results = _floor(part), competitors(part["results"])
    best = ranking.best(score, results)
    bands = scores_of_members(part.get("tested"))
    if top is None or not best:
        return None
    half = (best[0].get("ci95_samples") or {}).get(score.name) or 0.0
    least = score.gain(mean_of(score, best[0])) - half  # by its mean, where no interval is known
    if best[0]["place"] in bands and score.higher_is_better:
        least = float(bands[best[0]["place"]].low)
    if least > score.gain(top[1]):
        return None
    text = Markup("{} reaches {}. Of {} looking at samples, {} is the best with {}, which is not shown to be better.")
    values = (_upper(top[0]), _shown(score, top[1]), counted(len(results), "learner"), name_of(best[0]))
    return f"No learner is shown to be above {top[0]}", text.format(*values, _value(score, best[0], bands))


def _upper(name: str) -> str:
    return name[:1].upper() + name[1:]


def _shown(score: Score, value: float | None) -> str:
    return value_text(score, value) + " %" * (score.unit == "share")


def _value(score: Score, r: Result, bands: Mapping[int, Band]) -> str:
    """A score with its 95 % interval."""
    if r["place"] in bands and score.unit == "share":
        value, _, rest = within(bands[r["place"]]).partition(" ")
        return f"{value} % {rest}".rstrip()
    return _shown(score, mean_of(score, r))
