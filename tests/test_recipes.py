"""The protocol and the module of the guides do what they say."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from contracts.test_protocols import SMALL, vectors
from support.console import driftline
from support.helpers import drifting
from test_docs import EXTEND, ROOT, blocks, save_modules

import driftline as dl


@pytest.mark.proof("docs")
def test_the_protocol_of_the_guide_is_submitted_run_again_and_ranked(tmp_path: Path) -> None:
    save_modules(EXTEND, tmp_path)
    drifting(steps=3, drift=0.1).save(tmp_path / "S")
    ours = ["--plugin", "mybench.protocol:FirstOnly"]

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        return driftline(*words, here=tmp_path)

    words = ["--protocol", ours[1], "--learners", "nearest-mean,majority", "--seeds", "0-2", "--out", "runs"]
    assert done("eval", "S", *words).returncode == 0
    refused = done("submit", "runs", "--name", "Ours", "--out", "ours.zip")
    assert (refused.returncode, "--plugin" in refused.stderr) == (1, True)
    submitted = done("submit", "runs", "--name", "Ours", "--out", "ours.zip", *ours)
    assert submitted.returncode == 0, submitted.stderr

    checked = done("verify", "ours.zip", "--stream", "S", "--again", "1", "--json", *ours)
    assert checked.returncode == 0, checked.stderr
    (again,) = json.loads(checked.stdout)["again"]
    assert (again["protocol"], again["differs"]) == (ours[1], "")
    ranked = done("leaderboard", "ours.zip", "--stream", "S", "--again", "0", "--out", "board.md", *ours)
    assert ranked.returncode == 0, ranked.stderr
    board = (tmp_path / "board.md").read_text(encoding="utf-8")
    assert f"## {ours[1]} on drifting" in board
    assert re.search(r"\| learner \| last_step \| errors_added \|.*\| nearest-mean \| \*\*", board, re.S)


def module_of_the_guide() -> Any:
    """The learner that the page on Python wraps around a torch module."""
    (example,) = [block for block in blocks(ROOT / "docs" / "guides" / "python.md", "python") if "Torch(" in block]
    names: dict[str, Any] = {"dl": dl}
    exec("\n".join(line for line in example.splitlines() if not line.startswith("dl.")), names)
    return names["network"]


def test_the_module_of_the_guide_takes_the_updates_that_a_stream_pays_for() -> None:
    settings = {"batch": 8, "shift": 8, "updates": 2, "fc-only.lr": 0.1}
    own, ours = dl.evaluate(vectors(), "near-future", [module_of_the_guide(), "fc-only"], settings=settings)["results"]
    assert own["budget"] == ours["budget"]
    assert own["budget"]["updates_taken"] >= 0.95 * own["budget"]["updates_paid"] > 0


def test_the_module_of_the_guide_stands_apart_where_all_others_train_one_network() -> None:
    results = dl.evaluate(vectors(), "seq-to-final", [module_of_the_guide(), "ft"], settings=SMALL["seq-to-final"])
    own, ours = results["results"]
    assert (bool(own.get("rules")), bool(ours.get("rules"))) == (True, False)
