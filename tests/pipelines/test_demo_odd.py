"""Odd files of the demo's world: a turned photo looks as before, 16 bits keep their greys, hidden pixels hide."""

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from claims.test_first_screen import both, screen
from PIL import Image
from support.console import driftline

from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import EncoderSpec, Vectors
from driftline.curate.foreign.images import open_image, orientation_of, read_rgb
from driftline.curate.release import Release
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.ageing import ageing
from driftline.eval.scoring.net import matrix_of
from driftline.pipelines.demo import real
from driftline.pipelines.demo.draw import CONCEPTS, SCENES, photo
from driftline.pipelines.demo.journey import FEATURES
from driftline.pipelines.demo.world import CLEAR, DEEP, END, RESET, START, TURNED, World, build, oddity, stored
from driftline.pipelines.stages.embed import BUILT_IN, OF_2004, built_in
from driftline.stream_builder.step import Split, Step
from driftline.stream_builder.stream import Stream

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


# ---- the pictures of `driftline demo --real`


FOLDER = files("driftline.pipelines") / "demo" / "watercolours"


def rows() -> list[dict[str, str]]:
    with zipfile.ZipFile(io.BytesIO((FOLDER / "pictures.zip").read_bytes())) as archive:
        return list(csv.DictReader(io.StringIO(archive.read("table.csv").decode("utf-8"))))


def test_the_pictures_are_dated_labelled_and_small() -> None:
    table = rows()
    assert str(f"{len(table):,} pictures") in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "public domain" in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sum(len(path.read_bytes()) for path in FOLDER.iterdir()) < 10_000_000
    assert min(int(row["year"]) for row in table) >= real.CUTS[0], "the network was trained on what is older"
    assert {row["label"] for row in table} == set(real.FRUITS)
    cells = Counter((row["label"], sum(int(row["year"]) >= cut for cut in real.CUTS)) for row in table)
    assert max(cells.values()) <= 40


def test_full_and_real_exclude_each_other(tmp_path: Path) -> None:
    done = driftline("demo", "--real", "--full", "--out", str(tmp_path / "demo"), here=tmp_path)
    assert (done.returncode, "--full, --real and --album exclude each other" in done.stderr) == (2, True)


def test_an_album_is_photos_by_class_and_date_in_a_folder_of_its_own(tmp_path: Path) -> None:
    assert driftline("demo", "--album", "album", here=tmp_path).stdout == "album: album, 60 photos\n"
    photos = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "album").rglob("*.jpg"))
    assert (len(photos), photos[0], photos[-1]) == (60, "album/bus/2010-05-01.jpg", "album/car/2012-05-10.jpg")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.jpg").write_bytes(b"")
    done = driftline("demo", "--album", "mine", here=tmp_path)
    assert (done.returncode, "holds own.jpg. Expected a new folder" in done.stderr) == (2, True)


# ---- the demo's world ages


AGES = [0.1, 0.3, 0.5, 0.7, 0.9]  # of the world's ten years
TRAIN, TEST = 12, 8  # photos of a class and step


def encoded(spec: EncoderSpec, ages: Sequence[float] = AGES) -> Stream:
    """Years of the world as features; a scene is of the class background."""
    import torch

    encoder, steps = spec.load(), []
    for number, age in enumerate(ages):
        images, labels = [], []
        for label in range(len(CONCEPTS) + 1):
            for i in range(TRAIN + TEST):
                things = [*CONCEPTS][label : label + 1] or [[*SCENES][i % len(SCENES)]]
                images.append(encoder.prepare(photo(things, age, rng_for(3, "aged", number, label, i))))
                labels.append(label)
        x: Vectors = encoder.images(torch.stack(images))
        y, test = np.array(labels), np.arange(len(labels)) % (TRAIN + TEST) >= TRAIN
        time = np.full(len(y), int((START + age * (END - START)).timestamp()))
        splits = {name: Split(x[rows], y[rows], time=time[rows]) for name, rows in (("train", ~test), ("test", test))}
        steps.append(Step(number, str(2004 + round(age * 10)), splits))
    return Stream("photo-world", steps, [*CONCEPTS, "background"])


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    stream = encoded(EncoderSpec(encoder="backbone", model="test_resnet", weights=built_in(OF_2004)), AGES[::2])
    runs: list[Run] = []
    learners = ["nap", "finetune", "cumulative"]
    evaluate(stream, "clear-iid", learners, seeds=[0, 1], settings={"epochs": 30}, keep_run=runs.append)
    return runs


def matrix(runs: list[Run], learner: str) -> npt.NDArray[np.float64]:
    return np.mean([matrix_of(run) for run in runs if run.about["learner"] == learner], 0)


@pytest.mark.parametrize("learner", ["nap", "finetune"])
def test_a_model_of_the_first_year_loses_more_each_year(learner: str, runs: list[Run]) -> None:
    row = matrix(runs, learner)[0]
    assert row[0] > 0.8
    assert row[0] > row[1] > row[-1]
    assert row[0] - row[-1] >= 0.1


def test_a_model_that_learns_on_stays_current(runs: list[Run]) -> None:
    (aged,) = ageing([run for run in runs if run.about["learner"] == "nap"])
    assert aged is not None
    assert aged.timeline.unit == "years"
    assert 2 < aged.half_life.value < 8, "years"
    assert matrix(runs, "cumulative")[-1, -1] > matrix(runs, "nap")[-1, -1] + 0.1


def test_the_demo_evaluates_what_did_not_choose_the_photos(journey: Path) -> None:
    retrieved_by = Release.open(journey).facts["provenance"]["encoder"]["model"]
    evaluated = Stream.load(journey / "stream")
    assert evaluated.facts["features"] == FEATURES
    assert retrieved_by == BUILT_IN
    page = (journey / "report" / "index.html").read_text(encoding="utf-8")
    for said in ("trained on photos of 2004 only", "keypad brick with an aerial"):
        assert said in page


SAID = re.compile("Models age|of the best models age|Ageing is shown|age on this stream")


@pytest.mark.proof("statistics")
def test_photos_of_the_demo_with_years_drawn_again_within_each_class_do_not_age() -> None:
    photos = encoded(EncoderSpec(encoder="backbone", model="test_resnet", weights=built_in(OF_2004)))
    x, y = (
        np.concatenate([getattr(step[side], name) for step in photos for side in ("train", "test")]) for name in "xy"
    )

    def again(seed: int) -> Stream:
        rng, steps, start = np.random.default_rng(seed), [], 0
        drawn = np.empty(len(y), np.int64)  # the photo in each place, of the class that was there
        for c in np.unique(y):
            drawn[y == c] = rng.permutation(np.flatnonzero(y == c))
        for step in photos:
            splits = {}
            for side in ("train", "test"):
                rows = drawn[start : start + len(step[side])]
                start += len(rows)
                splits[side] = Split(x[rows], y[rows], rows.astype(str), step[side].time)
            steps.append(replace(step, splits=splits))
        return replace(photos, steps=steps, sha256=f"again {seed}")

    assert np.mean([bool(SAID.search(screen(again(seed), both)["text"])) for seed in range(200)]) <= 0.05
