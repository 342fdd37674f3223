"""A small photo world whose metadata arrives in pieces, with counts of what a run asks and computes."""

import bz2
import hashlib
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.console import start_python

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders.clip import Clip
from driftline.curate.fetch import native
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo.world import World, build, serve
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context, parts_of
from driftline.pipelines.stages.state import folder_of

CONFIG = """
collection: {{source: yfcc, path: {path}}}
fetch: {{shard_size: 25, threads: 4, backoff: 0, retries: 1, timeout: 5}}
buckets: {{kind: equal, count: 3, unlabelled: []}}
embed: {{model: driftline-photo-world}}
retrieve:
  per_class: 4
  depth: 20
  background_share: 0
  short: fewer
  concepts: [{{name: car, prompts: [a car]}}, {{name: phone, prompts: [a phone]}}]
validation: {{method: crowd, workers: 2, agree: 2, image_base_url: "http://127.0.0.1/images"}}
release: {{per_class: 1, splits: 1, short: fewer, notice: made}}
"""
LOOSE = "\nfilter: {upload_after_capture: false}\n"


class Town:
    """A world of photos; its lines in order of upload."""

    def __init__(self, folder: Path, records: int) -> None:
        self.world: World = build(folder / "world", records, 0, RunLog(quiet=True))
        lines = bz2.decompress(self.world.metadata.read_bytes()).decode().splitlines()
        whole = [line for line in lines if line.count("\t") == 24]
        self.lines = sorted(whole, key=lambda line: (int(line.split("\t")[6] or 0), line))

    def run(self, root: Path, lines: int, more: str = "") -> Path:
        """A run folder whose metadata has the first `lines` lines."""
        root.mkdir(parents=True, exist_ok=True)
        self.write(root, lines)
        (root / "driftline.yaml").write_text(CONFIG.format(path="photos.tsv") + more)
        return root

    def built(self, folder: Path, lines: int, until: str) -> Path:
        """A run up to a stage, while the town answers; not to be changed."""
        root = self.run(folder / "run", lines, LOOSE)
        with counted(self):
            run(context(root), until=until)
        return root

    def write(self, root: Path, lines: int) -> None:
        """The first `lines` lines of the metadata."""
        (root / "photos.tsv").write_text("".join(f"{line}\n" for line in self.lines[:lines]))


@contextmanager
def counted(town: Town) -> Iterator[Counter[str]]:
    """Serve the town; counts the requests by address, and under "images" what the encoder computes."""
    counts: Counter[str] = Counter()
    ask, images = native._ask, Clip.images

    def asking(session: Any, url: str, *rest: Any) -> Any:
        counts[url] += 1
        return ask(session, url, *rest)

    def computing(self: Clip, batch: Any) -> Any:
        counts["images"] += len(batch)
        return images(self, batch)

    with pytest.MonkeyPatch.context() as patch, serve(town.world):
        patch.setattr(native, "_ask", asking)
        patch.setattr(Clip, "images", computing)
        yield counts


def requests(counts: Counter[str]) -> int:
    """Requests so far."""
    return sum(n for what, n in counts.items() if what != "images")


def context(root: Path, *changes: str, **more: Any) -> Context:
    """A run, with --set."""
    log = RunLog(root / "log.jsonl", quiet=True)
    return Context(root, load(root / "driftline.yaml", changes), log, changes=changes, **more)


def tree(root: Path, *stages: str) -> dict[str, str]:
    """Name → SHA-256 of what stages wrote, without their marks, which hold times."""
    marks = ("done.json", "files.json")
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "stages").rglob("*"))
        if path.is_file() and path.name not in marks and (not stages or path.relative_to(root).parts[1][3:] in stages)
    }


def answer(context: Context, town: Town, name: str) -> list[str]:
    """Answer the open batch of a run: two workers tick the first thing that a photo shows. Returns the ids asked."""
    batch = open_batch(context)
    truth = town.world.truth()
    header = ("AssignmentId", "WorkerId", "AssignmentStatus", "Input.batch", "Input.item", "Answer.labels")
    rows = [
        (f"{worker}-{id_}", worker, "Submitted", batch.facts["batch"], item,
         truth[id_][0] if truth[id_][0] in batch.facts["concepts"] else NONE)
        for item, id_ in batch.facts["items"].items()
        for worker in ("ann", "bob")
    ]  # fmt: skip
    write_text(context.root / "answers" / f"{name}.csv", csv_text(header, rows))
    return sorted(batch.facts["items"].values())


def labels_of(folder: Path) -> dict[str, str]:
    """id → known label."""
    return dict(pq.read_table(parts_of(folder_of(folder, "filter")), columns=["id", "label"]).to_pandas().values)


def reply(context: Context, truth: dict[str, str], workers: Sequence[str] = ("ann", "bob"), only: int = 10**9) -> None:
    """People answer the open batch, alike; the last one only the first `only` images."""
    batch = open_batch(context)
    rows = [
        (batch.facts["batch"], item, worker, truth[id_] if truth[id_] in batch.facts["concepts"] else NONE, "no")
        for i, (item, id_) in enumerate(batch.facts["items"].items())
        for worker in (workers if i < only else workers[:-1])
    ]
    header = ("Input.batch", "Input.item", "WorkerId", "Answer.labels", "Answer.sensitive")
    write_text(context.root / "answers" / f"people-{batch.number}.csv", csv_text(header, rows))


KILLED = (  # after the work of a stage, before its done mark
    "import os, sys; from driftline.pipelines.stages import STAGES; from driftline.pipelines.cli import main\n"
    "kind = STAGES[sys.argv[2]]; work = kind.run\n"
    "kind.run = lambda *given: (work(*given), os.kill(os.getpid(), 9))\n"
    "sys.argv = ['driftline', 'grow', sys.argv[1]]; main()"
)


def grow_killed(root: Path, stage: str) -> None:
    """A grow that is killed in a stage."""
    assert start_python(KILLED, root, stage).wait() == -signal.SIGKILL


def linked_copy(root: Path, target: Path) -> Path:
    """A copy of a run with its hard links, which its store knows under its new place."""
    subprocess.run(["cp", "-a", str(root), str(target)], check=True)
    with closing(sqlite3.connect(target / "store" / "index.sqlite")) as base, base:
        base.execute("UPDATE runs SET path = ?", (str(target),))
    return target
