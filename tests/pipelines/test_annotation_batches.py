"""`driftline prolific`: from a batch through the API to a release; no money is spent by mistake."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.console import handed, inside
from support.prolific_server import prolific_server

from driftline.curate.core.atomic_io import locked, read_json
from driftline.curate.core.errors import MissingFile
from driftline.curate.core.outside.s3 import S3
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.validation.asking.platforms import prolific_api as api
from driftline.curate.validation.asking.platforms.prolific_service import TOKEN
from driftline.pipelines.annotation import batches
from driftline.pipelines.annotation.batches import prolific_action
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of


@pytest.fixture
def context(journey: Path, tmp_path: Path) -> Context:
    """A run that waits for answers, whose images are on the web."""
    out = tmp_path / "run"
    skip = ("store", "07_ask", "08_tally", "09_publish", "answers", "runs", "report", "stream", "world")
    shutil.copytree(journey, out, ignore=shutil.ignore_patterns(*skip))
    (out / "world").symlink_to(journey / "world")
    changes = [
        "validation.image_base_url=https://images.example",
        f"buckets.unlabelled={list(range(9))}",  # two buckets stay; each image is asked for by ten requests
        "retrieve.per_class=3",
        "retrieve.background_share=0.34",
        "release.per_class=1",
    ]
    made = Context(out, load(out / "driftline.yaml", changes), RunLog(quiet=True))
    run(made, until="ask")
    return made


class Killed(BaseException):
    """The process is gone."""


def test_a_prolific_study_of_250_people_with_two_kills_becomes_a_release(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api, "POLL_SECONDS", 0.0)
    add, deadly = api.Journal.add, {"study", "published"}

    def dies(self: api.Journal, **entry: Any) -> None:
        """What Prolific did is not in the journal yet."""
        if "result" in entry and entry["step"] in deadly:
            deadly.remove(entry["step"])
            raise Killed
        add(self, **entry)

    monkeypatch.setattr(api.Journal, "add", dies)
    ask = folder_of(context.root, "ask")
    expected = dict(rows_of(pq.read_table(ask / "items.parquet"), "id", "concept"))
    name, items = (read_json(ask / "batch.json")[key] for key in ("batch", "items"))
    truth = {i: "none" if expected[id_] == "background" else expected[id_] for i, id_ in items.items()}
    with prolific_server() as service:
        monkeypatch.setenv(TOKEN, service.token)

        def act(action: str, **values: Any) -> dict[str, Any]:
            return prolific_action(context, action, endpoint=service.url, **values)

        for _ in range(2):
            with pytest.raises(Killed):
                act("publish", workspace="w1", max_usd=100.0)
        assert act("publish", workspace="w1", max_usd=100.0)["images"] == len(items)
        assert (service.published, len(service.studies)) == (1, 1)
        work = {
            who: service.work(who, sorted(items), lambda item, who=who: [truth[item] if who != "bot" else "none"])
            for who in ("ann", "bob", "eve", "bot")
        }
        states = ["RETURNED", "TIMED-OUT", "SCREENED OUT", "ACTIVE"] + ["AWAITING REVIEW"] * 242
        for n, state in enumerate(states):  # each of one image; the returned ones are wrong
            item = sorted(items)[n % len(items)]
            service.work(f"p{n}", [item], lambda item, n=n: [truth[item] if n > 3 else "none"], status=state)
        assert act("status")[name]["awaiting review"] == 246
        assert act("collect") == {
            "answers": 4 * len(items) + 246, "out": str(context.root / "answers"),
            "left_out": {"active": 1, "returned": 1, "screened out": 1, "timed-out": 1},
        }  # fmt: skip
        reject, bonus = tmp_path / "reject.csv", tmp_path / "bonus.csv"
        reject.write_text(f"AssignmentId,Reject\n{work['bot']},all answers are none\n")
        bonus.write_text(f"SubmissionId,Amount\n{work['ann']},1.00\n")
        assert act("reject", file=reject) == {"approved": 0, "rejected": 1}
        assert act("approve") == {"approved": 245, "rejected": 0}
        assert act("bonus", file=bonus, max_usd=2.0) == {"bonuses": 1, "cost_usd": 1.25}
        assert act("bonus", file=bonus, max_usd=2.0)["paid_before"] == 1
        assert (service.paid, service.rewards.total(), set(service.rewards.values())) == (["bonus0"], 245, {1})
        later = replace(batches.open_batch(context), facts={"batch": "later"})
        monkeypatch.setattr(batches, "open_batch", lambda _: later)
        assert act("collect")["answers"] == 4 * len(items) + 246, (
            "the study of a batch that is not the open one any more"
        )
        assert act("status")[name]["approved"] == 245
        assert act("bonus", file=bonus, max_usd=2.0)["paid_before"]
        assert [path.name for path in (context.root / "answers").iterdir()] == [f"prolific-{name}.csv"]
    run(context)
    answers = pq.read_table(folder_of(context.root, "tally") / "answers.parquet")
    faults = answers["fault"].to_pylist()
    assert (faults.count("rejected"), faults.count("returned")) == (len(items), 4)
    verdicts = pq.read_table(folder_of(context.root, "tally") / "verdicts.parquet")["verdict"].to_pylist()
    assert verdicts.count("kept") > 0.9 * len(verdicts)
    assert (folder_of(context.root, "publish") / "release" / "SHA256SUMS").is_file()


def test_a_run_that_asked_nothing_says_what_to_do(tmp_path: Path, journey: Path) -> None:
    shutil.copy(journey / "driftline.yaml", tmp_path)
    empty = Context(tmp_path, load(tmp_path / "driftline.yaml"), RunLog(quiet=True))
    with pytest.raises(MissingFile, match="has no batch yet"):
        prolific_action(empty, "status")


def test_options_of_a_batch_are_those_of_its_addresses_and_predictions(journey: Path, tmp_path: Path) -> None:
    words = ("batch", journey, "--format", "turkle, mturk", "--out", tmp_path, "--image-base-url", "s3://b/p")
    store = ("--hours", 3, "--profile", "lab", "--endpoint", "https://s3.test")
    found = handed("driftline.pipelines.annotation.batches.write_batches", *words, *store, "--predictions")
    assert list(found.values())[1:] == [
        ["turkle", "mturk"], tmp_path, "s3://b/p", 3.0, S3(profile="lab", endpoint="https://s3.test"), True
    ]  # fmt: skip
    assert handed("driftline.pipelines.annotation.batches.write_batches", *words)["predictions"] is False


def test_a_second_command_waits_for_the_first(journey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would read the same journal, and pay the same bonuses."""
    shutil.copy(journey / "driftline.yaml", tmp_path)
    acted = threading.Event()
    act = "driftline.pipelines.annotation.batches.prolific_action"
    monkeypatch.setattr(act, lambda *_, **__: acted.set() or {})
    command = threading.Thread(target=inside, args=("prolific", "approve", tmp_path))
    with locked(tmp_path / "prolific"):
        command.start()
        assert not acted.wait(0.5)
    command.join()
    assert acted.is_set()


def test_options_of_prolific_reach_its_action(journey: Path, tmp_path: Path) -> None:
    shutil.copy(journey / "driftline.yaml", tmp_path)
    words = ("prolific", "publish", tmp_path, "--workspace", "w1", "--count", 7, "--max-usd", 9.5)
    act = "driftline.pipelines.annotation.batches.prolific_action"
    options = handed(act, *words, "--endpoint", "https://p.test", "--set", "validation.workers=2")
    assert options["context"].config.validation.workers == 2
    assert list(options.values())[1:] == ["publish", "w1", 7, 9.5, "https://p.test"]
    for action, more in (("bonus", ("--max-usd", 2)), ("reject", ())):
        options = handed(act, "prolific", action, tmp_path, "--file", tmp_path / "f.csv", *more)
        assert (options["action"], options["file"]) == (action, tmp_path / "f.csv")
        assert "--file is missing" in inside("prolific", action, tmp_path).stderr
