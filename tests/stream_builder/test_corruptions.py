"""Corruptions: each severity changes more than the one before it, and nothing moves the picture; the same draws again
give the same images, whatever the blocks."""

import io

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.shifts.common import KINDS, Common

SEVERITIES = (1, 2, 3, 4, 5)
SIZES = (32, 96)


def pictures(size: int, n: int = 12) -> npt.NDArray[np.uint8]:
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
    assert changes[0] > 0
    assert (corrupted(x, kind, 3) == corrupted(x, kind, 3)).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_centre_of_mass_of_a_spot_stays(kind: str) -> None:
    place = np.arange(32) - 15.5
    line = np.exp(-(place**2) / 32)
    spot = np.repeat((200 * np.outer(line, line)).astype(np.uint8)[None, :, :, None], 3, -1).repeat(60, 0)
    for severity in SEVERITIES:
        mass = corrupted(spot, kind, severity).sum((0, 3), dtype=float)
        centre = np.array([(mass.sum(axis) * place).sum() for axis in (1, 0)]) / mass.sum()
        assert np.abs(centre).max() < 0.32, (severity, centre)


def test_noise_has_its_deviation_and_jpeg_is_pillows() -> None:
    grey = np.full((32, 48, 48, 3), 128, np.uint8)
    assert corrupted(grey, "gaussian_noise", 1).std() == pytest.approx(0.04 * 255, rel=0.05)
    (image,) = pictures(32, 1)
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=40)
    ours = corrupted(image[None], "jpeg", 5)[0].astype(int)
    assert np.abs(ours - np.asarray(Image.open(buffer), int)).mean() < 2


@pytest.mark.parametrize("edges", [(1, 1), (9, 24)])
def test_images_of_one_pixel_and_wide_ones_keep_their_size(edges: tuple[int, int]) -> None:
    for kind in KINDS:
        assert corrupted(np.full((2, *edges, 3), 90, np.uint8), kind, 5).shape == (2, *edges, 3)
