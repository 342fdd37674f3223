"""The findings of the near-future paper, on vectors in an order whose labels are correlated.

Banking77's sentence vectors (77 intents), cut to 16 dimensions so that no classifier is perfect, and made ones that
need no file, in runs of one intent as a user's uploads come; batches of 16, five updates each.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import made_intents

from driftline.curate.core.seeding import rng_for
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

pytestmark = pytest.mark.proof("paper")

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "intent" / "banking77_minilm.npz"
REAL = [  # its twin: the same test on made vectors
    pytest.mark.shared(
        twin="tests/papers/test_near_future.py::test_the_blind_classifier_is_far_above_chance_online_and_at_chance_ahead"
    ),
    pytest.mark.skipif(not VECTORS.is_file(), reason="needs ../shared/data/intent"),
]
on_both = pytest.mark.parametrize("source", ["made", pytest.param("banking77", marks=REAL)])
SETTINGS = {"lr": 10.0, "batch": 16, "updates": 5, "prefix": 0}
WIDTH, STAY, STEPS = 16, 0.98, 5


def in_runs(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Every sample once; the next one has the same label with probability STAY, while there is one."""
    left = {int(c): rng.permutation(np.flatnonzero(y == c)).tolist() for c in np.unique(y)}
    order: list[int] = []
    label = -1
    while any(left.values()):
        if label < 0 or not left[label] or rng.random() > STAY:
            alive = [c for c in left if left[c]]
            share = np.array([len(left[c]) for c in alive], float)
            label = alive[int(rng.choice(len(alive), p=share / share.sum()))]
        order.append(left[label].pop())
    return np.array(order)


def banking77() -> tuple[np.ndarray, np.ndarray]:
    with np.load(VECTORS, allow_pickle=False) as found:
        x, y = found["train_x"][:, :WIDTH].astype(np.float32), found["train_y"].astype(np.int64)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


@cache
def stream(source: str) -> Stream:
    x, y = banking77() if source == "banking77" else made_intents(classes=40, n=5000, width=WIDTH, noise=0.3)
    rng = rng_for(0, "runs")
    steps = []
    for t, rows in enumerate(np.array_split(in_runs(y, rng), STEPS)):
        held = np.zeros(len(rows), bool)
        held[rng.permutation(len(rows))[: len(rows) // 10]] = True
        splits = {n: Split(x[r], y[r], r.astype(np.str_)) for n, r in (("train", rows[~held]), ("test", rows[held]))}
        steps.append(Step(t, str(t), splits))
    return Stream(source, steps, [str(c) for c in range(int(y.max()) + 1)], sha256=f"{source}-in-runs")


SEEING = ("overadapt", "er-online", "fc-only", "ace", "acm", "cosine-fc")


@cache
def results(source: str) -> dict[str, dict[str, float]]:
    """Learner → scores of one seed; three show the same and take three times as long."""
    learners = ["blind", *SEEING, "fc-only(sampler=fifo)", "fc-only(sampler=mixed)"]
    found = evaluate(stream(source), "near-future", learners, seeds=[0], settings=SETTINGS)
    chance: dict[str, Any] = found["results"][0]["told"]["blind"]
    means = {r["learner"]: {k: v["mean"] for k, v in r["scores"].items()} for r in found["results"]}
    return means | {"chance": {"near_future": chance["chance"]}}


@on_both
def test_the_blind_classifier_is_far_above_chance_online_and_at_chance_ahead(source: str) -> None:
    """Section 4: 50 % of CGLM online without a look at an image."""
    blind, chance = results(source)["blind"], results(source)["chance"]["near_future"]
    assert blind["online"] > 20 * chance
    assert blind["near_future"] < 2 * chance


@on_both
def test_online_accuracy_ranks_the_one_that_learns_nothing_first(source: str) -> None:
    """Figure 1: OverAdapt is first online and last ahead and in retention."""
    found = {name: results(source)[name] for name in SEEING}
    assert max(found, key=lambda name: found[name]["online"]) == "overadapt"
    assert min(found, key=lambda name: found[name]["near_future"]) == "overadapt"
    assert min(found, key=lambda name: found[name]["retention"]) == "overadapt"


@on_both
def test_uniform_samples_serve_the_near_future_better_than_the_newest(source: str) -> None:
    assert results(source)["fc-only"]["near_future"] > 2 * results(source)["fc-only(sampler=fifo)"]["near_future"]
    assert results(source)["fc-only(sampler=fifo)"]["online"] > results(source)["fc-only"]["online"]


@on_both
def test_mixed_samples_are_near_uniform_ahead_and_below_them_in_retention(source: str) -> None:
    """Section 5: mixed sampling gives online accuracy back, at the price of what is retained."""
    mixed, uniform = results(source)["fc-only(sampler=mixed)"], results(source)["fc-only"]
    assert mixed["near_future"] == pytest.approx(uniform["near_future"], abs=0.05)
    assert mixed["retention"] < uniform["retention"] - 0.01
    assert mixed["online"] > uniform["online"] + 0.2
