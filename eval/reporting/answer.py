"""The first screen of a group of comparable results: what can be concluded, and what cannot.

Ranking is by accuracy, never by a slope; a group that is not told apart is named, and its extremes are not. "Ages" is
said only where a control shows it (see `driftline.eval.scoring.net`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

import numpy as np
from markupsafe import Markup

from driftline.eval.reporting.ageing import retrained, together
from driftline.eval.reporting.markup import render
from driftline.eval.reporting.protocols import Lead, page_of
from driftline.eval.scoring.bands import Band
from driftline.eval.scoring.net import WITHOUT_CONTROL, Net, holm_named
from driftline.eval.scoring.ranking import bound, rival

from .compared import Part, Result, below_all, competitors, labelled, name_of, range_of, ranked
from .text import counted, ends, half_life_text, listed, points, seconds_text, span

LEAST = 30  # test samples: with fewer, an interval is 36 points wide or more
FEW_SEEDS = 5
CONTROL = "driftline eval … --control 20"


@dataclass(frozen=True)
class Answer:
    """What a first screen says."""

    headline: str
    """one sentence without numbers of single learners"""
    sentences: tuple[Markup, ...]
    """the key sentence, which is above the figure, then takeaways"""
    may_conclude: tuple[Markup, ...]
    may_not_conclude: tuple[Markup, ...]

    def texts(self) -> dict[str, Any]:
        """Without tags, as `driftline report --json` has it."""
        lists = {name: [_text(one) for one in getattr(self, name)] for name in LISTS}
        return {"headline": _text(self.headline), **lists}


LISTS = ("sentences", "may_conclude", "may_not_conclude")


def _text(markup: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", markup))


def answer(part: Part) -> Answer | None:
    """Of one of `document.shown`'s parts; None without results."""
    if not part["results"]:
        return None
    page = page_of(part)
    old = part.get("when_old") if part.get("ageing") and page.ages else None
    lead = page.lead(part)
    below = None if lead else below_all(part)
    old = None if below else old
    if lead:
        headline, key = "No learner is shown to be above answers that see no sample", lead.sentence
        if lead.above:
            verb, of = "is" if len(lead.above) == 1 else "are", counted(len(competitors(part["results"])), "learner")
            headline = f"{len(lead.above)} of {of} {verb} above answers that see no sample"
    elif below:
        headline, key = below
    elif old:
        headline, key = _aged(part, old)
    elif part.get("ageing") and page.ages:
        why = "Every model was tested at one age only, or no two on the same samples."
        if any(len(r["aged"].curve.age) > 1 for r in part["results"] if r.get("aged")):
            why = "No learner was retrained and tested at several ages on the same samples."
        headline, key = "How models age is not known", Markup(why)
    else:
        headline, key = ranked(part)
    takeaways = [_first_when_old(part, old), _harder(part), _frozen(part), _half_life(part, old)] if old else []
    takeaways += [ranked(part)[1]] if part.get("ageing") and page.ages and not old and not lead and not below else []
    takeaways += [] if len([one for one in takeaways if one]) > 1 else [_cost(competitors(part["results"]))]
    may, may_not = _may(part, old, lead, below is not None), _may_not(part, old)
    sentences = [key, *filter(None, takeaways)][:4]
    return Answer(headline, tuple(sentences), tuple(may), tuple(may_not))


# ---- by age -----------------------------------------------------------------------------------------------------


def _best_old(part: Part, old: Mapping[str, Any]) -> list[Result]:
    """The group that is first when old and not told apart, with what ageing is after Holm over it; all, if nothing was
    tested."""
    by_place = labelled(part)
    group = [by_place[i] for i in (old["ties"][0] if old["ties"] else old["members"])]
    nets = iter(holm_named([r["net"] for r in group if r.get("net") is not None]))
    return [r if r.get("net") is None else {**r, "net": next(nets)} for r in group]


def _aged(part: Part, old: Mapping[str, Any]) -> tuple[str, Markup]:
    """Headline and key sentence of models of several ages."""
    group, unit = _best_old(part, old), part["ageing"]["unit"]
    time = span(float(group[0]["aged"].curve.age[-1]), unit)
    if old["samples"] < LEAST:
        text = Markup("All ages were tested on {}: a difference of {:.0f} points may be chance.")
        chance = 100 * 1.96 * math.sqrt(0.5 / old["samples"])
        return f"{counted(old['samples'], 'test sample')}: too few", text.format(
            counted(old["samples"], "test sample"), chance
        )
    tested = [r for r in group if r.get("net") is not None and r["net"].points_per_year is not None]
    fall, who = range_of([float(r["aged"].curve.loss.value) for r in group], 1), listed([name_of(r) for r in group])
    behind = Markup("{} percentage points per {} behind newer models of the same method").format(
        fall, unit.removesuffix("s")
    )
    several = len(group) > 1
    if not tested:
        why = next((f" {r['net'].because}" for r in group if r.get("net") is not None and r["net"].because), "")
        if all(not _above_zero(r["aged"].curve.loss) for r in group):
            return f"No measurable fall in {time}", Markup("{} {} {}.").format(
                who, "fall" if several else "falls", behind
            )
        text = Markup("{} {} {}, which have also seen more data: how much of it is ageing is not known.{}")
        return "Older models are behind newer ones", text.format(who, "fall" if several else "falls", behind, why)
    return _controlled(tested, len(group) - len(tested), time)


