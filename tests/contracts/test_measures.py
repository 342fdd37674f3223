"""Every registered distance: a finite number, repeatable, larger for sets that are further apart; inputs stay."""

import math

import numpy as np
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures import DISTANCES


def sets(far: float) -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(0, "sets")
    return rng.normal(size=(60, 5)), rng.normal(size=(40, 5)) + far


@pytest.mark.parametrize("name", DISTANCES)
class TestDistance:
    def test_is_larger_for_sets_that_are_further_apart(self, name: str) -> None:
        near, far = (DISTANCES[name](*sets(far), 0) for far in (0.0, 2.0))
        assert isinstance(near, float)
        assert math.isfinite(near)
        assert near < far

    def test_its_seed_decides_whatever_is_drawn_before(self, name: str) -> None:
        """Same seed: same number, also in another place; no distance of a set to itself beyond that of two halves."""
        first = DISTANCES[name](*sets(1.0), 3)
        between = DISTANCES[name](*sets(2.0), 4)
        assert DISTANCES[name](*sets(1.0), 3) == first < between

    def test_does_not_modify_its_input(self, name: str) -> None:
        a, b = sets(1.0)
        a.flags.writeable = b.flags.writeable = False
        DISTANCES[name](a, b, 0)

    def test_says_what_it_is(self, name: str) -> None:
        assert DISTANCES.summary(name)
