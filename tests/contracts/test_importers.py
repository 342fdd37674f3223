"""Every registered importer: a valid stream in order of time, the same each time; hostile input is one sentence."""

import io
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.clear_layouts import bare_layout
from support.console import document, inside

from driftline.curate.core.errors import BadInput, DriftlineError, MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.pipelines.actions.makers import add_imports, import_app
from driftline.stream_builder.importers import IMPORTERS
from driftline.stream_builder.importers.dated import times_of
from driftline.stream_builder.rows import Rows, cut, labelled
from driftline.stream_builder.step import NEVER
from driftline.stream_builder.stream import SPLITS, Split, Stream

YEARS = (2012, 2013, 2015)
Built = tuple[Path, dict[str, Any]]  # what the importer is called with


def picture(*words: str | int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rng_for(0, *words).integers(0, 256, (10, 12, 3)).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write_picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(path.name))


def clear(folder: Path) -> Built:
    """The old layout, without metadata; what it is in full is in test_clear_import.py."""
    return bare_layout(folder, ["1", "2", "3"]), {"features": "images:8"}


def folder_by_time(folder: Path) -> Built:
    for year in YEARS:
        for c in ("bus", "car"):
            for i in range(4):
                write_picture(folder / c / f"{year}-05-{i + 1:02d}.png")
    return folder, {"size": 8}


