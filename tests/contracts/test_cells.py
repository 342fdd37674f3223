"""What a cell means is the same in photo tables, logs of a service and tables of streams, in each kind of file."""

import contextlib
import csv
import decimal
import gzip
import json
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.flickr_server import FlickrServer, photo
from support.helpers import yfcc_line

import driftline as dl
from driftline.curate.core.errors import BadArray, BadInput, DriftlineError
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.foreign.cells import NOTHING
from driftline.curate.foreign.delimited import texts_of
from driftline.curate.sources.base import Workplace
from driftline.curate.sources.flickr import Flickr
from driftline.curate.sources.folder import Folder
from driftline.curate.sources.table import Delimited, Parquet, TableSource
from driftline.curate.sources.yfcc import Yfcc
from driftline.curate.validation.answers.answers import hashed, read_answers, read_lines
from driftline.eval.logs import age as service_log
from driftline.eval.logs.reading import Log, read_log
from driftline.pipelines.forecast import _rows_of
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.table import from_table
from driftline.stream_builder.importers.hub import from_hub

DOORS = list(product(("photos", "log"), ("csv", "jsonl", "parquet")))
PHOTOS = {"url": "url", "uploaded": "time", "label": "label", "id": "id"}
STREAMS = [("table", "csv"), ("table", "jsonl"), ("table", "parquet"), ("hub", "parquet")]
DROPPED = ("not_a_row", "unreadable_time", "no_time", "no_id", "no_version", "no_prediction", "duplicates")
RULES: dict[str, tuple[str, Sequence[Any], Sequence[Any]]] = {
    "nothing": ("label", ["nan", "NULL", " None ", "NA", "n/a", "nil", "<NA>", "\\N", "-", "", None, "cat"],
                [None] * 11 + ["cat"]),
    "text": ("label", ["007", "01", "1e3", "true", "no", " cat "], ["007", "01", "1e3", "true", "no", "cat"]),
    "whole floats": ("label", [1.0, 2.0, None], ["1", "2", None]),
    "years": ("time", [2019, 1909], ["2019-01-01", "1909-01-01"]),
    "years beside nothing": ("time", [2019.0, None, 1909.0], ["2019-01-01", None, "1909-01-01"]),
    "months": ("time", ["2019-03"], ["2019-03-01"]),
    "days": ("time", ["2019-03-04", "nan"], ["2019-03-04", None]),
    "days with points": ("time", ["04.03.2019", "4.3.2019"], ["2019-03-04", "2019-03-04"]),
    "no zone": ("time", ["2025-06-01 00:00:01", "2025-06-01T00:00:01.250"], ["2025-06-01T00:00:01"] * 2),
    "zones": ("time", ["2025-06-01T00:00+0530", "2025-05-31 18:30:00 UTC", "2025-05-31T18:30:00.000Z"],
              ["2025-05-31T18:30:00"] * 3),
    "seconds": ("time", [1_546_300_800, 1_546_300_801], ["2019-01-01", "2019-01-01T00:00:01"]),
    "milliseconds": ("time", [1_546_300_800_999], ["2019-01-01"]),
    "nanoseconds": ("time", [1_546_300_800_000_000_001], ["2019-01-01"]),
    "numbers that are no date": ("time", [0, -1, 2**31 - 1, 9_999_999_999_999, 1_546_300_800],
                                 [None] * 4 + ["2019-01-01"]),
    "zero beside seconds": ("time", [1_546_300_800, 0], ["2019-01-01", None]),
    "no label": ("label", [-1, -100, 2], [None, None, "2"]),
    "midnight of 1970": ("time", ["1970-01-01", "1970-01-01T01:00:00", "1971-01-01"], [None, None, "1971-01-01"]),
}  # fmt: skip


