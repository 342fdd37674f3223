"""The blind classifier predicts labels from earlier labels only: it measures a stream's label correlation.

[near-future accuracy, sec. 4]: for a sample S samples ahead, predict the most frequent of the last k known labels. The
suggested shift S* is the smallest S at which labels alone are shown not to help: the upper end of the 95 % interval of
their gain over chance is at most LIMIT. A short stream cannot show it; there S* is the first shift that is not above
chance and longer than any run of one label, and `Curve.text` says so. Chance is the accuracy on the stream in random
order, not 1 / classes. Every report of a stream's label correlation is `correlation_of`, in the order in which
near-future delivers the samples.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.splitting import is_random
from driftline.stream_builder.stream import Stream

Labels = npt.NDArray[np.int64]
KS = (1, 2, 5, 10, 20, 30, 40, 60, 75, 100, 250, 500, 1000, 5000, 25_000, 75_000)
SHIFTS = (0, *(2**e for e in range(1, 18)))
LIMIT = 0.02  # gain over chance at S*, at most
TOLERANCE = 0.005  # accuracy above chance that still counts as chance
Z = 1.959964  # 95 % of a normal distribution
BLOCKS = 8  # at least, in a block bootstrap
CHANCES, DRAWS = 40_000, 16  # labels in random order that chance is measured on, in at most so many orders


@dataclass(frozen=True)
class Curve:
    """The blind classifier's accuracy over shifts and window lengths."""

    shifts: tuple[int, ...]
    """S: samples ahead"""
    ks: tuple[int, ...]
    """window lengths, in labels"""
    accuracy: npt.NDArray[np.float64]
    """(shifts, ks)"""
    best: tuple[float, ...]
    """highest accuracy at each shift"""
    best_k: tuple[int, ...]
    """its window length"""
    half_width: tuple[float, ...]
    """half the width of its 95 % confidence interval over streams with the same label correlation, see `half_width`"""
    chance: float
    """highest accuracy on the permuted stream, at shift 0; a mean over permutations"""
    above: tuple[bool, ...]
    """whether the interval at each shift is above chance, by more than the tolerance"""
    suggested: int | None
    """S*; None if all shifts are above chance"""

    def at(self, shift: int) -> int:
        """Position of the longest measured shift up to `shift`."""
        return sum(s <= shift for s in self.shifts) - 1

    def text(self, shift: int | None) -> str:
        """What labels alone are worth at a shift, in one sentence. shift: None where S* is."""
        if shift is None:
            return "Labels alone are above chance at every shift in range: no S can be suggested."
        k = self.at(shift)
        verdict = "help"
        if not self.above[k]:
            shown = self.best[k] + self.half_width[k] <= self.chance + LIMIT
            verdict = "do not help" if shown else "may or may not help"
        right, half, chance = (100 * share for share in (self.best[k], self.half_width[k], self.chance))
        return f"At S = {shift:,}, labels alone {verdict}: {right:.1f} ± {half:.1f} % right, chance {chance:.1f} %."

    def plain(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "shifts": list(self.shifts),
            "ks": list(self.ks),
            "accuracy": np.round(self.accuracy, 6).tolist(),
            "best": [round(b, 6) for b in self.best],
            "best_k": list(self.best_k),
            "half_width": [round(h, 6) for h in self.half_width],
            "chance": round(self.chance, 6),
            "suggested_shift": self.suggested,
        }


def modes(y: Labels, k: int) -> Labels:
    """(N,) the most frequent of the last k labels up to each position; of all labels while there are fewer.

    Ties: the newest label wins. If the mode leaves the window, the lowest of the most frequent labels wins.
    """
    if k == 1:
        return np.array(y, np.int64)
    counts = np.zeros(int(y.max()) + 1, np.int64)
    count = counts.data  # single items of an array take twice as long
    labels, out = y.tolist(), []
    mode = labels[0] if labels else 0
    for i, label in enumerate(labels):
        count[label] += 1
        if i >= k:
            old = labels[i - k]
            count[old] -= 1
            if old == mode and label != mode:
                mode = int(counts.argmax())
        if count[label] >= count[mode]:
            mode = label
        out.append(mode)
    return np.array(out, np.int64)


