"""What another release of driftline wrote is refused by one sentence: what it is, what is read, what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.console import driftline
from support.small_runs import made, unpacked

from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import BadInput
from driftline.curate.validation.answers.answer_store import AnswerStore
from driftline.curate.validation.asking.batches import read_batch
from driftline.pipelines import VERSION

UPGRADE = "pip install --upgrade driftline"


def changed(path: Path, **values: Any) -> None:
    write_json(path, read_json(path) | values)


@pytest.mark.parametrize(
    ("name", "file", "words", "way_out"),
    [
        ("finished", "stages/09_publish/release/release.json", "export HERE --format urls --out OUT", "Run publish"),
        ("finished-stream", "stream.json", "stream show HERE", "Create the stream again"),
        ("finished-rows", "", "report HERE --out OUT", "evaluate again"),
    ],
)
@pytest.mark.parametrize("step", [-1, 1])
def test_a_file_of_another_format_is_refused(name, file, words, way_out, step, tmp_path):
    folder = unpacked(name, tmp_path)
    path = folder / file if file else sorted(folder.rglob("run.json"))[0]
    number = read_json(path)["format"]
    changed(path, format=number + step)
    done = driftline(*words.replace("HERE", str(folder)).replace("OUT", str(tmp_path / "out")).split())
    assert done.returncode == 1
    assert f"{path} has the format {number + step}; this driftline reads {number}." in done.stderr
    assert (UPGRADE if step > 0 else way_out) in done.stderr


@pytest.mark.parametrize("command", ["run", "status", "plan", "browse", "trace"])
@pytest.mark.parametrize(("version", "way_out"), [("0.1.0", "driftline init"), ("99.0.0", UPGRADE)])
def test_a_run_of_another_release_is_not_gone_on_with(command: str, version: str, way_out: str, tmp_path: Path) -> None:
    run = unpacked("finished", tmp_path)
    mark = run / "stages" / "04_bucket" / "done.json"
    changed(mark, version=version)
    more = [str(made("finished") / "photos/car/2010-05-01.jpg")] if command == "trace" else []
    done = driftline(command, str(run), *more)
    assert done.returncode == 1
    assert f"{mark} was written by driftline {version}; this is {VERSION}." in done.stderr
    assert way_out in done.stderr
    assert (run / "stages" / "05_embed" / "done.json").is_file()


def test_a_run_of_a_patch_release_is_read(tmp_path: Path) -> None:
    run = unpacked("finished", tmp_path)
    changed(run / "stages" / "09_publish" / "done.json", version=f"{VERSION.rpartition('.')[0]}.99")
    assert driftline("status", str(run)).returncode == 0


def test_every_stage_says_its_version() -> None:
    marks = list(made("finished").glob("stages/*/done.json"))
    assert len(marks) == 9
    assert {read_json(mark)["version"] for mark in marks} == {VERSION}


def test_answers_and_a_batch_of_another_format_are_refused(tmp_path: Path) -> None:
    run = unpacked("waiting", tmp_path)
    batch = run / "stages" / "07_ask" / "batch.json"
    AnswerStore(run / "answers.sqlite", read_json(batch), 0).close()
    with closing(sqlite3.connect(run / "answers.sqlite")) as base:
        base.execute("PRAGMA user_version = 0")
    with pytest.raises(BadInput, match=r"answers\.sqlite has the format 0; this driftline reads 3"):
        AnswerStore(run / "answers.sqlite", read_json(batch), 0)
    changed(batch, format=9)
    with pytest.raises(BadInput, match=r"batch\.json has the format 9; this driftline reads 1"):
        read_batch(batch.parent)
