"""Tables: which column is which is said, never guessed."""

import contextlib
import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from driftline.curate.core.errors import BadInput
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.foreign.delimited import csv_rows
from driftline.curate.sources.table import Delimited


def rows(path: Path, text: str, columns: dict[str, str]) -> list[dict[str, object]]:
    (path / "t.csv").write_text(text, encoding="utf-8")
    source = Delimited(path=path / "t.csv", columns=columns)  # type: ignore[arg-type]
    found: list[dict[str, object]] = pa.Table.from_batches(source.batches()).to_pylist()
    return found


def test_paths_start_from_the_tables_folder_and_may_not_leave_it(tmp_path: Path) -> None:
    text = "file,year\nimages/a.jpg,1909\n../../etc/passwd,1909\n/etc/passwd,1909\n"
    found = rows(tmp_path, text, {"path": "file", "uploaded": "year"})
    assert found[0]["path"] == str((tmp_path / "images" / "a.jpg").resolve())
    assert [r["fault"] for r in found] == [None, "path_outside_root", "path_outside_root"]


def test_short_long_and_unreadable_rows_are_faults(tmp_path: Path) -> None:
    text = "file,year\na.jpg\nb.jpg,1909,extra\nc.jpg,then\n,1909\n"
    found = rows(tmp_path, text, {"path": "file", "uploaded": "year"})
    assert [r["fault"] for r in found] == ["wrong_column_count", "wrong_column_count", "bad_upload_time", "bad_id"]


def test_an_end_without_a_begin_is_no_fault_of_the_table(tmp_path: Path) -> None:
    text = "file,year,end\na.jpg,,2012\nb.jpg,,\nc.jpg,2012,2011\n"
    found = rows(tmp_path, text, {"path": "file", "uploaded": "year", "until": "end"})
    assert [(r["fault"], r["uploaded"]) for r in found] == [(None, None), (None, None), ("bad_upload_time", None)]


def test_a_quoted_text_may_have_several_lines(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        'file,year,t\na.jpg,1909,"two\nlines"\nb.jpg,1910,x\n',
        {"path": "file", "uploaded": "year", "title": "t"},
    )
    assert [r["title"] for r in found] == ["two\nlines", "x"]


def test_a_missing_column_is_named_with_the_header(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column 'jahr'.*It has file, year"):
        rows(tmp_path, "file,year\na,1\n", {"path": "file", "uploaded": "jahr"})


@pytest.mark.parametrize("text", ["file\na.jpg\n", "file;year\na.jpg;1909\n", "a.jpg\n", "\n\n", "\0\n"])
def test_a_table_of_one_column_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"t\.csv (has no column '.*It has .*delimiter\.|is empty)"):
        rows(tmp_path, text, {"path": "file", "uploaded": "year"})


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"more than one column 'year'.*It has file, year, year"):
        rows(tmp_path, "file,year,year\na,1,2\n", {"path": "file", "uploaded": "year"})


@pytest.mark.parametrize(
    "text", ["file,year,\na,1909,\n", "file,year\na,1909,,\n", "file,year,,\na,1909\n", "file,year,\na,1909,x\n"]
)
def test_separators_at_the_end_of_lines_are_no_cells(tmp_path: Path, text: str) -> None:
    (row,) = rows(tmp_path, text, {"path": "file", "uploaded": "year"})
    assert (row["fault"], row["uploaded"]) == (None, seconds_of("1909"))
    cells = [{name: cell for name, cell in cells.items() if name} for _, cells in csv_rows(tmp_path / "t.csv", [], "")]
    assert cells == [{"file": "a", "year": "1909"}]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.csv.gz"])
@pytest.mark.parametrize("form", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_named_with_the_way_out(tmp_path: Path, name: str, form: str) -> None:
    data = ('{"file": "a", "year": 1909}' if name == "t.jsonl" else "file,year\na.jpg,1909").encode(form)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    seen = form.upper().replace("-LE", "LE").replace("-BE", "BE")
    with pytest.raises(BadInput, match=rf"is text in {seen}\. Expected UTF-8\. .*iconv -f {seen} -t UTF-8"):
        list(Delimited(path=tmp_path / name, columns={"path": "file", "uploaded": "year"}).batches())
    with pytest.raises(BadInput, match="UTF-8"):
        list(csv_rows(tmp_path / name, [], ""))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz"])
def test_a_compressed_table_that_is_cut_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"file,year\n" * 9)[:20])
    with pytest.raises(BadInput, match=r"cannot be read after row 0 \(Compressed file ended"):
        list(Delimited(path=tmp_path / name, columns={"path": "file", "uploaded": "year"}).batches())


def test_an_unknown_table_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no column 'upload'. Did you mean 'uploaded'\\? Available: id, url"):
        rows(tmp_path, "file,year\na,1\n", {"path": "file", "upload": "year"})


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        '{"u": "http://127.0.0.1/a.jpg", "t": 1300000000, "tags": ["red car", "a,b"], "lat": "50.5"}',
        '{"u": "http://127.0.0.1/b.jpg", "t": "2011-03-13T07:06:40Z"}',
        '{"u": "http://127.0.0.1/c.jpg"}',
        '{"u": "http://127.0.0.1/d.jpg", "t": true}',
        '{"u": "http://127.0.0.1/d.jpg", "t": 2010, "tags": {"a": 1}}',
        '["no", "object"]',
        "[" * 100_000,
        '{"u": "http://127.0.0.1/e.jpg", "t": 0, "lat": 91}',
    ]
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    columns = {"url": "u", "uploaded": "t", "tags": "tags", "latitude": "lat"}
    found = pa.Table.from_batches(Delimited(path=path, columns=columns).batches(rows=3)).to_pylist()
    faults = [None, None, None, "bad_upload_time", "unreadable_value", "bad_json", "bad_json", "bad_coordinate"]
    assert [r["fault"] for r in found] == faults
    assert [r["uploaded"] for r in found[:2]] == [1_300_000_000, 1_300_000_000]
    assert (found[0]["tags"], found[0]["latitude"]) == ("red+car,a%2Cb", 50.5)
    assert [r["row"] for r in found] == list(range(8))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["t.csv", "t.jsonl"]))
def test_any_bytes_are_rows_or_one_clear_error(tmp_path: Path, junk: bytes, name: str) -> None:
    head = b"file,year\n" if name == "t.csv" else b'{"file": "a", "year": 1}\n'
    (tmp_path / name).write_bytes(head + junk)
    with contextlib.suppress(BadInput):
        for batch in Delimited(path=tmp_path / name, columns={"path": "file", "uploaded": "year"}).batches():
            assert all(row["fault"] or row["id"] for row in batch.to_pylist())
