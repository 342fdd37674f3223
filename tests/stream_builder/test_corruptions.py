"""Common corruptions: each severity changes more than the one before it, nothing moves the picture, nothing folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.shifts import common
from driftline.stream_builder.shifts.common import KINDS, Common

SEVERITIES = (1, 2, 3, 4, 5)
SIZES = (32, 96)


def pictures(size: int, n: int = 24) -> npt.NDArray[np.uint8]:
    """(n, size, size, 3) smooth colours with a few hard edges, as photographs have them."""
    rng = rng_for(0, "pictures", size)
    out = np.empty((n, size, size, 3))
    rows, columns = np.meshgrid(np.linspace(0, 1, size), np.linspace(0, 1, size), indexing="ij")
    for image in out:
        image[:] = rng.uniform(40, 180, 3)
        for _ in range(6):
            across, down, height, width = rng.uniform(0.1, 0.9, 2).tolist() + rng.uniform(0.05, 0.3, 2).tolist()
            image[(np.abs(rows - down) < height) & (np.abs(columns - across) < width)] = rng.uniform(0, 255, 3)
        image += 20 * np.sin(2 * np.pi * (rows * rng.integers(1, 5) + columns * rng.integers(1, 5)))[..., None]
    return np.clip(out, 0, 255).astype(np.uint8)


def corrupted(x: npt.NDArray[np.uint8], kind: str, severity: int) -> npt.NDArray[np.uint8]:
    """The same random numbers at every severity."""
    return Common(kind, severity).apply(x, np.zeros(len(x), np.int64), 1, 2, rng_for(0, kind))[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_severity_changes_images_more_than_the_one_before(kind: str, size: int) -> None:
    x = pictures(size)
    changes = [np.abs(corrupted(x, kind, s).astype(int) - x).mean() for s in SEVERITIES]
    assert (np.diff(changes) > 0).all(), changes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"fog", "elastic_transform"}))
def test_the_centre_of_mass_of_a_spot_stays(kind: str, size: int) -> None:
    line = np.exp(-((np.arange(size) - (size - 1) / 2) ** 2) / (2 * (size / 8) ** 2))
    spot = np.repeat((200 * np.outer(line, line)).astype(np.uint8)[None, :, :, None], 3, -1).repeat(60, 0)
    for severity in SEVERITIES:
        mass = corrupted(spot, kind, severity).sum((0, 3), dtype=float)
        place = np.arange(size) - (size - 1) / 2
        centre = np.array([(mass.sum(axis) * place).sum() for axis in (1, 0)]) / mass.sum()
        assert np.abs(centre).max() < 0.01 * size, (severity, centre)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_corruption_by_a_random_field_moves_no_pixel_on_average(severity: int) -> None:
    """Images of a ramp: the change of their mean is the mean displacement."""
    ramp = np.broadcast_to(np.arange(64, dtype=np.float32)[None, None, :, None] / 255, (200, 64, 64, 3))
    setting = KINDS["elastic_transform"][2][severity - 1]
    moved = common._elastic_transform(np.ascontiguousarray(ramp), setting, rng_for(0, severity))
    by_image = (moved - ramp)[:, 16:48, 16:48].mean((1, 2, 3)) * 255
    assert abs(by_image.mean()) < 5 * by_image.std() / np.sqrt(len(by_image))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_an_elastic_transform_does_not_fold(severity: int, size: int) -> None:
    """Two ramps show where each pixel comes from: no cell is turned over (its determinant stays above 0)."""
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    ramps = np.stack([rows, columns, rows], -1)[None].repeat(20, 0).astype(np.float32) / np.float32(size)
    setting = KINDS["elastic_transform"][2][severity - 1]
    source = common._elastic_transform(ramps, setting, rng_for(0, severity)) * size
    down, across = source[..., 0], source[..., 1]
    inside = (slice(None), slice(6, -7), slice(6, -7))  # at the edges the picture is mirrored
    determinant = (
        (np.diff(down, axis=1)[:, :, :-1] * np.diff(across, axis=2)[:, :-1])
        - (np.diff(down, axis=2)[:, :-1] * np.diff(across, axis=1)[:, :, :-1])
    )[inside]
    assert determinant.min() > 0


@pytest.mark.parametrize("kind", sorted(k for k in KINDS if "blur" in k))
@pytest.mark.parametrize("level", range(5))
def test_a_blur_of_an_impulse_is_centred_and_keeps_its_sum(kind: str, level: int) -> None:
    """The kernel itself, of both sets of constants; zoom blur has none, its impulse is in the middle."""
    _, work, *settings = KINDS[kind]
    for setting in settings:
        x = np.zeros((40, 129, 129, 3), np.float32)
        x[:, 64, 64] = 1
        kernel: Any = np.asarray(work(x, setting[level], rng_for(0, kind)))[..., 0].mean(0)
        place = np.arange(129) - 64
        assert abs((kernel.sum(1) * place).sum()) < 1e-3
        assert abs((kernel.sum(0) * place).sum()) < 1e-3
        if kind != "zoom_blur":
            assert kernel.sum() == pytest.approx(1, abs=1e-4)
