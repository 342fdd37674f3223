"""YFCC100M metadata: every real form, every kind of damage, every row accounted for."""

import bz2
import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import made_rows, yfcc_line

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.errors import BadInput
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.filtering import filter_table
from driftline.curate.metadata.schema import TABLE
from driftline.curate.metadata.settings import FilterSettings
from driftline.curate.sources.yfcc import Yfcc, reading
from driftline.curate.sources.yfcc.reading import LONGEST_LINE, NAMES

Write = Callable[..., Path]


def read(path: Path) -> pa.Table:
    return pa.Table.from_batches(Yfcc(path=path).batches())


def test_a_real_23_column_line(write_lines: Write) -> None:
    line = (
        "10642543105\t93003266@N04\tGSofV\t4501-01-01 00:00:00.0\t1383473251\tCouragent%2C+Inc.\t0601+Young+man\t"
        "Photographer%3A%0AJ\talbum+g,johnstone+o%27shannessy\t\t144.972976\t-37.811378\t16\t"
        "http://www.flickr.com/photos/93003266@N04/10642543105/\t"
        "http://farm3.staticflickr.com/2823/10642543105_129f2fbe19.jpg\tAttribution License\t"
        "http://creativecommons.org/licenses/by/2.0/\t2823\t3\t129f2fbe19\tc5f065a6a5\tjpg\t0"
    )
    (row,) = read(write_lines(line)).to_pylist()
    assert row["id"] == "10642543105"
    assert row["title"] == "0601 Young man"
    assert row["camera"] == "Couragent, Inc."
    assert row["description"] == "Photographer:\nJ"
    assert row["taken"] == 79870665600, "the year 4501 is a real, absurd date, and no time stamp overflows"
    assert (row["longitude"], row["latitude"]) == (144.972976, -37.811378)


def test_25_columns_are_the_same_record(write_lines: Write) -> None:
    fields = yfcc_line(7).split("\t")
    wide = "\t".join(["0", fields[0], "4e2f7a26", *fields[1:]])
    narrow = read(write_lines("\t".join(fields), name="dataset-a"))
    assert read(write_lines(wide, name="dataset-b")).equals(narrow)


def test_bz2_and_a_folder_of_parts(tmp_path: Path) -> None:
    for part in range(2):
        data = "".join(yfcc_line(10 * part + i) + "\n" for i in range(3)).encode()
        (tmp_path / f"yfcc100m_dataset-{part}.bz2").write_bytes(bz2.compress(data))
    table = read(tmp_path)
    assert table["id"].to_pylist() == ["0", "1", "2", "10", "11", "12"]
    assert table["row"].to_pylist() == list(range(6))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (yfcc_line().rsplit("\t", 1)[0], "wrong_column_count"),
        (yfcc_line() + "\textra", "wrong_column_count"),
        (yfcc_line(id="../etc"), "bad_id"),
        (yfcc_line(marker=2), "bad_marker"),
        (yfcc_line().replace("nino", "ni\x00no"), "nul_byte"),
        (yfcc_line().replace("nino", "n" * LONGEST_LINE), "line_too_long"),
    ],
)
def test_a_bad_line_keeps_its_place_and_its_reason(write_lines: Write, line: str, fault: str) -> None:
    table = read(write_lines(yfcc_line(1), line, yfcc_line(2)))
    assert table["fault"].to_pylist() == [None, fault, None]
    assert table["row"].to_pylist() == [0, 1, 2]
    assert len(table["raw"][1].as_py()) <= 2000


def test_an_upload_before_flickr_is_no_date(write_lines: Write) -> None:
    lines = [yfcc_line(i, uploaded=t) for i, t in enumerate((18000, -18000, 1_075_593_599, 1_075_593_600))]
    assert read(write_lines(*lines))["uploaded"].to_pylist() == [None, None, None, 1_075_593_600]


def test_bytes_that_are_not_utf8_are_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "dataset"
    path.write_bytes(yfcc_line(1).encode() + b"\n" + yfcc_line(2).encode().replace(b"nino", b"ni\xff\xfeno") + b"\n")
    assert read(path)["fault"].to_pylist() == [None, "not_utf8"]


