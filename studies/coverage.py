"""How often intervals and tests are right, on simulated learners whose truth is known.

    python studies/coverage.py [intervals] [ties] [--simulations 300]

One JSON line a case. `intervals`: the share of simulations whose 95 % interval holds the true half-life, slope, curve
and accuracy. `ties`: the share of tables of equal learners in which any two of them are said to differ.

A world has 6 steps. A sample is right if its difficulty, which all models share, and noise of each answer are below
what a model of that age reaches, so that answers of seeds and ages agree as those of real models do (`shared`: the
difficulty's share of the variance). Seeds move a learner's accuracy with the standard deviation `sd`: half of the
variance is the seed's, half that of each model. Clusters are uploaders with 5 photos of a step each, which share half
of their difficulty.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from driftline.eval.rows import Answers, Row, Run, groups
from driftline.eval.scoring.ageing import Ageing, ageing
from driftline.eval.scoring.comparing import compare
from driftline.eval.scoring.decay import by_lag, falling, first_below, left_over, pairs_of, slope
from driftline.eval.scoring.sums import Resampling

Floats = npt.NDArray[np.float64]
STEPS, FRESH, AT_ONCE, REPLICATES, OF_CLUSTER = 6, 0.9, 20, 500, 5
LEFT: dict[str, Callable[[float], float]] = {  # share of what a model knows above chance that is left at an age
    "exponential": lambda age: 0.5 ** (age / 3),
    "linear": lambda age: max(0.0, 1 - age / 6),
    "plateau": lambda age: 0.35 + 0.65 * (0.15 / 0.65) ** (age / 3),
    "never": lambda age: 0.8 + 0.2 * 0.5**age,
}
SHARES = {True: (0.2, 0.2, 0.2, 0.2, 0.2), False: (0.4, 0.3, 0.1, 0.1, 0.1)}  # of the classes: balanced or not
ABOUT: dict[str, Any] = {
    "protocol": "clear-iid", "settings": {}, "protocol_settings": {}, "steps": STEPS, "stored_bytes": 0,
    "stream": {"name": "s", "sha256": "s"}, "gradient_steps": 0, "seconds": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """A case."""

    left: str = "exponential"
    learner: str = "retrained"
    """or "frozen" after the first step, or "mixed": learns at every second one"""
    n: int = 200
    """test samples of a step"""
    seeds: int = 1
    sd: float = 0.0
    """of a seed's accuracy"""
    balanced: bool = True
    clusters: bool = False
    shared: float = 0.7
    """of the variance of being right: that of a sample's difficulty"""

    @property
    def models(self) -> range:
        """The steps at which the learner learns."""
        return range(0, STEPS, {"retrained": 1, "mixed": 2, "frozen": STEPS}[self.learner])

    @property
    def truth(self) -> Floats:
        """(T, T) accuracy; NaN where no model learned."""
        chance, r = SHARES[self.balanced][0], np.full((STEPS, STEPS), np.nan)
        for i in self.models:
            r[i] = [chance + (FRESH - chance) * LEFT[self.left](max(0, j - i)) for j in range(STEPS)]
        return r


def clusters_of(world: World) -> npt.NDArray[np.int64] | None:
    """Uploader of each sample of all steps."""
    return np.arange(STEPS * world.n) // OF_CLUSTER if world.clusters else None


