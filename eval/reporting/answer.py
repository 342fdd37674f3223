"""The answer of a report in one paragraph, from numbers: who ages least, half-lives, costs, and what is not
significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from driftline.eval.protocol import Score, primary_of
from driftline.eval.reporting import spread
from driftline.eval.reporting.ageing import after, half_life_text, interval, oldest, points
from driftline.eval.reporting.markup import render
from driftline.eval.scoring import ranking
from driftline.eval.scoring.comparing import ALPHA
from driftline.eval.scoring.ranking import bound, mean_of, rival
from driftline.eval.scoring.significance import LEAST_SEEDS

NAMED = 6  # learners that a sentence names
Result = Mapping[str, Any]


def answer(document: Mapping[str, Any]) -> list[str]:
    """Sentences about a document as `report` shows it, those with names in bold as `Markup`; [] without results."""
    results = [r for r in document["results"] if _seeing(r)] or list(document["results"])
    if not results:
        return []
    score = document["primary"] if document.get("primary") else primary_of(document)
    aged = [r for r in results if r.get("ageing") and not r["ageing"]["half_life"]["why"]]
    sentences = []
    if aged and any(len(r["ageing"]["age"]) > 1 for r in aged):
        sentences += _ageing(aged, document["ageing"]["unit"], bool(document["ageing"]["dates"]))
    elif document.get("ageing"):
        sentences.append(
            "Each model was tested at one age only, or never above chance: how fast it ages cannot be said."
        )
    sentences += [
        _best(document, results, score),
        _cost(results),
        _unsure(document, results, score),
        _bound(document, score),
    ]
    return [sentence for sentence in sentences if sentence]


def _seeing(result: Result) -> bool:
    return rival(result) and result.get("standing") != "blind"


def _name(result: Result) -> Markup:
    return render("strong", result["learner"])


def _best(document: Mapping[str, Any], results: Sequence[Result], score: Score) -> str:
    """Who is first; the best is only who differs from every other one by a test."""
    top = max(results, key=lambda r: ranking.rank(score, r))
    if mean_of(score, top) is None:
        return f"No learner reached a {score.label} score."
    if len(results) == 1:
        return Markup("{}: {} {}.").format(_name(top), score.label, spread(score, top))
    if not (best := ranking.best(score, results)):
        return f"No learner has the best {score.label}: none reached it with all of the most seeds."
    ahead = [_name(r) for r in results if ranking.rank(score, r) > ranking.rank(score, best[0])]
    fewer = Markup(" with the most seeds; {} ran with fewer").format(_list(ahead)) if ahead else ""
    ps = [r.get("p_against_best_adjusted", {}).get(score.name) for r in results if r is not best[0]]
    tie = document.get("best_tie")
    alone = len(tie) == 1 if tie else all(p is not None and p < ALPHA for p in ps)
    rank = "has the best" if alone else "is first by"
    values = (_name(best[0]), rank, score.label, spread(score, best[0]), len(results), fewer)
    return Markup("{} {} {}, {}, of {} learners{}.").format(*values)


def _ageing(aged: Sequence[Result], unit: str, dated: bool) -> list[str]:
    """Who is best when old, who ages least and most, and how fast."""
    at = oldest(aged[0]["ageing"])
    age = after(aged[0]["ageing"], at, unit)
    compared = [r for r in aged if len(r["ageing"]["age"]) > at and _older(r, at)["value"] is not None]
    moving = [r for r in compared if any(r["ageing"]["causes"]["older"]["value"])]  # others never learn again
    if not moving:
        return []
    by_old = sorted(moving, key=lambda r: r["ageing"]["accuracy"]["value"][at], reverse=True)
    now = [_at(r["ageing"]["accuracy"], at) for r in by_old]
    fresh, old = (points(by_old[0]["ageing"]["accuracy"]["value"][k]) for k in (0, at))
    rank = "is the most accurate" if all(_apart(now[0], other) for other in now[1:]) else "is first by accuracy"
    first = Markup("After {}, {} {}: {} %, after {} % when fresh, on the same tests.")
    sentences: list[str] = [first.format(age, _name(by_old[0]), rank, old, fresh)]
    ordered = sorted(moving, key=lambda r: _older(r, at)["value"])
    least, most = ordered[0], ordered[-1]
    if len(ordered) == 1:
        return [*sentences, Markup("{}: {}; {}.").format(_name(least), _behind(least, at, age), _half(least, unit))]
    verbs = ("ages least", "ages fastest")
    if not _apart(_older(least, at), _older(most, at)):
        sentences.append("No learner ages faster than another beyond the 95 % intervals.")
        verbs = ("fell least", "fell most")
    for result, verb in zip((least, most), verbs, strict=True):
        values = (_name(result), verb, _behind(result, at, age), _half(result, unit))
        sentences.append(Markup("{} {}: {}; {}.").format(*values))
    if not dated:
        sentences.append("The stream has no dates: ages are in steps.")
    return sentences


def _older(result: Result, at: int) -> dict[str, Any]:
    """What a model loses by its age alone: how much better fresh models do on the same tests."""
    return _at(result["ageing"]["causes"]["older"], at)


def _at(estimate: Mapping[str, Sequence[Any]], at: int) -> dict[str, Any]:
    return {end: values[at] for end, values in estimate.items()}


def _behind(result: Result, at: int, age: str) -> str:
    value, ends = interval(_older(result, at))
    interval_text = f" ({ends})" if ends else ""
    if value.startswith("−"):
        return f"after {age} its models are not behind fresh ones ({value} points, {ends})"
    return f"after {age} its models are {value} points{interval_text} behind fresh ones on the same tests"


def _half(result: Result, unit: str) -> str:
    half = result["ageing"]["half_life"]
    if half["value"] is None:
        return f"its half-life is {half_life_text(half, unit)}"
    return f"half of what it knows above chance is gone after {half_life_text(half, unit)}"


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two intervals are there and do not overlap."""
    if None in (a["low"], a["high"], b["low"], b["high"]):
        return False
    return bool(a["low"] > b["high"] or b["low"] > a["high"])


