"""A run of two shards and two workers, where something is taken away: nothing is left to embed, but shards change."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.console import driftline

from driftline.curate.core.seeding import rng_for

CONFIG = """
collection: {source: folder, path: photos, label: parent, dates: [path]}
filter: {upload_after_capture: false}
buckets: {kind: calendar, unlabelled: []}
embed: {model: driftline-photo-world}
retrieve:
  per_class: 20
  depth: 40
  background_share: 0
  short: fewer
  concepts: [{name: car, prompts: [a car]}, {name: bus, prompts: [a bus]}]
validation: {method: catalogue}
release: {per_class: 10, splits: 1, short: fewer, own: true}
"""


def add(folder: Path, thing: str, numbers: range) -> None:
    """Photos of 32 × 32 pixels that differ, half of them of another year."""
    (folder / thing).mkdir(parents=True, exist_ok=True)
    for i in numbers:
        pixels = rng_for(0, thing, i).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / thing / f"{2011 + i % 2}-05-{i % 28 + 1:02d}-{i}.png")


def kept(root: Path, *words: str) -> dict[str, Any]:
    """What the run embedded and published, by a command on two workers."""
    done = driftline(*words[:1], str(root), *words[1:])
    assert done.returncode == 0, done.stderr
    stages = json.loads(driftline("status", str(root), "--json").stdout)["stages"]
    return {stage["stage"]: stage["counts"]["kept"] for stage in stages if stage["counts"]}


@pytest.mark.proof("journey")
def test_photos_leave_and_come_where_a_run_has_two_shards_and_two_workers(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for thing in ("car", "bus"):
        add(root / "photos", thing, range(884))
    (root / "driftline.yaml").write_text(CONFIG)
    run = ("run", "--yes", "--workers", "2")
    assert kept(root, *run)["embed"] == 1768
    assert driftline("withdraw", str(root), "photos/car/2011-05-01-0.png").returncode == 0
    assert kept(root, *run, "--set", "release.version=1.0.1")["embed"] == 1767
    fewer = "filter.where=id not like '%7'"
    few = kept(root, *run, "--set", "release.version=2.0.0", "--set", fewer)["embed"]
    assert 1500 < few < 1700
    kept(root, "heal", "--workers", "2")
    add(root / "photos", "car", range(884, 890))
    assert kept(root, "grow", "--workers", "2")["ingest"] == 1774
