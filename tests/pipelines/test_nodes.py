"""Four Ray nodes, each in a network namespace of its own, and one is lost: the bytes are those of one machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes import DRIFTLINE, Nodes, prepare, shards, wait_for

from driftline.curate.core.atomic_io import read_json

pytestmark = pytest.mark.proof("processes")

RECORDS = 300


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    try:
        made = Nodes(4)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode()[:100]}")
    yield made
    made.close()


def test_a_lost_node_costs_time_only(nodes: Nodes, tmp_path: Path) -> None:
    images = tmp_path / "images"
    nodes.serve(images)
    one, many = prepare(tmp_path / "one", RECORDS), prepare(tmp_path / "many", RECORDS)
    assert nodes.start(0, *DRIFTLINE, one, "--until", "fetch", "--workers", "1").wait(200) == 0
    (images / "slow").write_text("0.4")  # so that shards last long enough to lose a node in the middle of one
    nodes.cluster()
    run = nodes.run(many)
    wait_for(lambda: any(_works(p) for p in nodes.processes(1)) and shards(many))
    assert len(shards(many)) < 2 * RECORDS / 25, "the node was to be lost in the middle of the run"
    nodes.lose(1)
    assert run.wait(240) == 0
    assert shards(many) == shards(one)
    counts = read_json(many / "stages" / "03_fetch" / "done.json")["counts"]
    assert counts == {"read": RECORDS, "kept": RECORDS, "dropped": {}}


def _works(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::fetch_shard")
    except OSError:
        return False
