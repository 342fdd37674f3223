"""Options of `driftline stream …`: each changes what it says, and the stream is the one that the function makes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.clear_layouts import made_release
from support.console import document, inside
from support.helpers import correlated, drifting

from driftline.stream_builder.builders.sampling import Composition
from driftline.stream_builder.builders.shift_sequence import compose, portraits
from driftline.stream_builder.builders.table import from_table, in_time_order, timed_release
from driftline.stream_builder.measures.shift_distance import distances, floors, label_statistics
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


def left_out(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings, then without each."""
    return [settings, *({k: v for k, v in settings.items() if k != key} for key in settings)]


PRIORS = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.4, 0.4]]


@pytest.mark.parametrize(
    ("words", "settings", "composition"),
    [
        (
            "--seed 3 --test-size 12 --overlap independent --val-share 0.5 --priors priors.csv",
            {"seed": 3, "test_size": 12},
            {"overlap": "independent", "val_share": 0.5, "priors": np.array(PRIORS)},
        ),
        ("--no-oracle --test-size 18 --fidelity paper-code", {"oracle": False}, {"fidelity": "paper-code"}),
        ("--classes natural --test-size 18", {}, {"balanced": "natural"}),
    ],
)
def test_options_of_compose_make_the_stream_that_the_function_makes(
    words: str, settings: dict[str, Any], composition: dict[str, Any], base: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without any one of them it is another."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("priors.csv", PRIORS, delimiter=",")
    usual: dict[str, Any] = {"sizes": (30, 18, 30), "test_size": 18, "seed": 0}
    made = [(some, composition) for some in left_out(settings)]
    made += [(settings, some) for some in left_out(composition)[1:]]
    expected, *others = (
        compose(base, "C:L", **usual | some, composition=Composition(**more)).save(tmp_path / f"{i}").sha256
        for i, (some, more) in enumerate(made)
    )
    command = ["stream", "compose", "--base", base, "--sequence", "C:L", "--sizes", "30,18,30", *words.split()]
    assert document(*command, "--out", tmp_path / "out")["sha256"] == expected
    assert expected not in others


def test_augmentation_and_draws_are_recorded_or_refused(base: Path, tmp_path: Path) -> None:
    command = ["stream", "compose", "--base", base, "--sequence", "C", "--sizes", "30,30", "--test-size", 9]
    command += ["--out", tmp_path / "out"]
    for name, augmentations in (("none", []), ("paper", ["flip", "crop", "rotate"])):
        document(*command, "--augment", name, "--draws", "own")
        assert Stream.load(tmp_path / "out").facts["loading"]["augment"] == augmentations
    assert "has no published samples for these sizes" in inside(*command, "--draws", "published").stderr


def test_images_are_decoded_at_the_size_that_is_asked_for(tmp_path: Path) -> None:
    for i in range(80):
        file = tmp_path / "base" / ("train", "test")[i % 2] / ("a", "b")[i // 2 % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 9), (3 * i, 0, 0)).save(file)
    document("stream", "compose", "--base", tmp_path / "base", "--sequence", "C", "--sizes", "20,20",
             "--test-size", 8, "--size", 6, "--workers", 2, "--out", tmp_path / "out")  # fmt: skip
    assert Stream.load(tmp_path / "out").x_shape == (6, 6, 3)


def test_measures_are_of_labels_and_of_a_seed(tmp_path: Path) -> None:
    stream = correlated(n=300, classes=4).save(tmp_path / "s")
    command = ("stream", "measure", tmp_path / "s", "--distance")
    found = document(*command, "sliced", "--seed", 3, "--labels")
    assert found["sliced"] == distances(stream, ["sliced"], seed=3)["sliced"] != distances(stream, ["sliced"])["sliced"]
    assert found["labels"]["priors"] == label_statistics(stream)["priors"]


def test_measures_and_sizes_are_tables_with_dates_and_units(tmp_path: Path) -> None:
    stream = drifting(steps=3).save(tmp_path / "s")
    days = [step.days() for step in stream.steps]
    text = inside("stream", "show", tmp_path / "s").stdout.splitlines()
    assert text[1].split() == ["step", "from", "to", *stream.steps[0].splits]
    sizes = [str(len(split)) for split in stream.steps[0].splits.values()]
    assert text[2].split() == [stream.steps[0].name, *(days[0] or ()), *sizes]
    values = distances(stream, ["sliced"])["sliced"]
    text = inside("stream", "measure", tmp_path / "s", "--distance", "sliced").stdout.splitlines()
    assert text[0].split() == ["step", "from", "to", "sliced", "floor"]
    floor = floors(stream, ["sliced"])["floor"]["sliced"]
    assert text[3].split() == [stream.steps[2].name, *(days[2] or ()), f"{values[2]:.3f}", f"{floor[2]:.3f}"]
    assert "Floor of sliced: 95 % of 200 random divisions are below." in text
    assert "sliced: in units of the samples." in text


def test_verify_reads_every_array_again(tmp_path: Path) -> None:
    drifting().save(tmp_path / "s")
    assert inside("verify", tmp_path / "s").returncode == 0
    x = np.load(tmp_path / "s" / "step_00001" / "train_x.npy")
    np.save(tmp_path / "s" / "step_00001" / "train_x.npy", x + np.float32(1))
    assert inside("stream", "show", tmp_path / "s").returncode == 0
    done = inside("verify", tmp_path / "s")
    assert (done.returncode, "step '1'" in done.stderr.lower()) == (1, True), done.stderr


def made_texts(folder: Path) -> Path:
    folder.mkdir()
    for side, n in (("train", 24), ("test", 12)):
        rows = [f"a text of number {i} about {'cats' if i % 2 else 'graphs'},{i % 2}" for i in range(n)]
        (folder / f"{side}.csv").write_text("\n".join(["text,category", *rows]))
    return folder


def test_texts_are_stored_or_encoded(tmp_path: Path) -> None:
    texts = made_texts(tmp_path / "texts")
    document("stream", "from-dataset", texts, "--out", tmp_path / "plain")
    assert Stream.load(tmp_path / "plain").steps[0]["train"].x.dtype.kind == "U"
    command = ("stream", "encode", tmp_path / "plain", "--encoder", "n=ngrams:64", "--device", "cpu")
    (stored,) = document(*command, "--out", tmp_path / "16")["streams"]
    assert stored["out"] == str(tmp_path / "16" / "n")
    assert Stream.load(stored["out"]).x_shape == (64,)


def test_encoders_are_named_by_the_user_or_by_their_parts_and_refused_before_work(tmp_path: Path) -> None:
    texts = made_texts(tmp_path / "texts")
    document("stream", "from-dataset", texts, "--out", tmp_path / "plain")
    command = ("stream", "encode", tmp_path / "plain", "--out", tmp_path / "E")
    document(*command, "--encoder", "ngrams:32", "--encoder", "b=ngrams:16")
    assert sorted(place.name for place in (tmp_path / "E").iterdir()) == ["b", "ngrams-32"]
    for wrong in (["../x=ngrams:8"], ["a=ngrams:8", "a=ngrams:9"], ["=ngrams:8"]):
        done = inside(*command, *(word for one in wrong for word in ("--encoder", one)))
        assert (done.returncode, "Expected [NAME=]KIND:MODEL:WEIGHTS" in done.stderr) == (2, True), done.stderr


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    file = tmp_path_factory.mktemp("arrays") / "a.npz"
    x, y = rng.normal(size=(120, 8)).astype(np.float32), np.arange(120) % 3
    np.savez(file, x=x, y=y, step=np.arange(120) // 40, group=np.arange(120) // 4)
    return file


@pytest.mark.parametrize("command", ["from-arrays", "from-release"])
def test_what_is_said_of_the_vectors_is_recorded(command: str, arrays: Path, tmp_path: Path) -> None:
    source = arrays if command == "from-arrays" else made_release(tmp_path / "release", each=2).path
    words = ("stream", command, source, "--out", tmp_path / "out", "--trained-until")
    document(*words, "2021-01", "--paper", "clear10/clip", "--seed", 3)
    stream = Stream.load(tmp_path / "out")
    assert (stream.facts["encoder_cutoff"], stream.facts["encoder_source"]) == ("2021-01", "--trained-until")
    assert stream.facts["published"] == "clear10/clip"
    if command == "from-release":
        assert stream.facts["equal_times"] == "in random order, seed 3"
    assert "soon" in inside(*words, "soon").stderr


def photos(folder: Path) -> Path:
    """A table of 48 dated pictures of 12 × 12 pixels in class folders; nine of ten of class b; four of an uploader."""
    lines = ["id,time,label,path,user,labelled"]
    for i in range(48):
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 12), (5 * i, 0, 0)).save(folder / "pictures" / f"{i}.png")
        lines.append(
            f"p{i},{1_000 * (i // 2)},{'a' if i % 10 == 0 else 'b'},{i}.png,u{i % 12},{60_000 + i if i % 7 else ''}"
        )
    (folder / "table.csv").write_text("\n".join(lines))
    np.save(folder / "v.npy", np.arange(96, dtype=np.float32).reshape(48, 2))
    return folder / "table.csv"


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            "--period 2 --test-share 0.5 --seed 3 --grouping random --label user --id path --label-time labelled",
            {
                "period": 2, "test_share": 0.5, "seed": 3, "grouping": "random", "label": "user", "id": "path",
                "label_time": "labelled",
            },
        ),
        ("--period day --test-share 0", {"period": "day", "test_share": 0}),
        ("--group label", {"group": "label"}),
    ],
)  # fmt: skip
def test_options_of_from_table_make_the_stream_that_the_function_makes(words, settings, tmp_path):
    """Without any one of them it is another."""
    table, vectors = photos(tmp_path / "data"), tmp_path / "data" / "v.npy"
    expected, *others = (
        from_table(table, features=vectors, **some).save(tmp_path / f"{i}").sha256
        for i, some in enumerate(left_out(settings))
    )
    command = ("stream", "from-table", table, "--features", vectors, "--out", tmp_path / "out")
    assert document(*command, *words.split())["sha256"] == expected
    assert expected not in others


