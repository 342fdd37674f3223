"""Streams: what goes in comes out; errors name what is wrong."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from driftline.curate.core.errors import (
    BadArray,
    BadInput,
    DriftlineError,
    IncompatibleStream,
    IntegrityError,
    MissingFile,
)
from driftline.curate.release import Release
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.step import NEVER
from driftline.stream_builder.storage import _update
from driftline.stream_builder.stream import Step, Stream


def npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "a.npz"
    np.savez(path, **arrays)
    return path


def good(n: int = 12) -> dict[str, Any]:
    return {
        "x": np.arange(n * 2, dtype=np.float32).reshape(n, 2),
        "y": np.arange(n) % 3,
        "step": np.arange(n) // 6,
        "split": np.where(np.arange(n) % 3 == 2, "test", "train"),
        "id": np.array([f"s{i}" for i in range(n)]),
        "time": np.arange(n, dtype=np.int64),
        "classes": np.array(["a", "b", "c"]),
    }


def test_arrays_to_stream_to_disk_and_back(tmp_path: Path) -> None:
    arrays = good()
    stream = from_arrays(npz(tmp_path, **arrays)).save(tmp_path / "s")
    again = Stream.load(tmp_path / "s")
    assert again.sha256 == stream.sha256
    assert again.classes == ["a", "b", "c"]
    train = again.steps[1]["train"]
    assert train.ids.tolist() == ["s6", "s7", "s9", "s10"]
    assert train.y.tolist() == [0, 1, 0, 1]
    assert (train.x == arrays["x"][[6, 7, 9, 10]]).all()
    assert again.flat("test").ids.tolist() == ["s2", "s5", "s8", "s11"]
    assert isinstance(train.x, np.memmap), "opening a stream reads no samples"


def test_arrays_in_memory_and_in_a_file_give_the_same_stream(tmp_path: Path) -> None:
    in_memory, from_file = from_arrays(good()), from_arrays(npz(tmp_path, **good()))
    assert in_memory.save(tmp_path / "a").sha256 == from_file.save(tmp_path / "b").sha256
    assert (in_memory.name, from_file.name) == ("arrays", "a")


DAYS = pd.date_range("2020-03-01", periods=12)
AT = 1_583_020_800  # 1 March 2020


@pytest.mark.parametrize(
    ("time", "label_time", "expected"),
    [
        (range(12), pd.Series([None, 1.5, np.inf] * 4) + np.arange(12), {0: NEVER, 1: 3, 2: NEVER}),
        (range(12), pd.array([None, 1, 11] * 4, "Int64"), None),
        (DAYS, [pd.NaT, *DAYS[2:], DAYS[-1]], {0: NEVER, 1: AT + 2 * 86_400}),
        (
            DAYS.tz_localize("UTC"),
            ["never", "", "2020-03-03T06:00:00+06:00"] + ["NaT"] * 9,
            {1: NEVER, 2: AT + 172_800},
        ),
        (np.arange(12) + 2001, np.arange(12) + 2001.0, {0: 978_307_200}),
        (np.arange(12) * 1000 + 1_583_020_800_000, np.full(12, 1_583_020_811_500), {3: AT + 11}),
        (range(12), np.full(12, np.iinfo(np.int64).max), {5: NEVER}),
        (range(12), [None] * 12, {5: NEVER}),
    ],
    ids=["floats", "before its sample", "dates", "texts", "years", "milliseconds", "the last number", "none"],
)
def test_label_times_of_every_kind_are_seconds_in_the_unit_of_time(time, label_time, expected):
    arrays = good() | {"time": time, "label_time": label_time, "step": np.zeros(12, int), "split": ["train"] * 12}
    if expected is None:
        with pytest.raises(BadInput, match=r"index 4: label_time is 1.0, and its sample.s time is 4. Expected the"):
            from_arrays(arrays)
        return
    late = from_arrays(arrays).flat("train").label_time
    assert late is not None
    assert {i: int(late[i]) for i in expected} == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"label_time": ["soon"] * 12}, "index 0, label_time: the time is 'soon'"),
        ({"label_time": [-np.inf] * 12}, "index 0, label_time: the time is '-inf'"),
        ({"label_time": [2**41] * 12}, "index 0, label_time: the time is 2199023255552"),
        ({"label_time": [1, 2]}, r"label_time has shape \(2,\)"),
    ],
)
def test_label_times_that_are_none_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DriftlineError, match=problem):
        from_arrays(good() | change)


def test_label_times_need_times() -> None:
    arrays = {key: value for key, value in good().items() if key != "time"}
    with pytest.raises(BadInput, match="label_time is there, and time is missing"):
        from_arrays(arrays | {"label_time": np.arange(12)})


def test_label_times_stay_with_their_samples_on_disk_and_only_streams_with_them_have_the_file(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(12)
    arrays = {key: value if key == "classes" else value[order] for key, value in good().items() if key != "step"}
    late = np.where(arrays["time"] % 4 == 0, np.nan, arrays["time"] + 100.0)
    stream = from_arrays(arrays | {"label_time": late}, period=3).save(tmp_path / "s")
    stream.verify(tmp_path / "s")
    for split in (split for step in Stream.load(tmp_path / "s").steps for split in step.splits.values()):
        assert split.time is not None
        assert split.label_time is not None
        assert split.label_time.tolist() == [NEVER if t % 4 == 0 else t + 100 for t in split.time.tolist()]
    plain = from_arrays(arrays, period=3).save(tmp_path / "plain")
    assert plain.sha256 != stream.sha256
    assert not list((tmp_path / "plain").rglob("*label_time*"))
    assert "label_time" not in (tmp_path / "plain" / "stream.json").read_text()
    np.save(tmp_path / "s" / "step_00000" / "train_label_time.npy", np.zeros(3, np.int64))
    with pytest.raises(IntegrityError):
        Stream.load(tmp_path / "s").verify(tmp_path / "s")


FRAME = pd.DataFrame(
    {
        "a": np.arange(12, dtype=np.float64), "b": range(12), "kind": ["cat", "dog", "emu"] * 4,
        "taken": pd.date_range("2015-03-01", periods=12, freq="120D")[::-1],
    }
)  # fmt: skip


def framed(**changes: Any) -> Stream:
    return from_arrays({"x": FRAME[["a", "b"]], "y": FRAME["kind"], "time": FRAME["taken"]} | changes, period="year")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"x": FRAME[["a", "b"]].astype(object)},
        {"y": FRAME["kind"].astype("category")},
        {"y": FRAME["kind"].astype("string")},
        {"time": FRAME["taken"].dt.tz_localize("UTC")},
        {"time": [moment.tz_localize("UTC").tz_convert("Asia/Tokyo") for moment in FRAME["taken"]]},
        {"time": FRAME["taken"].dt.strftime("%Y-%m-%d")},
        {"time": FRAME["taken"].astype("datetime64[ms]").astype("int64")},
    ],
)
def test_what_pandas_holds_becomes_the_same_stream_in_order_of_time(changes: dict[str, Any]) -> None:
    stream = framed(**changes)
    assert [step.name for step in stream] == ["2015", "2016", "2017", "2018"]
    assert stream.classes == ["cat", "dog", "emu"]
    first = np.concatenate([split.ids for split in stream[0].splits.values()])
    assert sorted(first.tolist()) == ["10", "11", "9"], "an id is the row of the frame"
    assert stream[0]["train"].x.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": FRAME["taken"].where(FRAME.index != 3)}, "index 3: time is empty"),
        ({"time": FRAME["taken"].dt.strftime("%Y%m%d").astype(int)}, "all rows would lie in 1970. It looks"),
        ({"y": FRAME["kind"].where(FRAME.index != 3, None)}, "y is None at index 3"),
        ({"x": FRAME[["kind"]].assign(more=1)}, "x has values that are no numbers"),
    ],
)
def test_what_pandas_lacks_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((BadArray, BadInput), match=message):
        framed(**changes)


def test_an_array_alone_is_no_source() -> None:
    with pytest.raises(BadInput, match=r"The source is a ndarray\. Expected a file, or arrays by name: x and y\."):
        from_arrays(good()["x"])  # type: ignore[arg-type]


def test_the_hash_is_of_the_content_not_of_the_name(tmp_path: Path) -> None:
    first = from_arrays(npz(tmp_path, **good())).save(tmp_path / "one")
    (tmp_path / "a.npz").rename(tmp_path / "b.npz")
    second = from_arrays(tmp_path / "b.npz").save(tmp_path / "two")
    assert (first.name, second.name) == ("a", "b")
    assert first.sha256 == second.sha256 == from_arrays(tmp_path / "b.npz").hashed().sha256
    changed = good()
    changed["y"] = changed["y"][::-1]
    assert from_arrays(npz(tmp_path, **changed)).save(tmp_path / "three").sha256 != first.sha256
    x = good()["x"]
    for rows in (1, 5, 100):
        _update(digest := hashlib.sha256(), x, rows)
        assert digest.digest() == hashlib.sha256(b"<f4(12, 2)" + x.tobytes()).digest(), "every byte of every block"


def test_a_learner_sees_no_test_and_streaming_sees_all_of_the_past(stream: Stream) -> None:
    step = stream.steps[0]
    assert list(step.visible().splits) == ["train"]
    past = step.past()["train"]
    assert len(past) == len(step["train"]) + len(step["test"])
    assert past.time is not None
    assert (np.diff(past.time) >= 0).all()
    with pytest.raises(IncompatibleStream, match="no val split"):
        step["val"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "x is missing"),
        ({"z": np.zeros(3)}, "unknown array z"),
        ({"classes": np.array(["a", "b", "a"])}, "classes has 'a' more than once"),
        ({"x": np.zeros((12, 4, 4), np.uint8)}, r"\(N, H, W, 3\)"),
        ({"x": np.zeros((12, 4, 4, 4), np.uint8)}, "RGBA"),
        ({"x": np.zeros((12, 3, 4, 4), np.uint8)}, r"Use x.transpose\(0, 2, 3, 1\)"),
        ({"x": np.zeros((11, 2), np.float32)}, "11 samples"),
        ({"x": np.where(np.arange(24).reshape(12, 2) == 14, np.nan, 1).astype(np.float32)}, "index 7 holds NaN"),
        ({"y": np.zeros(12)}, "y has dtype float64"),
        ({"x": np.full((12, 2), 1e300)}, "index 0 holds NaN or infinity"),
        ({"y": np.arange(12)}, "label 3 at index 3. Expected 0 … 2"),
        ({"y": np.arange(12) - 1}, "label -1 at index 0"),
        ({"split": np.array(["train"] * 11 + ["dev"])}, "'dev' at index 11"),
        ({"step": np.zeros(12)}, "step has dtype float64"),
        ({"time": np.full(12, 2**63, np.uint64)}, "index 0: the time is"),
        ({"id": np.array(["NA", *map(str, range(11))])}, "index 0: id is empty"),
        ({"time": np.zeros(5, np.int64)}, r"time has shape \(5,\)"),
        ({"x": np.zeros((0, 2), np.float32), "y": np.zeros(0, np.int64)}, "no samples"),
    ],
)
def test_wrong_arrays_are_refused_by_name_and_index(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    arrays = {k: v for k, v in (good() | change).items() if v is not None}
    with pytest.raises((BadArray, BadInput), match=message):
        from_arrays(npz(tmp_path, **arrays))


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"y": np.arange(12) % 3 * 20}, "38 of 41 classes have no sample, the first is 1: number"),
        ({"y": np.arange(12) % 3}, None),
        ({"x": np.zeros((12, 3, 8, 3), np.uint8)}, "images are 3 × 8 pixels (height, width): if channels are first, "),
    ],
)
def test_arrays_that_look_wrong_are_noted(change: dict[str, Any], doubt: str | None) -> None:
    arrays = {key: value for key, value in (good() | change).items() if key != "classes"}
    assert str(from_arrays(arrays).facts.get("check")).startswith(str(doubt))


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(BadInput, match="cannot be read as .npz"):
        from_arrays(tmp_path / "a.npz")
    with pytest.raises(MissingFile, match="nowhere"):
        from_arrays(tmp_path / "nowhere.npz")


def test_a_stream_folder_with_a_missing_or_altered_shard_is_refused(tmp_path: Path) -> None:
    stream = from_arrays(npz(tmp_path, **good())).save(tmp_path / "s")
    path = tmp_path / "s" / "step_00001" / "train_y.npy"
    np.save(path, np.array([2, 2, 2, 2]))
    with pytest.raises(IntegrityError, match="Step '1', split train"):
        Stream.load(tmp_path / "s").verify(tmp_path / "s")
    np.save(path, np.array([2, 2]))
    with pytest.raises(IntegrityError, match=r"train_y\.npy has shape \(2,\)\. Expected \(4\)"):
        Stream.load(tmp_path / "s")
    path.unlink()
    with pytest.raises(IntegrityError, match=r"train_y\.npy is missing"):
        Stream.load(tmp_path / "s")
    assert json.loads((tmp_path / "s" / "stream.json").read_text())["sha256"] == stream.sha256


@pytest.mark.parametrize("number", [0, 2])
def test_a_release_becomes_a_stream_in_time_order(number: int, journey: Path) -> None:
    release = Release.open(journey)
    stream = from_release(journey, split=number)
    assert [s.name for s in stream.steps] == [b["name"] for b in release.buckets]
    rows = {r["id"]: r for r in release.table.to_pylist()}
    for step, bucket in zip(stream.steps, release.buckets, strict=True):
        for side, split in step.splits.items():
            assert split.time is not None
            assert (np.diff(split.time) >= 0).all()
            for id_, y in zip(split.ids.tolist(), split.y.tolist(), strict=True):
                assert rows[id_]["bucket"] == bucket["index"]
                assert rows[id_]["label"] == y
                assert rows[id_][f"split_{number}"] == side
    pixels = from_release(release, "pixels:16", number)
    assert pixels.x_shape == (16, 16, 3)
    assert pixels.steps[0]["train"].x.dtype == np.uint8
    assert pixels.flat("train").ids.tolist() == stream.flat("train").ids.tolist()


def test_a_step_that_comes_twice_is_refused(tmp_path: Path, stream: Stream) -> None:
    twice = Stream("twice", [stream.steps[0], Step(1, stream.steps[0].name, stream.steps[1].splits)], stream.classes)
    with pytest.raises(BadArray, match="two steps have the name '0'"):
        twice.save(tmp_path / "s")
    with pytest.raises(BadArray, match="two steps have the number 0"):
        Stream("twice", [stream.steps[0], Step(0, "other", stream.steps[1].splits)], stream.classes).save(
            tmp_path / "t"
        )


def test_a_stream_reads_images_only_from_its_own_folder(journey: Path, tmp_path: Path) -> None:
    saved = from_release(journey, "images:16").save(tmp_path / "s")
    outside = tmp_path / "outside.tar"
    outside.write_bytes(saved.steps[0]["train"].x.files[0].read_bytes())
    record = tmp_path / "s" / "step_00000" / "train_x.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "files": ["../../outside.tar"]}))
    with pytest.raises(IntegrityError, match=r"train_x\.json names the file '\.\./\.\./outside\.tar'"):
        Stream.load(tmp_path / "s")
