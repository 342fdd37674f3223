"""Why a version's accuracy fell: harder data, or an older model; where two versions in one period tell them apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.eval.service_log.cells import Cells


@dataclass(frozen=True)
class Split:
    """Why a version's accuracy fell since it was young, on average over pairs with a fresh version in one period."""

    harder: float
    """what fresh versions lose between the two periods: the data got harder, or other classes came"""
    older: float
    """what the old version is behind the fresh one in the later period"""
    pairs: int
    halves: tuple[float, float, float]
    """half of the 95 % intervals of harder, of older and of both together: by labels of these cells, whose periods are
    the question and vary nothing"""

    @property
    def parts(self) -> dict[str, tuple[float, float, float]]:
        """harder, older, together → its value, and the ends of its interval."""
        values = {"harder": self.harder, "older": self.older, "together": self.harder + self.older}
        ends = zip(values.items(), self.halves, strict=True)
        return {name: (value, value - half, value + half) for (name, value), half in ends}


def split(cells: Cells) -> tuple[Split | None, str]:
    """Of the oldest age at which two versions, an old and a fresh one, were in service in one period; or why none."""
    use = cells.usable
    at = {(int(v), int(p)): k for k, (v, p) in enumerate(zip(cells.version, cells.period, strict=True)) if use[k]}
    young = {v: min((int(cells.lag[k]), k) for (one, _), k in at.items() if one == v) for v in {v for v, _ in at}}
    pairs = []
    for (version, period), old in at.items():
        lag, first = young[version]
        for other, (fresh_lag, fresh) in young.items():
            if other != version and int(cells.period[fresh]) == period and fresh_lag <= lag < int(cells.lag[old]):
                pairs.append((int(cells.lag[old]) - lag, first, fresh, old))
    if not pairs:
        why = "Versions follow each other" if len(young) > 1 else "There is one version"
        do = "let the old one answer a part of the next month, or score stored inputs with it."
        if len({period for _, period in at}) < len(at):
            why = "Versions overlap, but the newer one was older at its first test than the other at its own"
            do = "put the next one into service as soon as it is trained, or score stored inputs with it."
        problem = "No period has an old and a fresh version: an older model and harder data look the same."
        return None, f"{problem} {why}; {do}"
    oldest = max(age for age, *_ in pairs)
    of = [(first, fresh, old) for age, first, fresh, old in pairs if age == oldest]
    weight = np.zeros((3, len(cells)))  # of each cell in harder, older, and both
    for first, fresh, old in of:
        weight[:, first] += (1, 0, 1)
        weight[:, fresh] += (-1, 1, 0)
        weight[:, old] += (0, -1, -1)
    weight = weight[:, use] / len(of)
    harder, older, _ = (weight @ cells.accuracy[use]).tolist()
    halves = np.sqrt(weight**2 @ ((cells.high - cells.low)[use] / 2) ** 2).tolist()
    return Split(harder, older, len(of), tuple(halves)), ""
