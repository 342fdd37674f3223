"""Faults: each row is charged to its first, and nothing else is dropped."""

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.filtering import MARKS, check, filter_table, late_rows, mark, reasons
from driftline.curate.metadata.schema import TABLE, TIMES, batch_of, judge_times
from driftline.curate.metadata.settings import FilterSettings

QUIET = RunLog(quiet=True)
GOOD: dict[str, object] = {
    "id": "1", "row": 0, "url": "http://127.0.0.1/a.jpg", "uploaded": 1_300_000_000, "taken": 1_200_000_000,
    "media": "photo",
}  # fmt: skip


def outcome(rules: FilterSettings | None = None, **changes: object) -> str:
    table = pa.Table.from_batches([batch_of([GOOD | changes], TABLE)])
    (reason,) = reasons(table, rules or FilterSettings()).to_pylist()
    return reason or "kept"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "kept"),
        ({"media": "video"}, "video"),
        ({"url": None}, "no_url"),
        ({"url": None, "path": "/photos/a.jpg"}, "kept"),
        ({"url": "file:///etc/passwd"}, "malformed_url"),
        ({"url": "http://"}, "malformed_url"),
        ({"url": "http://ho st/a.jpg"}, "malformed_url"),
        ({"url": "http://[bad/a.jpg"}, "malformed_url"),
        ({"uploaded": None}, "no_upload_date"),
        ({"uploaded": 0}, "impossible_upload_date"),
        ({"uploaded": 2**31 - 1}, "impossible_upload_date"),
        ({"uploaded": 0, "until": 31_535_999, "taken": -1}, "kept"),  # the year 1970
        ({"taken": None}, "no_capture_date"),
        ({"taken": 1_300_000_000}, "not_after_capture"),
        ({"taken": 1_300_000_000, "until": 1_300_086_399}, "kept"),  # it may have been later that day
        ({"media": "video", "url": None}, "video"),
    ],
)
def test_each_fault_by_name(changes: dict[str, object], expected: str) -> None:
    assert outcome(**changes) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("//h/a.jpg", "malformed_url"),
        ("h/a.jpg", "malformed_url"),
        ("https://u:p@h/a.jpg", "malformed_url"),
        ("https://u@h/a.jpg", "malformed_url"),
        ("https://h:p@/a.jpg", "malformed_url"),
        ("https:/h/a.jpg", "malformed_url"),
        ("https://h:0/a.jpg", "malformed_url"),
        ("https://h/a.jpg#x", "kept"),
        ("HTTPS://H/a.jpg", "kept"),
        ("https://h/a%2Fb.jpg", "kept"),
        ("https://h:443/a.jpg?user=u:p@h", "kept"),
        ("https://h/a b.jpg", "kept"),
        ("https://h/a.jpg?place=Köln Süd", "kept"),
        ("https://h/테스트.jpg", "kept"),
        ("https://öx.de/a.jpg", "kept"),
        ("https://例え.テスト/画像 1.jpg", "kept"),
        ("https://ü:p@öx.de/a b.jpg", "malformed_url"),
        ("https://ö x.de/a.jpg", "malformed_url"),
        ("https://öx／a.jpg", "malformed_url"),  # a slash of another script
        ("https://%C3%B6x.de/a.jpg", "malformed_url"),
        ("https://h/a\tb.jpg", "malformed_url"),
        ("https://h:65536/a.jpg", "malformed_url"),
    ],
)
def test_case_26_what_is_no_address_or_has_a_password_is_never_asked_for(url: str, expected: str) -> None:
    assert outcome(url=url) == expected


def test_a_time_that_no_photo_has_is_a_fault_and_other_rows_stay_as_they_are() -> None:
    first, last = TIMES[0], TIMES[1] - 1
    good = [GOOD | {"taken": first}, GOOD | {"uploaded": last}, GOOD | {"uploaded": None, "taken": None}]
    bad = [GOOD | {"taken": first - 1}, GOOD | {"uploaded": last + 1}]
    bad.append({"fault": "bad_id", "raw": "x", "uploaded": 2**60})
    assert judge_times(pa.Table.from_batches([batch_of(good)])).equals(pa.Table.from_batches([batch_of(good)]))
    judged = judge_times(pa.Table.from_batches([batch_of(good + bad)]))
    assert judged["fault"].to_pylist() == [None] * 3 + ["bad_capture_time", "bad_upload_time", "bad_id"]
    assert judged["raw"].to_pylist() == [None] * 3 + [f"taken: {first - 1}", f"uploaded: {last + 1}", "x"]


