"""Options of `driftline stream …`: each changes what it says, and the stream is the one that the function makes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.clear_layouts import made_release
from support.console import document, handed, inside
from support.helpers import correlated, drifting

from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.held_out_classes import hold_out_classes
from driftline.stream_builder.builders.portraits import portraits
from driftline.stream_builder.builders.sampling import Composition
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.builders.time_order import in_time_order, open_timed
from driftline.stream_builder.datasets import Options, open_dataset
from driftline.stream_builder.measures.shift_distance import distances, label_statistics
from driftline.stream_builder.stream import Stream


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three classes of different sizes, 12 × 12 pixels."""
    rng, arrays = np.random.default_rng(0), {}
    for side in ("train", "test"):
        y = np.repeat([0, 1, 2], [90, 60, 30])
        arrays |= {f"{side}_x": rng.integers(0, 256, (180, 12, 12, 3)).astype(np.uint8), f"{side}_y": y}
    file = tmp_path_factory.mktemp("base") / "base.npz"
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file


PRIORS = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.4, 0.4]]


@pytest.mark.parametrize(
    ("words", "settings", "composition"),
    [
        (["--seed", 3], {"seed": 3}, {}),
        (["--no-oracle"], {"oracle": False}, {}),
        (["--test-size", 12], {"test_size": 12}, {}),
        (["--fidelity", "paper-code"], {}, {"fidelity": "paper-code"}),
        (["--overlap", "independent"], {}, {"overlap": "independent"}),
        (["--classes", "natural"], {}, {"balanced": "natural"}),
        (["--val-share", 0.5], {}, {"val_share": 0.5}),
        (["--priors", "priors.csv"], {}, {"priors": np.array(PRIORS)}),
    ],
)
def test_an_option_of_compose_makes_the_stream_that_the_function_makes(
    words: list[Any], settings: dict[str, Any], composition: dict[str, Any], base: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And another one than without it."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("priors.csv", PRIORS, delimiter=",")
    usual: dict[str, Any] = {"sizes": (30, 18, 30), "test_size": 18, "seed": 0}
    plain = compose(base, "C:L", **usual).save(tmp_path / "plain")
    expected = compose(base, "C:L", **usual | settings, composition=Composition(**composition)).save(tmp_path / "e")
    command = ["stream", "compose", "--base", base, "--sequence", "C:L", "--sizes", "30,18,30"]
    command += [] if "--test-size" in words else ["--test-size", 18]
    found = document(*command, *words, "--out", tmp_path / "out")
    assert found["sha256"] == expected.sha256
    assert found["sha256"] != plain.sha256


def test_augmentation_and_draws_are_recorded_or_refused(base: Path, tmp_path: Path) -> None:
    command = ["stream", "compose", "--base", base, "--sequence", "C", "--sizes", "30,30", "--test-size", 9]
    command += ["--out", tmp_path / "out"]
    for name, augmentations in (("none", []), ("paper", ["flip", "crop", "rotate"])):
        document(*command, "--augment", name, "--draws", "own")
        assert Stream.load(tmp_path / "out").facts["loading"]["augment"] == augmentations
    assert "has no published draws for these sizes" in inside(*command, "--draws", "published").stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("compose", ["--base", "cifar100", "--sequence", "C", "--labels", "fine", "--size", 16]),
        ("from-held-out", ["--base", "cifar100", "--labels", "fine", "--size", 16]),
        ("from-texts", ["banking77"]),
    ],
)
def test_a_dataset_is_opened_as_the_options_say(command: str, words: list[Any], tmp_path: Path) -> None:
    name = words[words.index("--base") + 1] if "--base" in words else words[0]
    options = Options(tmp_path, "fine", 16) if "--labels" in words else Options(tmp_path)
    for more, download in ((), False), (("--download",), True):
        place = ("--data-dir", tmp_path, *more, "--out", tmp_path / "out")
        found = handed("driftline.stream_builder.datasets.open_dataset", "stream", command, *words, *place)
        assert list(found.values()) == [name, dataclasses.replace(options, download=download)]


