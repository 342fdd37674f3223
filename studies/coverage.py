"""How often intervals and tests are right, on simulated learners whose truth is known.

    python studies/coverage.py [intervals] [ties] [ageing] [--simulations 300]

One JSON line a case. `intervals`: the share of simulations whose 95 % interval holds the true half-life and
accuracy. `ties`: the share of tables of equal learners in which any two of them are said to differ. `ageing`: of
nearest-mean in worlds of `tests/claims/worlds.py`, the mean net loss, the share of worlds whose interval holds it, and
in which ageing is found.

A world has 6 steps. A sample is right if its difficulty, which all models share, and noise of each answer are below
what a model of that age reaches, so that answers of seeds and ages agree as those of real models do (`shared`: the
difficulty's share of the variance). Seeds move a learner's accuracy with the standard deviation `sd`: half of the
variance is the seed's, half that of each model. Clusters are uploaders with 5 photos of a step each, which share half
of their difficulty.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # the worlds
from claims.test_first_screen import by_hand
from claims.worlds import planted

from driftline.eval.predictions import groups_of
from driftline.eval.rows import Answers, Row, Run, groups
from driftline.eval.scoring.ageing import Ageing, ageing
from driftline.eval.scoring.comparing import compare
from driftline.eval.scoring.decay import falling, first_below, left_over, pairs_of
from driftline.eval.scoring.net import Control, Draw, Kind, Net, key_of, matrix_of, net_of, pairs_in
from driftline.eval.scoring.sums import Resampling
from driftline.stream_builder.stream import Stream

Floats = npt.NDArray[np.float64]
AGEING: list[dict[str, Any]] = [
    {"turns": 0.063}, {"turns": 0.1}, {"turns": 0.2}, {"turns": 0.1, "radius": 3}, {"turns": 0.07, "radius": 1.55},
    {"turns": 0.083, "radius": 1.55}, {"turns": 0.1, "radius": 1.4}, {"turns": 0.063, "size": 1},
    {"turns": 0.2, "steps": 6}, {"turns": 0.1, "train": 24}, {}, {"radius": 1.55},
]  # fmt: skip
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
        "accuracy": float(np.mean([truth[i, i + 1] for i in world.models if i + 1 < STEPS])),
    }
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
                "accuracy": compared.score.low[k] <= true["accuracy"] <= compared.score.high[k],
            }
            for name, value in within.items():
                inside.setdefault(name, []).append(float(value))
    return {name: round(float(np.mean(values)), 3) for name, values in inside.items()}


def told_apart(world: World, learners: int, simulations: int) -> dict[str, float]:
    """The share of tables of equal learners in which any two differ: by the score, and by the predictions."""
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


def visits_in(stream: Stream, side: str, size: int) -> Floats:
    """(T, C, G, n, D) samples of the visits of each step and class."""
    splits, classes = [step[side] for step in stream], range(len(stream.classes))
    return np.array([[s.x[s.y == c].reshape(-1, size, s.x.shape[1]) for c in classes] for s in splits], np.float64)


def permuted(visits: Floats, rng: np.random.Generator) -> Floats:
    """The visits with times drawn again within classes."""
    steps, classes, count = visits.shape[:3]
    drawn = rng.permuted(np.tile(np.arange(steps * count), (classes, 1)), axis=1).reshape(classes, steps, count)
    return visits[drawn // count, np.arange(classes)[:, None, None], drawn % count].swapaxes(0, 1)


def half_of(visits: Floats, rng: np.random.Generator) -> Floats:
    """(T, C, G) 1 for one of every two visits of a step, in the order of their classes; 0 for others."""
    steps, classes, count = visits.shape[:3]
    order = rng.random((steps, classes, count)).argsort(2) + np.arange(classes)[:, None] * count
    one = np.arange(0, classes * count, 2) + rng.integers(2, size=(steps, -(-classes * count // 2)))
    kept = np.take_along_axis(order.reshape(steps, -1), np.minimum(one, classes * count - 1), 1)
    half = np.zeros((steps, classes * count))
    np.put_along_axis(half, kept, 1.0, 1)
    return half.reshape(steps, classes, count)


def right(train: Floats, kept: Floats, test: Floats) -> Floats:
    """(T, T, C, G) share of right answers to each visit of a step (second), of nearest-mean after a step (first)."""
    sums = (train.sum(3) * kept[..., None]).sum(2).cumsum(0)
    means = sums / np.maximum(kept.sum(2).cumsum(0) * train.shape[3], 1e-9)[..., None]
    near = np.tensordot(means, test, (2, 4)) - (means**2).sum(2)[:, :, None, None, None, None] / 2
    own = np.stack([near[:, c, :, c] for c in range(means.shape[1])], 2)
    return np.asarray((own >= near.max(1)).mean(-1))


def found_to_age(world: dict[str, Any], simulations: int) -> dict[str, float]:
    """The mean net loss of nearest-mean in simulations of a world, points a year, and the shares. Draws of its control
    are by arrays: every step has equally many visits of each class."""
    nets, accurate = list[Net](), list[float]()
    for seed in range(simulations):
        stream, rng, draws = planted(seed, **world), np.random.default_rng(seed), list[Draw]()
        run = by_hand(stream, fresh=False)
        accurate.append(float(np.diag(matrix_of(run)).mean()))
        train, test = (visits_in(stream, side, world.get("size", 3)) for side in ("train", "test"))
        weights, kinds = pairs_in(run).cells(len(stream)), list[Kind](["within"] * 20 + ["half"] * 10)
        for k, kind in enumerate(kinds):
            if kind == "within":
                hits = right(permuted(train, rng), np.ones(train.shape[:3]), permuted(test, rng))
            else:
                hits = right(train, half_of(train, rng), test)
            of_visit, groups = np.einsum("ij,ijcg->jcg", weights, hits).reshape(len(stream), -1), hits[0, 0].size
            variance = float(of_visit.var(1, ddof=1).sum() / groups)
            draws.append(Draw(kind, k, 0, key_of(run.about), hits.mean((2, 3)), variance))
        net = net_of([run], Control(20, "", draws), groups_of(stream))
        nets += [] if net is None else [net]
    lost = float(np.mean([net.ageing.per_year for net in nets]))
    held = [band.low <= lost <= band.high for net in nets if (band := net.points_per_year) is not None]
    shares = {"accuracy": accurate, "held": held, "found": [net.is_ == "ageing" for net in nets]}
    return {"lost": round(lost, 2)} | {name: round(float(np.mean(of)), 3) for name, of in shares.items()}


def worlds() -> Iterator[World]:
    """All cases of half-life and accuracy."""
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
    parser.add_argument("parts", nargs="*", default=["intervals", "ties", "ageing"])
    parser.add_argument("--simulations", type=int, default=300)
    parser.add_argument("--cases", type=int, default=1, help="only every N-th case of the intervals and of ageing")
    asked = parser.parse_args()
    if "intervals" in asked.parts:
        for world in list(worlds())[:: asked.cases]:
            print(json.dumps({"part": "intervals", **asdict(world), **covered(world, asked.simulations)}), flush=True)
    if "ageing" in asked.parts:
        for of_ageing in AGEING[:: asked.cases]:
            found = found_to_age(of_ageing, asked.simulations)
            print(json.dumps({"part": "ageing", **of_ageing, **found}), flush=True)
    if "ties" in asked.parts:
        cases = product((2, 6, 20), (1, 2, 3, 5, 10), (0.0, 0.01, 0.05), (False, True))
        for learners, seeds, sd, clusters in cases:
            world = World(seeds=seeds, sd=sd, clusters=clusters, n=100)
            case = {"part": "ties", "learners": learners, "seeds": seeds, "sd": sd, "clusters": clusters}
            print(json.dumps({**case, **told_apart(world, learners, asked.simulations)}), flush=True)


if __name__ == "__main__":
    main()