def table(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"t.{kind}"
    if kind == "csv":
        cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *map(",".join, cells)]) + "\n", errors="surrogateescape")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def rows_of(role: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    fixed = {"time": "2020-05-05T12:00:00", "prediction": "cat", "label": "cat"}
    return [{**fixed, "id": f"p{i}", "version": f"v{i}", "url": f"http://h/{i}", role: v} for i, v in enumerate(values)]


def photos(kind: str, folder: Path, role: str, values: Sequence[Any], **settings: Any) -> TableSource:
    path = table(folder, kind, rows_of(role, values))
    return (Parquet if kind == "parquet" else Delimited)(path=path, columns=PHOTOS, **settings)


def records(source: TableSource, column: str) -> list[Any]:
    """The column; of a row that cannot be read its fault."""
    rows = pa.Table.from_batches(source.batches()).to_pylist()
    return [row["fault"] or row[column] for row in rows]


def read(door: str, kind: str, folder: Path, role: str, values: Sequence[Any]) -> list[Any]:
    """Of each row, what its cell means."""
    if door == "photos":
        return records(photos(kind, folder, role, values), "uploaded" if role == "time" else role)
    if door in ("table", "hub"):
        path = table(folder, kind, [row | {"text": f"t{i}"} for i, row in enumerate(rows_of(role, values))])
        stream: Any = (from_table(path, x="text", period=1, test_share=0) if door == "table"
                       else from_hub(folder, "time", "label", "text", test_share=0))  # fmt: skip
        split = stream.flat("train")
        found = split.time.tolist() if role == "time" else [stream.classes[k] for k in split.y.tolist()]
        of_text = dict(zip(split.x.tolist(), found, strict=True))
        assert len(values) - len(of_text) == int(stream.facts.get("left_out", "0").split()[0])
        return [of_text.get(f"t{i}") for i in range(len(values))]
    log = read_log([table(folder, kind, rows_of(role, values))])
    means: dict[str, Any] = dict.fromkeys(f"v{i}" for i in range(len(values)))
    for k, version in enumerate(log.version.tolist()):
        label = log.classes[log.label[k]] if log.label[k] >= 0 else None
        means[log.versions[version]] = int(log.time[k]) if role == "time" else label
    return list(means.values())


@pytest.mark.parametrize(("door", "kind"), [*DOORS, *STREAMS])
@pytest.mark.parametrize("rule", RULES)
def test_a_cell_means_the_same_at_every_door(rule: str, door: str, kind: str, tmp_path: Path) -> None:
    role, values, means = RULES[rule]
    if role == "time":
        means = [None if text is None else seconds_of(text) for text in means]
    if None in means and role == "time" and (door, kind) in STREAMS:  # its samples have a time each
        with pytest.raises(BadInput, match=r"row \d+: (the )?time is "):
            read(door, kind, tmp_path, role, values)
        return
    assert read(door, kind, tmp_path, role, values) == list(means)


UUID = uuid.UUID(int=2**127 + 5)
PLACES = [
    *(("photos", role) for role in ("label", "user", "title", "licence")),
    *product(("log", "frame"), ("label", "prediction", "version", "group")),
    *product(("labels", "table", "table frame", "hub", "arrays", "answers"), ["label"]),
]
WORDS = ["cat", *NOTHING, " NaN ", "007", "01", "1e3", "true", "no", " dog "]
MEANT: dict[str, tuple[pa.Array, list[str | None]]] = {
    "words": (pa.array(WORDS), ["cat", *[None] * (len(NOTHING) + 1), "007", "01", "1e3", "true", "no", "dog"]),
    "texts": (pa.array(["007", "true", "1e3", " x "], pa.large_string()), ["007", "true", "1e3", "x"]),
    "views": (pa.array(["007", "no"], pa.string_view()), ["007", "no"]),
    "floats": (pa.array([1.0, 2.0**52, float("nan"), None]), ["1", str(2**52), None, None]),
    "half floats": (pa.array([1, 0], pa.float16()), ["1", "0"]),
    "decimals": (pa.array([decimal.Decimal("1.000"), decimal.Decimal("2.5")], pa.decimal128(9, 3)), ["1", "2.500"]),
    "large numbers": (pa.array([2**63 + 1, None], pa.uint64()), [str(2**63 + 1), None]),
    "truths": (pa.array([True, False]), ["true", "false"]),
    "bytes": (pa.array(["Zoë".encode(), b"a"]), ["Zoë", "a"]),
    "some kinds": (pa.array(["b", "nan", "b"]).dictionary_encode(), ["b", None, "b"]),
    "kinds of bytes": (pa.array([b"b", b"a"]).dictionary_encode(), ["b", "a"]),
    "lists of one": (pa.array([["a"], [], None]), ["a", None, None]),
    "UUIDs": (pa.array([UUID.bytes], pa.uuid()), [str(UUID)]),
    "nulls": (pa.array([None, "a"]), [None, "a"]),
}
REFUSED: dict[str, tuple[pa.Array, str]] = {
    "lists of several": (pa.array([["a"], ["a", "b"]]), "lists, of up to 2"),
    "records": (pa.array([{"a": 1}, {"a": 2}]), "records"),
    "bytes that are no text": (pa.array([b"a", b"a", b"\xff"]), "not UTF-8 in row 3"),
    "rounded numbers": (pa.array([1.0, 1.0, 2.0**60]), r"is 1.15\S+ in row 3: .* rounded"),
}


def names(door: str, folder: Path, role: str, column: pa.Array) -> list[str | None]:
    """Of each row, the name in a column of a Parquet file, a table in memory, arrays, or results of annotators."""
    n = len(column)
    rows = rows_of("id", [f"p{i}" for i in range(n)])
    base = {name: [row[name] for row in rows] for name in rows[0]} | {"text": [f"t{i}" for i in range(n)]}
    base["score"] = [i / 100 for i in range(n)]
    cells = pa.table(base | {role: column})
    path = folder / "t.parquet"
    if door == "answers":
        lines = [f'b,i{i},w,"{"" if cell is None else cell}"\n' for i, cell in enumerate(column.to_pylist())]
        (folder / "a.csv").write_text("Input.batch,Input.item,WorkerId,Answer.labels\n" + "".join(lines))
        batch = {"items": {f"i{i}": f"p{i}" for i in range(n)}, "concepts": ["cat", "dog", "007", "01", "1e3", "true"]}
        batch["concepts"] += ["no", "x", "1", "0", str(2**52), "2.500", str(2**63 + 1), "false", str(UUID), "b", "a"]
        found = read_answers(read_lines([folder / "a.csv"])["b"], batch, "key").to_pylist()
        return [
            row["labels"][0] if row["labels"] else None for row in sorted(found, key=lambda row: int(row["id"][1:]))
        ]
    pq.write_table(cells, path)
    if door == "photos":
        columns = {"url": "url", "uploaded": "time", role: role}
        return records(Parquet(path=path, columns=columns), role)
    if door in ("log", "frame", "labels"):
        late = cells.select(["id", "label"]) if door == "labels" else None
        log = read_log([path if door == "log" else cells.drop_columns(["label"] * (door == "labels"))],
                       labels=[] if late is None else [late])  # fmt: skip
        if role == "group":
            assert log.group is not None
        numbers, texts = {"version": (log.version, log.versions), "group": (log.group, log.groups)}.get(
            role, (getattr(log, role), log.classes)
        )
        means: list[str | None] = [None] * n
        for score, number in zip(log.score.tolist(), numbers.tolist(), strict=True):  # type: ignore[union-attr]
            means[round(100 * score)] = texts[number] if number >= 0 else None
        return means
    if door == "hub":
        stream: Any = from_hub(folder, "time", "label", "text", test_share=0)
    elif door == "arrays":
        stream = from_arrays({"x": np.arange(n)[:, None], "y": np.array(column.to_pylist())}, test_share=0)
    else:
        stream = from_table(path if door == "table" else cells, x="text", period=1, test_share=0)
    split = stream.flat("train")
    found = {
        int(float(str(x).strip("[t]"))): stream.classes[k]
        for x, k in zip(split.x.tolist(), split.y.tolist(), strict=True)
    }
    if len(found) < n:
        first = next(i for i in range(n) if i not in found)
        assert re.match(
            rf"{n - len(found)} rows without label, the first is .*row {first + 1}$", stream.facts["left_out"]
        )
    return [found.get(i) for i in range(n)]


@pytest.mark.parametrize(
    ("door", "role", "rule"),
    [(*place, rule) for place, rule in product(PLACES, MEANT)
     if place[0] not in ("answers", "arrays") or pa.types.is_string(MEANT[rule][0].type)
     or (place[0], rule) == ("arrays", "truths")],
)  # fmt: skip
def test_a_name_is_the_same_in_every_column(rule: str, door: str, role: str, tmp_path: Path) -> None:
    column, means = MEANT[rule]
    if None in means and door == "arrays":  # whose samples have the indices of the caller
        with pytest.raises(BadArray, match=rf"index {means.index(None)}\."):
            names(door, tmp_path, role, column)
        return
    if (door, rule) == ("answers", "words"):  # where it is an option
        means = [word if word == "none" else means[i] for i, word in enumerate(WORDS)]
    assert names(door, tmp_path, role, column) == means


@pytest.mark.parametrize(("door", "role"), [place for place in PLACES if place[0] not in ("answers", "arrays")])
@pytest.mark.parametrize("rule", REFUSED)
def test_what_is_no_name_is_refused_with_its_row(rule: str, door: str, role: str, tmp_path: Path) -> None:
    column, words = REFUSED[rule]
    if (door, rule) == ("photos", "bytes that are no text"):
        assert names(door, tmp_path, role, column) == ["a", "a", "not_utf8"]
    elif role == "title" and rule == "lists of several":
        assert names(door, tmp_path, role, column) == ["a", "a"]
    else:
        with pytest.raises(BadInput, match=words):
            names(door, tmp_path, role, column)


ANSWERS: dict[str, tuple[list[str], list[Any]]] = {
    "one of a list": (["i1,w,8,,['bus']"], ["bus"]),
    "a list of JSON": (['i1,w,8,,"[""bus"", ""car""]"'], ["bus|car"]),
    "case and blanks": (["i1,w,8,, BUS |  car"], ["bus|car"]),
    "an option as a float": (["i1,w,8,,1.0"], ["1"]),
    "another separator": (["i1,w,8,,car;bus"], ["unknown_label"]),
    "a word for nothing": (["i1,w,8,,NaN"], ["empty"]),
    "nothing beside an option": (["i1,w,8,,nan|bus"], ["bus"]),
    "a list with nothing": (['i1,w,8,,"[""bus"", null]"', "i1,v,8,,[None]"], ["unreadable"] * 2),
    "seconds as floats": (["i1,v,8.0,,bus", "i1,w, 8 ,,bus"], ["bus", "bus"]),
    "a row twice": (["i1,w,8,,bus"] * 2, ["bus", "duplicate"]),
    "a person as a float": (["i1,7.0,8,,bus", "i1,7,8,,car"], ["bus", "duplicate"]),
    "zeros are kept": (["i1,007,8,,bus", "i1,7,8,,bus"], ["bus", "bus"]),
    "blanks around a person": (["i1, w ,8,,bus", "i1,w,8,,bus"], ["bus", "duplicate"]),
    "nobody": (["i1,NaN,8,,bus", "i1,,8,,bus"], ["bus", "bus"]),
    "nobody without assignment": (["i1,nan,8,,bus,NaN", "i1,nan,8,,bus,NaN"], ["bus", "bus"]),
    "rejected": (["i1,w,8, Rejected ,bus"], ["rejected"]),
    "blanks around an item": ([" i1 ,w,8,,bus"], ["bus"]),
}


@pytest.mark.parametrize("end", [",", ";", "\t"])
@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_has_its_meaning_or_a_reason(case: str, end: str, tmp_path: Path) -> None:
    lines, expected = ANSWERS[case]
    names = ["Input.batch,Input.item,WorkerId,WorkTimeInSeconds,AssignmentStatus,Answer.labels,AssignmentId"]
    rows = [[*next(csv.reader([f"b,{line}"])), ""][:7] for line in lines]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=end).writerows([names[0].split(","), *rows])
    batch = {"items": {"i1": "p"}, "concepts": ["bus", "car", "1"]}
    found = read_answers(read_lines([tmp_path / "a.csv"])["b"], batch, "key").to_pylist()
    assert sorted(row["fault"] or "|".join(row["labels"]) for row in found) == expected
    assert {row["seconds"] for row in found} == {8}


