"""Options of commands that work on a run folder, where no other file tests them: what each is for."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.console import document, handed, inside
from support.helpers import album, yfcc_line

from driftline.curate.core import files
from driftline.pipelines.run.state import write_changes

CONFIG = """\
collection: {source: yfcc, path: photos.tsv}
filter: {upload_after_capture: false}
embed: {model: driftline-photo-world}
retrieve: {concepts: [{name: car, prompts: [a car]}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of four records, which is done up to `filter`."""
    (tmp_path / "photos.tsv").write_text("".join(f"{yfcc_line(id=i)}\n" for i in range(4)))
    (tmp_path / "driftline.yaml").write_text(CONFIG)
    document("run", tmp_path, "--until", "filter")
    return tmp_path


def test_init_replaces_a_file_only_by_force(tmp_path: Path) -> None:
    assert inside("init", tmp_path).returncode == 0
    new = (tmp_path / "driftline.yaml").read_text()
    (tmp_path / "driftline.yaml").write_text("mine: true\n")
    assert "already exists" in inside("init", tmp_path).stderr
    assert (tmp_path / "driftline.yaml").read_text() == "mine: true\n"
    assert inside("init", tmp_path, "--force").returncode == 0
    assert (tmp_path / "driftline.yaml").read_text() == new


def test_from_repeats_a_stage_that_is_done_and_a_plan_says_so(folder: Path) -> None:
    def times() -> list[int]:
        return [next(folder.glob(f"stages/*_{name}/done.json")).stat().st_mtime_ns for name in ("ingest", "filter")]

    def actions(*words: str) -> list[str]:
        plans = document("plan", folder, *words, "--until", "filter")["plan"]
        return [plan["action"] for plan in plans if plan["stage"] in ("ingest", "filter")]

    for command in ("run", "plan"):
        done = inside(command, folder, "--from", "filter", "--until", "ingest")
        assert (done.returncode, "--from filter is after --until ingest" in done.stderr) == (2, True)
    before = times()
    assert actions() == ["skip", "skip"]
    assert actions("--from", "filter") == ["skip", "run"]
    document("run", folder, "--until", "filter", "--from", "filter")
    after = times()
    assert (after[0], after[1] > before[1]) == (before[0], True)


def test_from_ingest_reads_photos_again_whose_stamps_are_as_before(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNSETTLED", -60.0)
    album(tmp_path / "photos", 1)
    (tmp_path / "driftline.yaml").write_text(CONFIG.replace("yfcc, path: photos.tsv", "folder, path: photos"))

    def cameras() -> set[str | None]:
        return set(pq.read_table(tmp_path / "stages" / "01_ingest" / "table", columns=["camera"])["camera"].to_pylist())

    document("run", tmp_path, "--until", "ingest")
    with closing(sqlite3.connect(tmp_path / "digests.sqlite")) as base, base:
        changed = base.execute("UPDATE seen SET value = ? WHERE kind = 'records'", ('[1, null, 1, "another", null]',))
        assert changed.rowcount, "as if the files had lied"
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "new.png")
    document("grow", tmp_path, "--until", "ingest")
    assert cameras() == {"another", None}, "the new photo alone is read"
    document("run", tmp_path, "--from", "ingest", "--until", "ingest")
    assert cameras() == {None}
    document("grow", tmp_path, "--until", "ingest")
    assert cameras() == {None}, "what was wrong is forgotten"


def test_growing_stops_at_a_limit_of_money(folder: Path) -> None:
    words = ("--until", "ask", "--max-usd", 7, "--workers", 3, "--engine", "slurm")
    found = handed("driftline.pipelines.run.living.grow", "grow", folder, *words)
    assert (found["until"], found["cost"]) == ("ask", 7.0)
    assert (found["context"].executor.workers, found["context"].executor.kind) == (3, "slurm")
    planned = document("grow", folder, "--dry-run", "--until", "filter")
    assert planned["plan"] == document("plan", folder, "--until", "filter")["plan"]


def test_healing_is_of_reasons_and_adds_to_the_settings_of_the_last_run(folder: Path) -> None:
    write_changes(folder, ["seed=7"])
    words = ("heal", folder, "--reason", "timeout,gone")
    options = handed("driftline.pipelines.run.living.heal", *words, "--set", "fetch.mirror=https://m.test/{hash}")
    assert options["reasons"] == ["timeout", "gone"]
    config = options["context"].config
    assert (config.fetch.mirror, config.seed) == ("https://m.test/{hash}", 7)
    assert "Did you mean 'timeout'?" in inside("heal", folder, "--reason", "timeot").stderr
