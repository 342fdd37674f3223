"""Net loss: what a model loses with age beyond what the same method loses where nothing can age.

D(i, j) = R[j, j] − R[i, j] is what a model of step i is behind a newer one on the same tests. The control is the same
method on the same stream with visits permuted in time (see `driftline.eval.visits`): within classes (D_within) and over
all classes (D_all). D = (D − D_within) ageing + (D_within − D_all) class mix + D_all more data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driftline.eval.scoring.bands import Band, Floats

Is = Literal["ageing", "none", "not known"]


@dataclass(frozen=True)
class Loss:
    """A part of what models lose, in points of accuracy (0 … 100)."""

    by_age: Floats
    """(K,) mean over the pairs of each age"""
    per_year: float
    """Σ age · loss / Σ age² over all pairs"""


@dataclass(frozen=True)
class Net:
    """What one learner loses with age. K ages; the columns add up exactly: gross = ageing + mix + more_data."""

    is_: Is
    """"ageing": the interval of `points_per_year` is above 0; "none": its upper end is below 1; else "not known\""""
    points_per_year: Band | None
    """() net loss, points of accuracy a year, with its 95 % interval; None: there is no control, or it is not valid"""
    because: str
    """why, as a sentence"""
    draws: int
    """of the control that are there"""
    wanted: int
    """draws that were asked for; 0: there is no control"""
    age: Floats
    """(K,) mean age of each lag from 1 on, in years"""
    gross: Loss
    """behind newer models of the same method, on the same tests"""
    ageing: Loss
    """gross less what is lost with times permuted within classes; NaN without a control"""
    mix: Loss
    """of that, what is not lost with times permuted over all classes; 0 where the shares of classes hardly change"""
    more_data: Loss
    """the rest: what newer models gain by having seen more"""
    placebo: Floats
    """(draws,) net loss of each draw against the others, points a year: what chance makes"""
    equal_data: float | None = None
    """points a year lost by models that were all trained on equally many newest samples; None: not asked for"""
