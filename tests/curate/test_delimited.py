"""Tables: which column is which is said, never guessed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from curate.ground.errors import BadConfig, BadInput
from curate.sources.delimited import Delimited, seconds_of


def rows(path: Path, text: str, columns: dict[str, str]) -> list[dict[str, object]]:
    (path / "t.csv").write_text(text, encoding="utf-8")
    found: list[dict[str, object]] = pa.Table.from_batches(Delimited(path / "t.csv", columns).batches()).to_pylist()
    return found


def test_years_seconds_and_iso_times() -> None:
    assert seconds_of("1909") == -1_924_992_000
    assert seconds_of("1909-01-01") == seconds_of("1909")
    assert seconds_of("1300000000") == 1_300_000_000
    assert seconds_of("2011-03-13T07:06:40+00:00") == 1_300_000_000


def test_paths_start_from_the_tables_folder_and_may_not_leave_it(tmp_path: Path) -> None:
    text = "file,year\nimages/a.jpg,1909\n../../etc/passwd,1909\n/etc/passwd,1909\n"
    found = rows(tmp_path, text, {"path": "file", "uploaded": "year"})
    assert found[0]["path"] == str((tmp_path / "images" / "a.jpg").resolve())
    assert [r["fault"] for r in found] == [None, "path_outside_root", "path_outside_root"]


def test_short_long_and_unreadable_rows_are_faults(tmp_path: Path) -> None:
    text = "file,year\na.jpg\nb.jpg,1909,extra\nc.jpg,then\n,1909\n"
    found = rows(tmp_path, text, {"path": "file", "uploaded": "year"})
    assert [r["fault"] for r in found] == ["wrong_column_count", "wrong_column_count", "bad_upload_time", "bad_id"]


def test_a_missing_column_is_named_with_the_header(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column 'jahr'.*\['file', 'year'\]"):
        rows(tmp_path, "file,year\na,1\n", {"path": "file", "uploaded": "jahr"})


def test_an_unknown_table_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="names 'upload'.*Allowed: id, url"):
        rows(tmp_path, "file,year\na,1\n", {"path": "file", "upload": "year"})


def test_bytes_that_are_not_utf8_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"file,year\n\xff\xfe.jpg,1909\n")
    with pytest.raises(BadInput, match=r"not UTF-8.*iconv"):
        list(Delimited(tmp_path / "t.csv", {"path": "file", "uploaded": "year"}).batches())
