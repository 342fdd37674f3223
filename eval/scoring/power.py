"""How little ageing a stream can show, before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from driftline.eval.scoring.net import pairs_of, years_of
from driftline.eval.scoring.timeline import record
from driftline.stream_builder.stream import Stream

DIFFER = 0.1  # variance of right answers that only one of two models of a method has, with that of the control
ALIKE = 0.35  # correlation of it within a group
SURE = 2.8  # standard errors: found in 80 % of cases, with intervals of 95 %
LEAST = 3  # steps


@dataclass(frozen=True)
class Power:
    """The smallest ageing that a stream shows in 80 % of cases."""

    points_per_year: float
    """net loss, points of accuracy"""
    tests: int
    """test samples of a step, median"""
    groups: int
    """their groups (uploaders, near copies), median; samples where groups are not known"""

    def text(self) -> str:
        """As a sentence."""
        groups = f", {self.groups:,} groups" if self.groups != self.tests else ""
        least = f"ageing below {self.points_per_year:.1f} points a year cannot be seen"
        return f"with {self.tests:,} tests{groups} a step, {least} (a method with 80 % right answers)"


def smallest_ageing(stream: Stream) -> Power | None:
    """Of clear-iid and 20 draws of the control; None without dates, tests in every step, or three steps.

    The loss per year is a sum over tested steps of mean differences between models. Each has the variance `DIFFER`,
    groups of s samples 1 + (s − 1) · `ALIKE` times that of single ones; both are of simulated streams."""
    steps = stream.steps
    years = years_of({"steps": len(steps), "timeline": record(stream)})
    if years is None or len(steps) < LEAST or not all(step.splits.get("test") for step in steps):
        return None
    pairs = pairs_of(np.ones((len(steps), len(steps)), bool), years)
    of_step = np.bincount(pairs.test, pairs.weight, len(steps))
    variance, tests, groups = 0.0, [], []
    for weight, step in zip(of_step, steps, strict=True):
        test = step["test"]
        sizes = np.unique(np.arange(len(test)) if test.group is None else test.group, return_counts=True)[1]
        variance += DIFFER * weight**2 * float((sizes * (1 + (sizes - 1) * ALIKE)).sum()) / len(test) ** 2
        tests.append(len(test))
        groups.append(len(sizes))
    return Power(100 * SURE * float(np.sqrt(variance)), int(median(tests)), int(median(groups)))
