"""The Codabench bundle in its documented folders: both programs run as commands, and give the scores of evaluate."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from support import console
from support.console import document, inside
from support.helpers import drifting
from support.users import USERS, as_user, forbidden, open_folder

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError
from driftline.curate.core.system import enclosure
from driftline.curate.core.system.enclosure import Bounds
from driftline.eval.leaderboard.codabench import bundle, ingest, score, shuffled
from driftline.eval.leaderboard.handing import handed
from driftline.eval.learner import Task
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Stream

ROOT = Path(__file__).resolve().parents[2]
SECRET = "7f3a9c"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked as Codabench does: /app is this folder, with one folder for each of the two steps."""
    folder = tmp_path_factory.mktemp("codabench")
    drifting(steps=3, n=12).save(folder / "S")
    bundle(Stream.load(folder / "S"), "clear-iid", [0, 1], "me/driftline", folder / "task.zip", "Drifting", SECRET)
    with zipfile.ZipFile(folder / "task.zip") as file:
        file.extractall(folder / "bundle")
    places = {
        "ingestion/input_data": "input_data", "ingestion/program": "ingestion_program",
        "ingestion/ingested_program": "solution", "scoring/program": "scoring_program",
        "scoring/input/ref": "reference_data",
    }  # fmt: skip
    for place, name in places.items():
        with zipfile.ZipFile(folder / "bundle" / f"{name}.zip") as file:
            file.extractall(folder / place)
    (folder / "scoring" / "output").mkdir()
    ingest(*(folder / "ingestion" / name for name in ("input_data", "output", "program", "ingested_program")))
    shutil.copytree(folder / "ingestion" / "output", folder / "scoring" / "input" / "res")
    return folder


def run(app: Path, step: str) -> subprocess.CompletedProcess[str]:
    """The command of a program's metadata.yaml, with /app in the folder of the step."""
    command = yaml.safe_load((app / step / "program" / "metadata.yaml").read_text())["command"]
    words = command.replace("/app/", f"{app / step}/").split()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words[1:]], env=environment, capture_output=True, text=True, check=False)


def test_the_scoring_step_gives_the_scores_of_the_stream(app: Path) -> None:
    done = run(app, "scoring")
    assert done.returncode == 0, done.stderr
    found = json.loads((app / "scoring" / "output" / "scores.json").read_text())
    expected = evaluate(shuffled(Stream.load(app / "S"), SECRET), "clear-iid", ["nearest-mean"], [0, 1])["results"][0][
        "scores"
    ]
    assert found == pytest.approx({name: value["mean"] for name, value in expected.items()})
    columns = yaml.safe_load((app / "bundle" / "competition.yaml").read_text())["leaderboards"][0]["columns"]
    assert {column["key"] for column in columns} == set(found)
    assert columns[0]["key"] == "next_domain"


def test_every_file_that_the_competition_names_is_there(app: Path) -> None:
    competition = yaml.safe_load((app / "bundle" / "competition.yaml").read_text())
    (task,) = competition["tasks"]
    named = [competition["image"], competition["terms"], competition["pages"][0]["file"]]
    named += [task[key] for key in ("input_data", "reference_data", "ingestion_program", "scoring_program")]
    named += [solution["path"] for solution in competition["solutions"]]
    assert {*named, "competition.yaml"} == {path.name for path in (app / "bundle").iterdir()}
    assert competition["version"] == 2
    assert all(phase["tasks"] == [0] for phase in competition["phases"])


def test_no_test_label_reaches_the_submission(app: Path) -> None:
    blind, whole = Stream.load(app / "ingestion/input_data/stream"), Stream.load(app / "scoring/input/ref/stream")
    for mine, theirs in zip(blind.steps, whole.steps, strict=True):
        assert not mine["test"].y.any()
        assert np.array_equal(mine["test"].x, theirs["test"].x)
        assert np.array_equal(mine["train"].y, theirs["train"].y)
    assert theirs["test"].y.tolist() != sorted(theirs["test"].y.tolist())


def test_the_same_stream_and_secret_give_the_same_bundle(app: Path, tmp_path: Path) -> None:
    for name, secret in (("again", SECRET), ("other", "")):
        file = tmp_path / f"{name}.zip"
        bundle(Stream.load(app / "S"), "clear-iid", [0, 1], "me/driftline", file, "Drifting", secret)
    assert (tmp_path / "again.zip").read_bytes() == (app / "task.zip").read_bytes()
    assert (tmp_path / "other.zip").read_bytes() != (app / "task.zip").read_bytes()


def test_the_secret_of_the_order_stays_with_the_reference_data(app: Path) -> None:
    holding = {
        path.parent.name for path in app.glob("*/**/*") if path.is_file() and SECRET.encode() in path.read_bytes()
    }
    assert holding == {"ref"}
    orders = [shuffled(Stream.load(app / "S"), secret).steps[0]["test"].x for secret in (SECRET, "other")]
    assert not np.array_equal(*orders)


