"""Labelled samples with dates → a stream: every source fills `Rows`, and `cut` makes steps and splits of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.seeding import rng_for, time_order
from driftline.curate.core.times import CALENDAR, count_of
from driftline.stream_builder.splitting import drawn, equal_parts, no_test, numbered
from driftline.stream_builder.step import SPLITS, Array, Labels, Split, Step
from driftline.stream_builder.stream import Stream


@dataclass(frozen=True)
class Rows:
    """Labelled samples in any order."""

    name: str
    """becomes the stream's name"""
    samples: Split
    """all of them; groups are numbers or names, of which "" is a group of its own"""
    classes: Sequence[str]
    """class names; the index is the label"""
    side: Array | None = None
    """(N,) train, val or test; None: a test split is drawn"""
    check: str = ""
    """what looks wrong, which becomes a fact of the stream"""


def labelled(labels: Sequence[str]) -> tuple[Labels, list[str]]:
    """(N,) labels, and the names of the classes, sorted. labels: (N,) names."""
    names = sorted(set(labels))
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[name] for name in labels], np.int64), names


def with_labels(
    rows: Rows, facts: Mapping[str, Any], what: Callable[[int], str] = "sample {}".format
) -> tuple[Rows, dict[str, Any]]:
    """The rows that have a label, and the facts with the number of the others, whose label is below 0. what: as of
    `cut`. Raises BadInput if none has one."""
    there, facts = rows.samples.y >= 0, {**facts} | ({"check": rows.check} if rows.check else {})
    if there.all():
        return rows, facts
    if not there.any():
        raise BadInput(f"{rows.name}: no row has a label.", "Expected the name of a class.")
    few = f"{int((~there).sum()):,} rows without label, the first is {what(int(there.argmin()))}"
    side = None if rows.side is None else rows.side[there]
    rows = replace(rows, samples=rows.samples.take(np.flatnonzero(there)), side=side)
    return rows, {**facts, "left_out": "; ".join(filter(None, (facts.get("left_out"), few)))}


def check_ids(ids: Array, name: str, what: Callable[[int], str]) -> None:
    """Raise BadInput naming the first id (N,) that is there twice. what: number of a sample → its place."""
    if len(set(names := ids.tolist())) < len(names):
        twice, times = next(pair for pair in Counter(names).items() if pair[1] > 1)
        places = "; ".join(what(int(place)) for place in np.flatnonzero(ids == twice)[:2])
        problem = f"{name}: the id {twice!r} is there {times} times ({places})."
        raise BadInput(problem, "Expected one row a sample.", "Leave one of them, or correct the ids.")


def cut(
    rows: Rows, period: str, test_share: float, seed: int, facts: Mapping[str, Any],
    what: Callable[[int], str] = "sample {}".format,
) -> Stream:  # fmt: skip
    """Steps and samples in order of time; `seed` draws the order of equal times. The order of `rows` changes nothing.

    period: as of `periods_of`. Without sides, a random `test_share` of every step and class is tested, each group on
    one side. what: number of a sample → its place, for messages. Raises BadConfig, BadInput naming the first id that
    is there twice.
    """
    check_ids(rows.samples.ids, rows.name, what)
    rows, facts = with_labels(rows, facts, what)
    samples = rows.samples
    assert samples.time is not None
    order = time_order(samples.time, samples.ids, seed)
    step, names = periods_of(samples.time[order], period)
    facts = {**facts, "period": period, **drawn(seed)}
    return stepped(rows, order, step, names, test_share, seed, facts, alone=samples.ids[order])


def stepped(
    rows: Rows,
    order: Array,
    step: Array,
    names: Sequence[str],
    test_share: float,
    seed: int,
    facts: Mapping[str, Any],
    grouping: Literal["grouped", "random"] | None = None,
    alone: Array | None = None,
) -> Stream:
    """Steps of rows in an order, with their sides or a drawn test split, of which the fact `made` tells.

    order, step: (N,) positions of the rows, and the number of each one's step, in this order. grouping: "random" looks
    at no groups; "grouped" raises IncompatibleStream if they leave a step without a test sample. alone: (N,) groups
    where none are known.
    """
    check_share(test_share)
    samples, facts = rows.samples, dict(facts)
    if samples.group is not None and samples.group.dtype.kind == "U":
        group = np.empty(len(order), np.int64)
        group[order] = numbered(samples.group[order])
        samples = replace(samples, group=group)
    side = np.full(len(order), "train") if rows.side is None else rows.side[order]
    if rows.side is None and test_share:
        grouped = samples.group is not None and grouping != "random"
        linked = samples.group[order] if samples.group is not None and grouped else alone
        linked = np.arange(len(order)) if linked is None else linked
        test = draw_sides((step, samples.y[order]), linked, test_share, rng_for(seed, "test"))
        side = np.where(test, "test", "train")
        if grouped and grouping and (empty := sorted(set(range(len(names))) - set(step[test].tolist()))):
            raise no_test(f"Step {names[empty[0]]} of {rows.name}", test_share, "Use --grouping random.")
        drawn = f"a test split of {test_share:.0%} of every step and class, "
        drawn += f"{'with each group in one split' if grouped else 'random'}, seed {seed}"
        facts["made"] = "; ".join(filter(None, (facts.get("made"), drawn)))
    return Stream(rows.name, splits_of(samples, order, step, names, side), rows.classes, facts=facts)


def splits_of(samples: Split, order: Array, step: Array, names: Sequence[str], side: Array) -> list[Step]:
    """The steps; order: as of `stepped`; step, side: (N,) of each sample in this order."""
    steps = []
    for number, name in enumerate(names):
        of_step = np.flatnonzero(step == number)
        rows = {part: order[of_step[side[of_step] == part]] for part in SPLITS}
        steps.append(Step(number, name, {part: samples.take(chosen) for part, chosen in rows.items() if len(chosen)}))
    return steps


def check_share(test_share: float) -> None:
    """Raise BadConfig for a share of tests that is none."""
    if not 0 <= test_share < 1:
        raise BadConfig(f"--test-share is {test_share}.", "Expected a share from 0 to below 1.")


def periods_of(time: npt.NDArray[np.int64], period: str | int) -> tuple[Array, list[str]]:
    """(N,) number of the step of each sample, and the steps' names.

    period: year, month, week (from Monday on), day, or a number of steps of about equal size; equal times are in one.
    """
    if (parts := count_of(period)) is None:
        return calendar_steps(time, str(period))
    step = equal_parts(time, parts)
    first = [int(time[step == i].min()) for i in range(int(step.max()) + 1)]
    names = [str(np.datetime64(t, "s").astype("datetime64[D]")) for t in first]
    return step, names if len(set(names)) == len(names) else [str(i) for i in range(len(names))]


def calendar_steps(time: npt.NDArray[np.int64], period: str) -> tuple[Array, list[str]]:
    """(N,) number of the year, month, week or day of each sample, in UTC, and their names; a week's is its Monday."""
    dates = time.astype("datetime64[s]").astype("datetime64[D]")
    if period == "week":
        dates = dates - (dates.astype(np.int64) + 3) % 7  # the epoch is a Thursday
    else:
        dates = dates.astype(f"datetime64[{CALENDAR[period]}]")
    values, step = np.unique(dates, return_inverse=True)
    return step, [str(value) for value in values]
