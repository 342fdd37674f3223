"""Time order, yearbooks: streams without synthetic shifts."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.shift_sequence import portraits
from driftline.stream_builder.builders.table import from_table, in_time_order, timed_release
from driftline.stream_builder.interop.avalanche import prepared
from driftline.stream_builder.rows import Rows
from driftline.stream_builder.stream import Split


def timed(n: int = 100) -> Rows:
    rng = rng_for(0, "timed")
    y = np.repeat(np.arange(4), n // 4).astype(np.int64)
    time = rng.permutation(n).astype(np.int64) * 1000
    x, ids = np.arange(n, dtype=np.float32)[:, None], np.array([f"i{i:03d}" for i in range(n)])
    return Rows("toy", Split(x, y, ids, time), "abcd")


class TestOrder:
    def test_samples_are_in_time_order_and_each_period_has_test_samples(self) -> None:
        data = timed()
        stream = in_time_order(data, period=5, test_share=0.2)
        flat = stream.flat("train")
        assert (np.diff(flat.time) > 0).all()  # type: ignore[arg-type]
        assert [(len(s["train"]), len(s["test"])) for s in stream.steps] == [(16, 4)] * 5
        for step in stream.steps:
            both = np.concatenate([step["train"].time, step["test"].time])  # type: ignore[list-item]
            assert both.max() - both.min() < 20_000
        assert not set(flat.ids.tolist()) & set(stream.flat("test").ids.tolist())

    def test_fewer_samples_than_periods_are_refused(self) -> None:
        with pytest.raises(IncompatibleStream, match="100 samples for 101 steps"):
            in_time_order(timed(), period=101)
        with pytest.raises(BadConfig, match="--test-share is 1"):
            in_time_order(timed(), test_share=1)

    def test_a_release_in_its_order(self, journey: Path) -> None:
        stream = in_time_order(timed_release(journey), period=4)
        assert (np.diff(stream.flat("train").time) >= 0).all()  # type: ignore[arg-type]
        pictures = in_time_order(timed_release(journey, "images:16"), period=2).steps[0]["train"]
        assert pictures.part(0, 3).x[:].shape == (3, 16, 16, 3)

    def table(self, folder: Path, rows: list[list[object]]) -> Path:
        with (folder / "t.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["id", "time", "label"], *rows])
        return folder / "t.csv"

    def test_a_table_with_features(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, [[f"p{i}", 50 - i, "cat" if i % 2 else "dog"] for i in range(20)])
        np.save(tmp_path / "x.npy", np.arange(20, dtype=np.float32)[:, None])
        stream = from_table(path, features=tmp_path / "x.npy", period=2, test_share=0)
        assert stream.steps[0]["train"].x[:, 0].tolist() == list(range(19, 9, -1))
        assert stream.classes == ["cat", "dog"]

    def test_a_bad_table_is_named_by_column_and_row(self, tmp_path: Path) -> None:
        path = self.table(tmp_path, [["p0", 1, "cat"], ["p1", "", "dog"]])
        with pytest.raises(BadInput, match=r"row 2: time is empty"):
            from_table(path)
        path = self.table(tmp_path, [["p0", 1, "cat"]])
        with pytest.raises(BadInput, match="no column path"):
            from_table(path)
        np.save(tmp_path / "x.npy", np.zeros((3, 1), np.float32))
        with pytest.raises(BadInput, match="3 rows"):
            from_table(path, features=tmp_path / "x.npy")

    def test_published_order_files_keep_their_order_and_bring_their_test_set(self, tmp_path: Path) -> None:
        import h5py

        for side, n in (("train", 12), ("test", 6)):
            paths = np.array([f"../x/{side}{n - i}.png".encode() for i in range(n)])
            for name, content in (("labels", np.arange(n) % 3), ("image_paths", paths)):
                with h5py.File(tmp_path / f"{side}_{name}.hdf5", "w") as file:
                    file["store_list"] = content
            (tmp_path / "features").mkdir(exist_ok=True)
            np.save(tmp_path / "features" / f"{side}.npy", np.arange(n, dtype=np.float32)[:, None])
        stream = from_table(tmp_path, features=tmp_path / "features", period=3)
        assert stream.flat("train").x[:, 0].tolist() == list(range(12))
        assert stream.flat("test").x[:, 0].tolist() == list(range(6))
        for side, n in (("train", 12), ("test", 6)):
            for i in range(n):
                (tmp_path / "root" / "x").mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (9, 9), (i, 0, 0)).save(tmp_path / "root" / "x" / f"{side}{i + 1}.png")
        pictures = from_table(tmp_path, root=tmp_path / "root", size=8, period=3).flat("train")
        assert pictures.x[:][:, 0, 0, 0].tolist() == list(range(11, -1, -1)), "'..' stays inside the root"

    def test_the_published_samples_for_the_choice_of_settings_come_first_and_are_counted(self, tmp_path: Path) -> None:
        import h5py

        for side, n in (("pretrain", 5), ("train", 12), ("test", 6)):
            for name, content in (("labels", np.arange(n) % 3), ("image_paths", np.array([b"x"] * n))):
                with h5py.File(tmp_path / f"{side}_{name}.hdf5", "w") as file:
                    file["store_list"] = content
            np.save(tmp_path / f"{side}.npy", np.arange(n, dtype=np.float32)[:, None])
        stream = from_table(tmp_path, features=tmp_path, period=3)
        assert stream.flat("train").x[:, 0].tolist() == [*range(5), *range(12)]
        assert [len(step["train"]) for step in stream.steps] == [5 + 4, 4, 4]
        assert stream.facts["pretrain"] == 5
        times = stream.flat("train").time
        assert times is not None
        assert (np.diff(times) > 0).all()


class TestPortraits:
    @pytest.fixture
    def faces(self, tmp_path: Path) -> Path:
        rng = rng_for(0, "faces")
        for year in (1905, 1929, 1931, 1938, 1955, 1999, 2000, 2013):
            for folder in ("M", "F"):
                (tmp_path / folder).mkdir(exist_ok=True)
                for i in range(10):
                    pixels = rng.integers(0, 256, (23, 18)).astype(np.uint8)
                    Image.fromarray(pixels).save(tmp_path / folder / f"{year}_Ohio_{i}.png")
        return tmp_path

    def test_decades_are_cut_as_in_the_paper(self, faces: Path) -> None:
        made = portraits(faces)
        assert [s.name for s in made.steps] == ["1930s", "1950s", "1990s", "2000s"]
        sizes = [{k: len(v) for k, v in s.splits.items()} for s in made.steps]
        assert sizes[0] == {"train": 32, "val": 8}
        assert sizes[3] == {"train": 16, "val": 4, "test": 20}
        x = made.steps[0]["train"].x
        assert x.shape[1:] == (32, 32, 3)
        assert (x[..., 0] == x[..., 2]).all()

    def test_the_papers_code_leaves_a_hundredth_of_the_contrast(self, faces: Path) -> None:
        spans = {}
        for fidelity in ("clean", "paper-code"):
            made = portraits(faces, fidelity=fidelity)  # type: ignore[arg-type]
            seen = prepared(made)(made.steps[0]["train"].x[:8])
            spans[fidelity] = float(seen.max() - seen.min())
        assert spans["paper-code"] == pytest.approx(spans["clean"] / 255, rel=1e-4)

    def test_a_file_without_a_year_is_named(self, faces: Path) -> None:
        Image.new("L", (4, 4)).save(faces / "M" / "someone.png")
        with pytest.raises(BadInput, match=r"someone\.png does not begin with a year"):
            portraits(faces)
        with pytest.raises(MissingFile, match="no folder M"):
            portraits(faces / "M")


@pytest.mark.parametrize(
    ("days", "looks"),
    [
        ([20150101, 20191231], "days, YYYYMMDD"),
        (["20150101", "20191231"], "days, YYYYMMDD"),
        ([201501, 201912], "months, YYYYMM"),
        ([42_000, 43_669], "days, since 1970 or of a spreadsheet"),
        ([16_436.0, 18_000.0], "days, since 1970 or of a spreadsheet"),
    ],
)
def test_whole_numbers_that_are_no_seconds_are_refused_with_what_they_look_like(days: list[Any], looks: str) -> None:
    """As seconds, each lies on the first of January or in August of 1970."""
    table = {"t": days, "y": ["a", "b"], "x": [0.0, 1.0]}
    with pytest.raises(BadInput, match=looks):
        from_table(table, time="t", label="y", x="x")
    assert from_table({**table, "t": [20151350, 99999999]}, time="t", label="y", x="x", period=1).name


MOMENTS = pd.to_datetime(["1969-12-31T23:59:59.5", "2004-02-29T12:00:00.999999", "2015-06-01"], format="ISO8601")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": [1.0, "n/a", 3.0]}, "Could not convert 'n/a'.*column a"),
        ({"taken": [pd.Timestamp("2015"), pd.NaT, pd.Timestamp("2016")]}, "row 2: time is empty"),
    ],
)
def test_a_frame_that_cannot_be_read_is_one_sentence(change: dict[str, Any], message: str) -> None:
    frame = pd.DataFrame({"a": [0.0, 1, 2], "taken": MOMENTS, "kind": list("xyx"), **change})
    with pytest.raises(BadInput, match=message):
        from_table(frame, time="taken", label="kind", x=["a"], period="year")


def test_a_frame_may_have_numbers_as_names_the_same_index_twice_zones_and_periods() -> None:
    zones = [MOMENTS[1].tz_localize("UTC"), MOMENTS[2].tz_localize("Europe/Berlin")]
    for times in (zones, pd.period_range("2004-02", periods=2, freq="11Y").tolist()):
        frame = pd.DataFrame({0: pd.Series([1, 2], dtype=object), "time": times, "label": ["a", "b"]})
        stream = from_table(frame.set_index([[7, 7]]), x=[0], period="year")
        assert [step.name for step in stream.steps] == ["2004", "2015"]
        assert stream.flat("train").x.tolist() == [[1.0], [2.0]]
    with pytest.raises(BadInput, match="the table has no rows"):
        from_table(frame[:0], x=[0])
