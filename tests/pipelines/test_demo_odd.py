"""Odd files of the demo's world: a turned photo looks as before, 16 bits keep their greys, hidden pixels hide."""

import io
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.images import open_image, orientation_of, read_rgb
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.demo.world import CLEAR, DEEP, RESET, TURNED, World, build, oddity, stored

QUIET = RunLog(quiet=True)


def drawn() -> Image.Image:
    return photo(["bus"], 0.8, rng_for(0, "odd"))


def seen(data: bytes) -> npt.NDArray[np.int64]:
    return np.asarray(read_rgb(data, "a photo"), np.int64)


def test_a_turned_photo_looks_as_before() -> None:
    image, ways = drawn(), set()
    lost = loss(stored(image, None, rng_for(0, "")), image)
    rng = rng_for(0, "ways")
    for _ in range(8):
        data = stored(image, TURNED, rng)
        with open_image(data, "a photo") as opened:
            ways.add(orientation_of(opened))
        assert loss(data, image) == pytest.approx(lost, rel=0.05), "what JPEG loses"
    assert ways == {6, 8}


def loss(data: bytes, image: Image.Image) -> float:
    """Mean difference of 255."""
    return float(np.abs(seen(data) - np.asarray(image, np.int64)).mean())


def test_a_deep_photo_shows_its_greys() -> None:
    image = drawn()
    data = stored(image, DEEP, rng_for(0, ""))
    with open_image(data, "a photo") as opened:
        assert opened.mode == "I;16"
    np.testing.assert_array_equal(seen(data)[..., 0], np.asarray(image.convert("L")))


def test_a_clear_photo_hides_its_corners_and_keeps_its_middle() -> None:
    image = drawn()
    data = stored(image, CLEAR, rng_for(0, ""))
    raw, shown = np.asarray(Image.open(io.BytesIO(data))), seen(data)
    assert raw.shape[2] == 4
    np.testing.assert_array_equal(raw[..., :3], np.asarray(image))
    assert (shown[0, 0] == 255).all()
    assert (raw[0, 0, :3] < 255).any(), "a reader that drops alpha sees it"
    np.testing.assert_array_equal(shown[48, 48], np.asarray(image)[48, 48])


def test_turned_photos_become_more_and_others_do_not() -> None:
    early, late = (Counter(oddity(age, rng_for(0, "kinds", i)) for i in range(4000)) for age in (0.1, 0.9))
    assert 3 * early[TURNED] < late[TURNED]
    for counts in (early, late):
        assert all(0.015 < counts[kind] / 4000 < 0.035 for kind in (DEEP, CLEAR, RESET))


def test_a_plain_world_has_the_same_photos_as_upright_jpegs(tmp_path: Path) -> None:
    """Of it the baseline photo-world is made, which must not change."""

    def files(world: World) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (world.folder / "photos").iterdir()}

    odd = files(build(tmp_path / "odd", 90, 0, QUIET))
    plain = files(build(tmp_path / "plain", 90, 0, QUIET, plain=True))
    assert odd.keys() == plain.keys()
    others = [name for name in odd if odd[name] != plain[name]]
    assert 0 < len(others) < 15
    for data in plain.values():
        with open_image(data, "a photo") as image:
            assert (image.format, orientation_of(image)) == ("JPEG", 1)