def test_columns_of_a_table_are_named_in_one_option_too(tmp_path: Path) -> None:
    command = ("stream", "from-table", photos(tmp_path / "data"), "--features", tmp_path / "data" / "v.npy", "--out")
    one = document(*command, tmp_path / "a", "--columns", "{label: user, group: label, label_time: labelled}")
    each = document(*command, tmp_path / "b", "--label", "user", "--group", "label", "--label-time", "labelled")
    assert one["sha256"] == each["sha256"]


def test_pictures_of_a_table_are_below_the_root_and_of_the_size_that_are_asked_for(tmp_path: Path) -> None:
    command = ("stream", "from-table", photos(tmp_path / "data"), "--period", 2, "--out", tmp_path / "out")
    assert "48 of 48 images" in inside(*command).stderr
    document(*command, "--root", tmp_path / "data" / "pictures", "--size", 8)
    first = Stream.load(tmp_path / "out").steps[0]["train"]
    assert first.x[:1].shape == (1, 8, 8, 3)
    assert [round(int(image[0, 0, 0]) / 5) for image in first.x[:]] == [int(id_[1:]) for id_ in first.ids.tolist()]


def test_dates_of_every_kind_and_samples_in_columns_make_the_same_stream(tmp_path: Path) -> None:
    """In a file and in memory; a step a year, week or day."""
    days = np.datetime64("2019-12-28") + np.arange(12)
    columns: dict[str, Any] = {"taken": days, "kind": ["a", "b"] * 6, "u": np.arange(12.0), "v": np.ones(12)}
    lines = ["taken,kind,u,v", *(f"{d},{k},{u},{v}" for d, k, u, v in zip(*columns.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    usual: dict[str, Any] = {"time": "taken", "label": "kind", "x": ["u", "v"], "test_share": 0}
    kinds = [days, days.astype("datetime64[s]"), days.astype(str), days.astype("datetime64[ms]").astype(int)]
    streams = [from_table(columns | {"taken": kind}, period="year", **usual) for kind in kinds]
    words = ("--columns", "{time: taken, label: kind, x: 'u,v'}", "--test-share", 0, "--period", "year")
    document("stream", "from-table", tmp_path / "t.csv", *words, "--out", tmp_path / "s")
    for stream in (*streams, Stream.load(tmp_path / "s")):
        assert [(step.name, len(step["train"])) for step in stream.steps] == [("2019", 4), ("2020", 8)]
        assert stream.flat("train").x.tolist() == [[float(i), 1.0] for i in range(12)]
    weeks = from_table(columns, period="week", **usual).steps
    sizes = {step.name: len(step["train"]) for step in weeks}
    assert sizes == {"2019-12-23": 2, "2019-12-30": 7, "2020-01-06": 3}
    years = from_table(columns | {"taken": np.arange(12) // 6 + 2019}, period="year", **usual)
    assert [(step.name, len(step["train"])) for step in years.steps] == [("2019", 6), ("2020", 6)]


def test_a_release_in_order_of_time_is_cut_by_period_and_options_that_need_it_are_refused_alone(tmp_path):
    release = made_release(tmp_path / "release", each=4)
    command = ("stream", "from-release", release.path, "--out", tmp_path / "out")
    saved = document(*command, "--period", 3, "--test-share", 0.3, "--seed", 1)
    expected = in_time_order(timed_release(release.path), 3, 0.3, seed=1).save(tmp_path / "expected")
    assert saved["sha256"] == expected.sha256
    for words, problem in (
        (["--test-share", 0.2], "--test-share was given without --period"),
        (["--period", 3, "--split", 0], "--split was given with --period"),
        (["--period", "decade"], "Expected year, month, week, day, or a number of steps"),
        (["--device", "cpu"], "--device was given without --texts"),
    ):
        done = inside(*command, *words)
        assert (done.returncode, problem in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--columns", "{when: time}"], "--columns names 'when'. Available here: time, label, x, id, path, group,"),
        (["--columns", "{time: time}", "--time", "time"], "--columns names time, and --time was given, too."),
        (["--columns", "[time"], "Expected roles and columns"),
        (["--x", "time", "--path", "path"], "More than one of --x, --features and --path"),
        (["--period", 0], "--period is '0'."),
    ],
)
def test_wrong_columns_of_a_table_are_refused(words: list[Any], problem: str, tmp_path: Path) -> None:
    done = inside("stream", "from-table", photos(tmp_path / "data"), *words, "--out", tmp_path / "out")
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr


def test_portraits_have_a_size_a_seed_and_a_fidelity(tmp_path: Path) -> None:
    for name in ("M", "F"):
        (tmp_path / name).mkdir()
        for i in range(16):
            Image.new("L", (10, 10), 7 * i).save(tmp_path / name / f"{1930 + 10 * (i % 2)}_{name}{i}.png")
    words = ("--size", 8, "--seed", 3, "--fidelity", "paper-code")
    command = ("stream", "compose", "--base", tmp_path, "--sequence", "portraits", "--out", tmp_path / "out")
    saved = document(*command, *words)
    expected = portraits(tmp_path, 8, 3, "paper-code").save(tmp_path / "expected")
    usual = portraits(tmp_path, 8, 0, "paper-code").save(tmp_path / "usual")
    assert saved["sha256"] == expected.sha256 != usual.sha256
    loaded = Stream.load(tmp_path / "out")
    assert (loaded.x_shape, loaded.facts["loading"]["normalise"]) == ((8, 8, 3), "squashed")
    for wrong in (("--sizes", "1,2"), ("--test-size", 3), ("--no-oracle",), ("--seeds", "0-1")):
        done = inside(*command, *wrong, "--out", tmp_path / "other")
        assert (done.returncode, f"{wrong[0]} was given with --sequence portraits" in done.stderr) == (2, True)
