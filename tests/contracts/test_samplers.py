"""Every registered sampler: only past positions, never more than asked for, the same for the same generator."""

import numpy as np
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.eval.history import History
from driftline.eval.memory.samplers import SAMPLERS, Sampler
from driftline.stream_builder.stream import Split

N, BATCH = 60, 10


def history() -> History:
    return History([Split(np.arange(N, dtype=np.float32)[:, None], np.arange(N) % 3, np.arange(N).astype(np.str_))])


def drawn(name: str, n: int, memory: int = 0) -> list[list[int]]:
    """The positions after each batch."""
    samples, positions = history(), []
    sampler: Sampler = SAMPLERS[name](rng_for(0, name), memory)
    for start in range(0, N, BATCH):
        past = samples.past(start, start + BATCH)
        sampler.grow(past)
        positions.append(sampler.draw(past, n).tolist())
        assert sampler.stored(past) <= max(memory or past.seen, BATCH)
    return positions


@pytest.mark.parametrize("name", SAMPLERS)
class TestSampler:
    @pytest.mark.parametrize("memory", [0, 15])
    def test_draws_from_the_past_and_no_more_than_asked_for(self, name: str, memory: int) -> None:
        for batch, positions in enumerate(drawn(name, 8, memory)):
            assert 0 < len(positions) <= 8
            assert all(0 <= position < (batch + 1) * BATCH for position in positions)

    def test_the_same_generator_gives_the_same_positions(self, name: str) -> None:
        first = drawn(name, 8)
        assert drawn(name, 8) == first
        assert len(first) == N // BATCH

    def test_asking_for_more_than_there_is_gives_what_there_is(self, name: str) -> None:
        assert all(drawn(name, 10 * N))

    def test_says_what_it_is(self, name: str) -> None:
        assert SAMPLERS.summary(name)
