"""What driftline 0.1.0 wrote opens, reports, traces and resumes; what a newer one wrote is refused by name."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import answer, driftline
from support.old import FIXTURES, unpacked

from curate.core.atomic_io import read_json, write_json
from curate.release import Release
from eval.run import evaluate
from pipelines.demo.workers import answer as answers_of
from stream_builder.stream import Split, Step, Stream

SUBMISSION = FIXTURES / "usda-past.zip"
SETTINGS = {"clear-iid": {"epochs": 3}, "near-future": {"batch": 2, "shift": 2}}  # that the rows were made with


UNRECORDED = {"near-future": {"prefix": 0}}
CHANGED = {("near-future", "blind")}  # now predicts sample by sample


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return unpacked("finished", tmp_path)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    return unpacked("waiting", tmp_path)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream.load(unpacked("finished-stream", tmp_path))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return unpacked("finished-rows", tmp_path)


def states(run: Path) -> dict[str, str]:
    return {entry["stage"]: entry["state"] for entry in answer("status", str(run), "--json")["stages"]}


class TestRun:
    def test_only_the_release_of_a_finished_run_is_stale_because_its_splits_were_nearly_one(
        self, finished: Path
    ) -> None:
        assert {stage for stage, state in states(finished).items() if state != "done"} == {"publish"}

    def test_run_repeats_nothing_else(self, finished: Path) -> None:
        before = {path: path.stat().st_mtime_ns for path in finished.glob("stages/0[1-8]*/**/*")}
        assert driftline("run", str(finished)).returncode == 0
        assert {path: path.stat().st_mtime_ns for path in finished.glob("stages/0[1-8]*/**/*")} == before
        assert set(states(finished).values()) == {"done"}
        assert {words.partition("; ")[0] for words in Release.open(finished).facts["file_changes"]} == {"not recorded"}

    def test_a_photo_is_traced_to_the_release(self, finished: Path) -> None:
        id_ = Release.open(finished).table["id"][0].as_py()
        story = answer("trace", str(finished), id_, "--json")
        stages = ["ingest", "filter", "fetch", "bucket", "embed", "retrieve", "ask", "tally", "publish"]
        assert list(dict.fromkeys(event["stage"] for event in story["events"])) == stages
        assert story["ended"] == "It is in the release."

    def test_a_run_waits_for_answers_and_resumes_with_them(self, waiting: Path) -> None:
        assert (states(waiting)["ask"], states(waiting)["tally"]) == ("waiting", "pending")
        asked = waiting / "stages" / "07_ask"
        batch = read_json(asked / "batch.json")
        with (asked / "batch.csv").open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        truth = {item: frozenset([id_[:3]]) for item, id_ in batch["items"].items()}  # ids begin with "car" or "bus"
        (waiting / "answers").mkdir()
        (waiting / "answers" / "results.csv").write_text(
            answers_of(batch, lines, truth, batch["concepts"], seed=0, error=0.0, workers=2), encoding="utf-8"
        )
        before = [path.read_bytes() for path in sorted(waiting.glob("stages/0[1-6]*/done.json"))]
        assert driftline("run", str(waiting)).returncode == 0
        assert set(states(waiting).values()) == {"done"}
        assert [path.read_bytes() for path in sorted(waiting.glob("stages/0[1-6]*/done.json"))] == before
        release = Release.open(waiting)
        release.verify()
        assert [id_[:3] for id_ in release.table["id"].to_pylist()] == release.table["class"].to_pylist()


def ordered(step: Step) -> dict[str, Split]:
    """Its splits by time, then id."""
    return {name: split.take(np.lexsort((split.ids, split.time))) for name, split in step.splits.items()}  # type: ignore[arg-type]


class TestRelease:
    def test_it_opens_and_every_file_is_as_it_was(self, finished: Path) -> None:
        release = Release.open(finished)
        release.verify()
        assert len(list(release.images())) == len(release.table) == 24

    def test_it_gives_the_samples_that_it_gave(self, finished: Path, stream: Stream, tmp_path: Path) -> None:
        done = driftline("stream", "from-release", str(finished), "--out", str(tmp_path / "S"))
        assert done.returncode == 0, done.stderr
        now = Stream.load(tmp_path / "S")
        assert now.shared_with_training() is not None, "it says today who shares an uploader"
        without, before = (  # equal times were in order of id
            [
                replace(step, splits={n: replace(s, group=None, test_in=None) for n, s in ordered(step).items()})
                for step in one.steps
            ]
            for one in (now, stream)
        )
        saved = replace(now, steps=without).save(tmp_path / "as it was")
        assert saved.sha256 == replace(stream, steps=before).save(tmp_path / "before").sha256
        assert now.ties() is not None


class TestRows:
    def test_the_report_shows_their_scores(self, rows: Path, stream: Stream, tmp_path: Path) -> None:
        done = driftline("report", str(rows), "--out", str(tmp_path / "report"))
        assert done.returncode == 0, done.stderr
        reported = {d["protocol"]: d for d in json.loads((tmp_path / "report" / "results.json").read_text())}
        assert list(reported) == list(SETTINGS)
        for name, document in reported.items():
            kept = [r for r in document["results"] if (name, r["learner"]) not in CHANGED]
            now = evaluate(
                stream, name, [r["learner"] for r in kept], [0, 1], SETTINGS[name] | UNRECORDED.get(name, {})
            )
            scores = json.loads(
                json.dumps([r["scores"] for r in now["results"]]), parse_float=lambda f: round(float(f), 9)
            )
            assert scores == [r["scores"] for r in kept], "with nine decimals"

    def test_evaluating_again_repeats_nothing(self, rows: Path, stream: Stream) -> None:
        before = sorted(rows.rglob("*.parquet"))
        for name, settings in SETTINGS.items():
            learners = sorted({path.name.partition("-seed")[0] for path in (rows / name).glob("*-seed*")})
            evaluate(stream, name, learners, [0, 1], settings, out=rows)
        made = set(rows.rglob("*.parquet")) - set(before)
        assert {path.parent.parent.name for path in made} == {"near-future"}, "a prefix is no longer scored there"
        assert len(before) == 10

    def test_a_submission_still_holds(self) -> None:
        verdict = answer("verify", str(SUBMISSION), "--again", "0", "--json")
        assert verdict["holds"], verdict["problems"]


def changed(path: Path, **values: Any) -> None:
    write_json(path, read_json(path) | values)


class TestNewer:
    """What a later driftline wrote is named, with the way out."""

    @pytest.mark.parametrize(
        ("file", "words"),
        [
            ("finished/stages/09_publish/release/release.json", ("release", "RUN", "--format", "urls", "--out", "O")),
            ("finished-stream/stream.json", ("stream", "show", "STREAM")),
            ("finished-rows/clear-iid/blind-seed0-ded38454e404/run.json", ("report", "ROWS", "--out", "O")),
        ],
    )
    def test_a_file_of_a_newer_format_is_refused(self, file: str, words: tuple[str, ...], tmp_path: Path) -> None:
        places = {"RUN": "finished", "STREAM": "finished-stream", "ROWS": "finished-rows", "O": "out"}
        unpacked(file.partition("/")[0], tmp_path)
        changed(tmp_path / file, format=2)
        done = driftline(*(str(tmp_path / places[word]) if word in places else word for word in words))
        assert done.returncode == 1
        assert f"{file} was written by a newer driftline (format 2); this one reads 1." in done.stderr
        assert "pip install --upgrade driftline" in done.stderr

    def test_a_stage_that_a_later_release_finished_is_not_done_again(self, finished: Path) -> None:
        changed(finished / "stages" / "04_bucket" / "done.json", version="0.9.1")
        done = driftline("run", str(finished))
        assert done.returncode == 1
        assert "stages/04_bucket/done.json was written by driftline 0.9.1; this is 0.1.0." in done.stderr
        assert (finished / "stages" / "05_embed" / "done.json").is_file()
