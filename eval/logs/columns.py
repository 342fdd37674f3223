"""Columns of a log, as DuckDB reads them: any table → numbers of one form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadInput, MissingFile, did_you_mean, reason
from driftline.curate.core.outside.documents import check_encoding

if TYPE_CHECKING:  # half a second each
    import duckdb

ROLES = ("time", "id", "version", "prediction", "score", "label", "label_time", "group")
NAMED = (*ROLES, "path")
NEEDED = ("time", "id", "version", "prediction")
BATCH = 1 << 18  # rows that are read at once
MEMORY = "400MB"  # of DuckDB
READERS = {
    ".parquet": "read_parquet(?)",
    ".csv": "read_csv(?, header = true, all_varchar = true, strict_mode = true)",
    ".jsonl": "read_json(?, format = 'newline_delimited', union_by_name = true)",
}
READERS |= {".pq": READERS[".parquet"], ".ndjson": READERS[".jsonl"], ".tsv": READERS[".csv"]}
ZONED = r"'[T ][0-9][0-9]:?[0-9][0-9].*(Z|z|[+-][0-9][0-9](:?[0-9][0-9])?)$'"
DOTTED = "['%d.%m.%Y', '%d.%m.%Y %H:%M', '%d.%m.%Y %H:%M:%S']"  # the day is first wherever dots are written
NUMBER = r"'^[+-]?[0-9]+(\.[0-9]*)?$'"


@contextmanager
def base() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that loads no extension and knows no time zone but UTC."""
    import duckdb

    options = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "memory_limit": MEMORY}
    with duckdb.connect(config=options) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@contextmanager
def opened(source: Any, what: str) -> Iterator[tuple[duckdb.DuckDBPyRelation, duckdb.DuckDBPyConnection]]:
    """A file by its suffix, an Arrow table, a data frame, or columns by name, as a relation. Raises MissingFile,
    BadInput."""
    import duckdb

    with base() as connection:
        try:
            yield _relation(connection, source), connection
        except (duckdb.Error, UnicodeError) as error:
            raise BadInput(f"{what} cannot be read ({reason(error)}).", "Expected a table of predictions.") from None


def _relation(connection: duckdb.DuckDBPyConnection, source: Any) -> duckdb.DuckDBPyRelation:
    if not isinstance(source, str | Path):
        from driftline.curate.core.frames import arrow_of

        return connection.from_arrow(arrow_of(source))
    path = Path(source)
    if path.is_dir():
        raise BadInput(f"{path} is a folder.", "Expected files.", f"Name them: {path}/*.parquet.")
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a log: Parquet, CSV or JSON lines.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        kinds = ", ".join(READERS)
        raise BadInput(f"{path} ends in {path.suffix or 'nothing'}.", f"Expected one of {kinds}.")
    if reader != READERS[".parquet"]:
        with path.open("rb") as file:
            check_encoding(file.read(4), path)
    try:
        return connection.sql(f"SELECT * FROM {reader}", params=[str(path)])
    except RuntimeError as error:  # of the binding of DuckDB, for names that are not UTF-8
        problem = f"{path} has names of columns that are not text ({reason(error)})."
        raise BadInput(problem, "Expected UTF-8.") from None


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


def kinds_of(relation: duckdb.DuckDBPyRelation) -> dict[str, str]:
    """Column → DuckDB's name of its type."""
    return {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}


def quoted(column: str) -> str:
    """A name as SQL has it."""
    return '"' + column.replace('"', '""') + '"'


def text(column: str, kind: str) -> str:
    """SQL of a cell as text: whole floats without `.0`, nothing as NULL."""
    c = quoted(column)
    if kind in ("DOUBLE", "FLOAT"):
        whole = f"isfinite({c}) AND {c} = floor({c}) AND abs({c}) < 9007199254740992"
        of_whole = f"CAST(CAST({c} AS BIGINT) AS VARCHAR)"
        return f"CASE WHEN isnan({c}) THEN NULL WHEN {whole} THEN {of_whole} ELSE {c}::VARCHAR END"
    return f"nullif(trim({c}::VARCHAR), '')"


def plain(column: str, kind: str) -> str:
    """The same of a class or an id: `1.0`, as tables with empty cells write it, is 1."""
    cell = text(column, kind)
    if kind != "VARCHAR":
        return cell
    whole = f"ends_with({cell}, '.0') AND regexp_full_match({cell}, '[+-]?[0-9]+[.]0')"
    return f"CASE WHEN {whole} THEN {cell}[:-3] ELSE {cell} END"


def number(column: str) -> str:
    """SQL of a cell as a number, with a point or a comma; NaN if it is none."""
    c = quoted(column)
    comma = f"try_cast(replace({c}::VARCHAR, ',', '.') AS DOUBLE)"
    return f"coalesce(try_cast({c} AS DOUBLE), {comma}, 'nan'::DOUBLE)"


def seconds(column: str, kind: str) -> tuple[str, str]:
    """SQL of a time, and of how it is written: 0 without zone, 1 with one, 2 a number since 1970, NULL not at all."""
    c = quoted(column)
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        zoned = kind in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
        value = f"epoch({c}::{'TIMESTAMPTZ' if zoned else 'TIMESTAMP'})"
        return value, f"CASE WHEN {c} IS NOT NULL THEN {int(zoned)} END"
    if kind not in ("VARCHAR", "JSON"):
        return f"try_cast({c} AS DOUBLE)", f"CASE WHEN {c} IS NOT NULL THEN 2 END"
    cell = f"trim({c}::VARCHAR)"
    value = (
        f"coalesce(try_cast({cell} AS DOUBLE), epoch(try_cast({cell} AS TIMESTAMPTZ)), "
        f"epoch(try_cast({cell} || '-01' AS TIMESTAMPTZ)), epoch(try_strptime({cell}, {DOTTED})))"
    )
    form = f"CASE WHEN regexp_matches({cell}, {NUMBER}) THEN 2 ELSE regexp_matches({cell}, {ZONED})::INT END"
    return value, f"CASE WHEN {value} IS NOT NULL THEN {form} END"
