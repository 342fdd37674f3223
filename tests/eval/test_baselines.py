"""Shipped baselines hold against their manifests and make a site; new submissions are verified in pull requests."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.console import handed
from support.helpers import drifting
from typer.testing import CliRunner

from driftline.curate.core.errors import BadConfig, IncompatibleStream, UnknownName
from driftline.eval.leaderboard import baselines
from driftline.eval.leaderboard.repeating import compared
from driftline.eval.leaderboard.submission import opened, pack, runs_of, with_records
from driftline.eval.leaderboard.verification import ROUNDED, Verdict, board, examined, verify
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.pipelines.cli import app
from driftline.pipelines.commands.share import _repeated_text
from driftline.stream_builder.stream import Stream

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "submissions.yml"
SHIPPED = baselines.shipped()
MOST = 5 * 2**20  # bytes of all of them


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("streams")
    names = [path.stem for path in (baselines.HERE / "streams").glob("*.zip")]
    return {baselines.unpacked(name, folder / name).sha256: folder / name for name in names}


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Run]]:
    return {name: runs_of(opened(path)[0]) for name, path in SHIPPED.items()}


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in baselines.HERE.rglob("*.zip")) <= MOST


@pytest.mark.parametrize("name", SHIPPED)
def test_twenty_learners_ran_on_each_stream(name: str, runs: dict[str, list[Run]]) -> None:
    assert len({run.about["learner"] for run in runs[name]}) >= 20
    assert len({(run.about["stream"]["sha256"], run.about["protocol"]) for run in runs[name]}) == 1


def test_shipped_streams_are_those_of_the_runs(streams: dict[str, Path], runs: dict[str, list[Run]]) -> None:
    ran_on = {run.about["stream"]["sha256"] for listed in runs.values() for run in listed}
    assert set(streams) <= ran_on
    assert len(streams) >= 3


@pytest.mark.proof("matrix")
def test_no_shipped_row_is_stale(streams: dict[str, Path], runs: dict[str, list[Run]]) -> None:
    """The first run of each learner on the smallest stream that is shipped, run again. Another processor may change
    single answers; a step that diverges on one, all."""
    todo: dict[str, tuple[int, str, int]] = {}
    for name, listed in runs.items():
        for number, run in enumerate(listed):
            if run.about["stream"]["sha256"] in streams:
                size = sum(row.n for row in run.rows)
                todo.setdefault(run.about["learner"], (size, name, number))
                todo[run.about["learner"]] = min(todo[run.about["learner"]], (size, name, number))
    assert len(todo) >= 44
    members = {name: opened(path)[0] for name, path in SHIPPED.items()}
    loaded = {sha: Stream.load(folder) for sha, folder in streams.items()}
    stale = {}
    for learner, (_, name, number) in sorted(todo.items()):
        run = with_records(runs[name][number], members[name], number)
        differs, share = compared(run, loaded[run.about["stream"]["sha256"]])
        if share > ROUNDED:
            stale[learner] = differs
    assert not stale, "run studies/baselines.py"


class TestCheck:
    """`driftline leaderboard --check`."""

    def packed(self, tmp_path: Path) -> tuple[Path, Path]:
        drifting(steps=3).save(tmp_path / "S")
        evaluate(Stream.load(tmp_path / "S"), "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "runs")
        pack([tmp_path / "runs"], "ours", tmp_path / "ours.zip")
        return tmp_path / "ours.zip", tmp_path / "S"

    def test_a_run_that_the_code_does_not_give_is_named(self) -> None:
        """Other answers: stale if older code gave them, else false; none of the submission's own problems."""
        about = {"learner": "er", "protocol": "clear-iid", "seed": 0, "differs": "row 0"}
        for older, kind in ((True, "stale"), (False, "false")):
            again = [about | {"run": n, "share": share, "older": older} for n, share in enumerate((0.5, 0.005))]
            verdict = Verdict("ours", [], again, problems=["er, seed 0: row 0", "A hash differs."])
            found = verdict.repeated()
            assert [run["run"] for run in found[kind]] == [0]
            assert found["same"] == 1
            assert found["problems"] == ["A hash differs."]
            assert _repeated_text({"file": "x"} | found)[0].endswith(f"seed 0: {kind}, row 0")

    def test_a_page_or_a_check(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(app, ["leaderboard", "x.zip"])
        assert "Expected one of them" in str(done.exception)
        path, stream = self.packed(tmp_path)
        done = CliRunner().invoke(app, ["leaderboard", str(path), "--stream", str(stream), "--check"])
        assert done.exit_code == 0
        assert "2 of 2 runs are what the code gives" in done.output


@pytest.mark.proof("matrix")
def test_the_published_leaderboard_is_theirs_with_rows_of_the_answers_and_the_streams_labels(streams):
    """Nothing runs again here, so that the column *checked* differs."""
    verdicts = []
    for path in baselines.on(list(streams.values())):
        found = examined(path, {sha: Stream.load(folder) for sha, folder in streams.items()})
        assert not any(run["unverified"] for run in found["runs"])
        verdicts.append(Verdict(found["name"], found["documents"], problems=found["problems"]))
    page = (baselines.HERE / "leaderboard.md").read_text(encoding="utf-8")
    without, repeated = re.subn(r"\| \d of \d re-run \|", "| not re-run |", page)
    assert repeated >= 8
    assert without.strip() == board(verdicts).strip()


def test_every_shipped_row_says_its_code(runs: dict[str, list[Run]]) -> None:
    for listed in runs.values():
        assert all(re.fullmatch(r"driftline [\d.]+ \([0-9a-f]{12}\)", run.about["code"]) for run in listed)


def test_only_those_of_the_given_streams_are_compared(streams: dict[str, Path], tmp_path: Path) -> None:
    for sha, folder in streams.items():
        (path,) = baselines.on([folder])
        assert baselines.shas(path) == {sha}
    assert baselines.on([]) == list(SHIPPED.values())
    drifting().save(tmp_path / "other")
    with pytest.raises(IncompatibleStream, match=r"No baseline ran on 'drifting' .* Expected one of .*painted-fruit"):
        baselines.on([tmp_path / "other"])


def test_a_page_with_unverified_results_may_hold_submissions_of_other_streams(streams: dict[str, Path]) -> None:
    path, folder = SHIPPED["cifar10"], next(iter(streams.values()))
    assert verify(path, [folder]).problems == ["No run is on one of the given streams."]
    verdict = verify(path, [folder], elsewhere=True)
    assert verdict.holds
    assert {run["because"] for run in verdict.unverified} == {"its stream is not here"}


def test_a_stream_is_written_once_and_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'painted-fruit'"):
        baselines.unpacked("painted-fruits", tmp_path / "S")
    done = CliRunner().invoke(app, ["stream", "from-baseline", "painted-fruit", "--out", str(tmp_path / "S")])
    assert "--protocol clear-iid --set splits=published" in done.output
    assert len(Stream.load(tmp_path / "S").steps) == 5
    with pytest.raises(BadConfig, match="Expected a new folder"):
        baselines.unpacked("painted-fruit", tmp_path / "S")


def test_a_leaderboard_of_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["leaderboard", "--out", str(tmp_path / "board.md")])
    assert done.exit_code != 0
    assert "There is no submission to show" in str(done.exception or done.output)


