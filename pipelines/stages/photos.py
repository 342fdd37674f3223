"""What became of the photos of a run: views of one database, which status, trace and browse read and count alike; and
one photo's history: where it entered, where it was dropped and why, its bucket, scores and votes.
"""

import glob
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import yaml

from driftline.curate.core.errors import DriftlineError, UnknownName, without_secrets
from driftline.curate.core.times.dates import iso
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.retrieval.retrieve import FATES
from driftline.curate.sources.folder import Folder
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import history as past
from driftline.curate.validation.answers.verdicts import BEST
from driftline.pipelines.config.loader import Config, load
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.base import Counts, check_reasons
from driftline.pipelines.stages.state import done_of, folder_of, kept_changes

SHOWN = 200  # lines for people
MEANING = yaml.safe_load((files("driftline.pipelines.stages") / "reasons.yaml").read_text(encoding="utf-8"))
ALL_DATES = ("exif", "sidecar", "path", "file")
TEXTS = ("id", "url", "path", "user", "nickname", "title", "page_url", "licence", "label", "extra")
OF_SOURCE = dict.fromkeys(TEXTS, "VARCHAR") | {"row": "BIGINT", "uploaded": "BIGINT"}
OF_CANDIDATES = dict.fromkeys(("id", "concept", "fate"), "VARCHAR") | {"bucket": "INTEGER", "score": "FLOAT"}
TABLES: dict[str, tuple[str, str, dict[str, str]]] = {  # view → stage, files, columns
    "ingested": ("ingest", "table/*.parquet", OF_SOURCE),
    "passed": ("filter", "table/*.parquet", dict.fromkeys(("id", "path", "url"), "VARCHAR")),
    "fetched": ("fetch", "index.parquet", dict.fromkeys(("id", "shard", "fault", "source_sha256"), "VARCHAR")),
    "members": ("bucket", "members.parquet", {"id": "VARCHAR", "bucket": "INTEGER"}),
    "embedded": ("embed", "metadata/*.parquet", {"id": "VARCHAR", "bucket": "INTEGER", "fault": "VARCHAR"}),
    "candidates": ("retrieve", "candidates.parquet", OF_CANDIDATES),
    "asked": ("tally", "asked.parquet", {"id": "VARCHAR", "round": "INTEGER"}),
    "verdicts": ("tally", "labels.parquet", dict.fromkeys(("id", "concept", "decision"), "VARCHAR")),
    "answers": ("tally", "answers.parquet", dict.fromkeys(("id", "worker", "fault"), "VARCHAR")),
    "published": ("publish", "release/metadata.parquet", {"id": "VARCHAR", "class": "VARCHAR"}),
}
DROPPED = {"row": "BIGINT", "id": "VARCHAR", "detail": "VARCHAR"}  # columns, beside the reason
# A photo can be in several lists of candidates, and asked for several concepts: its own fate is the best of them.
CHOSEN = f"""CREATE TEMP VIEW chosen AS
SELECT NULL::BIGINT AS row, id, min_by(concept, place) AS concept, min_by(fate, place) AS fate, NULL AS detail
FROM (SELECT *, coalesce(list_position({list(FATES)}, fate), 99) - score / 10 AS place FROM candidates) GROUP BY id"""
JUDGED = f"""CREATE TEMP VIEW judged AS
SELECT NULL::BIGINT AS row, id, min_by(concept, place) AS concept, min_by(decision, place) AS decision, NULL AS detail
FROM (SELECT *, list_position({list(BEST)}, decision) AS place FROM verdicts) GROUP BY id"""
LATER = "SELECT id FROM asked WHERE round > 1"  # candidates beyond the first batch: retrieve did not drop these
UNLISTED = """SELECT {number}, '{stage}', NULL, id,
CASE WHEN bucket IN (SELECT bucket FROM candidates) THEN 'not_retrieved' ELSE 'unlabelled_bucket' END, NULL
FROM embedded WHERE fault IS NULL AND id NOT IN (SELECT id FROM candidates)"""
NO_VECTOR = """SELECT {number}, '{stage}', NULL, id, 'no_vector', NULL FROM members
WHERE id NOT IN (SELECT id FROM embedded)"""
UNKEPT = {"retrieve": UNLISTED, "embed": NO_VECTOR}
ADDRESSES, USERS = 10, 5  # that share an image: it may stand for no image
SAME = f"""SELECT source_sha256, count(DISTINCT url), count(DISTINCT user) FROM fetched JOIN ingested USING (id)
WHERE fault IS NULL AND url IS NOT NULL GROUP BY 1
HAVING count(DISTINCT url) >= {ADDRESSES} AND count(DISTINCT user) >= {USERS} ORDER BY 2 DESC, 1"""