def test_clears_rule_can_be_relaxed_by_a_tolerance_or_left_out() -> None:
    late = {"taken": GOOD["uploaded"] + 3600}  # type: ignore[operator]
    assert outcome(FilterSettings(date_tolerance=14 * 3600), **late) == "kept"
    assert outcome(FilterSettings(upload_after_capture=False), taken=None) == "kept"


def test_believed_span_is_half_open() -> None:
    rules = FilterSettings(earliest=1_300_000_000, latest=1_300_000_001)
    assert outcome(rules) == "kept"
    assert outcome(rules, uploaded=1_299_999_999) == "impossible_upload_date"
    assert outcome(rules, uploaded=1_300_000_001) == "impossible_upload_date"


def test_a_year_that_is_partly_within_the_limits_may_be_right() -> None:
    rules, year = FilterSettings(earliest="1970-06-01", latest="1980-01-01"), {"uploaded": 1, "taken": 0}
    assert outcome(rules, **year, until=31_535_999) == "kept"
    assert outcome(rules, **year, until=86_399) == "impossible_upload_date"


@pytest.mark.parametrize("later", [2 * 86_400, 365 * 86_400, 4_039_372_800 - 1_800_000_000])
def test_case_5_a_photo_after_the_run_is_wrong_unless_a_setting_says_otherwise(later: int) -> None:
    future = {"uploaded": int(time.time()) + later, "taken": 1_200_000_000}
    assert outcome(FilterSettings(), **future) == "impossible_upload_date"
    assert outcome(FilterSettings(latest=2**40), **future) == "kept"
    assert outcome(FilterSettings(), uploaded=int(time.time()) - 60, taken=1_200_000_000) == "kept"


@pytest.mark.parametrize(
    ("rules", "changes", "expected"),
    [
        (FilterSettings(licences=("Attribution License",)), {"licence": "attribution license"}, "kept"),
        (FilterSettings(licences=("Attribution Li",)), {"licence": "Attribution-NoDerivs"}, "licence_not_allowed"),
        (FilterSettings(licences=("http://cc/by/",)), {"licence": "x", "licence_url": "http://cc/by/2.0"}, "kept"),
        (FilterSettings(licences=("Attribution",)), {"licence": None}, "licence_not_allowed"),
        (FilterSettings(where="camera LIKE 'Canon%'"), {"camera": "Canon 5D"}, "kept"),
        (FilterSettings(where="camera LIKE 'Canon%'"), {"camera": "Nikon"}, "own_filter"),
        (FilterSettings(where="camera LIKE 'Canon%'"), {"camera": None}, "own_filter"),
        (FilterSettings(where="list_contains(string_split(lower(tags), ','), 'red+car')"), {"tags": "b,Red+Car"},
         "kept"),
        (FilterSettings(where="longitude BETWEEN 5 AND 15"), {"longitude": 8.0}, "kept"),
        (FilterSettings(where="longitude BETWEEN 5 AND 15"), {}, "own_filter"),
    ],
)  # fmt: skip
def test_filters_that_a_user_may_add(rules: FilterSettings, changes: dict[str, object], expected: str) -> None:
    assert outcome(rules, **changes) == expected


@pytest.mark.parametrize(
    "where",
    [
        "no_such_column = 1",
        "uploaded +",
        "title",
        "(SELECT count(*) FROM read_csv('/etc/passwd')) > 0",
        "true) FROM photos; DROP TABLE photos; --",
    ],
)
def test_an_expression_that_cannot_be_used_is_refused_before_the_run(where: str) -> None:
    with pytest.raises(BadConfig, match=r"filter\.where"):
        check(FilterSettings(where=where))