def test_the_command_adds_the_baselines_of_a_stream(streams: dict[str, Path], tmp_path: Path) -> None:
    folder = next(iter(streams.values()))
    words = ("leaderboard", "--baselines", "--stream", folder, "--out", tmp_path / "board.md")
    found = handed("driftline.eval.leaderboard.verification.verify", *words)
    assert list(found.values())[:2] == [baselines.on([folder])[0], [folder]]


class TestPullRequest:
    """The shell step of the workflow, with a stand-in for `driftline`."""

    def git(self, folder: Path, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def step(self) -> dict[str, Any]:
        steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["verify"]["steps"]
        return next(step for step in steps if step.get("name") == "Verify")

    @pytest.mark.parametrize("holds", [True, False])
    def test_every_new_file_is_verified_and_nothing_of_it_is_run(self, holds: bool, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs"
        (theirs / "docs" / "submissions").mkdir(parents=True)
        (theirs / "docs" / "submissions" / "old.zip").write_text("old")
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "base"]):
            self.git(theirs, *words)
        base = self.git(theirs, "rev-parse", "HEAD")
        (theirs / "docs" / "submissions" / "a b;touch ran.zip").write_text("first")
        (theirs / "docs" / "submissions" / "new.zip").write_text("second" if holds else "wrong")
        (theirs / "driftline.py").write_text("raise SystemExit('code of the pull request')")
        for words in (["add", "."], ["commit", "-qm", "new"], ["update-ref", "refs/pull/7/head", "HEAD"]):
            self.git(theirs, *words)
        mine = tmp_path / "mine"
        self.git(tmp_path, "clone", "-q", "--no-local", str(theirs), "mine")
        self.git(mine, "checkout", "-q", base)
        program = tmp_path / "bin" / "driftline"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\ncat "$2" >> {tmp_path}/log; echo " $*" >> {tmp_path}/log; ! grep -q wrong "$2"\n'
        )
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-c", self.step()["run"]], cwd=mine,
            env=os.environ | {"PATH": path, "BASE": base, "HEAD": "refs/pull/7/head"},
        )  # fmt: skip
        assert done.returncode == (0 if holds else 1)
        lines = (tmp_path / "log").read_text().splitlines()
        assert [line.split()[0] for line in lines] == ["first", "second" if holds else "wrong"]
        assert all(f"--public-value {base} --again 2" in line for line in lines)
        assert not (mine / "ran.zip").exists()
        assert not (mine / "driftline.py").exists()
