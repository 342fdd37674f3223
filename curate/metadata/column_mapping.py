"""Rows of tables whose columns the user names: values of any kind → records of the column contract, or a fault."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from driftline.curate.core.errors import BadInput, did_you_mean
from driftline.curate.core.outside.names import in_either_form, is_utf8
from driftline.curate.metadata.column_survey import AS_IT_IS, Reading
from driftline.curate.metadata.columns import COLUMNS, id_of_address, safe_id

if TYPE_CHECKING:
    import pyarrow as pa

NOT_FROM_TABLE = {"row", "media"}
TIME_FAULTS = {"until": "bad_upload_time", "uploaded": "bad_upload_time", "taken": "bad_capture_time"}
LONGEST_RAW = 2000  # characters of a faulty row that are kept


def check_columns(columns: dict[str, str], images: Sequence[str]) -> dict[str, str]:
    """The columns as given. Raises ValueError unless they name `uploaded` and one of `images`, and nothing unknown."""
    allowed = [*(name for name in COLUMNS if name not in NOT_FROM_TABLE), *(i for i in images if i == "image")]
    for name in columns:
        if name not in allowed:
            parts = (f"There is no column {name!r}.", did_you_mean(name, allowed), f"Available: {', '.join(allowed)}")
            raise ValueError(" ".join(filter(None, parts)))
    if "uploaded" not in columns or not set(images) & set(columns):
        raise ValueError(
            f"Expected at least uploaded and one of {', '.join(images)}, as in "
            "{path: filename, uploaded: year, label: species}"
        )
    return columns


def check_names(path: Path | str, names: Sequence[str], columns: Mapping[str, str]) -> None:
    """Raise BadInput unless a table with columns of these names has each that `columns` asks for, once."""
    if twice := [column for column in columns.values() if names.count(column) > 1]:
        raise BadInput(f"{path} has more than one column {twice[0]!r}.", f"It has {names}.")
    if missing := sorted(set(columns.values()) - set(names)):
        missing_names = ", ".join(map(repr, missing))
        raise BadInput(f"{path} has no column {missing_names}.", f"It has {names}.", "Correct collection.columns.")


class Unreadable:
    """Stands for a value that has no Python value: a time outside the calendar or of an unknown zone, for example."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return f"unreadable {self.kind}"

    __repr__ = __str__


def rows_of_batch(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch: column → value. A value that cannot be read is `Unreadable`; text that is not UTF-8 has
    surrogate escapes."""
    columns = [_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    # not `type.tz`: that fails for a name that is not UTF-8
    if pa.types.is_timestamp(column.type) and column.type != pa.timestamp(column.type.unit):
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))  # the same moments, also of unknown zones
    try:
        values: list[Any] = column.to_pylist()
    except Exception:  # Arrow raises many kinds, pytz another
        values = [_value(scalar) for scalar in column]
    return values


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "surrogateescape")
    except Exception:
        return Unreadable(scalar.type)


def record_of(
    values: Mapping[str, Any], columns: Mapping[str, str], row: int, root: Path, reading: Reading = AS_IT_IS
) -> dict[str, Any]:
    """values: column of the file → value. Returns a record, or a record with `fault` and `raw`.

    reading: of the whole columns, by `survey`. Times: see `seconds_of`; a year, month or day is one until its last
    second. Paths are relative to `root` and stay below it.
    The id defaults to path or url. Tags are a list, or text with commas.
    """

    def bad(fault: str) -> dict[str, Any]:
        return {"row": row, "fault": fault, "raw": printable(str(dict(values)))}

    record: dict[str, Any] = {"row": row, "media": "photo"}
    for name, column in columns.items():
        value = values.get(column)
        if isinstance(value, Unreadable):
            return bad(TIME_FAULTS.get(name, "unreadable_value"))
        if isinstance(value, str):
            if not is_utf8(value):
                return bad("not_utf8")
            value = value.strip().replace("\x00", "\ufffd")
        record[name] = reading.cell(name, value)
    if record.get("path") is not None:
        target = in_either_form(root, str(record["path"])).resolve()
        if not target.is_relative_to(root):
            return bad("path_outside_root")
        record["path"] = str(target)
    if (bad_time := _read_times(record, reading)) is not None:
        return bad(bad_time)
    for name, limit in (("longitude", 180.0), ("latitude", 90.0)):
        if record.get(name) is not None:
            try:
                record[name] = float(record[name])
            except (ValueError, TypeError):
                return bad("bad_coordinate")
            if not abs(record[name]) <= limit:
                return bad("bad_coordinate")
    if record.get("tags") is not None:
        tags = record["tags"] if isinstance(record["tags"], list) else str(record["tags"]).split(",")
        if not all(is_utf8(str(tag)) for tag in tags):
            return bad("not_utf8")
        record["tags"] = ",".join(quote_plus(str(tag).strip()) for tag in tags if str(tag).strip())
    for name, value in record.items():
        if value is not None and COLUMNS[name] == "string" and not isinstance(value, str):
            record[name] = str(value)
    identifier = str(record.get("id") or (record.get("path") and values.get(columns["path"])) or "").strip()
    address = str(record.get("url") or "").strip()
    if not identifier and not address:
        return bad("bad_id")
    record["id"] = safe_id(identifier) if identifier else id_of_address(address)
    return record


def _read_times(record: dict[str, Any], reading: Reading) -> str | None:
    """Times as seconds; `until` is set where `uploaded` is no moment. Returns the fault of one that is no time."""
    for name, fault in TIME_FAULTS.items():
        if record.get(name) is None:
            continue
        try:
            first, last = reading.span(name, record[name])
        except (ValueError, OverflowError):
            return fault
        record[name] = last if name == "until" else first
        if name == "uploaded" and last > first and record.get("until") is None:
            record["until"] = last
    if None not in (record.get("uploaded"), record.get("until")) and record["until"] < record["uploaded"]:
        return TIME_FAULTS["until"]
    return None


def printable(text: str) -> str:
    """At most LONGEST_RAW characters of the text, with \\xNN for each byte that was not UTF-8 (also in a `repr`)."""
    clean = text[:LONGEST_RAW].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return re.sub(r"\\udc([0-9a-f]{2})", r"\\x\1", clean)[:LONGEST_RAW]