@pytest.mark.parametrize("place", ["photos id", "photos user", "log id", "log group", "table id", "table group"])
@pytest.mark.parametrize("value", ["3.55779E+09", "4E+17", "1.2e+018", float(2**60)])
def test_ids_that_a_spreadsheet_rounded_are_refused(value: Any, place: str, tmp_path: Path) -> None:
    (door, role), kind = place.split(), "parquet" if isinstance(value, float) else "csv"
    path = table(tmp_path, kind, rows_of(role, [7.0 if kind == "parquet" else "7", value, value]))
    source = partial(Parquet if kind == "parquet" else Delimited, path=path, columns=PHOTOS | {role: role})
    readers: Any = {"log": partial(read_log, [path]), "table": partial(from_table, path, x="url")}
    with pytest.raises(BadInput, match=rf"{role} is \S+ in row 2: .*rounded"):
        readers.get(door, lambda: source().survey())()


def test_samples_of_no_group_stand_alone(tmp_path: Path) -> None:
    groups = ["u", "u", "nan", "NaN", "", "-", "1.0", "1"]
    path = table(tmp_path, "csv", [row | {"user": groups[i]} for i, row in enumerate(rows_of("id", range(8)))])
    x = np.arange(8)[:, None]
    for stream in (from_table(path, x="url", period=1, test_share=0),
                   from_arrays({"x": x, "y": x[:, 0], "group": np.array(groups)}, test_share=0)):  # fmt: skip
        assert "is not stated in 4 of 8 rows" in stream.facts["check"]
        split = stream.flat("train")
        group = np.array(split.group)[np.argsort(split.x.ravel())].tolist()
        assert (len(set(group)), group[0] == group[1], group[6] == group[7]) == (6, True, True)


