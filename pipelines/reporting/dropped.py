"""What was dropped: photos with stage, reason, detail and place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.errors import UnknownName, did_you_mean
from curate.images.phone_formats import HEIC_NEEDS
from curate.retrieval.retrieve import FATES
from curate.sources.folder import Folder
from pipelines.config.schema import Config
from pipelines.stage import parts_of
from pipelines.stage_folder import done_of, folder_of
from pipelines.stages import STAGES

KEPT = ("kept", "background")  # values of columns that name the reason of a drop
SHOWN = 200  # lines for people
ALL_DATES = ("exif", "sidecar", "path", "file")


def dropped(root: Path, stage: str | None = None, reason: str | None = None) -> list[dict[str, Any]]:
    """Dropped photos in order of stages: {"stage", "reason", "id", "place" (path or URL), "detail"}.

    stage, reason: only these. Photos that no concept retrieved have no row. Raises UnknownName.
    """
    if stage is not None:
        STAGES.entry(stage)
    found = [
        {"stage": name, "reason": row[column], "id": row.get("id"), "detail": row.get("detail")}
        for name in STAGES
        if stage in (None, name)
        for path, column in _tables(root, name)
        for row in _rows(path, column)
    ] + (_not_published(root) if stage in (None, "publish") else [])
    known = {row["reason"] for row in found}
    if reason is not None and reason not in known:
        raise UnknownName(
            f"No photo was dropped for the reason {reason!r}.",
            did_you_mean(reason, known),
            f"Available: {', '.join(sorted(known)) or 'none'}.",
        )
    found = [row for row in found if reason in (None, row["reason"])]
    places = _places(root, [row["id"] for row in found if row["id"] is not None])
    return [{**row, "place": places.get(row["id"])} for row in found]


def text(rows: Sequence[Mapping[str, Any]], config: Config) -> str:
    """The list for people, and where dates were looked for."""
    lines = []
    for row in rows[:SHOWN]:
        place = row["place"] or row["id"] or ""
        detail = f"  ({' '.join(str(row['detail']).split())[:120]})" if row["detail"] else ""
        lines.append(f"{row['stage']:<10}{row['reason']:<24}{place}{detail}")
    if len(rows) > SHOWN:
        lines.append(f"… and {len(rows) - SHOWN:,} more: --json lists all, --stage and --reason select.")
    source = config.collection
    if isinstance(source, Folder) and any(row["reason"] == "no_upload_date" for row in rows):
        lines.append(f"Dates were looked for in: {', '.join(source.dates)}.")
        if left := [place for place in ALL_DATES if place not in source.dates]:
            wanted = ", ".join([*source.dates, *left])
            lines.append(f"Not in: {', '.join(left)}. To look there, too: --set 'collection.dates=[{wanted}]'")
    if any(row["reason"] == "needs_heic_extra" for row in rows):
        lines.append(f"{HEIC_NEEDS}. Then: driftline run DIR --from ingest")
    return "\n".join(lines) or "No photo was dropped."


def _tables(root: Path, stage: str) -> list[tuple[Path, str]]:
    """The tables of a stage that name reasons, and the column."""
    folder = folder_of(root, stage)
    named = [(pattern, column) for pattern, column in STAGES[stage].records if column]
    return [(path, column) for pattern, column in named for path in sorted(folder.glob(pattern))]


def _rows(path: Path, column: str) -> list[dict[str, Any]]:
    file = pq.ParquetFile(path)
    names = [name for name in ("id", column, "detail") if name in file.schema_arrow.names]
    if column not in names:
        return []
    table = file.read(names)
    kept = pc.is_in(table[column], value_set=pa.array(KEPT))
    rows: list[dict[str, Any]] = table.filter(pc.and_(pc.is_valid(table[column]), pc.invert(kept))).to_pylist()
    if column != "fate":
        return rows
    # A photo can be in several lists of candidates: it is dropped if none keeps it, for its best reason.
    chosen = set(table["id"].filter(kept).to_pylist())
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["id"] not in chosen and (row["id"] not in best or _rank(row) < _rank(best[row["id"]])):
            best[row["id"]] = row
    return list(best.values())


def _rank(row: Mapping[str, Any]) -> int:
    return FATES.index(row["fate"]) if row["fate"] in FATES else len(FATES)


def _not_published(root: Path) -> list[dict[str, Any]]:
    """Accepted images that are not in the release; which reason each had is known if all had the same."""
    done = done_of(root, "publish")
    accepted = folder_of(root, "tally") / "verdicts.parquet"
    if done is None or not accepted.is_file():
        return []
    verdicts = pq.ParquetFile(accepted).read(["id", "verdict"])
    published = pq.ParquetFile(folder_of(root, "publish") / "release" / "metadata.parquet").read(["id"])["id"]
    kept = pc.match_substring_regex(verdicts["verdict"], r"\Akept\z")
    left = pc.and_(kept, pc.invert(pc.is_in(verdicts["id"], value_set=published)))
    reason = " or ".join(done["counts"]["dropped"])
    ids = dict.fromkeys(verdicts["id"].filter(left).to_pylist())
    return [{"stage": "publish", "reason": reason, "id": id_, "detail": None} for id_ in ids]


def _places(root: Path, ids: Sequence[str]) -> dict[str, str]:
    """Id → path or URL."""
    wanted = pa.array(ids, pa.string())
    places: dict[str, str] = {}
    for part in parts_of(folder_of(root, "ingest")):
        table = pq.ParquetFile(part).read(["id", "path", "url"])
        table = table.filter(pc.is_in(table["id"], value_set=wanted))
        place = pc.coalesce(table["path"], table["url"])
        places |= {id_: where for id_, where in zip(table["id"].to_pylist(), place.to_pylist(), strict=True) if where}
    return places