def test_images_are_decoded_at_the_size_that_is_asked_for(tmp_path: Path) -> None:
    for i in range(80):
        file = tmp_path / "base" / ("train", "test")[i % 2] / ("a", "b")[i // 2 % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 9), (3 * i, 0, 0)).save(file)
    document("stream", "compose", "--base", tmp_path / "base", "--sequence", "C", "--sizes", "20,20",
             "--test-size", 8, "--size", 6, "--workers", 2, "--out", tmp_path / "out")  # fmt: skip
    assert Stream.load(tmp_path / "out").x_shape == (6, 6, 3)


def test_measures_are_of_labels_of_a_seed_and_of_a_fidelity(tmp_path: Path) -> None:
    stream = correlated(n=300, classes=4).save(tmp_path / "s")
    command = ("stream", "measure", tmp_path / "s", "--distance")
    found = document(*command, "sliced", "--seed", 3, "--labels")
    assert found["sliced"] == distances(stream, ["sliced"], seed=3)["sliced"] != distances(stream, ["sliced"])["sliced"]
    assert found["labels"]["priors"] == label_statistics(stream)["priors"]
    for words, fidelity in ([], None), (["--fidelity", "paper-code"], "paper-code"):
        asked = handed("driftline.stream_builder.measures.shift_distance.measure", *command, "paper", *words)
        assert asked["fidelity"] == fidelity


def test_show_reads_every_array_again_if_asked_to(tmp_path: Path) -> None:
    drifting().save(tmp_path / "s")
    assert inside("stream", "show", tmp_path / "s", "--verify").returncode == 0
    x = np.load(tmp_path / "s" / "step_00001" / "train_x.npy")
    np.save(tmp_path / "s" / "step_00001" / "train_x.npy", x + np.float32(1))
    assert inside("stream", "show", tmp_path / "s").returncode == 0
    done = inside("stream", "show", tmp_path / "s", "--verify")
    assert (done.returncode, "step '1'" in done.stderr.lower()) == (1, True), done.stderr


def made_texts(folder: Path) -> Path:
    folder.mkdir()
    for side, n in (("train", 24), ("test", 12)):
        rows = [f"a text of number {i} about {'cats' if i % 2 else 'graphs'},{i % 2}" for i in range(n)]
        (folder / f"{side}.csv").write_text("\n".join(["text,category", *rows]))
    return folder


def test_texts_are_stored_or_encoded_in_16_or_8_bits(tmp_path: Path) -> None:
    texts = made_texts(tmp_path / "texts")
    document("stream", "from-texts", texts, "--out", tmp_path / "plain")
    assert Stream.load(tmp_path / "plain").steps[0]["train"].x.dtype.kind == "U"
    document("stream", "from-texts", texts, "--encoder", "ngrams:64", "--device", "cpu", "--out", tmp_path / "vectors")
    assert Stream.load(tmp_path / "vectors").x_shape == (64,)
    command = ("stream", "features", tmp_path / "plain", "--features", "n=ngrams:64", "--device", "cpu")
    assert document(*command, "--out", tmp_path / "16")["eight_bit_cosine"] is None
    assert 0.99 < document(*command, "--bits", 8, "--out", tmp_path / "8")["eight_bit_cosine"] < 1


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    file = tmp_path_factory.mktemp("arrays") / "a.npz"
    x, y = rng.normal(size=(120, 8)).astype(np.float32), np.arange(120) % 3
    np.savez(file, x=x, y=y, step=np.arange(120) // 40, group=np.arange(120) // 4)
    return file


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--seed", 3], {"seed": 3}),
        (["--test-share", 0.5], {"test_share": 0.5}),
        (["--split", "random"], {"split": "random"}),
    ],
)
def test_an_option_of_from_arrays_draws_what_the_function_draws(
    words: list[Any], settings: dict[str, Any], arrays: Path, tmp_path: Path
) -> None:
    plain, expected = from_arrays(arrays).save(tmp_path / "p"), from_arrays(arrays, **settings).save(tmp_path / "e")
    found = document("stream", "from-arrays", arrays, *words, "--out", tmp_path / "out")
    assert found["sha256"] == expected.sha256
    assert found["sha256"] != plain.sha256


@pytest.mark.parametrize("command", ["from-arrays", "from-release"])
def test_what_is_said_of_the_vectors_is_recorded(command: str, arrays: Path, tmp_path: Path) -> None:
    source = arrays if command == "from-arrays" else made_release(tmp_path / "release", each=2).path
    words = ("stream", command, source, "--out", tmp_path / "out", "--trained-until")
    document(*words, "2021-01", "--bits", 8, "--published", "clear10/clip", "--seed", 3)
    stream = Stream.load(tmp_path / "out")
    assert (stream.facts["encoder_cutoff"], stream.facts["encoder_source"]) == ("2021-01", "--trained-until")
    assert stream.facts["published"] == "clear10/clip"
    assert 0.99 < stream.facts["eight_bit_cosine"] < 1
    if command == "from-release":
        assert stream.facts["equal_times"] == "in random order, seed 3"
    assert "soon" in inside(*words, "soon").stderr