def test_a_truncated_bz2_keeps_the_first_part_and_says_where_it_ends(tmp_path: Path) -> None:
    import random

    random.seed(0)
    lines = [yfcc_line(i, url=f"http://127.0.0.1/{random.random()}.jpg") for i in range(30_000)]
    whole = bz2.compress("".join(line + "\n" for line in lines).encode())
    path = tmp_path / "dataset.bz2"
    path.write_bytes(whole[: len(whole) // 2])
    batches = []
    with pytest.raises(BadInput, match=r"cut off after line [\d,]+.*download the file again"):
        batches.extend(Yfcc(path=path).batches(rows=100))
    batches = []
    try:
        for batch in Yfcc(path=path).batches(rows=100):
            batches.append(batch)
    except BadInput:
        pass
    assert len(batches) > 10
    assert all(b["fault"].null_count == len(b) for b in batches)


def test_a_table_of_another_kind_is_refused(write_lines: Write) -> None:
    with pytest.raises(BadInput, match=r"has 23 or 25 tab-separated columns \(line 1 has 3\)"):
        read(write_lines("a\tb\tc", "d\te\tf"))


DEGREES = re.compile(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?")


def plainly(data: bytes) -> list[dict[str, Any]]:
    """The same records, line by line in plain Python: slow, and easy to check by eye."""
    lines = data.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    width = next((n for n in (line.count(b"\t") + 1 for line in lines) if n in (23, 25)), 0)
    made = []
    for row, line in enumerate(lines):
        record, fault = _plain_record(line.rstrip(b"\r"), width)
        made.append({"row": row, "fault": fault} | (record if fault is None else {}))
    return made


def _plain_record(line: bytes, width: int) -> tuple[dict[str, Any], str | None]:
    if line.count(b"\t") + 1 != width:
        return {}, "wrong_column_count"
    if b"\x00" in line:
        return {}, "nul_byte"
    try:
        f = line.decode().split("\t")
    except UnicodeDecodeError:
        return {}, "not_utf8"
    f = f if width == 23 else [f[1], *f[3:]]
    if not re.fullmatch(r"[0-9]{1,90}", f[0]):
        return {}, "bad_id"
    if f[4] and not re.fullmatch(r"-?[0-9]{1,18}", f[4]):
        return {}, "bad_upload_time"
    if f[22] not in ("0", "1"):
        return {}, "bad_marker"
    taken = None
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?", f[3]):
        with contextlib.suppress(ValueError):
            taken = int((datetime.fromisoformat(f[3][:19]) - datetime(1970, 1, 1)).total_seconds())
    text = {n: unquote_plus(f[i]).replace("\0", "\ufffd") for n, i in (("title", 6), ("nickname", 2), ("camera", 5))}
    raw = {"id": f[0], "url": f[14], "user": f[1], "tags": f[8], "licence": f[15], "page_url": f[13]}
    return {k: v or None for k, v in (text | raw).items()} | {
        "uploaded": int(f[4]) if f[4] and (int(f[4]) == 0 or int(f[4]) >= 1_075_593_600) else None,
        "taken": taken,
        "media": "video" if f[22] == "1" else "photo",
        "description": unquote_plus(f[7]).replace("\0", "\ufffd") or None,
        "latitude": float(f[11]) if DEGREES.fullmatch(f[11]) and abs(float(f[11])) <= 180 else None,
    }, None


junk = st.binary(max_size=60).map(lambda b: b.replace(b"\n", b""))
field = st.sampled_from(
    [b"", b"a+b", b"%C3%A9", b"%e9", b"%", b"%4", b"%00", b"+%2B+", b"caf\xc3\xa9%", b"\xff", b"x\0", b"a\rb", b"\r",
     b"1331840483", b"-1", b"2012-02-30 00:00:00.0", b"0000-01-01 00:00:00.0", b"2012-02-16 09:56:37", b"null",
     b"90.5", b"-181.25", b'"', b"'"]
)  # fmt: skip


@st.composite
def damaged_line(draw: st.DrawFn) -> bytes:
    """A sound line in which a few fields are something else, or are too many or too few."""
    fields = yfcc_line(draw(st.integers(0, 10**12))).encode().split(b"\t")
    for _ in range(draw(st.integers(0, 3))):
        fields[draw(st.integers(0, 22))] = draw(st.one_of(field, junk))
    extra = draw(st.integers(-2, 2))
    return b"\t".join(fields[:extra] if extra < 0 else fields + [b"x"] * (extra == 2))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(st.lists(st.one_of(damaged_line(), junk), min_size=1, max_size=12), st.booleans(), st.sampled_from([1, 4, 64]))
def test_any_bytes_give_the_records_that_plain_python_gives(tmp_path, junk, last_newline, few):
    data = b"\n".join([yfcc_line(1).encode(), *junk]) + b"\n" * last_newline
    path = tmp_path / "dataset"
    path.write_bytes(data)
    with mock.patch.object(reading, "FEW", few):  # small: blocks are halved down to single lines
        table = read(path).to_pylist()
    expected = plainly(data)
    assert [{k: row[k] for k in want} for row, want in zip(table, expected, strict=True)] == expected


def test_blocks_may_begin_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dataset"
    path.write_bytes(b"".join(made_rows(3000, dirty=0.05)))
    whole = read(path)
    assert whole["fault"].null_count < 3000
    for size in (1 << 12, 70_001):
        monkeypatch.setattr(reading, "BLOCK", size)
        assert read(path).equals(whole)
    monkeypatch.undo()
    rest = pa.Table.from_batches(Yfcc(path=path).batches(skip=1234))
    assert rest.equals(whole.slice(1234).combine_chunks())


def database(path: Path, rows: list[list[Any]]) -> Path:
    base = sqlite3.connect(path)
    base.execute(f"CREATE TABLE yfcc100m_dataset ({', '.join(NAMES)})")
    base.executemany(f"INSERT INTO yfcc100m_dataset VALUES ({', '.join('?' * 23)})", rows)
    base.commit()
    base.close()
    return path


def test_the_sqlite_form_gives_the_records_of_the_lines(tmp_path: Path) -> None:
    (block,) = made_rows(500)
    (tmp_path / "dataset.tsv").write_bytes(block)
    rows: list[list[Any]] = [line.split("\t") for line in block.decode().splitlines()]
    for row in rows:  # as the real file has them: numbers as numbers, absent text as NULL or ""
        row[0], row[4], row[22] = int(row[0]), int(row[4]), int(row[22])
        row[7] = row[7] or None
    path = database(tmp_path / "yfcc100m_dataset.sql", rows)
    assert read(path).equals(read(tmp_path / "dataset.tsv"))
    assert pa.Table.from_batches(Yfcc(path=path).batches(skip=123)).equals(read(path).slice(123).combine_chunks())


def test_dirty_values_of_the_sqlite_form_are_faults(tmp_path: Path) -> None:
    sound: list[Any] = yfcc_line(1).split("\t")
    rows = [sound, [None, *sound[1:]], [*sound[:6], b"\xff\xfe", *sound[7:]], [*sound[:6], "a\0b", *sound[7:]]]
    table = read(database(tmp_path / "yfcc100m_dataset.sql", rows))
    assert table["fault"].to_pylist() == [None, "bad_id", "not_utf8", "nul_byte"]


@pytest.mark.parametrize(("n", "at_a_time"), [(30_000, reading.FETCHED), (2_000, 1)])
def test_a_damaged_sqlite_file_keeps_its_first_part_and_says_where_it_ends(n, at_a_time, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "FETCHED", at_a_time)
    rows = [list(yfcc_line(i).split("\t")) for i in range(n)]
    path = database(tmp_path / "yfcc100m_dataset.sql", rows)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 40_960] = bytes(40_960)
    path.write_bytes(data)
    found: list[int] = []
    with pytest.raises(BadInput, match=r"damaged after record [\d,]+"):
        found.extend(len(batch) for batch in Yfcc(path=path).batches(rows=100))
    assert n / 3 < sum(found) < 2 * n / 3


def test_a_database_of_another_kind_is_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "dataset.sql").execute("CREATE TABLE photos (id)").connection.close()
    with pytest.raises(BadInput, match="has no table yfcc100m_dataset"):
        read(tmp_path / "dataset.sql")


def test_a_parquet_subset_gives_the_records_of_the_lines(tmp_path: Path) -> None:
    (block,) = made_rows(300)
    (tmp_path / "dataset.tsv").write_bytes(block)
    rows = [dict(zip(NAMES, line.split("\t"), strict=True)) for line in block.decode().splitlines()]
    table = pa.Table.from_pylist(rows)
    table = table.set_column(0, "photoid", table["photoid"].cast(pa.int64())).append_column("key", table["secret"])
    pq.write_table(table, tmp_path / "subset-0.parquet")
    assert read(tmp_path / "subset-0.parquet").equals(read(tmp_path / "dataset.tsv"))


@pytest.mark.proof("real data")
@pytest.mark.shared(twin="tests/curate/test_yfcc.py::test_any_bytes_give_the_records_that_plain_python_gives")
def test_the_real_rows_go_through_with_the_counts_that_plain_python_finds(shared: Path, tmp_path: Path) -> None:
    for name, expected_rows, width in (("yfcc100m_rows.tsv", 164, 23), ("yfcc100m_25col_500.tsv", 500, 25)):
        path = shared / "yfcc" / name
        table = read(path)
        assert len(table) == expected_rows
        assert table["fault"].null_count == expected_rows
        part = tmp_path / name / "part-00000.parquet"
        write_parquet(part, table.select(TABLE.names))
        counts = filter_table([part], tmp_path / name / "out", FilterSettings(), RunLog(quiet=True))
        wanted: Counter[str] = Counter()
        seen = set()
        for line in path.read_text(encoding="utf-8").splitlines():
            f = line.split("\t")
            f = f if width == 23 else [f[1], *f[3:]]
            taken = datetime.fromisoformat(f[3][:19] + "+00:00").timestamp()
            if f[22] == "1":
                wanted["video"] += 1
            elif not f[14].startswith("http://"):
                wanted["malformed_url"] += 1
            elif taken >= int(f[4]):
                wanted["not_after_capture"] += 1
            elif f[0] in seen:
                wanted["duplicate_id"] += 1
            seen.add(f[0])
        assert counts == wanted + Counter({"": expected_rows - wanted.total()})