def photos(root: Path) -> duckdb.DuckDBPyConnection:
    """A database with the views TABLES of the finished stages, and

    - chosen, judged: of each candidate, its own fate, and its own label decision, with the concept;
    - dropped: what the stages dropped, a row for each record or photo: number (of the stage), stage, row, id (NULL for
      what could not be read), reason, detail. Its sum is what `status` says.
    """
    database = tables(root, TABLES)
    database.execute(JUDGED)
    database.execute("CREATE TEMP VIEW dropped AS " + "\nUNION ALL\n".join(_drops(database, root)))
    return database


def shared_images(listed: Sequence[Path], index: Sequence[Path]) -> list[str]:
    """Sentences on images that many URLs of several users have, as a host sends them in place of photos, of tables of
    rows and of fetched images."""
    database = duckdb.connect()
    for name, paths in (("ingested", listed), ("fetched", index)):
        _view(database, name, paths, TABLES[name][2])
    same = database.execute(SAME).fetchall()
    return [
        f"{urls:,} URLs of {users:,} users have one image, which may stand for no image. If so: "
        f"--set fetch.placeholders=[{digest}]"
        for digest, urls, users in same
    ]


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
            name = {"fate": "chosen", "decision": "judged"}.get(column, f"of_{number}_{nth}")
            if not column:
                continue
            if name not in ("chosen", "judged"):
                _view(database, name, _files(root, stage, pattern), {**DROPPED, column: "VARCHAR"})
            later = f" AND id NOT IN ({LATER})" if name == "chosen" else ""
            reason = quoted(column)
            lost = f"{reason} NOT IN ('kept', 'background')"
            yield f"{place}, row, id, {reason} AS reason, detail FROM {name} WHERE {lost}{later}"
        if stage in UNKEPT and done_of(root, stage) is not None:
            yield UNKEPT[stage].format(number=number, stage=stage)


