"""The columns of a log in any kind of table, as Arrow; cells of text files are as they are written. And the table of
versions: up to which date each was trained."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.curate.core.errors import BadInput, MissingFile, did_you_mean, reason
from driftline.curate.foreign import cells, time_cells
from driftline.curate.foreign.delimited import rows_of_lines
from driftline.curate.foreign.documents import check_encoding

if TYPE_CHECKING:  # half a second
    import duckdb

ROLES = ("time", "id", "version", "prediction", "score", "label", "label_time", "group")
NAMED = (*ROLES, "path")
NEEDED = ("time", "id", "version", "prediction")
BATCH = 1 << 18  # rows that are read at once
MEMORY = "400MB"  # of DuckDB
PARQUET, CSV = (
    "SELECT * FROM read_parquet(?)",
    "SELECT * FROM read_csv(?, header = true, all_varchar = true)",
)
JSON = r"""SELECT CASE WHEN json_array_length(COLUMNS(*)) = 1 THEN COLUMNS(*) ->> '$[0]'
    WHEN json_type(COLUMNS(*)) IN ('ARRAY', 'OBJECT') THEN error('a cell holds a list of several, or a record')
    ELSE COLUMNS(*) ->> '$' END AS "\0" FROM read_json(?, format = 'newline_delimited', maximum_depth = 1)"""
READERS = {".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".tsv": CSV, ".jsonl": JSON, ".ndjson": JSON}
COLUMNS = ("version", "trained_to")


@contextmanager
def opened(source: Any, what: str) -> "Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyRelation, list[int]]]":
    """A database in memory that loads no extension and knows no time zone but UTC; in it a file by its suffix, an Arrow
    table, a data frame, or columns by name; and the lines of the file that are no rows. Raises MissingFile, BadInput.
    """
    import duckdb

    options = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "memory_limit": MEMORY}
    with duckdb.connect(config=options) as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection, *_relation(connection, source)
        except (duckdb.Error, UnicodeError, csv.Error) as error:
            raise BadInput(f"{what} cannot be read ({reason(error)}).", "Expected a table of predictions.") from None


def _relation(connection: "duckdb.DuckDBPyConnection", source: Any) -> "tuple[duckdb.DuckDBPyRelation, list[int]]":
    if not isinstance(source, str | Path):
        from driftline.curate.foreign.tables import arrow_of

        return connection.from_arrow(arrow_of(source)), []
    path = Path(source)
    if path.is_dir():
        raise BadInput(f"{path} is a folder.", "Expected files.", f"Name them: {path}/*.parquet.")
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a log: Parquet, CSV or JSON lines.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        kinds = ", ".join(READERS)
        raise BadInput(f"{path} ends in {path.suffix or 'nothing'}.", f"Expected one of {kinds}.")
    if reader != PARQUET:
        with path.open("rb") as file:
            check_encoding(file.read(4), path)
    try:
        if reader == CSV and not _as_many_rows_as_lines(connection, path):
            table, faults = _line_by_line(path)
            return connection.from_arrow(table), faults
        return connection.sql(reader, params=[str(path)]), []
    except RuntimeError as error:  # of the binding of DuckDB, for names that are not UTF-8
        problem = f"{path} has names of columns that are not text ({reason(error)})."
        raise BadInput(problem, "Expected UTF-8.") from None


def _as_many_rows_as_lines(connection: "duckdb.DuckDBPyConnection", path: Path) -> bool:
    """Whether DuckDB, which is fast, reads each line below the header as a row, with the header's columns: a line with
    more or less may let it guess another separator."""
    import duckdb

    lines, end = 0, b"\n"
    with path.open("rb") as file:
        first = file.readline().decode("utf-8", "replace")
        file.seek(0)
        while part := file.read(1 << 22):
            lines, end = lines + part.count(b"\n"), part[-1:]
    with suppress(duckdb.Error):
        rows = connection.sql(f"SELECT count(*) FROM ({CSV})", params=[str(path)]).fetchall()[0][0]
        columns = len(connection.sql(CSV, params=[str(path)]).columns)
        return bool(rows == lines - (end == b"\n") and columns == first.count(_separator(path, first)) + 1)
    return False


def _separator(path: Path, header: str) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=header.count)


def _line_by_line(path: Path) -> tuple[pa.Table, list[int]]:
    faults: list[int] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        rows = rows_of_lines(file, _separator(path, first))
        header = next((cells for _, cells in rows if isinstance(cells, list)), [])
        batches = []
        while part := list(islice(rows, BATCH)):
            faults += [number for number, cells in part if not isinstance(cells, list)]
            columns = zip(*(cells for _, cells in part if isinstance(cells, list)), strict=True)
            batches.append([pa.array(column, pa.string()) for column in columns])
    chunks: list[Any] = list(zip(*filter(None, batches), strict=True)) or [[]] * len(header)
    return pa.Table.from_arrays([pa.chunked_array(of, pa.string()) for of in chunks], header), faults


def named(
    names: Sequence[str], asked: Mapping[str, str], roles: Sequence[str], needed: Sequence[str], what: str
) -> dict[str, str]:
    """role → column, of a table with columns of these names: as asked for, else the column that is named as its role.
    Raises BadInput."""
    if unknown := [role for role in asked if role not in NAMED]:
        parts = (did_you_mean(unknown[0], NAMED), f"Expected {', '.join(NAMED)}.")
        raise BadInput(f"--columns names {unknown[0]!r}.", " ".join(filter(None, parts)))
    columns = {role: asked.get(role, role) for role in roles}
    for role, column in columns.items():
        if names.count(column) > 1:
            raise BadInput(f"{what} has more than one column {column!r}.", f"It has {', '.join(names)}.")
        if column not in names and (role in needed or (role in asked and role not in ("label", "label_time"))):
            way_out = "Name it: --columns '{" + f"{role}: COLUMN" + "}'."
            raise BadInput(f"{what} has no column {column!r}.", f"It has {', '.join(names)}.", way_out)
    return {role: column for role, column in columns.items() if column in names}


def quoted(column: str) -> str:
    """A name as SQL has it."""
    return '"' + column.replace('"', '""') + '"'


def read_versions(source: Any) -> dict[str, int | None]:
    """name → last second (UTC) of its training data, from which age counts; None: not stated. Of a file (CSV, Parquet,
    JSON lines), a data frame, rows, or names with their dates.

    Raises MissingFile, and BadInput naming the version and the field.
    """
    if isinstance(source, Mapping) and not {"version"} & {str(key) for key in source}:
        source = [{"version": str(name), "trained_to": date} for name, date in source.items()]
    what = str(source) if isinstance(source, str | Path) else "versions"
    with opened(source, what) as (_, relation, _):
        names, table = relation.columns, relation.to_arrow_table()
    if "version" not in names:
        raise BadInput(f"{what} has no column 'version'.", f"It has {', '.join(names)}.")
    for name in names:
        if name not in COLUMNS and (close := did_you_mean(name, COLUMNS)):
            raise BadInput(f"{what} has a column {name!r}.", f"Expected {', '.join(COLUMNS)}.", close)
    versions: dict[str, int | None] = {}
    columns = {name: cells.text(table[name], f"{what}: {name}") for name in names if name in COLUMNS}
    for row in pa.table(columns).to_pylist():
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
