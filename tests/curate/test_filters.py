"""Faults: each row is charged to its first, and nothing else is dropped."""

from __future__ import annotations

import pyarrow as pa
import pytest

from curate.filters import FilterRules, drop_faulty
from curate.table import TABLE, batch_of

GOOD = {
    "id": "1",
    "row": 0,
    "url": "http://127.0.0.1/a.jpg",
    "uploaded": 1_300_000_000,
    "taken": 1_200_000_000,
    "media": "photo",
}


def outcome(rules: FilterRules | None = None, **changes: object) -> str:
    table = pa.Table.from_batches([batch_of([GOOD | changes], TABLE)])
    good, dropped = drop_faulty(table, rules or FilterRules(), set())
    assert len(good) + len(dropped) == 1
    return dropped[0][2] if dropped else "kept"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "kept"),
        ({"media": "video"}, "video"),
        ({"url": None}, "no_url"),
        ({"url": None, "path": "/photos/a.jpg"}, "kept"),
        ({"url": "file:///etc/passwd"}, "malformed_url"),
        ({"url": "http://"}, "malformed_url"),
        ({"url": "http://host/a b.jpg"}, "malformed_url"),
        ({"url": "http://[bad/a.jpg"}, "malformed_url"),
        ({"uploaded": None}, "no_upload_date"),
        ({"uploaded": 0}, "impossible_upload_date"),
        ({"uploaded": 2**31 - 1}, "impossible_upload_date"),
        ({"taken": None}, "no_capture_date"),
        ({"taken": 1_300_000_000}, "not_after_capture"),
        ({"media": "video", "url": None}, "video"),
    ],
)
def test_each_fault_by_name(changes: dict[str, object], expected: str) -> None:
    assert outcome(**changes) == expected


def test_clears_rule_can_be_relaxed_by_a_tolerance_or_left_out() -> None:
    late = {"taken": GOOD["uploaded"] + 3600}  # type: ignore[operator]
    assert outcome(FilterRules(date_tolerance=14 * 3600), **late) == "kept"
    assert outcome(FilterRules(upload_after_capture=False), taken=None) == "kept"


def test_believed_span_is_half_open() -> None:
    rules = FilterRules(earliest=1_300_000_000, latest=1_300_000_001)
    assert outcome(rules) == "kept"
    assert outcome(rules, uploaded=1_299_999_999) == "impossible_upload_date"
    assert outcome(rules, uploaded=1_300_000_001) == "impossible_upload_date"


def test_the_first_of_two_equal_ids_stays_across_parts() -> None:
    seen: set[str] = set()
    table = pa.Table.from_batches([batch_of([GOOD, GOOD | {"row": 1}], TABLE)])
    good, dropped = drop_faulty(table, FilterRules(), seen)
    assert good["row"].to_pylist() == [0]
    assert dropped == [("1", 1, "duplicate_id")]
    good, dropped = drop_faulty(table, FilterRules(), seen)
    assert len(good) == 0
