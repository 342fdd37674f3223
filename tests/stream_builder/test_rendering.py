"""Fast paths of composing: the bytes of a seed stay what they were, and each path equals its slow twin."""

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders import shift_sequence
from driftline.stream_builder.builders.sampling import Composition, overlap_counts
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.shifts.base import Images
from driftline.stream_builder.shifts.paper import BLOCK, ConditionalTint, Corruption, Tint
from driftline.stream_builder.stream import Stream


def dataset() -> Dataset:
    """Images of an odd number of bytes. A step has more of them than one draw of noise and one part of shifts."""
    rng = rng_for(0, "base")

    def samples(n: int) -> Samples:
        return Samples(rng.integers(0, 256, (n, 45, 77, 3), np.uint8), np.arange(n) % 4, np.arange(n))

    return Dataset("large", samples(480), samples(160), [str(c) for c in range(4)])


def digest(stream: Stream) -> str:
    """Of every array of a composed stream, its steps and its oracle."""
    content = hashlib.sha256()
    assert stream.oracle is not None
    for step in (*stream.steps, stream.oracle):
        for name, split in step.splits.items():
            content.update(f"{name} {split.x.shape} {' '.join(split.ids.tolist())}".encode())
            content.update(np.asarray(split.x).tobytes() + split.y.astype("<i8").tobytes())
    return content.hexdigest()[:16]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("R:C", "382c9af96abafbd6"),
        ("C:L,R", "9b6f86a7fcc67fd3"),
        ("T:T,t(-20)", "074df605f6d4a444"),
        ("r:r(90)", "2677dd8f8ddd35ac"),
        ("C,T:C(100),r", "9628895297abb5e6"),
        ("~R,T:C,~T(-90)", "e8c0a388e5714755"),
    ],
)
def test_the_bytes_of_a_seed_stay(sequence: str, expected: str) -> None:
    base = dataset()
    for workers in (1, 3):
        assert digest(compose(base, sequence, (60, 180, 120), 150, 3, workers=workers)) == expected


def test_images_shifted_one_at_a_time_equal_those_shifted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    base, made = dataset(), {}
    for part in (1, 1 << 30):
        monkeypatch.setattr(shift_sequence, "PART", part)
        made[part] = digest(compose(base, "T,r:C,t,R", (20, 20, 20), 20, 0))
    assert made[1] == made[1 << 30]


def test_an_oracle_may_have_no_validation_samples() -> None:
    made = compose(dataset(), "C:R", (20, 20, 20), 20, 0, Composition(val_share=0))
    assert made.oracle is not None
    assert made.oracle["val"].x.shape == (0, 45, 77, 3)


def noise_in_whole_numbers(x: Images, amount: int, rng: np.random.Generator) -> Images:
    """The twin of `Corruption`: a byte b gives b // (256 // values), or, if that is too large, another draw."""
    values, flat, out = 2 * amount, x.ravel().astype(int), []
    for low in range(0, len(flat), BLOCK):
        block = flat[low : low + BLOCK]
        words = rng.integers(0, 2**64 - 1, -(-len(block) // 8), np.uint64, endpoint=True)
        drawn = np.frombuffer(words.astype("<u8").tobytes(), np.uint8)[: len(block)].astype(int) // (256 // values)
        again = drawn >= values
        drawn[again] = rng.integers(0, values, again.sum(), dtype=np.uint8)
        out.append(np.clip(block + drawn - amount, 0, 255))
    return np.concatenate(out).astype(np.uint8).reshape(x.shape)


@pytest.mark.parametrize("amount", [1, 3, 65, 127])
@pytest.mark.parametrize("shape", [(0, 8, 8, 3), (1, 1, 1, 3), (1, 1, 3, 3), (101, 45, 77, 3), (1025, 32, 32, 3)])
def test_noise_equals_that_of_whole_numbers(amount: int, shape: tuple[int, ...]) -> None:
    x = rng_for(0, "noise").integers(0, 256, shape, np.uint8)
    rng, twins_rng = rng_for(1), rng_for(1)
    noisy, _ = Corruption(amount).apply(x, np.zeros(len(x), np.int64), 1, 10, rng)
    expected = noise_in_whole_numbers(x, amount, twins_rng) if len(x) else x
    assert (noisy == expected).all()
    assert rng.bit_generator.state == twins_rng.bit_generator.state, "what is drawn next is the same"


@pytest.mark.parametrize("amount", [-300, -255, -90, 0, 30, 255, 300])
@pytest.mark.parametrize("shift", [Tint, ConditionalTint])
def test_a_tint_equals_that_of_whole_numbers(shift: Any, amount: int) -> None:
    x = np.arange(256, dtype=np.uint8).repeat(9).reshape(3, 8, 32, 3)
    y, expected = np.arange(3), x.astype(int)
    for i, label in enumerate(y):
        expected[i, :, :, label if shift is ConditionalTint else 0] += amount
    tinted, _ = shift(amount).apply(x, y, 1, 3, rng_for(0))
    assert (tinted == np.clip(expected, 0, 255)).all()


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_overlaps_are_counted_as_sets_count_them(steps: int) -> None:
    rng = rng_for(0, "overlap", steps)
    drawn = [{name: rng.choice(60, 12) for name in ("train", "val")} for _ in range(steps)]
    sets = [{name: set(rows.tolist()) for name, rows in step.items()} for step in drawn]
    earlier = set().union(*(step["train"] for step in sets[:-1]))
    times = Counter(i for step in sets for i in step["train"] | step["val"])
    assert overlap_counts(drawn) == {
        "final_validation_in_earlier_training": len(earlier & sets[-1]["val"]),
        "images_in_several_steps": sum(n > 1 for n in times.values()),
    }