def seconds_of(result: Result) -> float:
    """Of one run, on average over seeds."""
    return float(result["seconds"]) / max(1, len(result["seeds"]))


def _cost(results: Sequence[Result]) -> str:
    """What the most and the least expensive learners cost."""
    by_cost = sorted(results, key=seconds_of)
    cheap, dear = by_cost[0], by_cost[-1]
    if len(by_cost) < 2 or seconds_of(cheap) <= 0:
        return ""
    factor = seconds_of(dear) / seconds_of(cheap)
    if factor < 1.5:
        return f"All learners cost about the same, {_time(seconds_of(dear))} a run."
    values = (_name(cheap), _time(seconds_of(cheap)), _name(dear), factor, _time(seconds_of(dear)))
    return Markup("A run of {} takes {}, one of {} {:,.0f} times as long ({}).").format(*values)


def _time(seconds: float) -> str:
    """
    >>> _time(0.0053), _time(1.52), _time(900)
    ('5 ms', '1.5 s', '15 min')
    """
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _unsure(document: Mapping[str, Any], results: Sequence[Result], score: Score) -> str:
    """Which learners cannot be told from the best."""
    if len(results) < 2:
        return ""
    seeds = max(len(r["seeds"]) for r in results)
    if not document.get("best_tie") and seeds < LEAST_SEEDS:
        counted = f"{seeds} seed{'' if seeds == 1 else 's'}"
        return render("unsure", f"Each learner ran with {counted}: differences over seeds are not tested.")
    if not (bests := ranking.best(score, results)):
        return ""
    best = bests[0]
    if (tie := document.get("best_tie")) and best["learner"] in tie:
        names = [render("strong", name) for name in tie]
        others = f" (paired test over samples and seeds, Holm, {100 * ALPHA:.0f} %)"
        if len(names) == 1:
            return render("unsure", Markup("{} differs from all others{}.").format(names[0], others))
        return render("unsure", Markup("No significant difference{} between {}.").format(others, _list(names)))
    ps = [(r, r.get("p_against_best_adjusted", {}).get(score.name)) for r in results if r is not best]
    alike = [_name(r) for r, p in ps if p is not None and p >= ALPHA]
    unknown = [_name(r) for r, p in ps if p is None]
    text, test = Markup(), f"paired t tests over seeds, Holm over all pairs, {100 * ALPHA:.0f} %"
    if alike:
        text = Markup("Not significantly different from {} ({}): {}.").format(_name(best), test, _list(alike))
    elif len(unknown) < len(ps):
        text = Markup("All tested differences to {} are significant ({}).").format(_name(best), test)
    if unknown:
        why = f" Not tested, since seeds change nothing, differ or are fewer than {LEAST_SEEDS}: "
        text += Markup("{}{}.").format(why, _list(unknown))
    return render("unsure", text.strip())


def _list(names: Sequence[Markup]) -> Markup:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return Markup(", ").join(names[:NAMED]) + more


def _bound(document: Mapping[str, Any], score: Score) -> str:
    bounds = [r for r in document["results"] if bound(r) and mean_of(score, r) is not None]
    if not bounds:
        return ""
    best = max(bounds, key=lambda r: ranking.rank(score, r))
    return render("unsure", f"Upper bound, {best['learner']}: {spread(score, best)}.")
