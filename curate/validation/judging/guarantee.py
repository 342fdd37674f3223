"""The guarantee: precision and recall per class and bucket of labels that models decided, from a random audited share.

People answer a random share; judges answer everything. Prediction-powered inference uses the judges on all images to
narrow the interval, and the audited share to remove their error: PPI [Angelopoulos et al. 2023], with PPI++'s weight
λ of the judges [Angelopoulos, Duchi & Zrnic 2024, "PPI++", sec. 6], which is 0 for judges that tell nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

EXTRA = 0.5  # errors that the variance counts beside those that were seen

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Estimate:
    """A share with its variance and interval."""

    value: float
    """0 to 1; nan without data"""
    variance: float
    """of `value`"""
    low: float
    """lower end of the interval"""
    high: float
    """upper end of the interval"""

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


NOTHING = Estimate(math.nan, 0.25, 0.0, 1.0)  # of no data


def power(y: Floats, f: Floats, f_rest: Floats) -> float:
    """PPI++'s weight λ of the judges, 0 to 1.

    λ = Cov(y, f) / ((1 + n/N) Var(f)), with the covariance on the n audited and the variance on all images.
    """
    n, rest = len(y), len(f_rest)
    everything = np.concatenate([f, f_rest])
    spread = float(everything.var(ddof=1)) if len(everything) > 1 else 0.0
    if n < 2 or rest == 0 or spread <= 1e-12:
        return 0.0
    covariance = float(((y - y.mean()) * (f - f.mean())).sum()) / n
    return float(np.clip(covariance / ((1 + n / rest) * spread), 0.0, 1.0))


def ppi_mean(y: Floats, f: Floats, f_rest: Floats, weight: float | None = None) -> tuple[float, float]:
    """(mean of y on all images, its variance) by PPI++.

    y: (n,) truth of the audited images. f, f_rest: (n,), (N,) what judges say of the audited and of the other images.
    weight: λ; None: the best one, 0: the classical mean of y.
    """
    lam = power(y, f, f_rest) if weight is None else weight
    rectifier = y - lam * f
    value, variance = float(rectifier.mean()), float(rectifier.var()) / len(y)
    if lam and len(f_rest):
        value += lam * float(f_rest.mean())
        variance += lam**2 * float(f_rest.var()) / len(f_rest)
    return value, variance


def share_of(y: Floats, f: Floats, f_rest: Floats, level: float = 0.95, weight: float | None = None) -> Estimate:
    """A share of images with its interval: `ppi_mean` where y is 0 or 1.

    The normal interval of a share near 0 or 1 is too narrow with few audited images, and empty if all of them agree. So
    the variance counts one more error in each direction, and the interval is Wilson's with the effective number of
    images that has this variance [Franco et al. 2019]. Without two audited images it is 0 to 1.
    """
    if len(y) < 2:
        return NOTHING
    lam = power(y, f, f_rest) if weight is None else weight
    value, variance = ppi_mean(y, f, f_rest, lam)
    if len(f_rest):
        variance += max(0.0, float((y - lam * f).var()) - lam**2 * float(f_rest.var())) / len(f_rest)
    return score_interval(min(max(value, 0.0), 1.0), variance + EXTRA / len(y) ** 2, level)


def score_interval(value: float, variance: float, level: float = 0.95) -> Estimate:
    """Wilson's interval of a share with a variance: of the number of images for which p(1-p)/n is that variance.

    >>> n = 50
    >>> estimate = score_interval(0.9, 0.9 * 0.1 / n)  # Wilson's own: 45 of 50
    >>> round(estimate.low, 4), round(estimate.high, 4)
    (0.7864, 0.9565)
    """
    # A share of exactly 0 or 1 has no spread of its own; the variance then says how many images were seen.
    spread = max(value * (1 - value), min(0.25, math.sqrt(max(variance, 0.0)) / 2))
    low, high = _wilson(value, spread / max(variance, 1e-12), level)
    return Estimate(value, variance, low, high)


def classical(right: int, n: int, level: float = 0.95) -> Estimate:
    """People's audited answers alone, with Wilson's interval. Without answers it is 0 to 1."""
    if n == 0:
        return NOTHING
    p = right / n
    return Estimate(p, p * (1 - p) / n, *_wilson(p, n, level))


def _wilson(p: float, n: float, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Sample:
    """Images of one class and bucket that judges decided in one way: some audited at random, the others not seen."""

    y: Floats
    """(n,) 1 where people say that the image shows the class, else 0"""
    f: Floats
    """(n,) probability of the class by the judges"""
    f_rest: Floats
    """(N,) the same of the images that no person saw"""

    def share(self, level: float) -> Estimate:
        """Share of the class among the images that no person saw; certain where there are none."""
        return share_of(self.y, self.f, self.f_rest, level) if len(self.f_rest) else Estimate(0.0, 0.0, 0.0, 0.0)

    def classical(self, level: float) -> Estimate:
        """The same from people's answers alone."""
        if not len(self.f_rest):
            return Estimate(0.0, 0.0, 0.0, 0.0)
        return classical(int(self.y.sum()), len(self.y), level)


def precision(seen: int, accepted: Sample, level: float = 0.95, plain: bool = False) -> Estimate:
    """Share of the labels of a class and bucket that people agree with, or would.

    seen: labels that people gave or confirmed. accepted: images that judges alone accepted. plain: people's answers
    alone.
    """
    rest = len(accepted.f_rest)
    if seen + rest == 0:
        return NOTHING
    share = accepted.classical(level) if plain else accepted.share(level)
    weight = rest / (seen + rest)
    low, high = (1 - weight + weight * end for end in (share.low, share.high))
    value = 1.0 if weight == 0 else 1 - weight + weight * share.value
    return Estimate(value, weight**2 * share.variance, low, high)


def recall(
    seen: int, accepted: Sample, rejected: Sample, level: float = 0.95, undecided: int = 0, share: float = math.nan
) -> Estimate:
    """Share of the images of a class among the candidates that got its label; delta method for the ratio.

    rejected: images that judges alone rejected. undecided: images that nobody decided, because people's answers cost
    too much; share: of the class among such images. The lower end counts all of them as lost, the upper end none.
    """
    yes, no = accepted.share(level), rejected.share(level)
    if math.isnan(yes.value) or math.isnan(no.value):
        return NOTHING
    labelled, lost = seen + len(accepted.f_rest) * yes.value, len(rejected.f_rest) * no.value
    if labelled + lost == 0:
        return NOTHING
    by_yes = len(accepted.f_rest) * lost / (labelled + lost) ** 2
    by_no = len(rejected.f_rest) * labelled / (labelled + lost) ** 2
    variance = by_yes**2 * yes.variance + by_no**2 * no.variance
    decided = labelled + lost
    value = labelled / decided  # certainly 1 or 0 where nothing was rejected or nothing got the label
    both = score_interval(value, variance, level) if variance else Estimate(value, 0.0, value, value)
    if not undecided:
        return both
    low = both.low * decided / (decided + undecided)
    return Estimate(labelled / (decided + share * undecided), both.variance, low, both.high)


def images_for(half_width: float, wanted: float, audited: int) -> int:
    """Further audited images that narrow an interval to ± `wanted`: the width falls with the square root.

    >>> images_for(0.10, 0.05, 30), images_for(0.04, 0.05, 30)
    (90, 0)
    """
    if half_width <= wanted:
        return 0
    return math.ceil(max(audited, 1) * ((half_width / wanted) ** 2 - 1))
