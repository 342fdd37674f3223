"""The versions of a model: up to which date each was trained, and when it was in service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadInput, did_you_mean
from driftline.curate.core.times.dates import last_second, precision_of, seconds_of
from driftline.eval.logs.columns import opened

DATES = ("trained_to", "deployed_from", "deployed_to")
COLUMNS = ("version", *DATES, "accuracy")
Cells = Mapping[str, Any]


@dataclass(frozen=True)
class Version:
    """One version. Dates in seconds UTC; None: not stated."""

    name: str
    trained_to: int | None = None
    """last moment of the training data: age counts from here"""
    deployed_from: int | None = None
    deployed_to: int | None = None
    accuracy: float | None = None
    """on a test set of its training's time"""


def read_versions(source: Any) -> dict[str, Version]:
    """name → version, of a file (CSV, Parquet, JSON lines), a data frame, rows, or names with their dates of training.

    Raises MissingFile, and BadInput naming the version and the field.
    """
    if isinstance(source, Mapping) and not {"version"} & {str(key) for key in source}:
        source = [
            {"version": str(name), **(dict(one) if isinstance(one, Mapping) else {"trained_to": one})}
            for name, one in source.items()
        ]
    what = str(source) if isinstance(source, str | Path) else "versions"
    with opened(source, what) as (_, relation, _):
        rows = relation.to_arrow_table().to_pylist()
        names = relation.columns
    if "version" not in names:
        raise BadInput(f"{what} has no column 'version'.", f"It has {', '.join(names)}.")
    for name in names:
        if name not in COLUMNS and (close := did_you_mean(name, COLUMNS)):
            raise BadInput(f"{what} has a column {name!r}.", f"Expected {', '.join(COLUMNS)}.", close)
    versions: dict[str, Version] = {}
    for row in rows:
        version = _version(row, what)
        if version.name in versions:
            raise BadInput(f"{what} has the version {version.name!r} twice.", "Expected one row a version.")
        versions[version.name] = version
    return versions


def _version(row: Cells, what: str) -> Version:
    name = _text(row["version"])
    if name is None:
        raise BadInput(f"{what}: a row has no version.", "Expected its name in each row.")
    dates = {field: _date(row.get(field), f"{what}: {field} of version {name!r}", field) for field in DATES}
    start, end, trained = dates["deployed_from"], dates["deployed_to"], dates["trained_to"]
    if start is not None and end is not None and end < start:
        raise BadInput(f"{what}: version {name!r} is deployed until before it is deployed.", "Expected a later date.")
    first = _date(row.get("trained_to"), "", "deployed_from")
    if start is not None and trained is not None and first is not None and start < first:
        problem = f"{what}: version {name!r} was deployed before the end of its training data."
        raise BadInput(problem, "Expected deployed_from after trained_to.", "Correct one of the dates.")
    accuracy = row.get("accuracy")
    try:
        share = None if _text(accuracy) is None else float(str(accuracy))
    except ValueError:
        share = -1.0
    if share is not None and not 0 <= share <= 1:
        raise BadInput(f"{what}: accuracy of version {name!r} is {accuracy!r}.", "Expected a share, 0 … 1, or nothing.")
    return Version(name, trained, start, end, share)


def _text(value: Any) -> str | None:
    if value is None or value != value or str(value).strip() == "":
        return None
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value).strip()


def _date(value: Any, what: str, field: str) -> int | None:
    """Seconds UTC: the first of a day, month or year; of an end, the last."""
    if (text := _text(value)) is None:
        return None
    try:
        moment = value if not isinstance(value, str) else text
        start = seconds_of(moment)
        return start if field == "deployed_from" else last_second(start, precision_of(moment))
    except (ValueError, OverflowError):
        raise BadInput(f"{what} is {text!r}.", "Expected a date, a month (2026-01), or nothing.") from None
