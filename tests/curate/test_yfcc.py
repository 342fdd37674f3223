"""YFCC100M metadata: every real form, every kind of damage, every row accounted for."""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from helpers import yfcc_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.filters import FilterRules, drop_faulty
from curate.ground.errors import BadInput
from curate.sources.yfcc import LONGEST_LINE, Yfcc
from curate.table import TABLE

Write = Callable[..., Path]


def read(path: Path) -> pa.Table:
    return pa.Table.from_batches(Yfcc(path).batches())


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
        (yfcc_line(id=-5), "bad_id"),
        (yfcc_line(id="../etc"), "bad_id"),
        (yfcc_line(uploaded="soon"), "bad_upload_time"),
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
        batches.extend(Yfcc(path).batches(rows=100))
    batches = []
    try:
        for batch in Yfcc(path).batches(rows=100):
            batches.append(batch)
    except BadInput:
        pass
    assert len(batches) > 10
    assert all(b["fault"].null_count == len(b) for b in batches)


def test_a_table_of_another_kind_is_refused(write_lines: Write) -> None:
    with pytest.raises(BadInput, match=r"has 23 or 25 tab-separated columns \(line 1 has 3\)"):
        read(write_lines("a\tb\tc", "d\te\tf"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=200).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.integers(0, 2**62))
def test_any_bytes_in_every_line_out(tmp_path: Path, junk: list[bytes], uploaded: int) -> None:
    path = tmp_path / "dataset"
    lines = [yfcc_line(1, uploaded=uploaded).encode(), *junk]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    table = read(path)
    assert len(table) == len(lines)
    assert table["fault"].to_pylist()[0] is None


def test_the_real_rows_go_through_with_the_counts_that_plain_python_finds(shared: Path) -> None:
    for name, expected_rows, width in (("yfcc100m_rows.tsv", 164, 23), ("yfcc100m_25col_500.tsv", 500, 25)):
        path = shared / "yfcc" / name
        table = read(path)
        assert len(table) == expected_rows
        assert table["fault"].null_count == expected_rows
        good, dropped = drop_faulty(table.select(TABLE.names), FilterRules(), set())
        wanted: Counter[str] = Counter()
        seen = set()
        from datetime import datetime

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
        assert Counter(reason for _, _, reason in dropped) == wanted
        assert len(good) + len(dropped) == expected_rows
