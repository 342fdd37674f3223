"""A thousand addresses, a third misbehaving, two kills, a lost Ray worker: nothing is lost or differs.

DRIFTLINE_FAULT_URLS=10000 does it with more.
"""

import hashlib
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.console import Running, start
from support.faults import EXPECTED, FaultServer
from support.helpers import yfcc_line

from driftline.curate.core.atomic_io import read_json

pytestmark = pytest.mark.proof("kills")

URLS = int(os.environ.get("DRIFTLINE_FAULT_URLS", "1000"))
HOSTILE = 0.35  # share of them
GOOD = [kind for kind, fault in EXPECTED.items() if fault is None]
WAITING = ("drip", "silent")  # test_fetch.py waits for them
BAD = [kind for kind, fault in EXPECTED.items() if fault is not None and kind not in ("inside", *WAITING)]
SHARD = 50
CONFIG = f"""
collection: {{{{source: yfcc, path: {{path}}}}}}
fetch: {{{{shard_size: {SHARD}, retries: 1, backoff: 0, timeout: 60, deadline: 100, threads: 100, per_host: 100,
  max_bytes: 500000}}}}
embed: {{{{model: driftline-photo-world}}}}
retrieve: {{{{concepts: [{{{{name: a, prompts: [a]}}}}]}}}}
"""


@pytest.fixture(scope="module")
def kinds() -> list[str]:
    """What each address does: a third misbehaves."""
    rng = random.Random(0)
    return [rng.choice(BAD) if rng.random() < HOSTILE else rng.choice(["good", *GOOD]) for _ in range(URLS)]


def prepare(folder: Path, server: FaultServer, kinds: list[str]) -> Path:
    folder.mkdir()
    lines = [yfcc_line(i + 1, url=f"{server.base}/{kind}/{i}") for i, kind in enumerate(kinds)]
    (folder / "dataset.tsv").write_text("".join(line + "\n" for line in lines))
    (folder / "driftline.yaml").write_text(CONFIG.format(path=folder / "dataset.tsv"))
    return folder


def begin(folder: Path, *more: str) -> Running:
    return start("run", folder, "--until", "fetch", *more, said=folder / "said.txt")


def finish(folder: Path, *more: str) -> None:
    run = begin(folder, *more)
    assert run.wait(400) == 0, (folder / "said.txt").read_text()[-2000:]


def wait_for(what: Callable[[], object], seconds: float = 400) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def shards(folder: Path) -> list[Path]:
    return list((folder / "stages" / "03_fetch").glob("[0-9]*.parquet"))


def ray_workers() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if words.startswith(b"ray::fetch_shard"):
                found.append(int(entry.name))
    return found


def files(folder: Path) -> dict[str, str]:
    fetched = folder / "stages" / "03_fetch"
    skip = {"done.json", "begun.json"}
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in fetched.iterdir() if p.name not in skip}


def test_kills_and_faults_lose_nothing_and_change_nothing(server, kinds, tmp_path):
    calm = prepare(tmp_path / "calm", server, kinds)
    finish(calm, "--workers", "1")

    index = pq.read_table(calm / "stages" / "03_fetch" / "index.parquet")
    assert index["id"].to_pylist() == [str(i + 1) for i in range(URLS)]
    wrong = [(k, f) for k, f in zip(kinds, index["fault"].to_pylist(), strict=True) if f != EXPECTED[k]]
    assert not wrong, Counter(wrong)

    stormy = prepare(tmp_path / "stormy", server, kinds)
    for done in (4, 12):  # SIGKILL, workers and all, in the middle of the next shard
        server.answered = (done + 0.5) * SHARD
        run = begin(stormy, "--workers", "2")
        wait_for(lambda done=done: len(shards(stormy)) == done)  # type: ignore[misc]
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    before = {p.name: p.stat().st_mtime_ns for p in shards(stormy)}
    server.answered = 14.5 * SHARD
    run = begin(stormy, "--engine", "ray", "--workers", "2")
    wait_for(lambda: len(shards(stormy)) > len(before) and ray_workers())
    os.kill(ray_workers()[0], signal.SIGKILL)
    server.answered = math.inf
    assert run.wait(400) == 0, (stormy / "said.txt").read_text()[-2000:]
    assert {name: (stormy / "stages" / "03_fetch" / name).stat().st_mtime_ns for name in before} == before
    assert files(stormy) == files(calm)
    counts = read_json(stormy / "stages" / "03_fetch" / "done.json")["counts"]
    assert counts == read_json(calm / "stages" / "03_fetch" / "done.json")["counts"]
    assert counts["read"] == URLS == counts["kept"] + sum(counts["dropped"].values())
