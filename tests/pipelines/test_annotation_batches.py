"""`driftline mturk`: from a batch through the API to a release, and money that is not spent by mistake."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.mturk_server import Turk, serve

from curate.core.atomic_io import read_json
from curate.core.errors import BadConfig, MissingFile
from curate.core.run_log import RunLog
from curate.validation.mturk import Journal
from pipelines.annotation.batches import mturk_action
from pipelines.config.loader import load
from pipelines.runner import run
from pipelines.stage import Context
from pipelines.stage_folder import folder_of


@pytest.fixture
def context(journey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A run that waits for answers, whose images are on the web."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    out = tmp_path / "run"
    skip = ("store", "07_ask", "08_tally", "09_publish", "answers", "runs", "report", "stream", "world")
    shutil.copytree(journey, out, ignore=shutil.ignore_patterns(*skip))
    (out / "world").symlink_to(journey / "world")
    changes = [
        "validation.image_base_url=https://images.example",
        "retrieve.per_class=5",
        "retrieve.negative_ratio=0.2",
    ]
    made = Context(out, load(out / "driftline.yaml", changes), RunLog(quiet=True))
    run(made, until="ask")
    return made


def test_a_batch_goes_through_the_api_into_a_release(context: Context) -> None:
    ask = folder_of(context.root, "ask")
    items = pq.read_table(ask / "items.parquet")
    expected = dict(zip(items["id"].to_pylist(), items["concept"].to_pylist(), strict=True))
    batch = read_json(ask / "batch.json")
    with serve(Turk()) as turk:
        assert mturk_action(context, "publish", endpoint=turk.endpoint)["published"] == len(batch["items"])
        for item, hit in Journal(context.root / "mturk" / "sandbox.jsonl").hits().items():
            concept = expected[batch["items"][item]]
            for worker in ("ann", "bob", "eve"):
                turk.work(hit, worker, "none" if concept == "background" else concept)
        assert mturk_action(context, "status", endpoint=turk.endpoint)["submitted"] == 3 * len(batch["items"])
        assert mturk_action(context, "collect", endpoint=turk.endpoint)["answers"] == 3 * len(batch["items"])
        assert mturk_action(context, "approve", endpoint=turk.endpoint) == {
            "approved": 3 * len(batch["items"]),
            "rejected": 0,
        }
    run(context)
    verdicts = pq.read_table(folder_of(context.root, "tally") / "verdicts.parquet")["verdict"].to_pylist()
    assert verdicts.count("kept") > 0.9 * len(verdicts)
    assert (folder_of(context.root, "publish") / "release" / "SHA256SUMS").is_file()


def test_the_estimate_needs_no_account(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    told = mturk_action(context, "estimate")
    assert told["cost_usd"] == round(told["images"] * 3 * 0.03, 2)


def test_production_without_a_limit_publishes_nothing(context: Context) -> None:
    with serve(Turk()) as turk:
        with pytest.raises(BadConfig, match="--max-spend is None"):
            mturk_action(context, "publish", production=True, endpoint=turk.endpoint)
        assert not turk.hits


def test_a_run_that_asked_nothing_says_what_to_do(tmp_path: Path, journey: Path) -> None:
    shutil.copy(journey / "driftline.yaml", tmp_path)
    empty = Context(tmp_path, load(tmp_path / "driftline.yaml"), RunLog(quiet=True))
    with pytest.raises(MissingFile, match="has no batch yet"):
        mturk_action(empty, "estimate")
