"""Dates that a person settled: a table beside the run, never in a photo."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from driftline.curate.bucketing.assign import Ints
from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.core.errors import BadInput
from driftline.curate.core.times.dates import Date, clock
from driftline.curate.foreign.delimited import csv_rows

COLUMNS = ("id", "date")


class Times(NamedTuple):
    """When each of N photos may have been uploaded, seconds UTC."""

    first: Ints
    """(N,) the first second"""
    last: Ints
    """(N,) the last second"""


def settled_dates(path: Path) -> dict[str, Date]:
    """Id → its date, of a CSV file with the columns id and date (2012, 2012-05, 2012-05-01, 2012-05-01T10:00+02:00);
    empty without the file. The last row of an id counts. Raises BadInput, naming the row."""
    return {id_: clock(text) for id_, text in _texts(path).items()}


def settle(path: Path, id_: str, text: str) -> None:
    """Add a date to the file, in place of an earlier one of the photo; "" takes it back. Raises BadInput."""
    texts = {name: date for name, date in _texts(path).items() if name != id_}
    if text.strip():
        try:
            clock(text)
        except ValueError:
            raise BadInput(f"The date is {text!r}.", "Expected one as 2012, 2012-05 or 2012-05-01.") from None
        texts[id_] = text.strip()
    write_text(path, csv_text(COLUMNS, sorted(texts.items())))


def _texts(path: Path) -> dict[str, str]:
    """Id → its date as it was written, which `clock` reads."""
    texts: dict[str, str] = {}
    for number, row in csv_rows(path, COLUMNS, "Expected id,date.") if path.is_file() else ():
        try:
            clock(row["date"])
        except ValueError:
            problem = f"{path}, line {number}: the date is {row['date']!r}."
            raise BadInput(problem, "Expected one as 2012, 2012-05 or 2012-05-01.") from None
        texts[row["id"]] = row["date"]
    return texts


def times_of(table: pa.Table, settled: Mapping[str, Date]) -> Times:
    """When each photo may have been uploaded. table: columns id, uploaded, until; settled: dates that count instead."""
    first = table["uploaded"].to_numpy().astype(np.int64)
    last = table["until"].combine_chunks().fill_null(-(2**62)).to_numpy().astype(np.int64)
    last = np.maximum(first, last)
    if settled:
        for place, id_ in enumerate(table["id"].to_pylist()):
            if (date := settled.get(id_)) is not None:
                first[place], last[place] = date.utc, date.until
    return Times(first, last)
