"""The answer of a report in one paragraph, from numbers: levels, losses by age, half-lives, costs, and what is not
significant. A sentence compares learners by one measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from driftline.eval.protocol import Score, primary_of
from driftline.eval.reporting.ageing import after, half_life_text, interval, learns_again, one_of, points
from driftline.eval.reporting.markup import render
from driftline.eval.reporting.text import counted, spread
from driftline.eval.scoring import ranking
from driftline.eval.scoring.comparing import ALPHA
from driftline.eval.scoring.ranking import bound, mean_of, rival
from driftline.eval.scoring.significance import LEAST_SEEDS

NAMED = 6  # learners that a sentence names
FEW_SEEDS = 5
Result = Mapping[str, Any]


def answer(part: Mapping[str, Any]) -> list[str]:
    """Sentences about a group of comparable results (one of `ranking.parts`), those with names in bold as `Markup`; []
    without results. Who may not win (upper bounds, equal rows, who sees no sample) is not compared."""
    results = _competitors(part["results"])
    if not part["results"]:
        return []
    score = part["primary"] if part.get("primary") else primary_of(part)
    aged = [r for r in results if r.get("ageing") and not r["ageing"]["half_life"]["why"]]
    sentences: list[str] = []
    if aged and any(len(r["ageing"]["age"]) > 1 for r in aged):
        sentences += _ageing(aged, part["ageing"]["unit"], bool(part["ageing"]["dates"]))
    elif part.get("ageing"):
        sentences.append(
            "Each model was tested at one age only, or never above chance: how fast it ages cannot be said."
        )
    if results:
        sentences += [_best(part, results, score), _cost(results), _unsure(part, results, score), _few(results)]
    sentences.append(_bound(part, score))
    return [sentence for sentence in sentences if sentence]


def _competitors(results: Sequence[Result]) -> list[Result]:
    """Rivals that see samples; if there are none, rivals."""
    rivals = [r for r in results if rival(r)]
    return [r for r in rivals if r.get("standing") != "blind"] or rivals


def _name(result: Result) -> Markup:
    return render("strong", result["label"])


def _best(part: Mapping[str, Any], results: Sequence[Result], score: Score) -> str:
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
    ps = [_p(part, best[0], r, score) for r in results if r is not best[0]]
    tie = part.get("best_tie")
    alone = tie == [best[0]["label"]] if tie else all(p is not None and p < ALPHA for p in ps)
    rank = "has the best" if alone else "is first by"
    values = (_name(best[0]), rank, score.label, spread(score, best[0]), len(results), fewer)
    return Markup("{} {} {}, {}, of {} learners{}.").format(*values)


def _p(part: Mapping[str, Any], best: Result, other: Result, score: Score) -> float | None:
    """Of the test of a result against the best one; None if it was not tested, or against another one."""
    first = ranking.best(score, (r for r in part["results"] if rival(r)))
    tested = any(r["label"] == best["label"] for r in first)
    p: float | None = other.get("p_against_best_adjusted", {}).get(score.name) if tested else None
    return p


def _ageing(aged: Sequence[Result], unit: str, dated: bool) -> list[str]:
    """Who is best when old, who loses least and most to fresh models on the same tests, and half-lives."""
    moving = [r for r in aged if r["ageing"]["tests"] and learns_again(r["ageing"])]
    moving = [r for r in moving if r["ageing"]["loss"]["value"] is not None]
    if not moving:
        return []
    at = len(moving[0]["ageing"]["age"]) - 1
    age = after(moving[0]["ageing"], at, unit)
    moving = [r for r in moving if len(r["ageing"]["age"]) == at + 1]
    by_old = sorted(moving, key=lambda r: r["ageing"]["accuracy"]["value"][at], reverse=True)
    now = [{end: v[at] for end, v in r["ageing"]["accuracy"].items()} for r in by_old]
    fresh, old = (points(by_old[0]["ageing"]["accuracy"]["value"][k]) for k in (0, at))
    rank = "is the most accurate" if all(_apart(now[0], other) for other in now[1:]) else "is first by accuracy"
    first = Markup("After {}, {} {}: {} %, after {} % when fresh, on the same {}.")
    tests = counted(by_old[0]["ageing"]["tests"], "test")
    sentences: list[str] = [first.format(age, _name(by_old[0]), rank, old, fresh, tests)]
    ordered = sorted(moving, key=lambda r: r["ageing"]["loss"]["value"])
    least, most = ordered[0], ordered[-1]
    if len(ordered) == 1:
        return [*sentences, Markup("{} {}; {}.").format(_name(least), _loses(least, unit), _half(least, unit))]
    verbs = ("ages least", "ages fastest")
    if not _apart(least["ageing"]["loss"], most["ageing"]["loss"]):
        sentences.append("No learner ages faster than another beyond the 95 % intervals.")
        verbs = ("fell least", "fell most")
    for result, verb in zip((least, most), verbs, strict=True):
        values = (_name(result), verb, _loses(result, unit), _half(result, unit))
        sentences.append(Markup("{} {}: it {}; {}.").format(*values))
    if not dated:
        sentences.append("The stream has no dates: ages are in steps.")
    return sentences


def _loses(result: Result, unit: str) -> str:
    facts = result["ageing"]
    value, ends = interval(facts["loss"])
    within = f" ({ends})" if ends else ""
    pairs = counted(facts["pairs"], "pair")
    return f"loses {value} points a {one_of(unit)}{within} to fresh models on the same tests ({pairs})"


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


def _unsure(part: Mapping[str, Any], results: Sequence[Result], score: Score) -> str:
    """Which learners do not differ from the best."""
    if len(results) < 2:
        return ""
    seeds = max(len(r["seeds"]) for r in results)
    if not part.get("best_tie") and seeds < LEAST_SEEDS:
        ran = f"Each learner ran with {counted(seeds, 'seed')}: differences over seeds are not tested."
        return render("unsure", ran)
    if not (bests := ranking.best(score, results)):
        return ""
    best = bests[0]
    if (tie := part.get("best_tie")) and best["label"] in tie:
        names = [render("strong", name) for name in tie]
        others = f" (paired test over samples and seeds, Holm, {100 * ALPHA:.0f} %)"
        if len(names) == 1:
            return render("unsure", Markup("{} differs from all others{}.").format(names[0], others))
        return render("unsure", Markup("No significant difference{} between {}.").format(others, _list(names)))
    ps = [(r, _p(part, best, r, score)) for r in results if r is not best]
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


def _few(results: Sequence[Result]) -> str:
    """What bands of fewer than five seeds do not know."""
    seeds = max(len(r["seeds"]) for r in results)
    if seeds >= FEW_SEEDS:
        return ""
    if seeds == 1:
        return "One seed: the bands know what other test samples would change, not what another seed would."
    return f"{counted(seeds, 'seed')}: how far seeds differ is roughly known only, so the bands are wide."


def _list(names: Sequence[Markup]) -> Markup:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return Markup(", ").join(names[:NAMED]) + more


def _bound(part: Mapping[str, Any], score: Score) -> str:
    bounds = [r for r in part["results"] if bound(r) and mean_of(score, r) is not None]
    if not bounds:
        return ""
    best = max(bounds, key=lambda r: ranking.rank(score, r))
    return render("unsure", f"Upper bound, {best['label']}: {spread(score, best)}.")