def dropped(root: Path, reasons: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Dropped photos in order of stages: {"stage", "reason", "id", "place" (path or URL), "detail"}.

    reasons: only these; none: all. Raises UnknownName.
    """
    database = photos(root)
    there = [reason for (reason,) in database.execute("SELECT DISTINCT reason FROM dropped").fetchall()]
    check_reasons(reasons, there, "dropped")
    # Later stages know the one record of an id that the filters kept.
    return _dicts(
        database,
        """SELECT stage, reason, d.id AS id, detail, coalesce(i.path, i.url, p.path, p.url) AS place FROM dropped d
        LEFT JOIN ingested i ON i.row = d.row LEFT JOIN passed p ON p.id = d.id
        WHERE list_contains(?, reason) ORDER BY number, d.row NULLS FIRST, d.id""",
        [list(reasons or there)],
    )


def dropped_text(rows: Sequence[Mapping[str, Any]], config: Config) -> str:
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
    pairs = dict.fromkeys((row["stage"], row["reason"]) for row in rows)
    lines += [f"{why} ({at}): {MEANING[at][why]}" for at, why in pairs if why in MEANING.get(at, ())]
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


TIMES = {"uploaded": " UTC", "until": " UTC", "taken": " on the camera's clock"}
NAMES = {"uploaded": "date", "taken": "date taken", "shown": "picture"}  # for people: own photos were never uploaded
OWN = ("stage", "outcome", "row")  # of an event: on its first line, or of no use to a person
LENGTH = {"year": 4, "month": 7, "day": 10}  # characters of a date that are known


def trace(root: Path, id_: str) -> dict[str, Any]:
    """`history`, without tokens of addresses."""
    whole = history(root, id_)
    for event in whole["events"]:
        event |= {key: without_secrets(value) for key, value in event.items() if isinstance(value, str)}
    return whole


def history(root: Path, id_: str) -> dict[str, Any]:
    """One photo's history: {"id", "events": [{"stage", "outcome", …columns of its row}], "ended": a sentence}.

    id_: an id, also that in a release, or the path, file name or URL of a photo. Raises UnknownName for what no stage
    has read, and for a file name of several photos.
    """
    released = released_ids(root)
    id_ = id_.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    database = photos(root)
    id_ = next((own for own, name in released.items() if name == id_), None) or _id_of(root, database, id_)
    events: list[dict[str, Any]] = []
    either_id = [id_]
    for name, folder in ((name, folder_of(root, name)) for name in STAGES):
        if not folder.is_dir():
            break
        done_of(root, name)  # refuses what another release wrote
        if name == "publish":  # a release, and what later stages make of it, have its own ids
            either_id = list(dict.fromkeys((id_, released.get(id_, id_))))
        for pattern, column in STAGES[name].records:
            for path in sorted(folder.glob(pattern)):
                for own_id in either_id:
                    alias = {"released_id": own_id} if own_id != id_ else {}
                    events += [
                        {"stage": name, "outcome": _outcome(row, column), **alias, **_details(row)}
                        for row in _rows(database, path, own_id)
                    ]
    _add_attempts(root, events)
    if not events:
        raise UnknownName(
            f"No stage of {root} has read a photo with the id {id_!r}.",
            "Expected an id of stages/01_ingest/table, or the path, file name or URL of a photo.",
            "Records that could not be read have no id: see stages/01_ingest/rejects.",
        )
    return {"id": id_, "events": events, "ended": _ended(database, id_, events)}


def _add_attempts(root: Path, events: list[dict[str, Any]]) -> None:
    """Give the event of fetch what its address gave each time it was asked, by the store."""
    url = next((event["url"] for event in events if event["stage"] == "ingest" and "url" in event), None)
    with suppress(DriftlineError, OSError):
        folder = load(root / "driftline.yaml", kept_changes(root)).store.folder(root)
        if url is None or not (folder / "index.sqlite").is_file():
            return
        with open_store(folder) as store:
            attempts = [{"asked": iso(one.time), "got": one.fault or one.sha256} for one in past(store, url)]
        for event in events:
            if event["stage"] == "fetch" and attempts:
                event["attempts"] = attempts


def history_text(history: Mapping[str, Any]) -> str:
    """A history as lines for people; each fact once, where it is first known or changes."""
    lines: list[str] = []
    last: dict[str, Any] = {}
    for event in history["events"]:
        lines.append(f"{event['stage']:<10}{event['outcome']}")
        new = {key: value for key, value in event.items() if key not in OWN and (key not in last or last[key] != value)}
        lines += [f"{'':<12}{NAMES.get(key, key)}: {shown(key, value)}" for key, value in _dated(new).items()]
        last |= event
    return "\n".join([*lines, history["ended"]])


def _dated(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A date that was found in a path or a file's time is as precise as it is, and of no camera's clock."""
    try:
        extra = json.loads(facts["extra"])
        place, precision = extra.pop("date_from"), extra.pop("date_precision")
        date = str(shown("uploaded", facts["uploaded"])).removesuffix(TIMES["uploaded"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return dict(facts)
    hidden = {"extra", "until"} | ({"taken"} if place != "exif" else set())
    plain = {key: value for key, value in facts.items() if key not in hidden}
    plain["uploaded"] = f"{date[: LENGTH.get(precision, len(date))]} ({precision}, from {place})"
    return plain | ({"extra": json.dumps(extra)} if extra else {})


def shown(key: str, value: Any) -> Any:
    """Times as dates."""
    if key not in TIMES or not isinstance(value, int):
        return value
    try:
        return iso(value).replace("T", " ").replace("Z", TIMES[key])
    except (ValueError, OverflowError, OSError):
        return value


def _id_of(root: Path, database: duckdb.DuckDBPyConnection, name: str) -> str:
    """The id of the photo with this path, file name or URL; what is none of them, as given."""
    if database.execute("SELECT 1 FROM ingested WHERE id = ? LIMIT 1", [name]).fetchone():
        return name
    end, whole, ids = f"/{name.removeprefix('./')}", Path(name).absolute().as_posix(), set[str]()
    if name.strip("./"):
        same = "path = $whole OR ends_with('/' || path, $end) OR ends_with('/' || url, $end)"
        matches = database.execute(f"SELECT id FROM ingested WHERE {same}", {"whole": whole, "end": end})
        ids = {id_ for (id_,) in matches.fetchall()}
    # The detail of a file that could not be read begins with its path, or the end of its path.
    file = name.rpartition("/")[2]
    unread = "SELECT id, detail FROM dropped WHERE stage = 'ingest' AND id <> '' AND contains(detail, ?)"
    for id_, detail in database.execute(unread, [file or "/"]).fetchall():
        path, named, rest = detail.partition(file)
        path = f"/{path}{named}"
        if (path.endswith(end) or f"/{whole}".endswith(path)) and (not rest or rest.startswith((": ", " ("))):
            ids.add(id_)
    if len(ids) > 1:
        shown = ", ".join(sorted(ids)[:5])
        raise UnknownName(f"{len(ids)} photos of {root} are named {name!r}.", "Give one id.", f"The first: {shown}.")
    return ids.pop() if ids else name


def _rows(database: duckdb.DuckDBPyConnection, path: Path, id_: str) -> list[dict[str, Any]]:
    if "id" not in pq.read_schema(path).names:
        return []
    query, values = "SELECT * FROM read_parquet(?) WHERE id = ?", [glob.escape(str(path)), id_]
    if path.match("*ingest/rejects/*"):
        # A record that could not be read has no id, but its text is kept. The id is a whole field there: one of the
        # first two of a line with tabs (YFCC with and without line number), or a value of a record.
        query += " OR regexp_matches(detail, ?)"
        values.append(rf"^([^\t]*\t)?{re.escape(id_)}(\t|$)|: '?{re.escape(id_)}'?[,}}]")
    return _dicts(database, query, values)


def _dicts(database: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    names = [column[0] for column in database.execute(query, list(values)).description]
    return [dict(zip(names, row, strict=True)) for row in database.fetchall()]


def _outcome(row: Mapping[str, Any], column: str) -> str:
    if column == "fate":  # of one candidate list; a photo can be in several
        passed = row["fate"] in ("kept", "background")
        return f"kept as a candidate of {row['concept']}" if passed else f"{row['fate']} for {row['concept']}"
    reason = row.get(column)
    return "kept" if reason in (None, "kept") else f"dropped: {reason}"


def _details(row: Mapping[str, Any]) -> dict[str, Any]:
    hidden = {"id", "fate", "decision", "reason", "fault"}
    return {k: v for k, v in row.items() if k not in hidden and v is not None}


def _ended(database: duckdb.DuckDBPyConnection, id_: str, events: Sequence[Mapping[str, Any]]) -> str:
    """How it ended, by the view `dropped`."""
    last, outcome = str(events[-1]["stage"]), str(events[-1]["outcome"])
    if last == "publish" and outcome == "kept":
        return "It is in the release."
    # Where filter kept it, another record with this id was dropped.
    query = "SELECT stage, reason FROM dropped WHERE id = ? AND number >= ? AND NOT (stage = 'filter' AND ?)"
    values = [id_, list(STAGES).index(last), outcome == "kept"]
    if row := database.execute(f"{query} ORDER BY number LIMIT 1", values).fetchone():
        return f"It was dropped at {row[0]}: {row[1]}."
    if outcome.startswith("dropped"):  # a record without an id
        return f"It was dropped at {last}: {outcome.removeprefix('dropped: ')}."
    return f"It was last seen at {last}: later stages have not run."
