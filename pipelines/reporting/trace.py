"""One photo's whole fate: where it came in, where it left and why, bucket, scores, votes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.errors import UnknownName
from pipelines.runner import folder_of
from pipelines.stages import STAGES

LOOK: dict[str, Sequence[tuple[str, str]]] = {
    "ingest": (("table/*.parquet", "kept"), ("rejects/*.parquet", "dropped")),
    "filter": (("rejects/*.parquet", "dropped"), ("table/*.parquet", "kept")),
    "fetch": (("index.parquet", "fault"),),
    "bucket": (("members.parquet", "kept"), ("rejects.parquet", "dropped")),
    "embed": (("metadata/*.parquet", "fault"),),
    "retrieve": (("candidates.parquet", "fate"),),
    "ask": (("items.parquet", "kept"),),
    "tally": (("answers.parquet", "kept"), ("verdicts.parquet", "verdict")),
    "publish": (("release/metadata.parquet", "kept"),),
}


def trace(root: Path, id_: str) -> dict[str, Any]:
    """{"id", "events": [{"stage", "outcome", …facts}], "ended": sentence}. Raises UnknownName for an id never met."""
    events: list[dict[str, Any]] = []
    for stage in STAGES:
        folder = folder_of(root, stage)
        if not folder.is_dir():
            break
        for pattern, how in LOOK[stage]:
            for path in sorted(folder.glob(pattern)):
                events += [{"stage": stage, "outcome": _outcome(row, how), **_facts(row)} for row in _rows(path, id_)]
    if not events:
        raise UnknownName(
            f"No stage of {root} has met the id {id_!r}.",
            "Expected an id as in stages/01_ingest/table.",
            "Lines that could not be read have no id: see stages/01_ingest/rejects.",
        )
    return {"id": id_, "events": events, "ended": _ended(events)}


def _rows(path: Path, id_: str) -> list[dict[str, Any]]:
    schema = pq.read_schema(path)
    if path.parent.name == "rejects" and path.parent.parent.name.endswith("ingest"):
        # A row that could not be read has no id, but its text is kept. The id is a whole field there: one of the first
        # two of a line with tabs (YFCC with and without line number), or a value of a record.
        table = pq.read_table(path)
        whole = rf"^([^\t]*\t)?{re.escape(id_)}(\t|$)|: '?{re.escape(id_)}'?[,}}]"
        hit = pc.or_kleene(pc.equal(table["id"], id_), pc.match_substring_regex(table["detail"], whole))
        found: list[dict[str, Any]] = table.filter(pc.fill_null(hit, False)).to_pylist()
        return found
    if "id" not in schema.names:
        return []
    rows: list[dict[str, Any]] = pq.read_table(path, filters=[("id", "=", id_)]).to_pylist()
    return rows


def _outcome(row: dict[str, Any], how: str) -> str:
    if how == "dropped":
        return f"dropped: {row['reason']}"
    if how == "fault":
        return "kept" if row["fault"] is None else f"dropped: {row['fault']}"
    if how == "fate":
        kept = row["fate"] in ("kept", "background")
        return f"kept as a candidate of {row['concept']}" if kept else f"{row['fate']} for {row['concept']}"
    if how == "verdict":
        return "kept" if row["verdict"] == "kept" else f"dropped: {row['verdict']}"
    return "kept"


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    skip = {"id", "fate", "verdict", "reason", "fault"}
    return {k: v for k, v in row.items() if k not in skip and v is not None}


def _ended(events: Sequence[dict[str, Any]]) -> str:
    last = events[-1]
    if last["stage"] == "publish":
        return "It is in the release."
    if last["outcome"].startswith("dropped"):
        return f"It left at {last['stage']}: {last['outcome'].removeprefix('dropped: ')}."
    if last["stage"] == "retrieve" and not any(e["outcome"].startswith("kept as") for e in events):
        return "It left at retrieve: no concept took it."
    if last["stage"] == "embed":
        return "It left after embed: no concept retrieved it, its bucket is unlabelled, or retrieve has not run."
    return f"Its last trace is at {last['stage']}; it was not chosen later, or later stages have not run."
