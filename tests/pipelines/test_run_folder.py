"""A run folder from Python: begin, run, look, open its release; and what it and the release show in a notebook."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.console import document, handed, inside
from support.helpers import album, yfcc_line
from support.small_runs import unpacked

import driftline as dl
from driftline.curate.core import files
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, UnknownName
from driftline.curate.foreign.notebook import Thumbnail, table
from driftline.pipelines.config.loader import load
from driftline.pipelines.stages.state import write_changes


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return unpacked("finished", tmp_path)


class TestRun:
    def test_a_run_is_begun_run_and_followed(self, tmp_path: Path) -> None:
        album(tmp_path / "album")
        collection = {"path": str(tmp_path / "album")}
        run = dl.init(tmp_path / "run", settings={"collection": collection, "release.per_class": 4})
        assert load(run.path / "driftline.yaml").release.per_class == 4
        entries = dl.run(run, until="filter", workers=1)["stages"]
        assert [entry["state"] for entry in entries[:3]] == ["done", "done", "pending"]
        assert dl.status(run.path)["stages"] == entries
        with pytest.raises(UnknownName, match="No stage of"):
            dl.trace(run, "nothing")
        with pytest.raises(MissingFile, match="publish stage"):
            run.release()

    def test_a_finished_run_gives_its_release_and_histories(self, finished: Path) -> None:
        run = dl.Run.open(finished)
        release = run.release()
        assert isinstance(release, dl.Release)
        assert dl.trace(run, release.table["id"][0].as_py())["ended"] == "It is in the release."

    def test_settings_may_be_other_than_the_files(self, finished: Path) -> None:
        run = dl.Run.open(finished)
        entries = dl.status(run, settings={"release.per_class": 3})["stages"]
        states = {entry["stage"]: entry["state"] for entry in entries}
        assert (states["tally"], states["publish"]) == ("done", "stale")

    def test_two_releases_of_one_run_are_refused_by_name(self, finished: Path) -> None:
        shutil.copytree(finished / "stages" / "09_publish", finished / "stages" / "08_publish")
        with pytest.raises(BadInput, match=r"08_publish/release and stages/09_publish/release\. Expected one"):
            dl.Release.open(finished)

    def test_a_folder_that_is_no_run_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="driftline init"):
            dl.Run.open(tmp_path)

    def test_an_existing_file_is_replaced_only_if_asked(self, tmp_path: Path) -> None:
        dl.init(tmp_path)
        with pytest.raises(BadConfig, match="already exists"):
            dl.init(tmp_path)
        assert dl.init(tmp_path, preset="mini", force=True).path == tmp_path


class TestNotebook:
    def test_what_is_no_image_is_named(self) -> None:
        html = table("t", ["", "a"], [["row", Thumbnail(b"nonsense", "<photo>", "7")]])
        assert "&lt;photo&gt;" in html
        assert "<img" not in html


def test_a_search_before_photos_are_embedded_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(dl.DriftlineError, match=r"The stage ingest of .* is not done"):
        dl.init(tmp_path).search("a phone")


# ---- options of commands that work on a run folder, where no other file tests them


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
