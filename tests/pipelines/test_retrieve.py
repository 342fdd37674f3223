"""The retrieve stage: rules of our own on a whole run, a limit on memory."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context, parts_of
from driftline.pipelines.run.state import folder_of


@pytest.fixture
def retrieved(journey: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run the stage again with other settings; returns the run folder."""

    def again(*changes: str) -> Path:
        out = tmp_path / "run"
        shutil.copytree(journey, out, ignore=shutil.ignore_patterns("runs", "stream", "report", "world"), symlinks=True)
        (out / "world").symlink_to(journey / "world")
        changed = load(out / "driftline.yaml", changes)
        run(Context(out, changed, RunLog(out / "log.jsonl", quiet=True)), until="retrieve")
        return out

    return again


def rows_of(folder: Path, fate: str = "kept") -> list[dict[str, object]]:
    table = pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet", filters=[("fate", "=", fate)])
    return list(table.to_pylist())


def test_no_uploader_has_more_than_the_cap(retrieved) -> None:  # type: ignore[no-untyped-def]
    folder = retrieved("retrieve.per_user=1")
    table = pq.read_table(parts_of(folder_of(folder, "filter")), columns=["id", "user"])
    user = dict(zip(table["id"].to_pylist(), table["user"].to_pylist(), strict=True))
    kept = Counter((r["bucket"], r["concept"], user[r["id"]]) for r in rows_of(folder))
    assert max(kept.values()) == 1
    assert rows_of(folder, "user_cap")


def test_margins_parts_and_copies_have_their_fates_and_the_counts_balance(retrieved) -> None:  # type: ignore[no-untyped-def]
    folder = retrieved("retrieve.margin=0.05", "retrieve.strata=4", "retrieve.near_copy_cosine=0.995")
    fates = Counter(
        pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet", columns=["fate"])["fate"].to_pylist()
    )
    assert fates["small_margin"] > 0
    assert fates["near_copy"] > 0
    counts = read_json(folder_of(folder, "retrieve") / "done.json")["counts"]
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())


def test_a_prompt_that_is_cut_is_said(retrieved) -> None:  # type: ignore[no-untyped-def]
    long = "a photo of a bus " + "beside a car " * 20
    concepts = json.dumps([{"name": "bus", "prompts": [long]}])
    folder = retrieved(f"retrieve.concepts={concepts}")
    assert "does not read the end of a prompt" in (folder / "log.jsonl").read_text()


def test_two_concepts_with_the_same_prompts_are_refused_before_any_work(journey: Path) -> None:
    same = json.dumps(["a bus", {"name": "coach", "prompts": ["bus"], "templates": ["a {}"]}])
    with pytest.raises(BadConfig, match="'a bus' and 'coach' have the same prompts"):
        load(journey / "driftline.yaml", [f"retrieve.concepts={same}"])


def test_a_file_of_concepts_that_is_not_there_is_named(journey: Path) -> None:
    with pytest.raises(Exception, match=r"There is no file .*nowhere\.yaml"):
        load(journey / "driftline.yaml", ["retrieve.concepts=nowhere.yaml"])
