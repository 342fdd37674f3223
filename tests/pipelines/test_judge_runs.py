"""A run with judges: the batch asks people less, a drifting judge is caught, and the card counts what nobody saw."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.vision_server import vision_server

from driftline.curate.core.atomic_io import read_json, write_text
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.release.packing import FetchedImages
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo.draw import CONCEPTS
from driftline.pipelines.demo.workers import answer
from driftline.pipelines.demo.world import World
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "people_and_judges.py"


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
    shown = World(folder / "world", 0).truth()
    return {id_: frozenset(t for t in things if t in CONCEPTS) for id_, things in shown.items()}


def context_of(folder: Path, *changes: str) -> Context:
    return Context(folder, load(folder / "driftline.yaml", changes), RunLog(folder / "log.jsonl", quiet=True))


def people_answer(folder: Path, batch: Path, name: str) -> int:
    """Perfect people answer a batch; returns how many images they were asked."""
    truth, facts = truth_of(folder), read_json(batch / "batch.json")
    rows = list(csv.DictReader(io.StringIO((batch / "batch.csv").read_text(encoding="utf-8"))))
    said = {item: truth[id_] for item, id_ in facts["items"].items()}
    write_text(folder / "answers" / name, answer(facts, rows, said, list(CONCEPTS), seed=0, error=0.0))
    return len(rows)


def waits(entries: list[dict[str, Any]]) -> bool:
    return any("because" in entry for entry in entries)


def test_a_judge_that_is_worse_on_old_photos_is_caught_and_no_label_is_its_alone(folder: Path) -> None:
    truth = truth_of(folder)
    items = pq.read_table(folder_of(folder, "bucket") / "members.parquet")
    bucket = dict(rows_of(items, "id", "bucket"))
    images = FetchedImages.open(
        folder_of(folder, "fetch"), folder_of(folder, "bucket") / "members.parquet", set(bucket)
    )
    id_of = {images.plain(id_)[0]: id_ for id_ in bucket}
    oldest = min(pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet")["bucket"].to_pylist())

    def sees(image: bytes) -> dict[str, Any]:
        id_ = id_of[image]
        right = sorted(truth[id_]) or [NONE]
        if bucket[id_] == oldest and rng_for(0, "drift", id_).random() < 0.5:
            right = [c for c in CONCEPTS if c not in right][:1]
        return {"labels": right, "sensitive": False, "confidence": 0.98}

    with vision_server(sees=sees) as vision:
        entries = [{"name": "vlm", "url": vision.url, "model": "vision-1"}]
        changes = [
            f"validation.judges={json.dumps(entries)}", "validation.skip_people=confident",
            "validation.audit_share=0.3", "validation.workers=1", "validation.agree=1",
            "store.use=false",  # which has the answers of the demo's people
        ]  # fmt: skip
        context = context_of(folder, *changes)
        assert waits(run(context))
        everything = set(pq.read_table(folder_of(folder, "ask") / "items.parquet")["id"].to_pylist())
        first = people_answer(folder, folder_of(folder, "ask"), "one.csv")
        assert 0.3 < first / len(everything) < 0.45
        assert waits(run(context))  # the oldest bucket is asked again
        second = people_answer(folder, folder / "batches" / "round_02", "two.csv")
        run(context)
        assert len(vision.bodies) == len(everything)  # no image was asked twice

    tallied = folder_of(folder, "tally")
    table = read_json(tallied / "guarantee.json")["judges"]
    assert [(row["judge"], row["bucket"]) for row in table if row["worse"]] == [("vlm (vision-1)", oldest)]
    asked = {id_ for f in (folder_of(folder, "ask"), folder / "batches" / "round_02")
             for id_ in read_json(f / "batch.json")["items"].values()}  # fmt: skip
    assert {id_ for id_ in everything if bucket[id_] == oldest} <= asked
    assert first + second < 0.7 * len(everything)
    verdicts = list(rows_of(pq.read_table(tallied / "verdicts.parquet"), "id", "concept", "verdict"))
    kept = [(id_, concept) for id_, concept, verdict in verdicts if verdict == "kept"]
    assert all(truth[id_] == (frozenset() if c == BACKGROUND else {c}) for id_, c in kept)
    unseen = sum(id_ not in asked for id_, _ in kept)
    assert unseen > 0
    card = (folder_of(folder, "publish") / "release" / "README.md").read_text()
    assert f"No person saw {unseen:,} of the {len(kept):,} accepted labels" in card


def test_judges_save_60_percent_of_the_questions_on_the_photo_world(journey: Path) -> None:
    """The example of docs/guides/judges.md, with as many simulated judges as its sentence names."""
    spec = importlib.util.spec_from_file_location("people_and_judges", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found = [example.compare(*example.world(journey, seed)) for seed in range(16)]
    assert np.mean([one["share"] for one in found]) <= 0.4
    assert max(one["share"] for one in found) < 0.5
    assert all(one["precision"] >= one["precision_alone"] - 0.005 for one in found), "three labels of 700"
    assert all(one["caught"] == [["simulated", 1]] for one in found)