def _controlled(tested: Sequence[Result], others: int, time: str) -> tuple[str, Markup]:
    """The same with a control. tested: those of the group that have one. time: the oldest age."""
    nets: list[Net] = [r["net"] for r in tested]
    net = range_of([float(one.points_per_year.value) / 100 for one in nets if one.points_per_year is not None], 1)
    fewest, wanted = min(net.draws for net in nets), max(net.wanted for net in nets)
    draws = f"{fewest} permutations" if fewest >= wanted else f"{fewest} of {wanted} permutations"
    of_control = f"net of a control in which nothing can age ({draws})"
    if others:
        of_control += f"; {counted(others, 'other learner')} of this group had no control"
    who = listed([name_of(r) for r in tested])
    states = {one.is_ for one in nets}
    if states == {"ageing"}:
        verb = "lose" if len(tested) > 1 else "loses"
        text = Markup("{} {} {} percentage points of accuracy per year by ageing, {}.")
        return "Models age: more training data do not explain the whole fall", text.format(who, verb, net, of_control)
    text = Markup("{}: accuracy drops by {} percentage points per year with age, {}.").format(who, net, of_control)
    if states == {"none"}:
        return f"No measurable ageing in {time}", text + Markup(" Any ageing is below 1 percentage point per year.")
    ageing = [name_of(r) for r in tested if r["net"].is_ == "ageing"]
    if not ageing:
        return "Whether models age is not known", text + Markup(" That may be chance.")
    return "Some of the best models age", text + Markup(" Ageing is shown for {}.").format(listed(ageing))


def _these(results: Sequence[Result]) -> Markup:
    """A group that the key sentence has named."""
    many = Markup("these {} learners").format(len(results))
    return many if len(results) > 2 else listed([name_of(r) for r in results])


def _above_zero(band: Band) -> bool:
    return bool(float(band.low) > 0)


def _first_when_old(part: Part, old: Mapping[str, Any]) -> Markup:
    """Who is first at the oldest age, by a paired test."""
    group, unit = _best_old(part, old), part["ageing"]["unit"]
    curves = [r["aged"].curve for r in group]
    now, fresh = (range_of([float(c.accuracy.value[k]) for c in curves], 1) for k in (-1, 0))
    time = span(float(curves[0].age[-1]), unit)
    names = _these(group)
    samples = counted(old["samples"], "test sample")
    others = len(old["members"]) - len(group)
    if len(old["members"]) == 1:
        text = Markup("When {} old, {} is right on {} % of {}; newly trained, on {} % of them.")
        return text.format(time, names, now, samples, fresh)
    how, end = "", "; differences were not tested"
    if old["ties"]:
        end, rest = "", f", ahead of {others} more" if others else ""
        how = " is the most accurate, beyond chance" if len(group) == 1 else f" do not differ measurably{rest}"
    text = Markup("When {} old, {}{}: {} % of {} are classified correctly (newly trained: {} %){}.")
    return text.format(time, names, how, now, samples, fresh, end)


def _harder(part: Part) -> Markup | None:
    """One number for all learners, where its interval excludes 0."""
    band: Band | None = part.get("harder_data")
    if band is None or not (float(band.low) > 0 or float(band.high) < 0):
        return None
    low, high = sorted(abs(float(end)) / 100 for end in (band.low, band.high))
    size = f"{points(abs(float(band.value)) / 100)} points ({ends(low, high)})"
    if float(band.value) < 0:
        return Markup("Test samples become easier for newly trained models: by {} per year.").format(size)
    return Markup("Test samples become harder for newly trained models, too: by {} per year.").format(size)


def _frozen(part: Part) -> Markup | None:
    """What never being retrained costs, on the last test period."""
    frozen = [r for r in part["results"] if r.get("aged") and r["matrix"] and not retrained(r["aged"])
              and not r.get("standing") and rival(r)]  # fmt: skip
    shown = dict(together(part))
    newest = [r for r in part["results"] if r["label"] in shown and rival(r) and r["matrix"]]
    if not frozen or not newest:
        return None
    levels = [np.array(r["matrix"], float)[0, -1] for r in frozen]
    fresh = [  # of the newest model, on the last test
        float(np.diagonal(np.array(r["matrix"], float), int(r["aged"].lags[r["aged"].base]))[-1]) for r in newest
    ]
    if np.isnan([*levels, *fresh]).any():
        return None
    text = Markup("{}, never retrained: {} % on the last period, where newly trained models reach {} %.")
    return text.format(listed([name_of(r) for r in frozen]), range_of(levels, 1), range_of(fresh, 1))


