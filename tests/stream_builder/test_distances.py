"""Distances against libraries and brute force."""

import numpy as np
import pytest

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures import DISTANCES
from driftline.stream_builder.measures.shift_distance import class_priors, distances, label_statistics, sliced
from driftline.stream_builder.stream import Split, Step, Stream


def clouds(far: float = 1.0, n: int = 120, m: int = 90, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(0, "clouds")
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + far / np.sqrt(d)


def test_sliced_is_close_to_pots_and_exact_along_a_line() -> None:
    import ot

    a, b = clouds(3)
    theirs = ot.sliced_wasserstein_distance(a, b, n_projections=2000, seed=0)
    assert sliced(a, b, directions=2000) == pytest.approx(theirs, rel=0.05)
    line = rng_for(1).normal(size=(50, 1))
    assert sliced(line, line + 2) == pytest.approx(2)


def test_class_shares_by_hand() -> None:
    assert class_priors(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 2) == pytest.approx(0.25)


def stream() -> Stream:
    rng = rng_for(0, "steps")
    steps = []
    for t in range(3):
        y = np.arange(60) % 3
        x = (np.eye(4)[y] * 3 + rng.normal(size=(60, 4)) + t).astype(np.float32)
        steps.append(Step(t, str(t), {"train": Split(x[:40], y[:40], np.arange(40).astype(str)),
                                      "test": Split(x[40:], y[40:], np.arange(20).astype(str))}))  # fmt: skip
    return Stream("drift", steps, list("abc"))


def test_every_distance_falls_towards_the_last_step() -> None:
    for name, values in distances(stream(), list(DISTANCES)).items():
        assert values[0] > values[1] > values[2], name


def test_label_statistics() -> None:
    statistics = label_statistics(stream())
    assert statistics["priors"] == [0, 0]
    assert statistics["blind"]["chance"] < 0.5

    def step(t: int) -> Step:
        sizes = {"train": 4, "test": 0}
        return Step(
            t, str(t), {s: Split(np.zeros((n, 2), np.float32), np.zeros(n, np.int64)) for s, n in sizes.items()}
        )

    empty = Stream("e", [step(0), step(1)], ["a"])
    with pytest.raises(IncompatibleStream, match="empty split"):
        distances(empty, ["w2"])