def photos(folder: Path) -> Path:
    """A table of 48 dated pictures of 12 × 12 pixels in class folders; nine of ten of class b; four of an uploader."""
    lines = ["id,time,label,path,user"]
    for i in range(48):
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 12), (5 * i, 0, 0)).save(folder / "pictures" / f"{i}.png")
        lines.append(f"p{i},{1_000 * (i // 2)},{'a' if i % 10 == 0 else 'b'},{i}.png,u{i % 12}")
    (folder / "table.csv").write_text("\n".join(lines))
    np.save(folder / "v.npy", np.arange(96, dtype=np.float32).reshape(48, 2))
    return folder / "table.csv"


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--periods", 2], {"periods": 2}),
        (["--held-out", 0.5], {"held_out": 0.5}),
        (["--order", "balanced", "--held-out", 0], {"order": "balanced", "held_out": 0}),
        (["--seed", 3], {"seed": 3}),
        (["--split", "random"], {"split": "random"}),
    ],
)
def test_an_option_of_from_order_makes_the_stream_that_the_function_makes(
    words: list[Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    table, usual = photos(tmp_path / "data"), {"periods": 4, "held_out": 0.25}
    data = open_timed(table, str(tmp_path / "data" / "v.npy"))
    plain = in_time_order(data, **usual).save(tmp_path / "plain")  # type: ignore[arg-type]
    expected = in_time_order(data, **usual | settings).save(tmp_path / "expected")  # type: ignore[arg-type]
    command = ["stream", "from-order", table, "--features", tmp_path / "data" / "v.npy", "--out", tmp_path / "out"]
    command += [] if "--periods" in words else ["--periods", 4]
    command += [] if "--held-out" in words else ["--held-out", 0.25]
    found = document(*command, *words)
    assert found["sha256"] == expected.sha256
    assert found["sha256"] != plain.sha256


def test_pictures_of_a_table_are_below_the_root_and_of_the_size_that_are_asked_for(tmp_path: Path) -> None:
    command = ("stream", "from-order", photos(tmp_path / "data"), "--periods", 2, "--out", tmp_path / "out")
    assert "48 of 48 images" in inside(*command).stderr
    document(*command, "--root", tmp_path / "data" / "pictures", "--size", 8)
    first = Stream.load(tmp_path / "out").steps[0]["train"]
    assert first.x[:1].shape == (1, 8, 8, 3)
    assert [round(int(image[0, 0, 0]) / 5) for image in first.x[:]] == [int(id_[1:]) for id_ in first.ids.tolist()]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--held-out", 2], {"classes": 2}),
        (["--evaluate", 5], {"evaluate": 5}),
        (["--order", "file"], {"order": "file"}),
        (["--seed", 3], {"seed": 3}),
    ],
)
def test_an_option_of_from_held_out_makes_the_stream_that_the_function_makes(
    words: list[Any], settings: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    dataset, usual = open_dataset(base), {"classes": 1}
    plain = hold_out_classes(dataset, **usual).save(tmp_path / "plain")  # type: ignore[arg-type]
    expected = hold_out_classes(dataset, **usual | settings).save(tmp_path / "expected")  # type: ignore[arg-type]
    command = ["stream", "from-held-out", "--base", base, "--out", tmp_path / "out"]
    command += [] if "--held-out" in words else ["--held-out", 1]
    found = document(*command, *words)
    assert found["sha256"] == expected.sha256
    assert found["sha256"] != plain.sha256


def test_portraits_have_a_size_a_seed_and_a_fidelity(tmp_path: Path) -> None:
    for name in ("M", "F"):
        (tmp_path / name).mkdir()
        for i in range(16):
            Image.new("L", (10, 10), 7 * i).save(tmp_path / name / f"{1930 + 10 * (i % 2)}_{name}{i}.png")
    words = ("--size", 8, "--seed", 3, "--fidelity", "paper-code")
    found = document("stream", "portraits", tmp_path, *words, "--out", tmp_path / "out")
    expected = portraits(tmp_path, 8, 3, "paper-code").save(tmp_path / "expected")
    usual = portraits(tmp_path, 8, 1007, "paper-code").save(tmp_path / "usual")
    assert found["sha256"] == expected.sha256 != usual.sha256
    loaded = Stream.load(tmp_path / "out")
    assert (loaded.x_shape, loaded.facts["loading"]["normalise"]) == ((8, 8, 3), "squashed")
