"""Logs of a model in service with a known truth: each is one claim that `driftline age` could get wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.reporting.logs import Ages

DAY = 86_400
START = np.datetime64("2025-01", "M")
COSTS: dict[str, Any] = {"cost_error": 1.0, "cost_retrain": 20.0}
Floats = npt.NDArray[np.float64]


def month_start(month: Any) -> npt.NDArray[np.int64]:
    """Seconds UTC."""
    return (START + np.asarray(month)).astype("datetime64[s]").astype(np.int64)


def log_of(
    rng: np.random.Generator, months: int, n: int, share: Callable[[int, int, Floats], Any],
    versions: Sequence[int] = (0,), group: Callable[[int, Floats], Any] | None = None,
    label: Callable[[int, Floats], Any] | None = None, score: Callable[[Any], Floats] | None = None,
    known: Callable[[int, Any, Any], Any] | None = None, delay: Callable[[Any], Floats] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:  # fmt: skip
    """A log as columns, and the months to which versions are trained. versions: the month of each; it serves until two
    months after the next one starts. share(month, age, group or label numbers (N,)) → accuracy. group, label (month, u)
    → numbers; score(right) → confidence; known(month, score, u) → whether a label is there; delay(right) → days."""
    parts: dict[str, list[Any]] = {}
    ends = [*(start + 2 for start in versions[1:]), months]
    for start, end in zip(versions, ends, strict=True):
        for month in range(start, min(end, months)):
            u = rng.random(n)
            groups = np.zeros(n, np.int64) if group is None else group(month, u)
            labels = rng.integers(0, 4, n) if label is None else label(month, u)
            of = labels if group is None else groups
            right = rng.random(n) < np.clip(share(month, month - start, of), 0, 1)
            moment = rng.integers(month_start(month), month_start(month + 1), n)
            sure = np.full(n, 0.9) if score is None else score(right)
            there = np.ones(n, bool) if known is None else known(month, sure, rng.random(n))
            late = moment + (DAY * delay(right)).astype(np.int64) if delay else np.full(n, 0)
            columns = {
                "time": moment, "id": [f"{start}-{month}-{k}" for k in range(n)], "version": [f"v{start:02d}"] * n,
                "prediction": np.where(right, labels, (labels + 1) % 4).astype(str),
                "label": np.where(there, labels.astype(str), ""),
            }  # fmt: skip
            columns |= {"group": groups.astype(str)} if group else {}
            columns |= {"score": sure} if score else {}
            columns |= {"label_time": late} if delay else {}
            for name, values in columns.items():
                parts.setdefault(name, []).append(values)
    joined = {name: np.concatenate(of) for name, of in parts.items()}
    return joined, {f"v{start:02d}": str(START + start) for start in versions}


def aged(log: tuple[dict[str, Any], dict[str, str]], **more: Any) -> Ages:
    """What is said of it, by month."""
    return Ages.of(log[0], versions=log[1], **{"period": "month", **more})


def months_of(rng: np.random.Generator, months: int, sd: float, memory: float = 0.0) -> Floats:
    """(months,) what is special to each: an autoregressive process."""
    out = rng.normal(0, sd, months)
    for k in range(1, months):
        out[k] = memory * out[k - 1] + (1 - memory**2) ** 0.5 * out[k]
    return out


def harder(rng: np.random.Generator, n: int = 500) -> Ages:
    """All versions lose 1.5 points a month alike, because data get harder."""
    return aged(log_of(rng, 12, n, lambda month, age, _: 0.93 - 0.015 * month, (0, 4, 8)), **COSTS)


def better(rng: np.random.Generator, n: int = 500) -> Ages:
    """Each version is better than the one before and keeps its level; the next one would gain 2 points."""
    level = {0: 0.80, 4: 0.85, 8: 0.90}
    return aged(log_of(rng, 12, n, lambda month, age, _: level[month - age], (0, 4, 8)), **COSTS)


def chosen(rng: np.random.Generator, n: int = 333, hard: bool = False) -> Ages:
    """Accuracy is .85 throughout; people label what the model is unsure of, more so each month."""

    def known(month: int, score: Any, u: Any) -> Any:
        edge = 0.95 - 0.05 * month
        return score < edge + 0.3 if hard else u < 1 / (1 + np.exp((2 + 1.0 * month) * (score - edge)))

    def score(right: Any) -> Floats:
        return np.where(right, rng.beta(6, 2, len(right)), rng.beta(3, 3, len(right)))

    return aged(log_of(rng, 9, n, lambda *_: 0.85, score=score, known=known))


def season(rng: np.random.Generator, n: int = 400) -> Ages:
    """A year's season of 4 points, 9 months of it."""
    at = rng.random()
    return aged(log_of(rng, 9, n, lambda month, *_: 0.85 + 0.04 * np.sin(2 * np.pi * (month / 12 + at))))


def apart(rng: np.random.Generator, memory: float, n: int = 400, sd: float = 0.03, months: int = 9) -> Ages:
    """Months differ by chance."""
    special = months_of(rng, months, sd, memory)
    return aged(log_of(rng, months, n, lambda month, *_: 0.85 + special[month]))


def new_class(rng: np.random.Generator, n: int = 400) -> Ages:
    """From the sixth month on a new class has 7 % more of the traffic each month; it is answered worse."""
    return aged(log_of(
        rng, 10, n, lambda month, age, label: np.where(label == 3, 0.4, 0.9),
        label=lambda month, u: np.where(u < 0.07 * max(month - 4, 0), 3, rng.integers(0, 3, n)),
    ))  # fmt: skip


def traffic(rng: np.random.Generator, n: int = 500) -> Ages:
    """Traffic moves from easy to hard customers; no customer's accuracy changes."""
    return aged(log_of(
        rng, 9, n, lambda month, age, group: 0.95 - 0.02 * group,
        group=lambda month, u: (10 * u ** (2.0 - 0.19 * month)).astype(np.int64),
    ))  # fmt: skip


def late(rng: np.random.Generator, n: int = 600) -> Ages:
    """Accuracy is .85; wrong answers are found after 10 to 60 days, right ones at once."""
    log = log_of(rng, 9, n, lambda *_: 0.85, delay=lambda right: np.where(right, 0, rng.uniform(10, 60, len(right))))
    return aged(log, until=str((START + 9).astype("datetime64[D]") - 1))


def steady(rng: np.random.Generator, versions: Sequence[int] = (0, 4, 8), n: int = 400, sd: float = 0.008,
           own: float = 0.0) -> Ages:  # fmt: skip
    """Nothing ages; months differ a little, versions have levels of their own."""
    special, level = months_of(rng, 12, sd), dict(zip(versions, 0.88 + rng.normal(0, own, 9), strict=False))
    return aged(log_of(rng, 12, n, lambda month, age, _: level[month - age] + special[month], versions), **COSTS)


def falling(rng: np.random.Generator, versions: Sequence[int] = (0, 4, 8), n: int = 400, by: float = 0.015) -> Ages:
    """A version loses so much a month of its age; each starts at .9."""
    special = months_of(rng, 12, 0.008)
    return aged(log_of(rng, 12, n, lambda month, age, _: 0.9 - by * age + special[month], versions), **COSTS)
