"""What a run knows of its judges, of its prompts, and of the images that people should answer next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.parsing import rows_of
from driftline.curate.validation.judging.advice import most_helpful, weakest
from driftline.curate.validation.judging.opinions import OPINIONS
from driftline.curate.validation.judging.trust import distrusted
from driftline.pipelines.annotation.batches import opinions_file
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of


@dataclass(frozen=True)
class Advice:
    """Tables for people; each is empty where the run has nothing to say."""

    judges: list[dict[str, Any]]
    """agreement of each judge with people in each bucket, as in guarantee.json"""
    weakest: list[dict[str, Any]]
    """concepts and buckets, the lowest precision first"""
    next: list[dict[str, Any]]
    """images that people should answer next"""


def advice(context: Context, n: int = 20) -> Advice:
    """The advice for a run folder, as far as its stages are done. n: images to answer next."""
    ask, tally = folder_of(context.root, "ask"), folder_of(context.root, "tally")
    file = opinions_file(context)
    opinions = OPINIONS.empty_table() if file is None else pq.read_table(file)
    judges: list[dict[str, Any]] = []
    if (tally / "guarantee.json").is_file():
        judges = read_json(tally / "guarantee.json")["judges"]
    verdicts = tally / "verdicts.parquet"
    helpful = []
    if len(opinions) and (ask / "items.parquet").is_file():
        items = pq.read_table(ask / "items.parquet", columns=["id", "bucket", "concept"]).to_pylist()
        helpful = most_helpful(items, opinions, answered(context), n, distrusted(judges), context.config.seed)
    return Advice(judges, weakest(pq.read_table(verdicts)) if verdicts.is_file() else [], helpful)


def answered(context: Context) -> set[str]:
    """Images with a valid answer of a person."""
    path = folder_of(context.root, "tally") / "answers.parquet"
    if not path.is_file():
        return set()
    return {id_ for id_, fault in rows_of(pq.read_table(path), "id", "fault") if fault is None}


def said_of(context: Context) -> tuple[dict[tuple[str, str], str], dict[str, list[str]]]:
    """((concept, id) → verdict, id → what each judge says of it, "JUDGE: LABELS")."""
    path, file = folder_of(context.root, "tally") / "verdicts.parquet", opinions_file(context)
    verdicts = {}
    if path.is_file():
        rows = rows_of(pq.read_table(path), "concept", "id", "verdict")
        verdicts = {(concept, id_): verdict.replace("_", " ") for concept, id_, verdict in rows}
    opinions: dict[str, list[str]] = {}
    table: pa.Table = OPINIONS.empty_table() if file is None else pq.read_table(file)
    for id_, judge, labels, fault in rows_of(table, "id", "judge", "labels", "fault"):
        opinions.setdefault(id_, []).append(f"{judge}: {', '.join(labels) if fault is None else fault}")
    return verdicts, opinions