CHEAT = """
import gc, os
from driftline.eval.learners.nearest_mean import NearestMean
from driftline.stream_builder.stream import Stream

FOLDER = {folder!r}
EARLIER = {earlier!r}  # left over by other tests, before the fork
BEGUN = []
LEARNED = []


class Cheat(NearestMean):
    \"\"\"An honest learner that looks for steps to come and for what it saw with another seed, and fails if it gets
    any.\"\"\"

    def begin(self, task, rng):
        super().begin(task, rng)
        BEGUN.append(task.seed)
        assert len(BEGUN) == 1 and not os.path.exists("/tmp/seen"), "saw another seed"
        try:
            open("/tmp/seen", "w")
        except OSError:
            pass

    def learn_step(self, step):
        assert set(step.splits) == {{"train"}}, step.splits
        LEARNED.append(step.index)
        assert LEARNED == [*range(len(LEARNED))], LEARNED
        self.learn(step["train"].x, step["train"].y)

    def predict(self, x):
        for place in (FOLDER, "/app", "/proc/1/cwd", "/proc/1/root/app", f"/proc/{{os.getppid()}}/cwd"):
            try:
                assert not os.listdir(place), place
            except OSError:
                pass
        things = [thing for thing in gc.get_objects() if id(thing) not in EARLIER]
        streams = [thing for thing in things if isinstance(thing, Stream) or type(thing).__name__ == "Memmap"]
        assert not streams, streams
        return super().predict(x)


def make_learner():
    return Cheat()
"""


@pytest.mark.parametrize("namespaces", [True, False])
def test_a_submission_that_reads_ahead_gets_nothing(
    app: Path, tmp_path: Path, namespaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither later steps nor what it saw with another seed: its answers are those of the honest learner."""

    def work() -> None:
        if not namespaces:
            monkeypatch.setattr(enclosure, "_in_namespaces", forbidden)
        ingest(place / "input_data", place / "output", place / "program", place / "submission")

    with open_folder() as place:
        for name in ("input_data", "program"):
            shutil.copytree(app / "ingestion" / name, place / name)
        (place / "submission").mkdir()
        earlier = [id(one) for one in gc.get_objects() if isinstance(one, Stream) or type(one).__name__ == "Memmap"]
        code = CHEAT.format(folder=str(place / "input_data"), earlier=earlier)
        (place / "submission" / "submission.py").write_text(code)
        as_user(USERS["user"], work)
        folders = [sorted(path.parent for path in x.rglob("outcomes.parquet")) for x in (place, app / "ingestion")]
        cheat, honest = ([pq.read_table(f / "outcomes.parquet")["predicted"] for f in of] for of in folders)
        assert len(cheat) == 2
        assert cheat == honest


@pytest.mark.parametrize(
    ("code", "words"), [("import time; time.sleep(60)", "ended after 1 seconds"), ("print(chr(27)); 1 / 0", r"\\x1b")]
)
def test_a_submission_that_does_not_answer_is_ended(code: str, words: str) -> None:
    with open_folder() as folder:
        (folder / "submission.py").write_text(code)
        kind = handed(folder, 1, Bounds(1, 2**30, 2**20))
        with pytest.raises(BadInput, match=words):
            kind().begin(Task(2, (1,)), np.random.default_rng(0))
        kind.end()


def test_what_is_refused(app: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="a learner needs no label of a test sample"):
        bundle(Stream.load(app / "S"), "near-future", [0], "me/driftline", tmp_path / "x.zip")
    place = app / "ingestion"
    wrong: dict[str, tuple[str, type[DriftlineError], str]] = {
        "nothing": ("", BadInput, "has no submission.py"),
        "other": ("def make_learner(): return 3", BadInput, "returned int"),
        "broken": ("def make_learner(): return 1 / 0", DriftlineError, "ZeroDivisionError"),
    }
    for name, (code, kind, words) in wrong.items():
        with open_folder() as folder:
            if code:
                (folder / "submission.py").write_text(code)
            with pytest.raises(kind, match=words):
                ingest(place / "input_data", tmp_path / name, place / "program", folder)


def test_answers_of_other_seeds_are_not_scored(app: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(app / "scoring", tmp_path / "scoring"))
    first = next(path.parent for path in sorted((folder / "input" / "res").rglob("run.json")))
    shutil.rmtree(first)
    with pytest.raises(BadInput, match="Expected one for each of the seeds 0, 1"):
        score(folder / "input", folder / "output", folder / "program")


def nested(data: Any) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return file.namelist()


def test_programs_are_at_the_root_of_their_archives(app: Path) -> None:
    for name, script in (("ingestion_program", "ingestion.py"), ("scoring_program", "scoring.py")):
        assert nested((app / "bundle" / f"{name}.zip").read_bytes()) == ["metadata.yaml", script, "task.json"]


def test_the_command_names_the_image_the_seeds_and_the_title(app: Path, tmp_path: Path) -> None:
    command = ("stream", "export", app / "S", "--format", "codabench", "--out", tmp_path / "exports")
    words = (*command, "--set", "image=me/other", "--set", "seeds=3-4")
    exported = document(*words, "--set", "title=Ours")
    assert (exported["out"], exported["exports"]) == (str(tmp_path / "exports"), {"codabench": {"files": 9}})
    with zipfile.ZipFile(tmp_path / "exports" / "codabench" / "bundle.zip") as file:
        competition = yaml.safe_load(file.read("competition.yaml"))
    assert (competition["title"], competition["docker_image"]) == ("Ours", "me/other")
    asked = console.handed("driftline.eval.leaderboard.codabench.bundle", *words, "--set", "protocol=near-future")
    assert list(asked.values())[1:3] == ["near-future", [3, 4]]
    assert "Expected clear-iid" in inside(*words, "--set", "protocol=near-future").stderr
    for more, problem in (
        ((), "The format codabench needs image. Expected --set image=…"),
        (("--set", "imgae=x"), "Unknown setting 'imgae' of an export. Did you mean 'image'?"),
    ):
        done = inside(*command, *more)
        assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
