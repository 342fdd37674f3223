"""Runs that several files look at."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.living import Town, answer, context, counted

from driftline.pipelines.run.runner import run

DROPS = """
filter: {{upload_after_capture: true, per_user: 30}}
buckets: {{kind: spans, unlabelled: [1], spans: {spans}}}
embed: {{model: driftline-photo-world}}
retrieve: {{per_class: 3, background_share: 0.4, depth: 7, overlap: allow, short: fewer, concepts: [
  {{name: camera, prompts: [a camera]}}, {{name: bus, prompts: [a bus]}}, {{name: computer, prompts: [a computer]}}]}}
validation: {{method: crowd, workers: 2, agree: 2, rounds: 3, image_base_url: "http://127.0.0.1/images"}}
release: {{per_class: 2, splits: 1, short: reopen, near_copies: drop, notice: made}}
"""


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    """Photos behind addresses, of which some are gone, broken or no image."""
    return Town(tmp_path_factory.mktemp("town"), 60)


@pytest.fixture(scope="session")
def every_drop(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with drops at every stage and several rounds of questions; read only."""
    root = town.run(tmp_path_factory.mktemp("counted") / "run", 60)
    text = (root / "photos.tsv").read_text()
    (root / "photos.tsv").write_text("no record\n" + text + text.splitlines()[30] + "\n")
    days = [
        datetime.fromtimestamp(int(town.lines[i].split("\t")[6]), UTC).strftime("%Y-%m-%d") for i in (3, 26, 30, 50)
    ]
    spans = f"[[{days[0]}, {days[1]}], [{days[2]}, 2100-01-01]]"
    kept = (root / "driftline.yaml").read_text().split("buckets:")[0]
    (root / "driftline.yaml").write_text(kept + DROPS.format(spans=spans))
    here = context(root)
    with counted(town):
        for number in range(4):
            if not any("because" in entry for entry in run(here, until="tally")):
                break
            answer(here, town, f"round{number}")
    run(here)
    return root
