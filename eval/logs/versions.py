"""The versions of a model: up to which date each was trained, and when it was in service."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.curate.core.errors import BadInput, did_you_mean
from driftline.curate.foreign import cells
from driftline.eval.logs.columns import opened

DATES = ("trained_to", "deployed_from", "deployed_to")
COLUMNS = ("version", *DATES, "accuracy")


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
        names, table = relation.columns, relation.to_arrow_table()
    if "version" not in names:
        raise BadInput(f"{what} has no column 'version'.", f"It has {', '.join(names)}.")
    for name in names:
        if name not in COLUMNS and (close := did_you_mean(name, COLUMNS)):
            raise BadInput(f"{what} has a column {name!r}.", f"Expected {', '.join(COLUMNS)}.", close)
    versions: dict[str, Version] = {}
    columns = {name: cells.text(table[name], f"{what}: {name}") for name in names if name in COLUMNS}
    for row in pa.table(columns).to_pylist():
        version = _version(row, what)
        if version.name in versions:
            raise BadInput(f"{what} has the version {version.name!r} twice.", "Expected one row a version.")
        versions[version.name] = version
    return versions


def _version(row: Mapping[str, str | None], what: str) -> Version:
    name = row["version"]
    if name is None:
        raise BadInput(f"{what}: a row has no version.", "Expected its name in each row.")
    (first, trained), (start, _), (_, end) = (
        _span(row.get(field), f"{what}: {field} of version {name!r}") for field in DATES
    )
    if start is not None and end is not None and end < start:
        raise BadInput(f"{what}: version {name!r} is deployed until before it is deployed.", "Expected a later date.")
    if start is not None and first is not None and start < first:
        problem = f"{what}: version {name!r} was deployed before the end of its training data."
        raise BadInput(problem, "Expected deployed_from after trained_to.", "Correct one of the dates.")
    accuracy = row.get("accuracy")
    try:
        share = None if accuracy is None else float(accuracy)
    except ValueError:
        share = -1.0
    if share is not None and not 0 <= share <= 1:
        raise BadInput(f"{what}: accuracy of version {name!r} is {accuracy!r}.", "Expected a share, 0 … 1, or nothing.")
    return Version(name, trained, start, end, share)


def _span(text: str | None, what: str) -> tuple[int, int] | tuple[None, None]:
    """The first and the last second UTC of a day, month or year."""
    try:
        return (None, None) if text is None else cells.span(text)
    except (ValueError, OverflowError):
        raise BadInput(f"{what} is {text!r}.", "Expected a date, a month (2026-01), or nothing.") from None
