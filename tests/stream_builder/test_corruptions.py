"""Common corruptions: each severity changes more than the one before it, nothing moves the picture, nothing folds;
constant pictures, impulses and a reference picture become what plain code makes of them."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from scipy.ndimage import correlate, gaussian_filter, map_coordinates

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.shifts import common
from driftline.stream_builder.shifts.common import KINDS, Common

Reals = npt.NDArray[np.float64]
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


# ---- constant pictures and a reference picture, by plain code; constants as in the authors' make_cifar_c.py

PUBLISHED: dict[str, tuple[Any, ...]] = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10), "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07), "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1), "zoom_blur": (1.06, 1.11, 1.16, 1.21, 1.26),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), None, (9, 2.5)),  # None: our own
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15), "saturate": (None, None, (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "jpeg": (80, 65, 58, 50, 40), "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65), "elastic_transform": (None,) * 5,
}  # fmt: skip
SETTINGS = [(k, level) for k, settings in sorted(PUBLISHED.items()) for level, s in enumerate(settings, 1) if s]
COLOUR = np.array([150.0, 120.0, 100.0])


def by_hsv(x: Reals, change: Callable[[float, float, float], tuple[float, float, float]]) -> Reals:
    """(H, W, 3) from 0 to 255, pixel by pixel."""
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in (x / 255).reshape(-1, 3)]
    return 255 * np.array(pixels).reshape(x.shape)


def recoloured(x: Reals, kind: str, setting: Any) -> Reals:
    if kind == "brightness":
        return by_hsv(x, lambda h, s, v: (h, s, min(1.0, v + setting)))
    return by_hsv(x, lambda h, s, v: (h, min(1.0, s * setting[0] + setting[1]) if s else 0.0, v))


def test_all_fifteen_have_a_constant_picture() -> None:
    assert set(PUBLISHED) == set(KINDS)
    assert len(KINDS) == 15


def spread_of(kind: str, setting: Any) -> tuple[Reals, Reals]:
    """Mean and standard deviation of the values of a constant picture of COLOUR, by channel."""
    share = COLOUR / 255
    if kind == "impulse_noise":
        mean = (1 - setting) * share + setting / 2
        return 255 * mean, 255 * np.sqrt((1 - setting) * share**2 + setting / 2 - mean**2)
    sd = {"gaussian_noise": setting, "shot_noise": np.sqrt(share / setting), "speckle_noise": share * setting}[kind]
    return COLOUR, 255 * np.broadcast_to(sd, 3)


@pytest.mark.parametrize(("kind", "severity"), [s for s in SETTINGS if "noise" in s[0]])
def test_noise_of_a_constant_picture_has_the_published_deviation(kind: str, severity: int) -> None:
    n = 32
    noisy = corrupted(np.broadcast_to(COLOUR, (n, 48, 48, 3)).astype(np.uint8), kind, severity).reshape(-1, 3)
    mean, sd = spread_of(kind, PUBLISHED[kind][severity - 1])
    assert np.abs(noisy.mean(0) - mean).max() < 6 * sd.max() / np.sqrt(len(noisy))
    assert noisy.std(0) == pytest.approx(np.sqrt(sd**2 + 1 / 12), rel=0.03)  # 1/12: values are whole
    apart = np.corrcoef(noisy.T) - np.eye(3)
    assert np.abs(apart).max() < 6 / np.sqrt(len(noisy)), "channels are drawn apart"


@pytest.mark.parametrize("kind", sorted(k for k in KINDS if "noise" not in k and k != "fog"))
@pytest.mark.parametrize("size", SIZES)
def test_a_constant_picture_stays_constant(kind: str, size: int) -> None:
    x = np.broadcast_to(COLOUR, (3, size, size, 3)).astype(np.uint8)
    for severity in SEVERITIES:
        found = corrupted(x, kind, severity).astype(int)
        expected = COLOUR
        if kind in ("brightness", "saturate"):
            expected = recoloured(COLOUR[None, None], kind, KINDS[kind][2 if size == 32 else 3][severity - 1])[0, 0]
        assert np.abs(found - expected).max() <= (16 if kind == "jpeg" else 1), severity  # of half a step of JPEG
        assert (found == found[0, 0, 0]).all()


@pytest.mark.parametrize("picture", ["constant", "reference"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_is_one_cloud_over_all_channels_that_spans_its_whole_range(severity: int, picture: str) -> None:
    """The published (x + a · cloud) · max / (max + a), solved for the cloud."""
    x = pictures(32, 6) if picture == "reference" else np.broadcast_to(COLOUR, (6, 32, 32, 3)).astype(np.uint8)
    amount = PUBLISHED["fog"][severity - 1][0]
    fogged, brightest = corrupted(x, "fog", severity) / 255, x.max((1, 2, 3), keepdims=True) / 255
    cloud = (fogged * (brightest + amount) / brightest - x / 255) / amount
    error = 0.5 / 255 * ((brightest + amount) / brightest / amount).max() + 1e-6  # values are whole
    assert np.ptp(cloud, axis=-1).max() < 2 * error
    assert np.abs(cloud.min((1, 2, 3))).max() < 2 * error
    assert np.abs(cloud.max((1, 2, 3)) - 1).max() < 2 * error


def moved(x: Reals, rows: Reals, columns: Reals, mode: str) -> Reals:
    """(H, W, 3) values at other places, linear in between."""
    return np.stack([map_coordinates(x[..., c], [rows, columns], order=1, mode=mode) for c in range(3)], -1)


def boxes(n: int, k: int) -> Reals:
    """(k, n) share of each of n pixels in each of k equal boxes: equal ones of those whose centre is inside."""
    edges, centres = np.arange(k + 1) * n / k, np.arange(n) + 0.5
    inside = (centres > edges[:-1, None]) & (centres <= edges[1:, None])
    return np.asarray(inside / inside.sum(1, keepdims=True))


def reference(x: Reals, kind: str, setting: Any, angle: float) -> Reals:
    """(32, 32, 3) from 0 to 255; angle: of motion."""
    rows, columns = np.meshgrid(np.arange(32.0), np.arange(32.0), indexing="ij")
    if kind == "gaussian_blur":
        return gaussian_filter(x, (setting, setting, 0), mode="mirror", truncate=max(4.0, 0.6 / setting))
    if kind == "defocus_blur":
        far = np.hypot(*np.meshgrid(np.arange(-8, 9), np.arange(-8, 9))) <= setting[0]
        line = np.exp(-np.array([1.0, 0, 1]) / (2 * setting[1] ** 2))
        kernel = correlate(far.astype(float), np.outer(line, line), mode="constant")
        return np.stack([correlate(x[..., c], kernel / kernel.sum(), mode="mirror") for c in range(3)], -1)
    if kind == "motion_blur":
        along = np.arange(2 * setting[0] + 1)
        weights = np.exp(-(along**2) / (2 * setting[1] ** 2)) / np.exp(-(along**2) / (2 * setting[1] ** 2)).sum()
        places = along - (along * weights).sum()
        down, right = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
        return np.sum(
            [
                w * moved(x, rows + p * down, columns + p * right, "mirror")
                for w, p in zip(weights, places, strict=True)
            ],
            0,
        )
    if kind == "zoom_blur":
        zooms = [1.0, *np.arange(1, setting, 0.01)]
        return np.mean([moved(x, 15.5 + (rows - 15.5) / z, 15.5 + (columns - 15.5) / z, "nearest") for z in zooms], 0)
    if kind == "contrast":
        return x.mean((0, 1)) + setting * (x - x.mean((0, 1)))
    if kind == "jpeg":
        buffer = io.BytesIO()
        Image.fromarray(x.astype(np.uint8)).save(buffer, "JPEG", quality=setting)
        return np.asarray(Image.open(buffer), float)
    if kind == "pixelate":
        share = boxes(32, int(32 * setting))
        small = np.einsum("ir,rsc,js->ijc", share, x, share)
        nearest = ((np.arange(32) + 0.5) * len(small) / 32).astype(int)
        return small[nearest][:, nearest]
    return recoloured(x, kind, setting)


@pytest.mark.parametrize(
    ("kind", "severity"),
    [s for s in SETTINGS if "noise" not in s[0] and s[0] != "fog"],
)
def test_a_reference_picture_becomes_what_plain_code_makes_of_it(kind: str, severity: int) -> None:
    x = pictures(32, 2)
    angles = rng_for(0, kind).uniform(-45, 45, len(x))
    for given, found, angle in zip(x, corrupted(x, kind, severity), angles.tolist(), strict=True):
        expected = np.clip(reference(given.astype(float), kind, PUBLISHED[kind][severity - 1], angle), 0, 255)
        assert np.abs(found - expected).max() < 1.51, "two roundings"
        assert np.abs(expected - given).mean() > 0.1