@pytest.mark.parametrize(
    ("door", "role"), [*(place for place in PLACES if place[0] == "photos"), ("log", "label"), ("log", "group")]
)
def test_what_is_nothing_by_a_word_is_counted(door: str, role: str, tmp_path: Path) -> None:
    words = ["cat", "nan", "", "N/A", *["-1"] * (role == "label")]
    path = table(tmp_path, "csv", [row | {role: words[i]} for i, row in enumerate(rows_of("id", range(len(words))))])
    columns = {"url": "url", "uploaded": "time", role: role}
    notes = read_log([path]).notes if door == "log" else Delimited(path=path, columns=columns).survey().notes
    the = "the " * (door == "log")
    assert [*notes] == [f"{the}{role} is nothing in {2 + (role == 'label')} rows, such as 'nan'."]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_stream_has_times_of_one_unit(kind: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="two units: 1 of 4 are such as 1546300800, the others"):
        read("table", kind, tmp_path, "time", [1_546_300_800_000] * 3 + [1_546_300_800])


@pytest.mark.parametrize("cell", ["1,000", "1_000", "3 %", "yes"])
def test_features_are_numbers_with_a_point(cell: str) -> None:
    with pytest.raises(BadInput, match="row 1"):
        from_table({"time": [2020, 2021], "label": ["a", "b"], "f": [cell, "1"], "g": [1, 2]}, x="f,g")


@pytest.mark.parametrize(("door", "kind"), [place for place in (*DOORS, *STREAMS) if place[1] != "parquet"])
def test_zones_in_some_rows_are_named(door: str, kind: str, tmp_path: Path) -> None:
    times = ["2020-01-01T00:00:00Z", "2020-01-02", "2020-01-01T00:00:00", "2020-01-01T00:00:00+05:00"]
    words = "is without a zone in 1 rows, the first is row 3, and with one in 2"
    if door == "photos":
        assert words in photos(kind, tmp_path, "time", times).survey().notes[0]
        return
    with pytest.raises(BadInput, match="without a zone and with a zone" if door == "log" else words):
        read(door, kind, tmp_path, "time", times)


def test_cells_of_several_lines_are_counted(tmp_path: Path) -> None:
    lines = "".join(f'{i},2020,"a\nb","c, d"\n{i}0,2020,"a",e\n' for i in range(3))
    (tmp_path / "t.csv").write_text(f"id,time,title,label\n{lines}")
    source = Delimited(path=tmp_path / "t.csv", columns={"path": "id", "uploaded": "time", "title": "title"})
    assert source.survey().notes == ("3 cells have several lines.",)


@pytest.mark.parametrize(("door", "kind"), DOORS)
@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1_546_300_800_000] * 3 + [1_546_300_800], "two units: 1 of 4 are such as 1546300800, the others"),
        ([20190304, 20200229], "all rows would lie in 1970. It looks like days, YYYYMMDD"),
        ([43528.5, 43529.25], "all rows would lie in 1970. It looks like days, since 1970 or of a spread"),
        (["03/04/2019", "13/04/2019"], "is '03/04/2019' in row 1, and 2 of 2 cannot be read"),
        (["week 01"], "is 'week 01' in row 1, and 1 of 1 cannot be read"),
    ],
)
def test_numbers_that_are_no_times_are_refused(times, words, door, kind, tmp_path):
    with pytest.raises(BadInput, match=rf"t\.{kind}: .*{words}"):
        read(door, kind, tmp_path, "time", times)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
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
def test_a_year_month_or_day_is_one_until_its_last_second(value, last, kind, tmp_path):
    until = [None if last is None else seconds_of(last)]
    assert records(photos(kind, tmp_path, "time", [value]), "until") == until


