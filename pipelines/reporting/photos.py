"""What became of the photos of a run: views of one database, which status, trace and browse read and count alike."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from driftline.curate.core.outside.image_kinds import HEIC_NEEDS, JXL_NEEDS
from driftline.curate.retrieval.retrieve import FATES
from driftline.curate.sources.folder import Folder
from driftline.curate.validation.answers.verdicts import BEST
from driftline.pipelines.config.schema import Config
from driftline.pipelines.run.stage import Counts, check_reasons
from driftline.pipelines.run.state import done_of, folder_of
from driftline.pipelines.stages import STAGES

SHOWN = 200  # lines for people
ALL_DATES = ("exif", "sidecar", "path", "file")
TEXTS = ("id", "url", "path", "user", "nickname", "title", "page_url", "licence", "label", "extra")
OF_SOURCE = dict.fromkeys(TEXTS, "VARCHAR") | {"row": "BIGINT", "uploaded": "BIGINT"}
TABLES: dict[str, tuple[str, str, dict[str, str]]] = {  # view → stage, files, columns
    "ingested": ("ingest", "table/*.parquet", OF_SOURCE),
    "passed": ("filter", "table/*.parquet", dict.fromkeys(("id", "path", "url"), "VARCHAR")),
    "fetched": ("fetch", "index.parquet", dict.fromkeys(("id", "shard", "fault"), "VARCHAR")),
    "members": ("bucket", "members.parquet", {"id": "VARCHAR", "bucket": "INTEGER"}),
    "embedded": ("embed", "metadata/*.parquet", {"id": "VARCHAR", "bucket": "INTEGER", "fault": "VARCHAR"}),
    "candidates": (
        "retrieve",
        "candidates.parquet",
        {"id": "VARCHAR", "bucket": "INTEGER", "concept": "VARCHAR", "score": "FLOAT", "fate": "VARCHAR"},
    ),
    "asked": ("tally", "asked.parquet", {"id": "VARCHAR", "round": "INTEGER"}),
    "verdicts": ("tally", "verdicts.parquet", dict.fromkeys(("id", "concept", "verdict"), "VARCHAR")),
    "answers": ("tally", "answers.parquet", dict.fromkeys(("id", "worker", "fault"), "VARCHAR")),
    "published": ("publish", "release/metadata.parquet", {"id": "VARCHAR", "class": "VARCHAR"}),
}
DROPPED = {"row": "BIGINT", "id": "VARCHAR", "detail": "VARCHAR"}  # columns, beside the reason
# A photo can be in several lists of candidates, and asked for several concepts: its own fate is the best of them.
CHOSEN = f"""CREATE TEMP VIEW chosen AS
SELECT NULL::BIGINT AS row, id, min_by(concept, place) AS concept, min_by(fate, place) AS fate, NULL AS detail
FROM (SELECT *, coalesce(list_position({list(FATES)}, fate), 99) - score / 10 AS place FROM candidates) GROUP BY id"""
JUDGED = f"""CREATE TEMP VIEW judged AS
SELECT NULL::BIGINT AS row, id, min_by(concept, place) AS concept, min_by(verdict, place) AS verdict, NULL AS detail
FROM (SELECT *, list_position({list(BEST)}, verdict) AS place FROM verdicts) GROUP BY id"""
LATER = "SELECT id FROM asked WHERE round > 1"  # candidates beyond the first batch: retrieve did not drop these
UNLISTED = """SELECT {number}, '{stage}', NULL, id,
CASE WHEN bucket IN (SELECT bucket FROM candidates) THEN 'not_retrieved' ELSE 'unlabelled_bucket' END, NULL
FROM embedded WHERE fault IS NULL AND id NOT IN (SELECT id FROM candidates)"""
NO_VECTOR = """SELECT {number}, '{stage}', NULL, id, 'no_vector', NULL FROM members
WHERE id NOT IN (SELECT id FROM embedded)"""


def photos(root: Path) -> duckdb.DuckDBPyConnection:
    """A database with the views TABLES of the finished stages, and

    - chosen, judged: of each candidate, its own fate, and its own verdict, with the concept;
    - dropped: what the stages dropped, a row for each record or photo: number (of the stage), stage, row, id (NULL for
      what could not be read), reason, detail. Its sum is what `status` says.
    """
    database = tables(root, TABLES)
    database.execute(JUDGED)
    database.execute("CREATE TEMP VIEW dropped AS " + "\nUNION ALL\n".join(_drops(database, root)))
    return database


def tables(root: Path, names: Sequence[str] | Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """A database with these views of TABLES, and `chosen`."""
    database = duckdb.connect()
    for name in names:
        stage, pattern, columns = TABLES[name]
        _view(database, name, _files(root, stage, pattern), columns)
    database.execute(CHOSEN)
    return database


def _files(root: Path, stage: str, pattern: str) -> list[Path]:
    """Files of a finished stage."""
    return sorted(folder_of(root, stage).glob(pattern)) if done_of(root, stage) is not None else []


def _view(database: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], columns: Mapping[str, str]) -> None:
    """A view of Parquet files with exactly these columns (name → type): NULL where the files lack one."""
    present: Sequence[str] = ()
    if files:
        table = database.read_parquet([glob.escape(str(file)) for file in files], union_by_name=True)
        table.create_view(f"{name}_files")
        present = table.columns
    shown = (f"{quoted(column) if column in present else 'NULL'}::{kind} AS {quoted(column)}"
             for column, kind in columns.items())  # fmt: skip
    source = f" FROM {name}_files" if files else " WHERE false"
    database.execute(f"CREATE TEMP VIEW {name} AS SELECT {', '.join(shown)}{source}")


def quoted(column: str) -> str:
    """A column name in SQL: class is a word of the language for some databases."""
    return f'"{column}"'


def _drops(database: duckdb.DuckDBPyConnection, root: Path) -> Iterator[str]:
    """Queries of what each stage dropped."""
    for number, stage in enumerate(STAGES):
        place = f"SELECT {number} AS number, '{stage}' AS stage"
        for nth, (pattern, column) in enumerate(STAGES[stage].records):
            name = {"fate": "chosen", "verdict": "judged"}.get(column, f"of_{number}_{nth}")
            if not column:
                continue
            if name not in ("chosen", "judged"):
                _view(database, name, _files(root, stage, pattern), {**DROPPED, column: "VARCHAR"})
            later = f" AND id NOT IN ({LATER})" if name == "chosen" else ""
            reason = quoted(column)
            lost = f"{reason} NOT IN ('kept', 'background')"
            yield f"{place}, row, id, {reason} AS reason, detail FROM {name} WHERE {lost}{later}"
        for own, query in (("retrieve", UNLISTED), ("embed", NO_VECTOR)):
            if stage == own and done_of(root, stage) is not None:
                yield query.format(number=number, stage=stage)


def dropped(root: Path, reasons: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Dropped photos in order of stages: {"stage", "reason", "id", "place" (path or URL), "detail"}.

    reasons: only these; none: all. Raises UnknownName.
    """
    database = photos(root)
    there = [reason for (reason,) in database.execute("SELECT DISTINCT reason FROM dropped").fetchall()]
    check_reasons(reasons, there, "dropped")
    # Later stages know the one record of an id that the filters kept.
    found = database.execute(
        """SELECT stage, reason, d.id, detail, coalesce(i.path, i.url, p.path, p.url) AS place FROM dropped d
        LEFT JOIN ingested i ON i.row = d.row LEFT JOIN passed p ON p.id = d.id
        WHERE list_contains(?, reason) ORDER BY number, d.row NULLS FIRST, d.id""",
        [list(reasons or there)],
    )
    names = ("stage", "reason", "id", "detail", "place")
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def text(rows: Sequence[Mapping[str, Any]], config: Config) -> str:
    """The list for people, and where dates were looked for."""
    lines = []
    for row in rows[:SHOWN]:
        place = row["place"] or row["id"] or ""
        detail = f"  ({' '.join(str(row['detail']).split())[:120]})" if row["detail"] else ""
        lines.append(f"{row['stage']:<10}{row['reason']:<24}{place}{detail}")
    if len(rows) > SHOWN:
        lines.append(f"… and {len(rows) - SHOWN:,} more: --json lists all, a reason after --dropped selects.")
    source = config.collection
    if isinstance(source, Folder) and any(row["reason"] == "no_upload_date" for row in rows):
        lines.append(f"Dates were looked for in: {', '.join(source.dates)}.")
        if left := [place for place in ALL_DATES if place not in source.dates]:
            wanted = ", ".join([*source.dates, *left])
            lines.append(f"Not in: {', '.join(left)}. To look there, too: --set 'collection.dates=[{wanted}]'")
    for reason, needs in (("needs_heic_extra", HEIC_NEEDS), ("needs_jxl_extra", JXL_NEEDS)):
        if n := sum(row["reason"] == reason for row in rows):
            lines.append(f"{n:,} photos: {needs}. Then: driftline run DIR --from ingest")
    return "\n".join(lines) or "No photo was dropped."


def counts_of(root: Path, stage: str) -> dict[str, Any] | None:
    """Counts of a finished stage in photos, see `Counts`; None if it is not finished."""
    if (done := done_of(root, stage)) is None:
        return None
    counts: dict[str, Any] = done["counts"]
    if stage not in ("retrieve", "ask"):
        return counts
    # Of the candidates that a later round asked. Since it, photos came or left: the first batch may have them now.
    query = f"SELECT fate FROM chosen WHERE id IN ({LATER}) AND fate NOT IN ('kept', 'background')"
    fates = Counter(fate for (fate,) in tables(root, ("candidates", "asked")).execute(query).fetchall())
    if stage == "ask":
        return Counts(counts["read"] + fates.total(), counts["kept"] + fates.total(), counts["dropped"]).plain()
    return Counts(counts["read"], counts["kept"] + fates.total(), Counter(counts["dropped"]) - fates).plain()