def _half_life(part: Part, old: Mapping[str, Any]) -> Markup | None:
    """Only where ageing is shown, of the first."""
    r = _best_old(part, old)[0]
    if r.get("net") is None or r["net"].is_ != "ageing" or r["aged"].half_life.why:
        return None
    value, within_ends = half_life_text(r["aged"].half_life, part["ageing"]["unit"])
    text = Markup("Half of the accuracy of {} above a constant answer is lost after {} ({}).")
    return text.format(name_of(r), value, within_ends) if not value.startswith("not") else None


# ---- what follows -----------------------------------------------------------------------------------------------


def seconds_of(result: Result) -> float:
    """Of one run, on average over seeds."""
    return float(result["seconds"]) / max(1, len(result["seeds"]))


def _cost(results: Sequence[Result]) -> Markup | None:
    """What the most and the least expensive learners cost."""
    by_cost = sorted(results, key=seconds_of)
    if len(by_cost) < 2 or seconds_of(by_cost[0]) <= 0:
        return None
    cheap, dear = by_cost[0], by_cost[-1]
    factor = seconds_of(dear) / seconds_of(cheap)
    if factor < 1.5:
        return Markup("All learners cost about the same, {} per run.").format(seconds_text(seconds_of(dear)))
    text = Markup("A run of {} takes {}, one of {} {:,.0f} times as long ({}).")
    times = (seconds_text(seconds_of(cheap)), seconds_text(seconds_of(dear)))
    return text.format(name_of(cheap), times[0], name_of(dear), factor, times[1])


def _may(part: Part, old: Mapping[str, Any] | None, lead: Lead | None, below: bool) -> list[Markup]:
    """What the numbers carry. below: no learner is shown to be above answers that see no sample."""
    may: list[Markup] = []
    enough = old is not None and old["samples"] >= LEAST
    if old and enough:
        group, unit = _best_old(part, old), part["ageing"]["unit"]
        time = span(float(group[0]["aged"].curve.age[-1]), unit)
        shown = [r for r in group if r.get("net") is not None and r["net"].is_ == "ageing"]
        none = [r for r in group if r.get("net") is not None and r["net"].is_ == "none"]
        if shown:
            may.append(Markup("that models of {} age on this stream").format(listed([name_of(r) for r in shown])))
        if none:
            may.append(
                Markup("that models of {} drop less than 1 percentage point per year by age").format(
                    listed([name_of(r) for r in none])
                )
            )
        if not shown and not none and any(_above_zero(r["aged"].curve.loss) for r in group):
            may.append(Markup("that models up to {} old are behind retrained ones here").format(time))
        if len(group) == 1 and old["ties"]:
            may.append(Markup("that {} is the most accurate when {} old").format(name_of(group[0]), time))
    if not old and not lead and not below:
        tested = part.get("tested")
        if tested and tested["ties"] and len(tested["ties"]) > 1:
            may.append(Markup("that learners without a common letter in the table differ"))
    if lead and lead.above:
        may.append(Markup("that {} learn from what they see").format(listed([render("strong", n) for n in lead.above])))
    return may or [Markup("nothing beyond these runs and these test samples")]


def _may_not(part: Part, old: Mapping[str, Any] | None) -> list[Markup]:
    """What they do not."""
    may_not: list[Markup] = []
    seeds = max(len(r["seeds"]) for r in part["results"])
    group = _best_old(part, old) if old else []
    if len(group) > 1:
        may_not.append(Markup("which of {} is best when old").format(_these(group)))
    lacking = [r for r in group if r.get("net") is None or r["net"].points_per_year is None]
    if lacking:
        whose = Markup("models of {}").format(listed([name_of(r) for r in lacking])) if lacking != group else "models"
        why = WITHOUT_CONTROL if lacking[0].get("net") is None else lacking[0]["net"].because
        why = f"no control was run ({CONTROL})" if why == WITHOUT_CONTROL else why
        may_not.append(Markup("that {} age: {}").format(whose, why))
    elif unknown := [r for r in group if r["net"].is_ == "not known"]:
        may_not.append(
            Markup("whether models of {} age: {}").format(
                listed([name_of(r) for r in unknown]), unknown[0]["net"].because
            )
        )
    if uploaders := part.get("uploaders"):
        why = "unknown here: give --stream" if uploaders == "not known" else "the stream names none"
        may_not.append(Markup("that p values and intervals hold for other uploaders ({})").format(why))
    if seeds == 1:
        may_not.append(Markup("what another seed would give: each learner ran with one"))
    elif seeds < FEW_SEEDS:
        may_not.append(Markup("how much results vary between seeds: there are only {}").format(seeds))
    if part.get("ageing") and not part["ageing"]["dates"] and page_of(part).ages:
        may_not.append(Markup("how fast in years: the stream has no dates, ages are in steps"))
    if bounds := [r for r in part["results"] if bound(r)]:
        may_not.append(Markup("that {} can be reached: an upper bound").format(listed([name_of(r) for r in bounds])))
    may_not.append(Markup("anything about other data, or beyond the times that were tested"))
    return may_not