def blind_curve(y: Labels, shifts: Sequence[int] = SHIFTS, ks: Sequence[int] = KS) -> Curve:
    """The blind classifier's accuracy over shifts and window lengths.

    y: (N,) labels from 0, in stream order. A prediction for sample i uses labels up to i − S − 1; the first S + 1
    samples are not scored. Windows longer than the stream are skipped, and shifts longer than half of it: the few tests
    that they leave could not tell anything. Of 200 simulated streams in random order, at most 5 % have an S* above 0
    (tests/claims). Raises IncompatibleStream for fewer than two samples.
    """
    y = np.asarray(y, np.int64)
    if len(y) < 2:
        raise IncompatibleStream(f"The stream has {len(y)} samples.", "Expected at least two.")
    shifts = tuple(s for s in shifts if s + 1 < len(y) and 2 * s <= len(y))
    ks = tuple(k for k in ks if k <= len(y)) or (1,)
    accuracy, half = np.zeros((len(shifts), len(ks))), np.zeros(len(shifts))
    rng = rng_for(0, "blind chance")
    shuffled = [y[rng.permutation(len(y))] for _ in range(max(1, min(DRAWS, CHANCES // len(y))))]
    chances = np.zeros((len(shuffled), len(ks)))
    for j, k in enumerate(ks):
        mode = modes(y, k)
        for i, s in enumerate(shifts):
            right = mode[: len(y) - s - 1] == y[s + 1 :]
            accuracy[i, j] = float(np.mean(right))
            if j == 0 or accuracy[i, j] > accuracy[i, :j].max():
                half[i] = half_width(right, np.ones(len(right)))
        chances[:, j] = [np.mean(modes(labels, k)[:-1] == labels[1:]) for labels in shuffled]
    best = accuracy.max(1)
    chance = float(chances.max(1).mean())  # the best k of each order, as that of the stream is its best
    above = best - half > chance + TOLERANCE
    return Curve(
        shifts,
        ks,
        accuracy=accuracy,
        best=tuple(best.tolist()),
        best_k=tuple(ks[j] for j in accuracy.argmax(1).tolist()),
        half_width=tuple(half.tolist()),
        chance=chance,
        above=tuple(above.tolist()),
        suggested=_suggested(shifts, best + half - chance, above, _beyond_runs(y, shuffled)),
    )


def _suggested(
    shifts: Sequence[int], most: npt.NDArray[np.float64], above: npt.NDArray[np.bool_], least: int
) -> int | None:
    """S*. most, above: (shifts,) upper end of the gain over chance; whether it is above. least: from here on, a shift
    that is not above chance will do."""
    fits = (most <= LIMIT) | (~above & (np.array(shifts) >= least))
    if fits.any():
        return shifts[int(fits.argmax())]
    return None if above.all() else shifts[int(np.flatnonzero(~above)[-1])]


def _beyond_runs(y: Labels, shuffled: Sequence[Labels]) -> int:
    """The longest run of one label: no two labels of a run are so far apart; 0 where random orders have such runs."""
    longest, *by_chance = (
        int(np.diff(np.flatnonzero(np.diff(labels, prepend=-1, append=-1))).max()) for labels in (y, *shuffled)
    )
    return longest if longest > max(by_chance) else 0


def half_width(right: npt.NDArray[Any], n: npt.NDArray[Any]) -> float:
    """Half the width of the 95 % interval of a share, for right answers that come in runs: a block bootstrap, whose
    variance for a mean is known without drawing [Künsch 1989].

    right, n: (B,) right answers and samples of consecutive parts of a stream. Blocks of 1, 2, 4, … parts are tried,
    down to 8 blocks; the widest interval counts, and at least that of independent answers. On simulated runs of labels
    it holds the truth in 92 to 99 % of streams, where the interval of independent answers does in 25 to 65 %.

    >>> runs = np.repeat([1, 0] * 50, 20)  # right and wrong in runs of 20
    >>> round(half_width(runs, np.ones(2000)), 3), round(Z * (0.25 / 2000) ** 0.5, 3)
    (0.063, 0.022)
    """
    from scipy.special import stdtrit  # scipy.stats takes more than a second to import

    total, hits = float(n.sum()), float(right.sum())
    widest = float(independent(hits, total))
    excess = right - hits / total * n
    while (blocks := len(excess)) >= BLOCKS:
        deviation = float(np.sqrt((excess**2).sum() * blocks / (blocks - 1))) / total
        widest = max(widest, float(stdtrit(blocks - 1, 0.975)) * deviation)
        excess = excess[: blocks // 2 * 2].reshape(-1, 2).sum(1)
    return widest


def independent(right: npt.ArrayLike, n: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Half the width of the 95 % interval of each share of independent answers; never 0: it counts two right and two
    wrong answers more [Agresti & Coull 1998]."""
    total = np.asarray(n, np.float64) + 4
    share = (np.asarray(right, np.float64) + 2) / total
    return np.asarray(Z * np.sqrt(share * (1 - share) / total))


def labels_in_order(stream: Stream) -> Labels:
    """(N,) training labels in the order in which near-future delivers them."""
    y, order = np.concatenate([np.asarray(step["train"].y, np.int64) for step in stream.steps]), stream.time_order()
    return y if order is None else y[order]


def blind_curve_of(stream: Stream) -> Curve:
    """The blind classifier's curve on `labels_in_order`. S* is 0 where that order is a draw: where all samples have one
    time and the builder of the stream drew their order."""
    y = labels_in_order(stream)
    curve = cached_blind_curve(y)
    return replace(curve, suggested=0) if is_random(stream.ties(), len(y), stream.facts) else curve


def correlation_of(y: Labels, curve: Curve | None = None) -> dict[str, Any]:
    """How well labels in time order predict the next: autocorrelation, the blind classifier's curve, suggested S.

    curve: of a stream, if there is one. Without two samples there is nothing to measure.
    """
    if len(y) < 2:
        return {"autocorrelation": {}, "blind": None, "suggested_shift": None, "shift_text": "Too few samples."}
    curve = curve or cached_blind_curve(y)
    return {
        "autocorrelation": {str(lag): value for lag, value in autocorrelation(y).items()},
        "blind": curve.plain(),
        "suggested_shift": curve.suggested,
        "shift_text": curve.text(curve.suggested),
    }


def correlation_of_stream(stream: Stream) -> dict[str, Any]:
    """The same of a stream's training labels, and its "ties"."""
    y = labels_in_order(stream)
    return correlation_of(y, blind_curve_of(stream) if len(y) > 1 else None) | {
        "ties": stream.ties(), "ties_text": stream.ties_text()
    }  # fmt: skip


_curves: dict[str, Curve] = {}  # by hash of the labels


def cached_blind_curve(y: Labels) -> Curve:
    """`blind_curve` with the published shifts and windows, computed once for the same labels."""
    key = hashlib.sha256(np.ascontiguousarray(y, np.int64).tobytes()).hexdigest()
    if key not in _curves:
        _curves[key] = blind_curve(y)
    return _curves[key]


def autocorrelation(y: Labels, lags: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)) -> dict[int, float]:
    """Lag in samples → how much more often than by chance two samples at this distance have the same label.

    In [−1, 1]: 0 is chance, 1 is always.
    """
    y = np.asarray(y, np.int64)
    share = np.bincount(y) / max(1, len(y))
    chance = float((share**2).sum())
    if chance == 1.0:
        return {lag: 1.0 for lag in lags if lag < len(y)}
    return {lag: float((np.mean(y[lag:] == y[:-lag]) - chance) / (1 - chance)) for lag in lags if lag < len(y)}
