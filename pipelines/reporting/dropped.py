"""What was dropped: photos with stage, reason, detail and place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.outside.image_kinds import HEIC_NEEDS, JXL_NEEDS
from driftline.curate.core.parsing import best_of
from driftline.curate.retrieval.retrieve import FATES
from driftline.curate.sources.folder import Folder
from driftline.curate.validation.answers.verdicts import BEST
from driftline.pipelines.config.schema import Config
from driftline.pipelines.run.stage import Counts, check_reasons, parts_of
from driftline.pipelines.run.state import done_of, folder_of
from driftline.pipelines.stages import STAGES

KEPT = r"\A(kept|background)\z"  # values of columns that name the reason of a drop
ORDERS = {"fate": FATES, "verdict": BEST}  # columns that may have several values for a photo: the best one counts
SHOWN = 200  # lines for people
ALL_DATES = ("exif", "sidecar", "path", "file")


def dropped(root: Path, reasons: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Dropped photos in order of stages: {"stage", "reason", "id", "place" (path or URL), "detail"}.

    reasons: only these; none: all. Raises UnknownName.
    """
    rows = [
        {"stage": name, "row": None, "detail": None, **row}
        for name in STAGES
        for table in drops(root, name)
        for row in table.to_pylist()
    ]
    check_reasons(reasons, {row["reason"] for row in rows}, "dropped")
    rows = [row for row in rows if not reasons or row["reason"] in reasons]
    return [
        {**{name: row[name] for name in ("stage", "reason", "id", "detail")}, "place": place}
        for row, place in zip(rows, _places(root, rows), strict=True)
    ]


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


def drops(root: Path, stage: str) -> Iterator[pa.Table]:
    """What a stage dropped, one row for each record or photo: tables with the columns reason, id (null for what could
    not be read) and maybe row and detail.

    This is the one list of drops: `dropped`, `trace` and `browse` read it, and its sum is what `status` says.
    """
    folder, _ = folder_of(root, stage), done_of(root, stage)  # refuses what another release wrote
    for pattern, column in STAGES[stage].records:
        for path in sorted(folder.glob(pattern)) if column else ():
            file = pq.ParquetFile(path)
            names = [name for name in ("row", "id", column, "detail") if name in file.schema_arrow.names]
            if column not in names:
                continue
            table = file.read(names)
            if column in ORDERS:
                table = best_of(table, column, ORDERS[column])
            lost = pc.invert(pc.match_substring_regex(pc.fill_null(table[column], "kept"), KEPT))
            lost_rows = _without(table.filter(lost), asked_later(root) if stage == "retrieve" else None)
            yield lost_rows.rename_columns({column: "reason"})
    if stage == "retrieve" and (folder / "candidates.parquet").is_file():
        yield from _unlisted(root, pq.ParquetFile(folder / "candidates.parquet").read(["id", "bucket"]))
    if stage == "embed" and done_of(root, "embed") is not None:
        named = [pq.ParquetFile(part).read(["id"]) for part in sorted(folder.glob("metadata/*.parquet"))]
        members = pq.ParquetFile(folder_of(root, "bucket") / "members.parquet").read(["id"])
        lost = _without(members, pa.concat_tables(named)["id"] if named else None)
        yield lost.append_column("reason", pa.array(["no_vector"] * len(lost), pa.string()))


def _unlisted(root: Path, candidates: pa.Table) -> Iterator[pa.Table]:
    """The vectors that are in no list of candidates; every labelled bucket has candidates."""
    labelled = pc.unique(candidates["bucket"])
    for part in sorted(folder_of(root, "embed").glob("metadata/*.parquet")):
        table = pq.ParquetFile(part).read(["id", "bucket", "fault"])
        table = _without(table.filter(pc.is_null(table["fault"])), candidates["id"])
        inside = pc.is_in(table["bucket"], value_set=labelled)
        yield pa.table({"id": table["id"], "reason": pc.if_else(inside, "not_retrieved", "unlabelled_bucket")})


def _without(table: pa.Table, ids: pa.ChunkedArray | None) -> pa.Table:
    """The rows whose id is not among `ids`."""
    if ids is None or not len(ids):
        return table
    return table.filter(pc.invert(pc.is_in(table["id"], value_set=ids.combine_chunks())))


def asked_later(root: Path) -> pa.ChunkedArray | None:
    """Ids of the candidates beyond the first batch that later rounds asked: `retrieve` did not drop them. None: there
    were no later rounds."""
    path = folder_of(root, "tally") / "asked.parquet"
    if not path.is_file():
        return None
    asked = pq.ParquetFile(path).read(["id", "round"])
    return asked["id"].filter(pc.greater(asked["round"], pa.scalar(1, pa.int32())))


def counts_of(root: Path, stage: str) -> dict[str, Any] | None:
    """Counts of a finished stage in photos, see `Counts`; None if it is not finished."""
    if (done := done_of(root, stage)) is None:
        return None
    counts: dict[str, Any] = done["counts"]
    later = asked_later(root) if stage in ("retrieve", "ask") else None
    if later is None or not len(later):
        return counts
    table = pq.ParquetFile(folder_of(root, "retrieve") / "candidates.parquet").read(["id", "fate"])
    table = table.filter(pc.is_in(table["id"], value_set=later.combine_chunks()))
    fates = Counter(best_of(table, "fate", FATES)["fate"].to_pylist())
    del fates["kept"], fates["background"]  # since these rounds, photos came or left: the first batch has them now
    if stage == "ask":
        return Counts(counts["read"] + fates.total(), counts["kept"] + fates.total(), counts["dropped"]).plain()
    return Counts(counts["read"], counts["kept"] + fates.total(), Counter(counts["dropped"]) - fates).plain()


def _places(root: Path, rows: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Path or URL of each dropped record, by its row of the source; later stages know the one record of an id that the
    filters kept."""
    by_row: dict[Any, str] = {}
    by_id: dict[Any, str] = {}
    numbers = pa.array([row["row"] for row in rows if row["row"] is not None], pa.int64())
    ids = pa.array([row["id"] for row in rows if row["id"] is not None], pa.string())
    for stage, key, wanted, places in (("ingest", "row", numbers, by_row), ("filter", "id", ids, by_id)):
        for part in parts_of(folder_of(root, stage)):
            table = pq.ParquetFile(part).read([key, "path", "url"])
            table = table.filter(pc.is_in(table[key], value_set=wanted))
            place = pc.coalesce(table["path"], table["url"])
            places.update(zip(table[key].to_pylist(), place.to_pylist(), strict=True))
    return [by_row.get(row["row"]) or by_id.get(row["id"]) for row in rows]
