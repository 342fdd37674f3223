"""Parquet columns of every type in every role: each row becomes a record or is dropped with a reason."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.curate.core.errors import BadInput
from driftline.curate.metadata.schema import SOURCE
from driftline.curate.sources.table import Parquet

BAD_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
)
TYPES = {
    "timestamp beyond the calendar": pa.array([2**62, 10**15], pa.timestamp("us")),
    "nanoseconds": pa.array([1, 2**62], pa.timestamp("ns")),
    "unknown time zone": pa.array([0, 1], pa.timestamp("us", tz="Mars/Olympus")),
    "impossible offset": pa.array([0, 1], pa.timestamp("us", tz="+99:99")),
    "date32": pa.array([10**8, 1], pa.date32()),
    "date64": pa.array([10**16, 1], pa.date64()),
    "decimal": pa.array([Decimal("1e30"), Decimal("1.5")], pa.decimal256(60, 2)),
    "duration": pa.array([10**15, 2**62], pa.duration("us")),
    "time of day": pa.array([1, 2], pa.time64("ns")),
    "struct": pa.array([{"a": 1}, None]),
    "list": pa.array([[1, 2], None]),
    "list of times": pa.array([[2**62], None], pa.list_(pa.timestamp("us"))),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"\xff\xfe", b"abc"]),
    "boolean": pa.array([True, False]),
    "uint64": pa.array([2**64 - 1, 0], pa.uint64()),
    "float": pa.array([float("nan"), float("inf")]),
    "null": pa.nulls(2),
    "dictionary": pa.array(["2010", "2011"]).dictionary_encode(),
    "large text": pa.array(["2010", "2011"], pa.large_string()),
    "text that is not UTF-8": BAD_UTF8,
}
NO_DATES = ("date64", "duration", "time of day", "list of times", "binary", "boolean", "uint64", "float")
ROLES = ("uploaded", "taken", "latitude", "tags", "label", "id", "url", "path")


def records(folder: Path, column: pa.Array, role: str) -> list[dict[str, Any]]:
    table = pa.table({"url": ["http://a/1", "http://a/2"], "day": ["2010", "2011"], "odd": column})
    pq.write_table(table, folder / "photos.parquet")
    columns = {"url": "url", "uploaded": "day", role: "odd"}
    batches = list(Parquet(source="parquet", path=str(folder / "photos.parquet"), columns=columns).batches())
    assert all(batch.schema == SOURCE for batch in batches)
    return [record for batch in batches for record in batch.to_pylist()]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", TYPES)
def test_no_type_is_a_traceback(kind: str, role: str, tmp_path: Path) -> None:
    refuses = kind in ("struct", "list", "map") and (role, kind) != ("tags", "list")
    if refuses or (kind == "decimal" and role in ("uploaded", "taken")):
        with pytest.raises(BadInput, match=f"{role} (holds|is)"):
            records(tmp_path, TYPES[kind], role)
        return
    if kind in NO_DATES and role in ("uploaded", "taken"):
        with pytest.raises(BadInput, match=f"{role} is .* cannot be read"):
            records(tmp_path, TYPES[kind], role)
        return
    found = records(tmp_path, TYPES[kind], role)
    assert [record["row"] for record in found] == [0, 1]
    assert all(record["fault"] or record["id"] for record in found)


def test_a_time_beyond_the_calendar_is_a_bad_time_of_its_row_alone(tmp_path: Path) -> None:
    found = records(tmp_path, TYPES["timestamp beyond the calendar"], "uploaded")
    assert [record["fault"] for record in found] == ["bad_upload_time", None]
    assert found[1]["uploaded"] == 10**9
