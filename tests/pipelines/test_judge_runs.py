"""A run with judges: the batch asks people less, a drifting judge is caught, and the card counts what nobody saw."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.vision_server import Vision, vision_server

from curate.core.atomic_io import read_json, write_text
from curate.core.errors import Waiting
from curate.core.parsing import rows_of
from curate.core.run_log import RunLog
from curate.core.seeding import rng_for
from curate.validation.batches import NONE
from pipelines.config.loader import load
from pipelines.demo.draw import CONCEPTS
from pipelines.demo.workers import answer
from pipelines.demo.world import World
from pipelines.runner import run
from pipelines.stage import Context
from pipelines.stage_folder import folder_of


@pytest.fixture
def folder(journey: Path, tmp_path: Path) -> Path:
    """A run before `ask`."""
    out = tmp_path / "run"
    skip = ("07_ask", "08_tally", "09_publish", "answers", "runs", "report", "stream", "world", "audit")
    shutil.copytree(journey, out, ignore=shutil.ignore_patterns(*skip))
    (out / "world").symlink_to(journey / "world")
    return out


def truth_of(folder: Path) -> dict[str, frozenset[str]]:
    """id → concepts that a photo really shows."""
    shown = World(folder / "world").truth() if hasattr(World, "truth") else {}
    return {id_: frozenset(t for t in things if t in CONCEPTS) for id_, things in shown.items()}


def context_of(folder: Path, *changes: str) -> Context:
    return Context(folder, load(folder / "driftline.yaml", changes), RunLog(folder / "log.jsonl", quiet=True))


def judges(vision: Vision, *names: str, **values: Any) -> str:
    entries = [{"name": n, "url": vision.url, "model": "vision-1", "instructions": n, **values} for n in names]
    return f"validation.judges={json.dumps([*entries, {'name': 'student', 'kind': 'student', 'each': 5}])}"


def people_answer(folder: Path, batch: Path, truth: dict[str, frozenset[str]], name: str) -> int:
    """Perfect people answer a batch; returns how many images they were asked."""
    facts = read_json(batch / "batch.json")
    rows = list(csv.DictReader(io.StringIO((batch / "batch.csv").read_text(encoding="utf-8"))))
    said = {item: truth[id_] for item, id_ in facts["items"].items()}
    write_text(folder / "answers" / name, answer(facts, rows, said, list(CONCEPTS), seed=0, error=0.0))
    return len(rows)
