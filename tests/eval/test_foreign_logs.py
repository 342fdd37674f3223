"""Logs as strangers have them: spellings that are read, others that end in a sentence, and notes that are true."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import driftline as dl
from driftline.curate.core.errors import DriftlineError
from driftline.eval.logs.reading import read_log

ROWS, RIGHT = 1200, 0.9


def log(**columns: Any) -> pd.DataFrame:
    """Half a year of one version with two classes, right in 90 %."""
    k = np.arange(ROWS)
    label = k % 2
    frame = {
        "time": (pd.Timestamp("2026-01-01") + pd.to_timedelta(k * 180 // ROWS, "D")).strftime("%Y-%m-%d"),
        "id": k + 10_000,
        "version": "v1",
        "prediction": np.where(k % 10 == 0, 1 - label, label),
        "label": label,
    }
    return pd.DataFrame(frame | columns)


def written(folder: Path, frame: pd.DataFrame, name: str = "log.csv", **how: Any) -> Path:
    frame.to_csv(folder / name, index=False, **how)
    return folder / name


def accuracy(source: Any, **more: Any) -> float:
    cells = dl.age(source, versions={"v1": "2026-01-01"}, **more).cells
    return float(np.average(cells.accuracy[cells.usable], weights=cells.labelled[cells.usable]))


def refused(source: Any, **more: Any) -> str:
    with pytest.raises(DriftlineError) as caught:
        dl.age(source, versions={"v1": "2026-01-01"}, **more)
    return str(caught.value)


def test_ids_of_a_label_file_that_became_floats_are_the_same_ids(tmp_path: Path) -> None:
    path = written(tmp_path, log().drop(columns="label"))
    late = written(tmp_path, log()[["id", "label"]].astype(float), "labels.csv")
    assert accuracy(path, labels=late) == pytest.approx(RIGHT, abs=0.01)


def test_versions_keep_their_point(tmp_path: Path) -> None:
    path = written(tmp_path, log(version=["1.0", "1"] * (ROWS // 2)))
    assert list(dl.age(path).versions) == ["1", "1.0"]


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "week %W"])
def test_dates_whose_day_is_not_certain_are_refused_by_the_first_of_them(form: str, tmp_path: Path) -> None:
    path = written(tmp_path, log(time=pd.to_datetime(log()["time"]).dt.strftime(form)))
    first = pd.Timestamp("2026-01-01").strftime(form)
    assert f"log.csv: the time is '{first}' in row 1, and 1,200 of 1,200 cannot be read." in refused(path)


def test_a_decimal_comma_is_a_score(tmp_path: Path) -> None:
    path = written(tmp_path, log(score=0.75), sep=";", decimal=",")
    assert "0,75" in path.read_text()
    assert set(read_log([path]).score.tolist()) == {0.75}


def test_a_score_in_per_cent_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, log(score="93 %"))
    assert "log.csv: the score is '93 %' in row 1. Expected a number." in refused(path)


def test_a_regression_is_refused_as_one() -> None:
    value = np.random.default_rng(0).normal(size=ROWS)
    sentence = refused(log(prediction=value, label=value + 0.1))
    assert sentence.startswith("The predictions are 1,200 numbers such as ")
    assert "Expected classes." in sentence


def test_labels_in_other_words_than_the_answers_are_refused() -> None:
    sentence = refused(log(label=["no", "yes"] * (ROWS // 2)))
    assert sentence.startswith("No label is ever an answer: labels are no, yes, answers are 0, 1.")


def test_a_rare_class_is_said_to_make_accuracy_high() -> None:
    label = (np.arange(ROWS) % 100 == 0).astype(int)
    notes = " ".join(dl.age(log(label=label, prediction=0)).notes)
    assert "Always answering 0 would be right in 99.0 %, the model is in 99.0 %" in notes
    assert "Always answering" not in " ".join(dl.age(log()).notes)


@pytest.mark.parametrize("limit", ["accuracy<80", "forecast<1.5", "accuracy<-0.1"])
def test_a_limit_in_per_cent_is_refused(limit: str) -> None:
    with pytest.raises(DriftlineError, match=r"Expected a share from 0 to 1"):
        dl.age(log()).json(limit)


def test_a_folder_is_refused_with_the_way_to_name_its_files(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder." in refused(tmp_path)


@pytest.mark.parametrize("extra", ["byte order mark", "index"])
def test_what_spreadsheets_add_is_harmless(extra: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log().to_csv(path, index=extra == "index", encoding="utf-8-sig" if extra == "byte order mark" else "utf-8")
    assert accuracy(path) == pytest.approx(RIGHT, abs=0.01)


def test_a_column_of_periods_is_a_column_of_times() -> None:
    months = pd.to_datetime(log()["time"]).dt.to_period("M")
    assert accuracy(log(time=months)) == pytest.approx(RIGHT, abs=0.01)


def test_a_table_of_another_library_is_read_through_arrow() -> None:
    assert accuracy(pa.RecordBatch.from_pandas(log())) == pytest.approx(RIGHT, abs=0.01)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
def test_times_of_data_frames_are_read_in_each_unit_and_zone(unit: Any, zone: str | None, tmp_path: Path) -> None:
    time = pd.Series(pd.to_datetime(log()["time"]) + pd.Timedelta("11h30min0.5s")).dt.tz_localize(zone).dt.as_unit(unit)
    frame = log(time=time, label_time=time + pd.Timedelta("1D"))
    frame.to_parquet(tmp_path / "log.parquet")
    expected = [int(one.timestamp()) for one in time]
    for source in (frame, tmp_path / "log.parquet", pa.Table.from_pandas(frame)):
        read = read_log([source])
        assert read.time.tolist() == expected
        assert (read.label_time - read.time == 86_400).all()