def test_withdrawn_photos_are_dropped_and_a_list_without_ids_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.csv"
    path.write_text("id,since\n1,2026-01-01\n")
    assert outcome(FilterSettings(withdrawn=str(path))) == "withdrawn"
    assert outcome(FilterSettings(withdrawn=str(path)), id="2") == "kept"
    path.write_text("photo\n1\n")
    with pytest.raises(BadInput, match="no column id"):
        check(FilterSettings(withdrawn=str(path)))


def parts_of(folder: Path, *parts: list[dict[str, object]]) -> list[Path]:
    """Parts of a table whose rows are numbered through."""
    row, paths = 0, []
    for number, changes in enumerate(parts):
        rows = [GOOD | {"row": row + i} | change for i, change in enumerate(changes)]
        row += len(rows)
        paths.append(folder / f"part-{number:05d}.parquet")
        write_parquet(paths[-1], pa.Table.from_batches([batch_of(rows, TABLE)]))
    return paths


def kept_rows(folder: Path) -> list[int]:
    return [r for p in sorted((folder / "table").iterdir()) for r in pq.read_table(p)["row"].to_pylist()]


def test_the_first_good_row_of_an_id_stays_across_parts(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, [{"media": "video"}, {}], [{}, {"id": "2"}], [{"id": "2"}, {"id": "3"}])
    counts = filter_table(parts, tmp_path / "out", FilterSettings(), QUIET)
    assert counts == {"": 3, "video": 1, "duplicate_id": 2}
    assert kept_rows(tmp_path / "out") == [1, 3, 5]


@pytest.mark.parametrize("times", [2, 200_000])
def test_many_rows_of_one_id_take_no_square_of_time(tmp_path: Path, times: int) -> None:
    rows = pa.array(range(200_000))
    ids = pa.array([str(i // times) for i in range(len(rows))])
    nothing = pa.nulls(len(rows), pa.string())
    marks = pa.Table.from_arrays([ids, rows, nothing, nothing], ["id", "row", "user", "reason"]).cast(MARKS)
    write_parquet(tmp_path / "marks.parquet", marks)

    begun = time.process_time()
    late = late_rows([tmp_path / "marks.parquet"], FilterSettings(), tmp_path)

    assert late.num_rows == 200_000 - 200_000 // times
    assert time.process_time() - begun < 10  # .2 seconds; the square of the rows would be 40 billion pairs


def test_one_user_does_not_fill_a_collection(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": str(i), "user": u} for i, u in enumerate(["a", "a", "b", "a", None, None])]
    counts = filter_table(parts_of(tmp_path, rows[:3], rows[3:]), tmp_path / "out", FilterSettings(per_user=2), QUIET)
    assert counts == {"": 5, "too_many_of_user": 1}
    assert kept_rows(tmp_path / "out") == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("finished", ["none", "marks", "one part", "all but the mark of being done"])
def test_a_sift_that_was_killed_goes_on_and_ends_in_the_same_bytes(tmp_path: Path, finished: str) -> None:
    rows: list[dict[str, object]] = [{"id": str(i % 7), "user": "ab"[i % 2]} for i in range(12)]
    parts = parts_of(tmp_path, rows[:4], rows[4:8], rows[8:])
    rules = FilterSettings(per_user=2)
    counts = filter_table(parts, tmp_path / "whole", rules, QUIET)
    again = tmp_path / "again"
    if finished != "none":
        for part in parts:
            mark((part, again / "marks" / part.name, rules))
    for part in parts[: {"one part": 1, "all but the mark of being done": 3}.get(finished, 0)]:
        for kind in ("table", "rejects"):
            (again / kind).mkdir(exist_ok=True)
            shutil.copy(tmp_path / "whole" / kind / part.name, again / kind / part.name)
    assert filter_table(parts, again, rules, QUIET, Executor(workers=2)) == counts
    files = [p.relative_to(again) for p in sorted(again.rglob("*.parquet"))]
    assert files == [p.relative_to(tmp_path / "whole") for p in sorted((tmp_path / "whole").rglob("*.parquet"))]
    assert all((again / f).read_bytes() == (tmp_path / "whole" / f).read_bytes() for f in files)
