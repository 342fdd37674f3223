"""Vectors that a stream stores in 8 bits a number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadArray, IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.eight_bits import coded, decoded
from driftline.stream_builder.step import Split, Step
from driftline.stream_builder.stream import Stream


def unit_stream() -> Stream:
    """Two steps of unit vectors (40, 24) float16, with unlabelled samples and a prior."""
    rng = rng_for(0, "eight bits")

    def vectors(n: int) -> Any:
        x = rng.normal(size=(n, 24))
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float16)

    steps = [
        Step(t, str(t), {s: Split(vectors(40), rng.integers(0, 3, 40)) for s in ("train", "test")}, vectors(7))
        for t in range(2)
    ]
    return Stream("unit", steps, ["a", "b", "c"], prior=vectors(5))


def test_a_number_is_within_half_a_scale_of_the_given_one() -> None:
    x = rng_for(1).normal(size=(50, 8)).astype(np.float32)
    x[3] = 0
    codes, scales = coded(x)
    assert (codes.dtype, scales.dtype, scales[3]) == (np.int8, np.float32, 0)
    assert np.abs(codes).max(1)[[0, 1, 2]].tolist() == [127, 127, 127]
    assert (np.abs(decoded(codes, scales, "float32") - x) <= scales[:, None] / 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_stream_is_read_as_it_was_written_in_half_the_bytes_and_says_its_loss(dtype: str, tmp_path: Path) -> None:
    given = unit_stream()
    steps = [replace(s, splits={k: replace(v, x=v.x.astype(dtype)) for k, v in s.splits.items()}) for s in given.steps]
    saved = replace(given, steps=steps).save(tmp_path / "s", bits=8)
    for step, original in zip(saved.steps, steps, strict=True):
        for kind, split in step.splits.items():
            assert split.x.dtype == dtype
            assert np.abs(split.x - original.splits[kind].x).max() < 0.005
    assert np.load(tmp_path / "s" / "step_00001" / "test_x.npy").dtype == np.int8
    assert 0.999 < saved.facts["eight_bit_cosine"] < 1
    assert len(saved.steps[0].unlabelled) == 7
    assert len(saved.prior) == 5
    Stream.load(tmp_path / "s").verify(tmp_path / "s")


def test_a_change_of_a_code_or_a_scale_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    unit_stream().save(folder, bits=8)
    codes, scales = (folder / "step_00000" / f"train_{name}.npy" for name in ("x", "scale"))
    good = np.load(codes)
    np.save(codes, np.where(good == 127, 126, good).astype(np.int8))
    with pytest.raises(IntegrityError, match="split train"):
        Stream.load(folder).verify(folder)
    np.save(codes, good)
    np.save(scales, np.full(40, np.nan, np.float32))
    with pytest.raises(IntegrityError, match=r"train_scale\.npy.*finite scales"):
        Stream.load(folder)


def test_images_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    stream = Stream("i", [Step(0, "0", {"train": Split(images, np.zeros(4, np.int64))})], ["a"])
    with pytest.raises(BadArray, match=r"uint8 arrays of shape \(8, 8, 3\).*Expected vectors"):
        stream.save(tmp_path / "s", bits=8)
    assert not (tmp_path / "s").exists()


def test_what_is_stored_in_16_bits_has_the_hash_it_always_had(tmp_path: Path) -> None:
    stream = drifting()
    assert stream.save(tmp_path / "a").sha256 == stream.save(tmp_path / "b", bits=16).sha256
    assert stream.save(tmp_path / "c", bits=8).sha256 != stream.save(tmp_path / "d").sha256