def difficulty_of(rng: np.random.Generator, world: World) -> Floats:
    """(T, n) of the test samples."""
    difficulty = rng.normal(size=(STEPS, world.n))
    if not world.clusters:
        return difficulty
    of_cluster = rng.normal(size=(STEPS, -(-world.n // OF_CLUSTER))).repeat(OF_CLUSTER, 1)[:, : world.n]
    return np.asarray(math.sqrt(0.5) * (difficulty + of_cluster))


def hits_of(rng: np.random.Generator, world: World, difficulty: Floats, accuracy: Floats) -> npt.NDArray[np.bool_]:
    """accuracy (S, I, T) of seed, model and tested step → (S, I, T, n) right answers."""
    noise = rng.normal(size=(*accuracy.shape, world.n))
    return np.asarray(
        math.sqrt(world.shared) * difficulty + math.sqrt(1 - world.shared) * noise < ndtri(accuracy)[..., None]
    )


def runs_of(rng: np.random.Generator, world: World, names: Sequence[str], same_tests: bool = False) -> list[Run]:
    """Equal learners; with their own tests, unless these are the same."""
    runs, models = [], list(world.models)
    label, difficulty = np.zeros((STEPS, world.n), np.uint8), np.zeros((STEPS, world.n))
    for number, name in enumerate(names):
        if number == 0 or not same_tests:
            label = rng.choice(len(SHARES[True]), (STEPS, world.n), p=SHARES[world.balanced]).astype(np.uint8)
            difficulty = difficulty_of(rng, world)
        moved = rng.normal(size=(world.seeds, 1, 1)) + rng.normal(size=(world.seeds, len(models), 1))
        accuracy = np.clip(world.truth[models] + world.sd * math.sqrt(0.5) * moved, 0.02, 0.98)
        hits = hits_of(rng, world, difficulty, accuracy)
        for seed in range(world.seeds):
            tests = []
            for at, i in enumerate(models):
                for j in range(STEPS):
                    right = hits[seed, at, j]
                    answers = Answers(
                        np.arange(world.n) + j * world.n, label[j], np.where(right, label[j], (label[j] + 1) % 5)
                    )
                    counts = [np.bincount(label[j][part], minlength=5).tolist() for part in (right | True, right)]
                    more: dict[str, Any] = {"class_n": counts[0], "class_correct": counts[1], "constant": 0}
                    tests.append(Row(str(j), world.n, int(right.sum()), i, last_change=i, answers=answers, **more))
            runs.append(Run({**ABOUT, "learner": name, "seed": seed}, tests))
    return runs


def covered(world: World, simulations: int) -> dict[str, float]:
    """The share of simulations whose interval holds the truth."""
    rng, truth = np.random.default_rng(list(repr(world).encode())), world.truth
    pairs = pairs_of([(i, j) for i in world.models for j in range(STEPS)], np.arange(float(STEPS)))
    r, lags = truth[pairs.model, pairs.tested], pairs.lags
    chance = np.array(SHARES[world.balanced][0])
    true = {
        "half-life": float(first_below(falling(left_over(r, chance, pairs)), 0.5, lags[lags >= 0].astype(float))),
        "slope": float(slope(r, pairs, pairs.model)),
        "accuracy": float(np.mean([truth[i, i + 1] for i in world.models if i + 1 < STEPS])),
    }
    curve = by_lag(r, pairs)[lags > 0]
    inside: dict[str, list[float]] = {}
    for start in range(0, simulations, AT_ONCE):
        runs = runs_of(rng, world, [f"learner-{k}" for k in range(min(AT_ONCE, simulations - start))])
        draws = Resampling(REPLICATES, start, clusters_of(world))
        compared = compare(groups(runs), draws.groups)
        assert compared is not None
        for k, aged in enumerate(ageing(runs, resampling=draws)):
            assert isinstance(aged, Ageing)
            half = aged.half_life
            within = {
                "half-life": half.low <= true["half-life"] <= half.high,
                "slope": aged.slope.low <= true["slope"] <= aged.slope.high,
                "accuracy": compared.score.low[k] <= true["accuracy"] <= compared.score.high[k],
            }
            low, high = (end[lags > 0] for end in (aged.accuracy.low, aged.accuracy.high))
            within["curve"] = float(np.mean((low <= curve) & (curve <= high)))
            for name, value in within.items():
                inside.setdefault(name, []).append(float(value))
    return {name: round(float(np.mean(values)), 3) for name, values in inside.items()}


def told_apart(world: World, learners: int, simulations: int) -> dict[str, float]:
    """The share of tables of equal learners in which any two differ: by the score, and by the outcomes."""
    case, tables, testable = [learners, world.seeds, round(1000 * world.sd), world.clusters], [], 0
    rng = np.random.default_rng(case)
    for _ in range(simulations):
        runs = runs_of(rng, world, [f"learner-{k}" for k in range(learners)], same_tests=True)
        by_learner = [runs[k : k + world.seeds] for k in range(0, len(runs), world.seeds)]
        apart = compare(by_learner, clusters_of(world))
        assert apart is not None
        testable += not np.isnan(apart.adjusted).all()
        tables.append(bool((apart.adjusted < 0.05).any()))
    return {"rejected": round(float(np.mean(tables)), 3), "testable": round(testable / simulations, 3)}


def worlds() -> Iterator[World]:
    """All cases of half-life, slope, curve and accuracy."""
    for left, n, (seeds, sd) in product(LEFT, (50, 200), ((1, 0.0), (3, 0.04), (10, 0.02))):
        for balanced, clusters in ((True, False), (False, False), (True, True)):
            if balanced or left == "exponential":
                yield World(left, "retrained", n, seeds, sd, balanced, clusters)
    for learner, left, n in product(("frozen", "mixed"), ("exponential", "plateau"), (50, 200)):
        for (seeds, sd), clusters in product(((1, 0.0), (5, 0.04)), (False, True)):
            yield World(left, learner, n, seeds, sd, True, clusters)
    for seeds, sd in ((2, 0.04), (3, 0.0), (10, 0.0), (10, 0.05)):
        yield World("exponential", "retrained", 200, seeds, sd)
        yield World("exponential", "retrained", 200, seeds, sd, shared=0.0)


def main() -> None:
    """Print one JSON line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["intervals", "ties"])
    parser.add_argument("--simulations", type=int, default=300)
    parser.add_argument("--cases", type=int, default=1, help="only every N-th case of the intervals")
    asked = parser.parse_args()
    if "intervals" in asked.parts:
        for world in list(worlds())[:: asked.cases]:
            print(json.dumps({"part": "intervals", **asdict(world), **covered(world, asked.simulations)}), flush=True)
    if "ties" in asked.parts:
        cases = product((2, 6, 20), (1, 2, 3, 5, 10), (0.0, 0.01, 0.05), (False, True))
        for learners, seeds, sd, clusters in cases:
            world = World(seeds=seeds, sd=sd, clusters=clusters, n=100)
            case = {"part": "ties", "learners": learners, "seeds": seeds, "sd": sd, "clusters": clusters}
            print(json.dumps({**case, **told_apart(world, learners, asked.simulations)}), flush=True)


if __name__ == "__main__":
    main()
