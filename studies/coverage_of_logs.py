"""How often `driftline age` is right, on logs of models in service whose truth is known.

    python studies/coverage_of_logs.py [--logs 500]

One JSON line a case: the share of logs whose 95 % interval holds the true accuracy of a cell, curve by age, slope, and
what the next three months show; how often a fall or a rise is said.

Months differ in difficulty (sd 0.8 points). Versions follow each other with two months in common; one case has one
version only. Clusters are 20 customers that differ among themselves and from month to month; late labels come after 20
days on average.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.eval.reporting.logs import Ages

Floats = npt.NDArray[np.float64]
CLASSES, CHANCE, START, DAY = 4, 0.25, np.datetime64("2025-01", "M"), 86_400


@dataclass(frozen=True)
class World:
    """A case."""

    fall: str = "none"
    """none, linear, exponential, sudden (of all versions)"""
    months: int = 9
    versions: tuple[int, ...] = (0, 4)
    """month to whose begin each is trained"""
    n: int = 400
    """predictions of a version and month"""
    sd: float = 0.008
    """of what is special to a month"""
    customers: int = 0
    apart: float = 0.0
    """sd of a customer, and of it in a month"""
    late: bool = False
    fell: int = 6
    """month of a sudden fall"""

    def true(self, level: float, start: int, lag: Any) -> Any:
        """Accuracy of a version at an age, in an average month."""
        lag = np.asarray(lag, np.float64)
        if self.fall == "sudden":
            return level - 0.08 * (start + lag >= self.fell)
        if self.fall == "exponential":
            return CHANCE + (level - CHANCE) * 0.5 ** (lag / 10)
        return level - (0.02 * lag if self.fall == "linear" else 0.0 * lag)


@dataclass(frozen=True)
class Truth:
    """Behind a log."""

    levels: dict[int, float]
    """first month of a version → its accuracy when young"""
    of_month: Floats
    """(M + 3,) what is special to it"""


CASES = (
    World(), World("linear"), World("exponential"), World("sudden"),
    World("linear", customers=20, apart=0.05), World("linear", late=True, months=12, versions=(0, 5)),
    World(versions=(0,)),
    World("exponential", n=2000, months=24, versions=(0,)), World("exponential", n=60, months=30, versions=(0, 10)),
)  # fmt: skip


def simulated(world: World, rng: np.random.Generator) -> tuple[pa.Table, dict[str, str], Truth]:
    """A log, the months to which its versions are trained, and the truth."""
    months = (START + np.arange(world.months + 1)).astype("datetime64[s]").astype(np.int64)
    truth = Truth({s: 0.88 + rng.normal(0, 0.01) for s in world.versions}, rng.normal(0, world.sd, world.months + 3))
    constant = rng.normal(0, world.apart, world.customers)
    constant -= constant.mean() if len(constant) else 0.0
    parts = []
    for start, end in zip(world.versions, [*(v + 2 for v in world.versions[1:]), world.months], strict=True):
        active = range(start, min(end, world.months))
        parts += [_month(world, truth, start, month, constant, months, rng) for month in active]
    table = pa.concat_tables(parts)
    return table, {f"v{start}": str(START + start) for start in world.versions}, truth


def _month(
    world: World, truth: Truth, start: int, month: int, constant: Floats, months: Any, rng: np.random.Generator
) -> pa.Table:
    n = world.n
    label = rng.integers(0, CLASSES, n)
    share = world.true(truth.levels[start], start, month - start) + truth.of_month[month] + np.zeros(n)
    columns: dict[str, Any] = {}
    if world.customers:
        customer = rng.integers(0, world.customers, n)
        now = rng.normal(0, world.apart, world.customers)
        share = share + constant[customer] + (now - now.mean())[customer]
        columns["group"] = customer
    right = rng.random(n) < share.clip(0, 1)
    answer = np.where(right, label, (label + rng.integers(1, CLASSES, n)) % CLASSES)
    moment = rng.integers(months[month], months[month + 1], n)
    if world.late:
        columns["label_time"] = moment + (rng.exponential(20 * DAY, n)).astype(np.int64)
    return pa.table({
        "time": moment, "id": [f"{start}-{month}-{i}" for i in range(n)], "version": [f"v{start}"] * n,
        "prediction": answer, "label": label, **columns,
    })  # fmt: skip


def judged(world: World, aged: Ages, truth: Truth, rng: np.random.Generator) -> dict[str, list[bool]]:
    """Which intervals hold the truth."""
    holds: dict[str, list[bool]] = defaultdict(list)
    cells, use = aged.cells, aged.cells.usable
    starts = [int(version[1:]) for version in aged.versions]
    level = np.array([truth.levels[start] for start in starts])
    expected = world.true(level[cells.version], np.array(starts)[cells.version], cells.lag)
    shown = expected + truth.of_month[cells.period]
    holds["cell"] = ((cells.low <= shown) & (shown <= cells.high))[use].tolist()
    if world.fall != "sudden":
        fit, curve = aged.fit, aged.curve
        slope = float(fit.weights @ expected[use])
        holds["slope"].append(bool(fit.slope.low <= slope <= fit.slope.high))
        there = np.array([[(use & (cells.version == v) & (cells.lag == lag)).any() for lag in curve.lags]
                          for v in range(len(starts))])  # fmt: skip
        both = there & there[:, :1]
        by_age = np.array([world.true(one, 0, curve.lags) for one in level])
        own = by_age[there[:, 0], 0].mean()
        change = np.where(both, by_age - by_age[:, :1], 0).sum(0) / both.sum(0)
        band = curve.accuracy
        holds["curve"] = ((band.low <= own + change) & (own + change <= band.high)).tolist()
        holds["a change is said"].append(bool(fit.slope.high < 0 or fit.slope.low > 0))
    for one in aged.ahead:
        if one.period >= world.months:
            share = world.true(level[one.version], starts[one.version], one.lag) + truth.of_month[one.period]
            seen = rng.binomial(world.n, float(np.clip(share, 0, 1))) / world.n
            holds[f"forecast {one.period - world.months + 1}"].append(one.low <= seen <= one.high)
    return holds


def coverage(logs: int) -> None:
    """One line a case."""
    for number, world in enumerate(CASES):
        rng, holds = np.random.default_rng(number), defaultdict(list)
        until = str((START + world.months).astype("datetime64[D]") - 1) if world.late else None
        for _ in range(logs):
            table, versions, truth = simulated(world, rng)
            aged = Ages.of([table], versions=versions, period="month", until=until)
            for name, values in judged(world, aged, truth, rng).items():
                holds[name] += values
        shares = {name: round(float(np.mean(values)), 3) for name, values in holds.items()}
        print(json.dumps({"case": number, "world": asdict(world), "logs": logs, **shares}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=500)
    coverage(parser.parse_args().logs)