def hub(folder: Path) -> Built:
    for side in ("train", "test"):
        rows = [(year, c, i) for year in YEARS for c in range(2) for i in range(4)]
        table = pa.table(
            {
                "image": [{"bytes": picture(side, *row), "path": None} for row in rows],
                "label": [c for _, c, _ in rows],
                "taken": [datetime(year, 1 + i, 1, tzinfo=UTC) for year, _, i in rows],
            }
        )
        features = {"label": {"names": ["bus", "car"], "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for shard in range(2):
            name = f"{side}-{shard:05d}-of-00002.parquet"
            pq.write_table(table.slice(shard * 12, 12), folder / "data" / name)
    return folder, {"time": "taken", "label": "label", "size": 8}


def tic(folder: Path) -> Built:
    rows = [(f"{y}{i:028x}", ("bus", "car")[i % 2], f"{y}-{i}.png") for y in YEARS for i in range(8)]
    for _, _, name in rows:
        write_picture(folder / name)
    lines = ["uid,label,path", *(",".join(row) for row in rows)]
    (folder / "mine.csv").write_text("\n".join(lines))
    lists = {str(year): [uid for uid, _, _ in rows if uid.startswith(str(year))] for year in YEARS}
    (folder / "tic_year2uids.json").write_text(json.dumps(lists))
    return folder / "tic_year2uids.json", {"table": folder / "mine.csv", "size": 8}


def wild_time(folder: Path) -> Built:
    content: Any = {}
    for year in YEARS:
        rng = rng_for(year)
        content[year] = {
            mode: {"images": rng.random((n, 32, 32, 3)), "labels": np.arange(n) % 2} for mode, n in ((0, 9), (1, 2))
        }
    with (folder / "yearbook.pkl").open("wb") as file:
        pickle.dump(content, file)
    return folder / "yearbook.pkl", {}


def wilds(folder: Path) -> Built:
    rows = [(year, c, i) for year in YEARS for c in ("dam", "zoo") for i in range(6)]
    lines = ["split,category,timestamp,country_code"]
    for row, (year, c, i) in enumerate(rows):
        side = ("train", "train", "train", "val", "test", "seq")[i]
        lines.append(f"{side},{c},{year}-0{i + 1}-01T10:00:00Z,FRA")
        if side != "seq":
            write_picture(folder / "images" / f"rgb_img_{row}.png")
    (folder / "rgb_metadata.csv").write_text("\n".join(lines))
    return folder, {"size": 8}


BUILT: dict[str, Callable[[Path], Built]] = {
    "clear": clear, "folder-by-time": folder_by_time, "hub": hub, "tic": tic, "wild-time": wild_time, "wilds": wilds,
}  # fmt: skip


def read(name: str, folder: Path) -> Stream:
    path, options = BUILT[name](folder)
    return IMPORTERS[name](path, **options)


def test_every_importer_is_here_and_has_a_command() -> None:
    assert set(BUILT) == set(IMPORTERS)
    add_imports([])
    assert {f"from-{name}" for name in IMPORTERS} <= {info.name for info in import_app.registered_commands}


@pytest.mark.parametrize("name", IMPORTERS)
def test_the_stream_is_valid_and_the_same_each_time(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    made = read(name, folder)
    assert [step.index for step in made.steps] == [0, 1, 2]
    ids = [id_ for step in made.steps for split in step.splits.values() for id_ in split.ids.tolist()]
    assert len(set(ids)) == len(ids)
    for step in made.steps:
        assert set(step.splits) <= set(SPLITS)
        assert {"train", "test"} <= set(step.splits)
        for split in step.splits.values():
            assert set(split.y.tolist()) <= {0, 1}
            assert split.time is None or (np.diff(split.time) >= 0).all()
            assert split.x[:1].dtype == np.uint8
    ends = [step.everything().time for step in made.steps]
    assert all(a is None or b is None or a.max() < b.min() for a, b in pairwise(ends))
    assert len(made.classes) == 2
    assert {"from", "licence"} <= set(made.facts)
    saved = made.save(tmp_path / "S")
    saved.verify(tmp_path / "S")
    path, options = BUILT[name](folder)
    assert IMPORTERS[name](path, **options).save(tmp_path / "T").sha256 == saved.sha256


def ids_of(stream: Stream, side: str) -> tuple[str, ...]:
    return tuple(id_ for step in stream.steps if side in step.splits for id_ in step[side].ids.tolist())


def test_samples_of_a_group_are_tested_together() -> None:
    labels = [("zebra", "ant", "mole")[i % 3] for i in range(60)]
    ids, groups = (
        np.array([f"{name}-{i:02}" for i, name in enumerate(labels)]),
        np.array([f"g{i // 3}" for i in range(60)]),
    )
    years, (y, classes) = np.arange(60) % 4 * 31_556_952 + 10**6, labelled(labels)
    made = cut(Rows("d", Split(np.zeros((60, 1), np.float32), y, ids, years, groups), classes), "year", 0.3, 1, {})
    sides = [{int(id_[-2:]) // 3 for id_ in ids_of(made, side)} for side in ("train", "test")]
    assert sides[1]
    assert not sides[0] & sides[1]


def test_an_id_that_comes_twice_is_named_with_its_rows(tmp_path: Path) -> None:
    lists, options = BUILT["tic"](tmp_path)
    lines = options["table"].read_text().splitlines()
    options["table"].write_text("\n".join([lines[0], "unlisted,ant,a.png", *lines[1:], lines[1]]))
    places = f"csv, row 2; {options['table']}, row {len(lines) + 1}"
    with pytest.raises(BadInput, match=f"the id '{lines[1].split(',')[0]}' is there 2 times .*{places}.*Leave one"):
        IMPORTERS["tic"](lists, **options)


@pytest.mark.parametrize("name", IMPORTERS)
def test_nothing_and_an_empty_folder_are_one_sentence(name: str, tmp_path: Path) -> None:
    _, options = BUILT[name](tmp_path / "made" if name not in ("wild-time", "tic") else tmp_path)
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nothing", tmp_path / "empty"):
        with pytest.raises(DriftlineError) as caught:
            IMPORTERS[name](path, **options)
        assert "\n" not in str(caught.value)
        assert str(tmp_path) in str(caught.value)


def test_official_sides_are_kept_and_sequestered_rows_counted(tmp_path: Path) -> None:
    made = read("wilds", tmp_path)
    assert [len(made.steps[0][side]) for side in SPLITS] == [6, 2, 2]
    assert made.facts["left_out"] == "6 rows of split seq"
    assert [step.name for step in made.steps] == ["2012", "2013", "2015"]


def test_a_shard_says_its_side(tmp_path: Path) -> None:
    made = read("hub", tmp_path)
    assert all(id_.startswith("data/test-") for id_ in made.flat("test").ids.tolist())
    assert list(made.classes) == ["bus", "car"]


def test_hub_texts_in_periods_of_equal_size(tmp_path: Path) -> None:
    times = ["2014-03-01", "2014-03-01T10:00:00+02:00", "2015", "1430000000", "2016-01-01 10:00:00Z", "2017-02-02"]
    pq.write_table(pa.table({"text": list("abcdef"), "when": times, "topic": ["x", "y"] * 3}), tmp_path / "a.parquet")
    made = IMPORTERS["hub"](tmp_path, time="when", label="topic", period="3", test_share=0)
    assert [step["train"].x.tolist() for step in made.steps] == [["a", "b"], ["c", "d"], ["e", "f"]]


@pytest.mark.parametrize(
    ("values", "unit", "seconds"),
    [
        ([1430000000, 1430000001], "auto", [1430000000, 1430000001]),
        ([1430000000000, 1429999999999], "auto", [1430000000, 1429999999]),
        ([1, 0, 2], "auto", [1, 0, 2]),
        (["1430000000000000"], "auto", [1430000000]),
        ([1430000000], "ms", [1430000]),
        ([datetime(2015, 4, 25, 22, 13, 20, tzinfo=timezone(timedelta(hours=-1)))], "auto", [1430003600]),
        (["2015", "1969"], "auto", [1420070400, -31536000]),
    ],
)
def test_times_of_every_kind(values: list[Any], unit: str, seconds: list[int]) -> None:
    assert times_of(pa.chunked_array([pa.array(values)]), str, unit).tolist() == seconds


def hub_with(tmp_path: Path, **columns: list[Any]) -> DriftlineError:
    usual: dict[str, list[Any]] = {"text": ["a", "b"], "when": ["2014", "2015"], "topic": ["x", "y"]}
    pq.write_table(pa.table(usual | columns), tmp_path / "a.parquet")
    with pytest.raises(DriftlineError) as caught:
        IMPORTERS["hub"](tmp_path, time="when", label="topic")
    return caught.value


def test_what_is_missing_is_named_with_its_row(tmp_path: Path) -> None:
    assert ": no row has a label." in str(hub_with(tmp_path, topic=["-1", None]))
    assert "a.parquet, row 1: the time is 'soon'" in str(hub_with(tmp_path, when=["soon", "2015"]))
    assert "a.parquet, row 2: text is NoneType" in str(hub_with(tmp_path, text=["a", None]))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_images_of_a_shard_are_each_rows_own(kind: pa.DataType, tmp_path: Path) -> None:
    """Of batches that are parts of others, and of one without rows."""
    images = [picture("hub", i) * (1 + i % 3) for i in range(7)]
    column = pa.array(
        [{"bytes": data, "path": None} for data in images], pa.struct({"bytes": kind, "path": pa.string()})
    )
    whole = pa.record_batch(
        {"image": column, "when": pa.array([2014 + i for i in range(7)]), "topic": ["x", "y"] * 3 + ["x"]}
    )
    with pa.ipc.new_stream(tmp_path / "a.arrow", whole.schema) as out:
        for low, high in ((2, 5), (5, 5), (5, 7), (0, 2)):
            out.write_batch(whole.slice(low, high - low))
    made = IMPORTERS["hub"](tmp_path, time="when", label="topic", test_share=0)
    assert [next(iter(step["train"].x.raw())) for step in made.steps] == images


def test_an_image_that_is_not_there_is_named_with_its_row(tmp_path: Path) -> None:
    there = {"bytes": b"x", "path": None}
    for i, lacking in enumerate(({"bytes": None, "path": "b.jpg"}, {"bytes": b"", "path": None}, None)):
        error = hub_with(tmp_path, text=[there, lacking])
        assert "a.parquet, row 2: text has no bytes. Expected the image" in str(error), i
    assert "a.parquet, row 1: text has no bytes" in str(hub_with(tmp_path, text=[{"bytes": 3, "path": "b.jpg"}] * 2))


def test_wild_times_first_part_is_trained_on_and_its_years_are_those_of_the_paper(tmp_path: Path) -> None:
    made = read("wild-time", tmp_path)
    assert [(step.name, len(step["train"]), len(step["test"])) for step in made.steps] == [
        (str(year), 9, 2) for year in YEARS
    ]
    images = tmp_path / "fmow_v1.1" / "images"
    for i in range(4):
        write_picture(images / f"rgb_img_{i}.png")
    content = {0: {0: {"image_idxs": np.arange(3), "labels": np.arange(3)}, 1: {"image_idxs": [3], "labels": [0]}}}
    (tmp_path / "fmow.pkl").write_bytes(pickle.dumps(content))
    (step,) = IMPORTERS["wild-time"](tmp_path / "fmow.pkl").steps
    assert (step.name, len(step["train"])) == ("2002", 3)


def test_grey_portraits_of_wild_time_have_three_channels(tmp_path: Path) -> None:
    grey = rng_for(0).random((4, 32, 32))
    content = {2012: {mode: {"images": grey, "labels": np.arange(4) % 2} for mode in (0, 1)}}
    (tmp_path / "yearbook.pkl").write_bytes(pickle.dumps(content))
    made = [IMPORTERS["wild-time"](tmp_path / "yearbook.pkl", seed=seed) for seed in range(5)]
    assert made[0].x_shape == (32, 32, 3)
    assert len({tuple(one.steps[0]["train"].ids) for one in made}) > 1, "samples of one time are in a drawn order"


def test_the_date_in_a_photo_comes_before_that_of_its_path(tmp_path: Path) -> None:
    path, options = folder_by_time(tmp_path)
    exif = Image.Exif()
    exif.get_ifd(0x8769)[36867] = "2018:02:03 04:05:06"  # DateTimeOriginal
    Image.new("RGB", (16, 16)).save(path / "bus" / "2012-06-01.jpg", exif=exif)
    made = IMPORTERS["folder-by-time"](path, test_share=0, **options)
    assert made.steps[-1].name == "2018"
    assert made.steps[-1]["train"].ids.tolist() == ["bus/2012-06-01.jpg"]


def test_code_in_a_pickle_is_refused(tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    for name, file, options in (("wild-time", "yearbook.pkl", {}), ("tic", "tic_year2uids.pkl", {"table": "t.csv"})):
        (tmp_path / file).write_bytes(pickle.dumps({2014: Code()}))
        with pytest.raises(BadInput, match="which may be code and is never run"):
            IMPORTERS[name](tmp_path / file, **options)
    assert not (tmp_path / "ran").exists()


def test_texts_and_tensors_of_wild_time(tmp_path: Path) -> None:
    import torch

    sides = {mode: {"title": np.array(["on graphs", "on cats"]), "category": torch.tensor([3, 0])} for mode in (0, 1)}
    (tmp_path / "arxiv.pkl").write_bytes(pickle.dumps({2007: sides}))
    made = IMPORTERS["wild-time"](tmp_path / "arxiv.pkl")
    assert dict(zip(made.steps[0]["train"].x.tolist(), made.steps[0]["train"].y.tolist(), strict=True)) == {
        "on graphs": 3, "on cats": 0
    }  # fmt: skip
    assert len(made.classes) == 4


def test_pairs_of_numbers_are_uids(tmp_path: Path) -> None:
    _, options = tic(tmp_path)
    (tmp_path / "lists").mkdir()
    for month, numbers in (("201203", [0, 1]), ("201304", [0, 1])):
        pairs = np.array([(int(f"{month[:4]}000000000000", 16), i) for i in numbers], "u8,u8")
        np.save(tmp_path / "lists" / f"{month}.npy", pairs)
    made = IMPORTERS["tic"](tmp_path / "lists", period="month", test_share=0, **options)
    assert [step.name for step in made.steps] == ["2012-03", "2013-04"]
    assert made.facts["joined"].startswith("4 of 24 rows")


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda root: write_picture(root / "loose.png"), BadInput, "is in no class folder"),
        (lambda root: write_picture(root / "bus" / "undated.png"), BadInput, "1 of 25 photos in .* have no date"),
        (lambda root: (root / "bus" / "2011-01-01.jpg").touch(), BadInput, "cannot be read as an image"),
        (lambda root: (root / "bus" / "2011-01-01.heic").touch(), BadInput, "is a heic file"),
    ],
)
def test_a_folder_by_time_without_class_or_date(change, kind, words, tmp_path):
    path, options = folder_by_time(tmp_path)
    change(path)
    with pytest.raises(kind, match=words):
        IMPORTERS["folder-by-time"](path, **options)


def test_missing_images_are_counted(tmp_path: Path) -> None:
    path, options = wilds(tmp_path)
    (path / "images" / "rgb_img_3.png").unlink()
    with pytest.raises(MissingFile, match="1 of 30 images of .*rgb_metadata.csv are missing"):
        IMPORTERS["wilds"](path, **options)


def test_images_of_fmow_may_be_elsewhere(tmp_path: Path) -> None:
    for i in range(3):
        write_picture(tmp_path / "elsewhere" / f"rgb_img_{i}.png")
    content = {0: {mode: {"image_idxs": np.arange(2) + mode, "labels": np.arange(2)} for mode in (0, 1)}}
    (tmp_path / "fmow.pkl").write_bytes(pickle.dumps(content))
    words = ("stream", "from-wild-time", tmp_path / "fmow.pkl", "--out", tmp_path / "out")
    assert "fmow_v1.1/images" in inside(*words).stderr
    made = document(*words, "--root", tmp_path / "elsewhere", "--size", 16)
    assert made["samples"] == 4
    assert Stream.load(tmp_path / "out").x_shape == (16, 16, 3)


def test_columns_of_other_names_are_named_by_options(tmp_path: Path) -> None:
    """The streams are those of the usual names."""
    lists, options = tic(tmp_path)
    usual = IMPORTERS["tic"](lists, **options).save(tmp_path / "usual tic")
    table = (tmp_path / "mine.csv").read_text()
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "other.csv").write_text(table.replace("uid,label,path", "key 2,kind,photo"))
    words = ("stream", "from-tic", lists, "--table", tmp_path / "images" / "other.csv", "--out", tmp_path / "tic")
    named = ("--id", "key 2", "--columns", "{label: kind, path: photo}")
    assert "--id" in inside(*words).stderr
    assert "are missing" in inside(*words, *named).stderr
    assert document(*words, *named, "--root", tmp_path, "--size", 8)["sha256"] == usual.sha256

    folder, options = wilds(tmp_path / "wilds")
    lines = (folder / "rgb_metadata.csv").read_text().splitlines()
    grouped = [f"{line},{'group' if not i else i % 5}" for i, line in enumerate(lines)]
    (folder / "rgb_metadata.csv").write_text("\n".join(grouped).replace("country_code,group", "country_code,seq_id"))
    usual = IMPORTERS["wilds"](folder, **options).save(tmp_path / "usual wilds")
    rows = grouped[1:]
    files = ["photo", *(f"rgb_img_{row}.png" for row in range(len(rows)))]
    others = ["split,kind,day,country_code,series", *rows]
    (folder / "rgb_metadata.csv").unlink()
    (folder / "metadata.csv").write_text("\n".join(f"{a},{b}" for a, b in zip(others, files, strict=True)))
    words = ("stream", "from-wilds", folder, "--size", 8, "--out", tmp_path / "out")
    named = ("--time", "day", "--label", "kind", "--path", "photo")
    assert "--time" in inside(*words).stderr
    assert document(*words, *named, "--group", "series")["sha256"] == usual.sha256
    assert Stream.load(tmp_path / "out").flat("train").group is not None


def test_features_of_a_table_are_rows_of_a_file(tmp_path: Path) -> None:
    lists, _ = tic(tmp_path)
    np.save(tmp_path / "v.npy", np.arange(48, dtype=np.float32).reshape(24, 2))
    words = ("stream", "from-tic", lists, "--table", tmp_path / "mine.csv", "--test-share", 0)
    document(*words, "--features", tmp_path / "v.npy", "--out", tmp_path / "out")
    first = Stream.load(tmp_path / "out").steps[0]["train"]
    assert sorted(first.x[:, 0].tolist()) == list(range(0, 16, 2))


def test_a_hub_data_sets_column_unit_and_configuration_are_chosen(tmp_path: Path) -> None:
    millions = [1_400_000_000_000 + k * 31_557_600_000 for k in range(3)]  # of milliseconds, a year apart
    for config in ("small", "large"):
        (tmp_path / "data" / config).mkdir(parents=True)
        texts = {f"{kind}": [f"{config} {kind} {i}" for i in range(3)] for kind in ("text", "title")}
        table = pa.table(texts | {"when": millions, "topic": ["x", "y", "x"]})
        pq.write_table(table, tmp_path / "data" / config / "a.parquet")
    words = ("stream", "from-hub", tmp_path / "data", "--time", "when", "--label", "topic", "--test-share", 0)
    chosen = ("--x", "title", "--config", "large", "--time-unit", "ms")
    document(*words, *chosen, "--out", tmp_path / "out")
    steps = Stream.load(tmp_path / "out").steps
    assert [(step.name, *step["train"].x.tolist()) for step in steps] == [
        (str(2014 + k), f"large title {k}") for k in range(3)
    ]
    document(*words, *chosen[:4], "--time-unit", "us", "--out", tmp_path / "us")
    assert [step.name for step in Stream.load(tmp_path / "us").steps] == ["1970"]


@pytest.mark.parametrize("unit", ["auto", "ms"])
def test_a_hub_data_set_says_when_its_labels_come(unit: str, tmp_path: Path) -> None:
    """In the unit of the times; a label without a time never comes. Two shards: the order of time is not theirs."""
    per = 1 if unit == "auto" else 1000
    (tmp_path / "data").mkdir()
    rows = [(1_500_000_000, None), (1_400_000_000, 1_400_000_500), (1_450_000_000, 2_000_000_000)]
    for number, part in enumerate((rows[:1], rows[1:])):
        checked = pa.array([late and late * per for _, late in part], pa.int64())
        times = {"text": [str(when) for when, _ in part], "when": [when * per for when, _ in part]}
        columns = times | {"topic": ["x"] * len(part), "checked": checked}
        pq.write_table(pa.table(columns), tmp_path / "data" / f"{number}.parquet")
    words = ("stream", "from-hub", tmp_path / "data", "--time", "when", "--label", "topic", "--test-share", 0)
    document(*words, "--time-unit", unit, "--label-time", "checked", "--out", tmp_path / "out")
    split = Stream.load(tmp_path / "out").flat("train")
    late = {str(when): NEVER if late is None else late for when, late in rows}
    assert dict(zip(split.x.tolist(), split.label_time.tolist(), strict=True)) == late
    pq.write_table(pa.table(columns | {"when": [1_500_000_000 * per] * 2}), tmp_path / "data" / "0.parquet")
    with pytest.raises(BadInput, match=r"0\.parquet, row 1: label_time is 14.*, and its sample's time is 15"):
        IMPORTERS["hub"](tmp_path / "data", "when", "topic", label_time="checked", time_unit=unit)
