"""The columns of a log in any kind of table, as Arrow; cells of text files are as they are written. And the table of
versions: up to which date each was trained."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.curate.core.errors import BadInput, MissingFile, did_you_mean
from driftline.curate.foreign import cells, time_cells
from driftline.curate.foreign.delimited import Part, ending
from driftline.curate.foreign.json_lines import JSON, text_rows
from driftline.curate.foreign.names import column_once
from driftline.curate.foreign.tables import PARQUET, BoundedParquet, arrow_of, check_offsets, is_parquet, readable

ROLES = ("time", "id", "version", "prediction", "score", "label", "label_time", "group")
NAMED = (*ROLES, "path")
NEEDED = ("time", "id", "version", "prediction")
BATCH = 1 << 16  # rows that are read at once
SUFFIXES = (*PARQUET, ".csv", ".tsv", *JSON)
EXPECTED = "Expected a table of predictions."
COLUMNS = ("version", "trained_to")
Parts = Callable[[Mapping[str, str]], Iterator[Part]]


@contextmanager
def opened(source: Any, what: str) -> Iterator[tuple[list[str], Parts]]:
    """The names of the columns of a file, an Arrow table, a data frame, or columns by name; and what gives the chosen
    ones, by new names, in parts. Raises MissingFile, BadInput."""
    if not isinstance(source, str | Path):
        table = arrow_of(source)
        yield table.column_names, lambda chosen: _renamed(table.to_batches(BATCH), chosen)
        return
    path = Path(source)
    if path.is_dir():
        raise BadInput(f"{path} is a folder.", "Expected files.", f"Name them: {path}/*.parquet.")
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a log: Parquet, CSV or JSON lines.")
    if (suffix := ending(path)) not in SUFFIXES:
        raise BadInput(f"{path} ends in {suffix or 'nothing'}.", f"Expected one of {', '.join(SUFFIXES)}.")
    with readable(what, EXPECTED):
        if is_parquet(path):
            with BoundedParquet(path) as file:
                columns = file.schema.names
                yield columns, lambda chosen: _renamed(file.batches(BATCH, [*chosen.values()]), chosen)
        else:
            with text_rows(path) as rows:
                yield rows.header, lambda chosen: (
                    part._replace(table=part.table.rename_columns([*chosen]))
                    for part in rows.parts([*chosen.values()])
                )  # fmt: skip


def _renamed(batches: Iterable[pa.RecordBatch], chosen: Mapping[str, str]) -> Iterator[Part]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        check_offsets([table[column].combine_chunks() for column in chosen.values()])
        yield Part(pa.table({name: table[column] for name, column in chosen.items()}), {})


def named(
    names: Sequence[str], asked: Mapping[str, str], roles: Sequence[str], needed: Sequence[str], what: str
) -> dict[str, str]:
    """role → column, of a table with columns of these names: as asked for, else the column that is named as its role,
    in any case. Raises BadInput."""
    if unknown := [role for role in asked if role not in NAMED]:
        parts = (did_you_mean(unknown[0], NAMED), f"Expected {', '.join(NAMED)}.")
        raise BadInput(f"--columns names {unknown[0]!r}.", " ".join(filter(None, parts)))
    forms = {name.strip().casefold(): name for name in reversed(names)} | {name: name for name in names}
    columns = {role: asked.get(role, forms.get(role, role)) for role in roles}
    for role, column in columns.items():
        if column in names or role in needed or (role in asked and role not in ("label", "label_time")):
            column_once(names, column, what, "Name it: --columns '{" + f"{role}: COLUMN" + "}'.")
    return {role: column for role, column in columns.items() if column in names}


def read_versions(source: Any) -> dict[str, int | None]:
    """name → last second (UTC) of its training data, from which age counts; None: not stated. Of a file (CSV, Parquet,
    JSON lines), a data frame, rows, or names with their dates.

    Raises MissingFile, and BadInput naming the version and the field.
    """
    if isinstance(source, Mapping) and not {"version"} & {str(key) for key in source}:
        source = [{"version": str(name), "trained_to": date} for name, date in source.items()]
    what = str(source) if isinstance(source, str | Path) else "versions"
    with opened(source, what) as (names, parts):
        column_once(names, "version", what)
        for name in names:
            if name not in COLUMNS and (close := did_you_mean(name, COLUMNS)):
                raise BadInput(f"{what} has a column {name!r}.", f"Expected {', '.join(COLUMNS)}.", close)
        chosen = {name: name for name in names if name in COLUMNS}
        tables = [
            pa.table({name: cells.text(part.table[name], f"{what}: {name}") for name in chosen})
            for part in parts(chosen)
        ]
    versions: dict[str, int | None] = {}
    for row in pa.concat_tables(tables).to_pylist() if tables else []:
        name, date = row["version"], row.get("trained_to")
        if name is None:
            raise BadInput(f"{what}: a row has no version.", "Expected its name in each row.")
        if name in versions:
            raise BadInput(f"{what} has the version {name!r} twice.", "Expected one row a version.")
        try:
            versions[name] = None if date is None else time_cells.span(date)[1]
        except (ValueError, OverflowError):
            problem = f"{what}: trained_to of version {name!r} is {date!r}."
            raise BadInput(problem, "Expected a date, a month (2026-01), or nothing.") from None
    return versions