@pytest.mark.parametrize(
    ("unit", "value", "date"),
    [
        ("excel", 43528, "2019-03-04"),
        ("excel", 43528.5, "2019-03-04T12:00:00"),
        ("month", 201903, "2019-03-01"),
        ("day", 20190304, "2019-03-04"),
        ("us", 1546300800000001, "2019-01-01"),
        ("s", 86400, "1970-01-02"),
        ("year", 2019, "2019-01-01"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_unit_that_is_set_counts(kind: str, unit: str, value: Any, date: str, tmp_path: Path) -> None:
    source = photos(kind, tmp_path, "time", [value, None], time_unit=unit)
    assert records(source, "uploaded") == [seconds_of(date), None]


@pytest.mark.parametrize(
    ("written", "text", "first", "last"),
    [
        ("%d/%m/%Y", "03/04/2019", "2019-04-03", "2019-04-03T23:59:59"),
        ("%m/%d/%Y %I:%M %p", "03/04/2019 01:30 PM", "2019-03-04T13:30:00", None),
        ("%b %Y", "Feb 2019", "2019-02-01", "2019-02-28T23:59:59"),
        ("%Y%m%d", "20190304", "2019-03-04", "2019-03-04T23:59:59"),
    ],
)
def test_a_format_settles_what_a_date_means(written, text, first, last, tmp_path):
    source = photos("csv", tmp_path, "time", [text, None, "2019-03-04!"], time_format=written)
    assert records(source, "uploaded") == [seconds_of(first), None, "bad_upload_time"]
    assert records(source, "until")[0] == (None if last is None else seconds_of(last))


@pytest.mark.parametrize(("bad", "rows"), [(1, 1), (2, 2), (2, 199), (3, 299)])
def test_more_than_one_per_cent_of_dates_that_cannot_be_read_are_refused(bad: int, rows: int, tmp_path: Path) -> None:
    for more in (0, 1):
        values = ["03/04/2019"] * bad + ["2019-03-04"] * (rows - bad + more)
        source = photos("csv", tmp_path, "time", values)
        if not more:
            with pytest.raises(BadInput, match=rf"'03/04/2019' in row 1, and {bad} of {rows} .*collection.time_format"):
                records(source, "uploaded")
        elif rows > 2:
            assert records(source, "uploaded").count("bad_upload_time") == bad


@pytest.mark.parametrize("text", ["0000-00-00", "2019.5", "20l9", "0000-01-01", "10000-01-01", "20190230"])
def test_a_date_that_no_calendar_has_is_the_fault_of_its_row(text: str, tmp_path: Path) -> None:
    source = photos("csv", tmp_path, "time", [text, "2019-02-28"], time_unit="day")
    assert records(source, "uploaded") == ["bad_upload_time", seconds_of("2019-02-28")]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_zeros_of_ids_that_are_whole_numbers_are_removed(kind: str, tmp_path: Path) -> None:
    assert records(photos(kind, tmp_path, "id", [3557794192.0, 3.0]), "id") == ["3557794192", "3"]


def test_spellings_of_one_class_are_named(tmp_path: Path) -> None:
    assert photos("jsonl", tmp_path, "label", ["Car", "car", "car", "01", "1", "bus"]).survey().notes == (
        "`01` (1 photos), `1` (1 photos) are different classes.",
        "`Car` (1 photos), `car` (2 photos) are different classes.",
    )


def test_licences_that_are_numbers_are_named_and_flickr_has_names_for_them(tmp_path: Path) -> None:
    rows = [row | {"licence": licence} for row, licence in zip(rows_of("id", range(4)), (4, 0, 99, None), strict=True)]
    columns = {"url": "url", "uploaded": "time", "licence": "licence"}
    plain = Parquet(path=table(tmp_path, "parquet", rows), columns=columns)
    assert [note[:49] for note in plain.survey().notes] == ["licence is a number in 3 rows, such as 0: if they"]
    named = Parquet(path=plain.path, columns=columns, licence_names="flickr")
    assert named.survey().notes == ()
    assert records(named, "licence") == ["Attribution License", "All Rights Reserved", "99", None]
    assert records(named, "licence_url") == ["https://creativecommons.org/licenses/by/2.0/", None, None, None]


ENDS: dict[str, Callable[[list[str]], str]] = {
    "no end of the last line": "\n".join,
    "a mark of UTF-8": lambda lines: "\ufeff" + "\n".join(lines),
    "ends of Windows": "\r\n".join,
    "ends of old Macs": "\r".join,
    "all ends": lambda lines: "\r\n".join(lines[:5]) + "\n" + "\r".join(lines[5:]),
    "empty lines": lambda lines: "\n\n" + "\n".join([*lines[:5], "", "\r", *lines[5:], "", ""]),
    "quotes around all cells": lambda lines: "\n".join('"' + line.replace(",", '","') + '"' for line in lines),
    "separators at the ends": lambda lines: "\n".join(f"{line}," for line in lines),
    "semicolons": lambda lines: "\n".join(lines).replace(",", ";"),
    "an index": lambda lines: "\n".join(["", *map(str, range(12))][i] + f",{line}" for i, line in enumerate(lines)),
    "blanks around names": lambda lines: "\n".join([lines[0].replace(",", " , "), *lines[1:]]),
}


@pytest.mark.parametrize("door", ["photos", "log", "table"])
@pytest.mark.parametrize("form", ENDS)
def test_the_form_of_lines_changes_no_cell(form: str, door: str, tmp_path: Path) -> None:
    times = [f"2020-01-{i + 1:02}" for i in range(12)]
    path = table(tmp_path, "csv", [row | {"text": row["url"]} for row in rows_of("time", times)])
    path.write_text(ENDS[form](path.read_text().splitlines()), encoding="utf-8", newline="")
    if door == "photos":
        more = {"delimiter": ";"} if form == "semicolons" else {}
        found = records(Delimited(path=path, columns={"url": "url", "uploaded": "time"}, **more), "uploaded")
    elif door == "log":
        found = read_log([path]).time.tolist()
    else:
        found = from_table(path, x="text", period=1, test_share=0).flat("train").time.tolist()
    assert found == [seconds_of(time) for time in times]


@pytest.mark.parametrize("door", ["photos", "log", "table"])
@pytest.mark.parametrize("end", ["CSV", "csv.gz", "tsv.gz", "jsonl.gz", "JSONL", "NDJSON.GZ", "pq", "PARQUET"])
def test_a_file_is_read_by_its_content_and_the_end_of_its_name_in_any_case(end: str, door: str, tmp_path: Path) -> None:
    kind = {"tsv": "csv", "pq": "parquet", "ndjson": "jsonl"}.get(name := end.lower().removesuffix(".gz"), name)
    data = table(tmp_path, kind, rows_of("time", ["2020"])).read_bytes()
    data = data.replace(b",", b"\t") if name == "tsv" else data
    (path := tmp_path / f"t.{end}").write_bytes(gzip.compress(data) if "gz" in end.lower() else data)
    photos = partial(Parquet, columns=PHOTOS) if kind == "parquet" else partial(Delimited, columns=PHOTOS, delimiter="")
    readers: dict[str, Callable[[], Any]] = {
        "photos": lambda: pa.Table.from_batches(photos(path=path).batches())["uploaded"].to_numpy(),
        "log": lambda: read_log([path]).time,
        "table": lambda: from_table(path, x="url", period=1, test_share=0).flat("train").time,
    }
    assert readers[door]().tolist() == [seconds_of("2020-01-01")]
    assert kind != "parquet" or _rows_of(photos(path=path), Workplace()) == (1, True), "as a plan counts them"


@pytest.mark.parametrize("door", ["photos", "log"])
@pytest.mark.parametrize(("first", "last"), [(5, 20), (5, 6), (39, 39)])
def test_an_unclosed_quote_costs_its_own_line(first: int, last: int, door: str, tmp_path: Path) -> None:
    """Read = kept + dropped, counted in lines of the file."""
    rows = [{"time": "2020", "id": f"p{i}", "version": "v", "prediction": "cat", "label": "cat"} for i in range(40)]
    path = table(tmp_path, "csv", rows)
    text = path.read_text().replace(f"p{first},", f'"p{first},')
    path.write_text((text if first == last else text.replace(f"p{last},", f'p{last}",')).rstrip("\n"))
    if door == "log":
        counts = read_log([path]).counts
        assert (counts["read"], counts["not_a_row"], counts["labelled"]) == (40, 1, 39)
    else:
        faults = records(Delimited(path=path, columns={"path": "id", "uploaded": "time"}), "fault")
        assert [i for i, why in enumerate(faults) if why == "unclosed_quote"] == [first]
        assert len(faults) == 40


def test_what_a_few_rows_state_and_nobody_can_read_is_counted_with_the_first(tmp_path: Path) -> None:
    rows = [{"time": "2020-01-01", "id": f"p{i}", "version": "v", "prediction": "a"} for i in range(200)]
    rows[7]["time"] = "soon"
    log = read_log([table(tmp_path, "csv", rows)])
    assert (log.counts["unreadable_time"], log.counts["no_time"], len(log)) == (1, 0, 199)
    assert "the time is stated and cannot be read in 1 rows, the first is 'soon' in row 8." in " ".join(log.notes)
    source = Delimited(path=tmp_path / "t.csv", columns={"path": "id", "uploaded": "time"})
    assert source.survey().notes == ("uploaded is stated and cannot be read in 1 rows, the first is 'soon' in row 8.",)


@pytest.mark.parametrize("word", ["none", "-1"])
def test_a_word_for_nothing_that_is_answered_and_labelled_is_a_class(word: str, tmp_path: Path) -> None:
    rows = [{"time": "2020", "id": f"p{i}", "version": "v", "prediction": word, "label": word} for i in range(3)]
    assert read_log([table(tmp_path, "csv", rows)]).classes == [word]
    labels = read_log([table(tmp_path, "csv", [row | {"prediction": "cat"} for row in rows])])
    assert (labels.classes, labels.counts["labelled"]) == (["cat"], 0)


def test_labels_that_came_before_their_predictions_are_refused() -> None:
    row = {"time": "2020-01-02T12:00:00", "id": "p", "version": "v", "prediction": "a", "label": "a"}
    with pytest.raises(BadInput, match="1 labels came before their predictions, the first at 2020-01-01T12:00:00Z"):
        read_log([[row | {"label_time": "2020-01-01T12:00:00"}]])


BREAKS = [*(("time", text) for text in ("", "nan", "soon", "03/04/2019", "-1", "9" * 5000, "2019-02-30", "1970-01-01")),
          *(("label", text) for text in ("", "NULL", "-1", " cat ", "1e3", '"cat', 'c"at', "cat,cat", "x\udcff")),
          *(("label", value) for value in (["cat", "owl"], ["cat", None], {"a": 1}, 1.5, True)),
          *(("id", text) for text in ("", "nan", "p1", '"p', "p\n"))]  # fmt: skip
ROWS, CLASSES = 150, ("cat", "dog", "owl")
GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
OF_ANSWERS = b"SubmitTime,Input.batch,Answer.labels,Input.item,WorkerId"
TABLES = [*product(("photos", "log", "labels", "table"), ("csv", "jsonl", "parquet")), ("hub", "parquet"),
          *product(("log", "labels", "table", "arrays"), ["frame"]), ("answers", "csv"),
          ("yfcc", "lines"), ("flickr", "json"), ("folder", "date"), ("folder", "takeout")]  # fmt: skip


def rows_kept(door: str, source: Any) -> dict[str, tuple[Any, ...]]:
    """What is read of each row, by its number. Read = kept + dropped."""
    if door in ("table", "hub", "arrays"):
        arrays = {"x": "url", "y": "label", "id": "id", "time": "time"}
        stream = (
            from_table(source, x="url", period=1, test_share=0) if door == "table"
            else from_hub(source.parent, "time", "label", "url", test_share=0) if door == "hub"
            else from_arrays({name: np.array(source[column]) for name, column in arrays.items()}, test_share=0)
        )  # fmt: skip
        split = stream.flat("train")
        assert ROWS - len(split) == int(stream.facts.get("left_out", "0").split()[0])
        cells = zip(split.x.tolist(), split.time.tolist(), [stream.classes[y] for y in split.y.tolist()], strict=True)
        return {url[9:]: tuple(rest) for url, *rest in cells}
    if door in ("photos", "yfcc", "flickr", "folder"):
        listed = source if door == "flickr" else []
        with contextlib.closing(FlickrServer(listed)) as server, tempfile.TemporaryDirectory() as work:
            made: dict[str, Callable[[], Any]] = {
                "photos": lambda: (Parquet if source.suffix == ".parquet" else Delimited)(path=source, columns=PHOTOS),
                "flickr": lambda: Flickr(start="2020-01-01", end="2021-01-01", endpoint=server.address, rate=10**8),
                "yfcc": lambda: Yfcc(path=source),
                "folder": lambda: Folder(path=source, label="parent", dates=["sidecar"]),
            }
            rows = pa.Table.from_batches(made[door]().batches(at=Workplace(work=Path(work)))).to_pylist()
        assert ROWS - (door == "flickr") <= len(rows) <= ROWS + 2, "Flickr's ids are of one photo each"
        label = "title" if door in ("yfcc", "flickr") else "label"
        good = [row for row in rows if row["fault"] is None]
        return {Path(row["url"] or row["path"]).stem: (row["uploaded"], row[label]) for row in good}
    if door == "answers":
        source.write_bytes(source.read_bytes().replace(b"time,prediction,label,id,version", OF_ANSWERS, 1))
        batch = {"items": {f"p{i}": f"{i}" for i in range(ROWS)}, "concepts": CLASSES}
        rows = read_answers(read_lines([source])["cat"], batch, "key").to_pylist()
        assert len(rows) == ROWS
        number = {hashed(f"v{i}", "key"): str(i) for i in range(ROWS)}
        return {number[row["worker"]]: (row["time"], *row["labels"]) for row in rows if row["fault"] is None}
    answers = pa.Table.from_pylist(rows_of("id", [f"p{i}" for i in range(ROWS)])).drop_columns(["label"])
    log = read_log([source]) if door == "log" else read_log([answers], labels=[source])
    assert ROWS <= log.counts["read"] <= ROWS + 1
    assert log.counts["read"] == len(log) + sum(log.counts[why] for why in DROPPED)
    labels = [log.classes[label] if label >= 0 else None for label in log.label.tolist()]
    numbers = [log.versions[version][1:] for version in log.version.tolist()]
    return {number: (time, label) for number, time, label in zip(numbers, log.time.tolist(), labels, strict=True)}


def written(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Any:
    """A file, which may hold what is no text; or columns by name."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if kind in ("lines", "json", "takeout"):  # times in seconds, numbers as ids
        rows = [row | {"id": row["id"].removeprefix("p")} for row in rows]
        rows = [row | {"time": str(seconds_of(t))} if (t := row["time"])[:6] == "2020-0" else row for row in rows]
    if kind == "lines":
        lines = [yfcc_line(row["id"], row["time"], row["url"]).replace("IMG", row["label"]) + "\n" for row in rows]
        (folder / "yfcc100m_dataset").write_text("".join(lines), errors="surrogateescape")
        return folder / "yfcc100m_dataset"
    if kind == "json":
        names = {"id": "id", "dateupload": "time", "title": "label", "url_m": "url"}
        return [photo(0, 0) | {name: row[role] for name, role in names.items()} for row in rows]
    if kind in ("date", "takeout"):
        for i, row in enumerate(rows):
            (path := folder / CLASSES[i % 3] / f"{i}.gif").parent.mkdir(exist_ok=True)
            path.write_bytes(GIF)
            date = {"date": row["time"]} if kind == "date" else {"photoTakenTime": {"timestamp": row["time"]}}
            path.with_suffix(".json").write_text(json.dumps(date))
        return folder
    if kind == "parquet":
        pq.write_table(pa.table({name: texts_of(column) for name, column in columns.items()}), folder / "t.parquet")
        return folder / "t.parquet"
    return columns if kind == "frame" else table(folder, kind, rows)


@pytest.mark.parametrize(("door", "kind"), TABLES)
def test_one_broken_cell_never_changes_another_row(door, kind, tmp_path, monkeypatch):
    """The right value, a count with its reason, or one sentence that names the row."""
    monkeypatch.setenv("FLICKR_API_KEY", "secret-key")
    rows = [row | {"id": f"p{i}", "label": CLASSES[i % 3], "time": f"2020-01-01T00:{i // 60:02}:{i % 60:02}"}
            for i, row in enumerate(rows_of("id", range(ROWS)))]  # fmt: skip
    sound = rows_kept(door, written(tmp_path, kind, rows))
    assert len(sound) == ROWS
    for number, (role, cell) in enumerate(BREAKS):
        is_cell = isinstance(cell, str) or kind in ("jsonl", "json") or (kind, type(cell)) == ("parquet", list)
        is_cell &= door != "folder" or role == "time"
        if not is_cell or (door, cell) in (("labels", "p1"), ("flickr", "x\udcff")):  # two labels; "x?"
            continue
        place = 31 * number % ROWS
        broken = [row | {role: cell} if i == place else row for i, row in enumerate(rows)]
        try:
            found, refusal = rows_kept(door, written(tmp_path, kind, broken)), ""
        except DriftlineError as error:
            found, refusal = {**sound}, str(error)
        names = rf"\b(row|line|index) .?({place}|{place + 1}|{place + 2})\b|(?i:utf-?8)|Expected 6 columns"
        assert not refusal or re.search(names, refusal)
        time, kept = found.pop(str(place), (None, None))
        assert refusal or role != "time" or door == "labels" or time is None, cell
        assert refusal or kept in (None, str(cell).strip().lower() if role == "label" else CLASSES[place % 3])
        assert found == {n: cells for n, cells in sound.items() if n != str(place)}, (role, cell)


CASES: dict[str, tuple[dict[str, str], Any]] = {
    "g0_plain.csv": ({}, 0.9217),
    "g10_version_without_predictions.csv": ({}, "No row is left of v2."),
    "g10_version_without_times.csv": ({}, "No row is left of v2."),
    "g11_quotes.csv": ({}, "lines that are no rows: 1, the first is line 101."),
    "g11_quotes.tsv": ({}, 0.9217),
    "g1_mdy_ambiguous.jsonl": ({}, "the time is '01-02-2026' in row 1"),
    "g5_bool.parquet": ({"labels": "g5_labels_few.csv"}, "Labels of the last 5 months are still to come"),
    "g5_bool_half.parquet": ({"labels": "g5_labels_second_half.csv"}, 0.9217),
    "g6_case_half.csv": ({}, "`Bird` (100 answers, 0 labels), `bird` (98 answers, 188 labels) are different classes."),
    "g6_probability_1dec.csv": ({}, "The predictions are 11 numbers such as 0."),
    "h1_binary.parquet": ({"labels": "h1_labels.csv"}, 0.9217),
}


@pytest.mark.shared(twin="tests/contracts/test_cells.py::test_a_cell_means_the_same_at_every_door")
@pytest.mark.parametrize("name", CASES)
def test_logs_that_people_reported_have_their_accuracy_or_a_sentence(name, shared, monkeypatch):
    cases, logs = shared / "cases_nov", list[Log]()
    monkeypatch.setattr(service_log, "read_log", lambda *given: logs.append(read_log(*given)) or logs[0])
    more, expected = CASES[name]
    try:
        aged = dl.age(cases / name, **{key: cases / value for key, value in more.items()})
    except BadInput as refusal:
        said, accuracy = str(refusal), 0.0
    else:
        (log,) = logs
        said, accuracy = " ".join(aged.notes), float(np.mean((log.label == log.prediction)[log.label >= 0]))
    assert expected in said if isinstance(expected, str) else round(accuracy, 4) == expected


@pytest.mark.shared(twin="tests/contracts/test_cells.py::test_an_unclosed_quote_costs_its_own_line")
@pytest.mark.parametrize(
    ("name", "columns", "rows", "faults"),
    [
        ("a1_quotes.tsv", {"url": "url", "uploaded": "year", "title": "title"}, 40, {}),
        ("a1_quotes_close.tsv", {"url": "url", "uploaded": "year", "title": "title"}, 40, {}),
        ("h5_quotes.csv", {"path": "id", "uploaded": "time", "label": "label"}, 200, {"unclosed_quote": 1}),
        ("h1_binary_label.parquet", {"url": "url", "uploaded": "year", "label": "label", "licence": "lic"}, 40, {}),
        ("b4_codes.csv", {"url": "url", "uploaded": "year", "licence": "license"}, 44, {}),
    ],
)
def test_tables_that_people_reported_keep_their_rows(name, columns, rows, faults, shared):
    path = shared / "cases_nov" / name
    kind: Any = {".parquet": Parquet}.get(path.suffix, Delimited)
    more = {"delimiter": "\t"} if path.suffix == ".tsv" else {}
    reasons = records(kind(path=path, columns=columns, **more), "fault")
    assert (len(reasons), Counter(filter(None, reasons))) == (rows, faults)


@pytest.mark.shared(twin="tests/contracts/test_cells.py::test_a_cell_means_the_same_at_every_door")
def test_upload_times_that_people_reported_are_times_no_dates_or_faults(shared: Path) -> None:
    read = Counter(records(Yfcc(path=shared / "cases_nov/b1_lines.tsv"), "uploaded"))
    assert (read.pop(None), read.pop("bad_upload_time"), read.total()) == (4, 2, 10), "near 1970; not in seconds"


@pytest.mark.shared(twin="tests/contracts/test_cells.py::test_a_cell_means_the_same_at_every_door")
@pytest.mark.parametrize(
    ("name", "more", "samples", "said"),
    [
        ("c4_from_one.npz", {}, 400, "1 of 5 classes have no sample, the first is 0"),
        ("c4_gaps.npz", {}, 400, "37 of 41 classes have no sample, the first is 0"),
        ("d2_chw3.npz", {}, 400, "if channels are first, x.transpose(0, 2, 3, 1)"),
        ("h1_binary_stream.parquet", {}, 400, "['c0', 'c1', 'c2', 'c3']"),
        ("h2_nan_group.parquet", {"group": "group"}, 400, "['c0', 'c1', 'c2', 'c3']"),
        ("h2_nan_label.parquet", {}, 300, "100 rows without label, the first is"),
    ],
)
def test_streams_that_people_reported_have_their_samples_and_a_sentence(name, more, samples, said, shared):
    path = shared / "cases_nov" / name
    columns = [f"f{i}" for i in range(6)]
    stream = (from_arrays if path.suffix == ".npz" else partial(from_table, x=columns, **more))(path, period="year")
    assert sum(len(split) for step in stream for split in step.splits.values()) == samples
    assert said in f"{stream.facts} {stream.classes}"


@pytest.mark.shared(twin="tests/contracts/test_cells.py::test_a_cell_means_the_same_at_every_door")
def test_an_id_that_is_there_twice_is_named_with_both_places(shared: Path) -> None:
    twice = pq.read_table(shared / "cases_nov/d1_repeated.parquet").to_pydict()
    arrays = {"x": np.zeros((90, 2), np.float32), "y": twice["label"], "id": twice["uid"], "step": np.arange(90) // 30}
    with pytest.raises(BadInput, match="the id '269c.*' is there 2 times .index 0; index 60.*Leave one of them"):
        from_arrays(arrays)
