"""One photo's history: where it entered, where it was dropped and why, its bucket, scores and votes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.errors import DriftlineError, UnknownName
from driftline.curate.core.outside.secrets import without_secrets
from driftline.curate.core.times.dates import iso
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import history as past
from driftline.pipelines.config.loader import load
from driftline.pipelines.reporting.photos import photos
from driftline.pipelines.run.state import done_of, folder_of, kept_changes
from driftline.pipelines.stages import STAGES

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
                        for row in _rows(path, own_id)
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


def text(history: Mapping[str, Any]) -> str:
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
        found = database.execute(f"SELECT id FROM ingested WHERE {same}", {"whole": whole, "end": end})
        ids = {id_ for (id_,) in found.fetchall()}
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


def _rows(path: Path, id_: str) -> list[dict[str, Any]]:
    # pq.read_table and pc.equal with a Python value would import pandas.
    file = pq.ParquetFile(path)
    own_id = rf"\A{re.escape(id_)}\z"
    if path.parent.name == "rejects" and path.parent.parent.name.endswith("ingest"):
        # A record that could not be read has no id, but its text is kept. The id is a whole field there: one of the
        # first two of a line with tabs (YFCC with and without line number), or a value of a record.
        table = file.read()
        whole_field = rf"^([^\t]*\t)?{re.escape(id_)}(\t|$)|: '?{re.escape(id_)}'?[,}}]"
        match = pc.or_kleene(
            pc.match_substring_regex(table["id"], own_id), pc.match_substring_regex(table["detail"], whole_field)
        )
        unread: list[dict[str, Any]] = table.filter(match).to_pylist()
        return unread
    rows: list[dict[str, Any]] = []
    for group in range(file.num_row_groups if "id" in file.schema_arrow.names else 0):
        match = pc.match_substring_regex(file.read_row_group(group, ["id"])["id"], own_id)
        if pc.any(match).as_py():
            rows += file.read_row_group(group).filter(match).to_pylist()
    return rows


def _outcome(row: Mapping[str, Any], column: str) -> str:
    if column == "fate":  # of one candidate list; a photo can be in several
        passed = row["fate"] in ("kept", "background")
        return f"kept as a candidate of {row['concept']}" if passed else f"{row['fate']} for {row['concept']}"
    reason = row.get(column)
    return "kept" if reason in (None, "kept") else f"dropped: {reason}"


def _details(row: Mapping[str, Any]) -> dict[str, Any]:
    hidden = {"id", "fate", "verdict", "reason", "fault"}
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
