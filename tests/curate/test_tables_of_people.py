"""Tables as people keep them: cases 9, 10, 12, 31 and 33 of inputs that people reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.curate.core.errors import BadInput
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.sources.table import Delimited, Parquet, TableSource


def source(folder: Path, form: str, column: str, values: Sequence[Any], **settings: Any) -> TableSource:
    """A table with the columns file, year and, if it is another one, `column`."""
    names = {"uploaded": "year", column: "odd"}
    rows = [{"file": f"{i}.jpg", "year": 2010, "odd": value} for i, value in enumerate(values)]
    path, columns = folder / f"t.{form}", {"path": "file", **names}
    if form == "csv":
        text = [f"{row['file']},2010,{'' if row['odd'] is None else row['odd']}\n" for row in rows]
        path.write_text("file,year,odd\n" + "".join(text))
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
        return Parquet(path=path, columns=columns, **settings)
    return Delimited(path=path, columns=columns, **settings)


def read(folder: Path, form: str, column: str, values: Sequence[Any], **settings: Any) -> list[Any]:
    """The column of the collection; of a row that cannot be read its fault."""
    rows = pa.Table.from_batches(source(folder, form, column, values, **settings).batches()).to_pylist()
    return [row["fault"] or row[column] for row in rows]


def days(*texts: str | None) -> list[int | None]:
    return [None if text is None else seconds_of(text) for text in texts]


class TestAYearMonthOrDayIsOneUntilItsLastSecond:
    @pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
    @pytest.mark.parametrize(
        ("value", "last"),
        [
            (1905, "1905-12-31T23:59:59"),
            ("2019-02", "2019-02-28T23:59:59"),
            ("2019-02-03", "2019-02-03T23:59:59"),
            ("2019-02-03T00:00:00", None),
            (1_550_000_000, None),
        ],
    )
    def test_by_its_form(self, tmp_path: Path, form: str, value: Any, last: str | None) -> None:
        (row,) = pa.Table.from_batches(source(tmp_path, form, "uploaded", [value]).batches()).to_pylist()
        assert row["until"] == (None if last is None else seconds_of(last))

    def test_a_column_says_until_when(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("file,from,to\na.jpg,1905,1907\nb.jpg,1905,1904\nc.jpg,1905,\n")
        table = Delimited(path=tmp_path / "t.csv", columns={"path": "file", "uploaded": "from", "until": "to"})
        rows = pa.Table.from_batches(table.batches()).to_pylist()
        assert [row["until"] for row in rows] == days("1907-12-31T23:59:59", None, "1905-12-31T23:59:59")
        assert [row["fault"] for row in rows] == [None, "bad_upload_time", None]


class TestCase9DatesAsPlainNumbers:
    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ([20190304, 20200229], "as seconds, .* in 1970. It looks like days, YYYYMMDD"),
            ([201903, 201904], "as seconds, .* in 1970. It looks like months"),
            ([43528, 43529], "as seconds, .* in 1970. It looks like days, .* spreadsheet"),
            ([43528.5, 43529.25], "as seconds, .* in 1970. It looks like days, .* spreadsheet"),
            (list(range(1, 40)), "as seconds, .* in 1970"),
            ([1546300800000] * 3 + [1546300800], "two units: 1 of 4 are such as 1546300800, the others such as 154630"),
        ],
    )
    def test_others_are_refused_in_one_sentence(self, tmp_path: Path, values: list[Any], words: str) -> None:
        with pytest.raises(BadInput, match=f"uploaded (is|has) .*{words}.*collection.time_unit"):
            next(iter(source(tmp_path, "csv", "uploaded", values).batches()))

    @pytest.mark.parametrize(
        ("unit", "value", "date"),
        [
            ("excel", 43528, "2019-03-04"),
            ("excel", 43528.5, "2019-03-04T12:00:00"),
            ("month", 201903, "2019-03-01"),
            ("day", 20190304, "2019-03-04"),
            ("ms", 1546300800999, "2019-01-01"),
            ("us", 1546300800000001, "2019-01-01"),
            ("ns", 1546300800000000001, "2019-01-01"),
            ("s", 86400, "1970-01-02"),
            ("auto", 1546300800999, "2019-01-01"),
            ("auto", 1546300800000000001, "2019-01-01"),
            ("year", 2019, "2019-01-01"),
        ],
    )
    @pytest.mark.parametrize("form", ["csv", "parquet"])
    def test_the_unit_that_is_set_counts(self, tmp_path: Path, form: str, unit: str, value: Any, date: str) -> None:
        assert read(tmp_path, form, "uploaded", [value, None], time_unit=unit) == days(date, None)

    def test_what_is_not_of_the_set_unit_is_the_fault_of_its_row(self, tmp_path: Path) -> None:
        read_as_days = read(tmp_path, "csv", "uploaded", [20190304, 20190230, "2019-03-05"], time_unit="day")
        assert read_as_days == [seconds_of("2019-03-04"), "bad_upload_time", seconds_of("2019-03-05")]

    def test_values_that_stand_for_no_date_are_none(self, tmp_path: Path) -> None:
        values = [0, -1, 2**31 - 1, 9999999999999, 1_300_000_000]
        assert read(tmp_path, "csv", "uploaded", values) == [None, None, None, None, 1_300_000_000]


class TestCase10YearsAsFloats:
    @pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
    @pytest.mark.parametrize("column", ["uploaded", "taken"])
    def test_a_year_is_a_year_in_all_forms(self, tmp_path: Path, form: str, column: str) -> None:
        assert read(tmp_path, form, column, [2019.0, None, 1909.0]) == days("2019-01-01", None, "1909-01-01")

    def test_a_float_that_is_not_a_number_is_missing(self, tmp_path: Path) -> None:
        assert read(tmp_path, "parquet", "uploaded", [2019.0, float("nan")]) == days("2019-01-01", None)

    @pytest.mark.parametrize("value", ["2019.5", "2019.", "20l9"])
    def test_a_text_that_is_nearly_one_is_the_fault_of_its_row(self, tmp_path: Path, value: str) -> None:
        assert read(tmp_path, "csv", "uploaded", [value]) == ["bad_upload_time"]


@pytest.mark.parametrize("text", ["0000-00-00", "0000-01-01", "2019-02-30", "2019-13-01", "10000-01-01"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_date_that_no_calendar_has_is_the_fault_of_its_row(tmp_path: Path, form: str, text: str) -> None:
    assert read(tmp_path, form, "uploaded", [text, "2019-02-28"]) == ["bad_upload_time", *days("2019-02-28")]


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2025-06-01 00:00:01", "2025-06-01T00:00:01"),
        ("2025-06-01", "2025-06-01T00:00:00"),
        ("2025-06-01T00:00+0530", "2025-05-31T18:30:00"),
        ("2025-06-01 00:00:00", "2025-06-01T00:00:00"),
        ("2025-06-01T00:00:00.000Z", "2025-06-01T00:00:00"),
        ("2025-06-01 00:00:00 UTC", "2025-06-01T00:00:00"),
    ],
)
def test_case_12_midnight_keeps_its_time(tmp_path: Path, text: str, date: str) -> None:
    assert read(tmp_path, "csv", "uploaded", [text]) == days(date)


class TestCase31IdsThatASpreadsheetChanged:
    @pytest.mark.parametrize("value", ["3.55779E+09", "4E+17", '"3,55779E+09"', "1.2e+018"])
    def test_rounded_ids_refuse_the_column(self, tmp_path: Path, value: str) -> None:
        with pytest.raises(BadInput, match=r"row 2 has the id .*E\+.*rounded|row 2 has the id .*e\+.*rounded"):
            read(tmp_path, "csv", "id", ["3557794192", value])

    def test_floats_beyond_their_digits_refuse_the_column(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="rounded"):
            read(tmp_path, "parquet", "id", [1.0, float(2**60)])

    @pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
    def test_zeros_of_whole_numbers_are_removed(self, tmp_path: Path, form: str) -> None:
        values = [3557794192.0, 3557794193.0]
        assert read(tmp_path, form, "id", values) == ["3557794192", "3557794193"]


class TestCase33LabelsThatAreNotLabels:
    def test_numbers_are_one_class_in_each_form(self, tmp_path: Path) -> None:
        assert read(tmp_path, "jsonl", "label", [1, 1.0, "1", "01", True, None, 2.5, "cat"]) == [
            "1", "1", "1", "01", "true", None, "2.5", "cat",
        ]  # fmt: skip

    @pytest.mark.parametrize("text", ["NaN", "\\N", "None", "NA", "null", "#N/A", "<NA>", "n/a"])
    def test_texts_that_mean_nothing_are_no_label(self, tmp_path: Path, text: str) -> None:
        assert read(tmp_path, "jsonl", "label", ["cat", text]) == ["cat", None]

    def test_spellings_of_one_word_or_number_are_named(self, tmp_path: Path) -> None:
        notes = source(tmp_path, "jsonl", "label", ["Car", "car", "car", "01", "1", "bus"]).survey().notes
        assert notes == (
            "`01` (1 photos), `1` (1 photos) are different classes.",
            "`Car` (1 photos), `car` (2 photos) are different classes.",
        )
