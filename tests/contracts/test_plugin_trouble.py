"""Plug-ins that fail harm nothing else, and a name in a file that somebody sent never imports a module."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.console import answer, driftline
from support.plugins import importable, install
from support.small_runs import unpacked
from support.submissions import members_of, written

import driftline as dl
from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import BadPlugin
from driftline.curate.export import EXPORTS
from driftline.eval.leaderboard.submission import pack
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS

pytestmark = pytest.mark.usefixtures("packages")


class TestTrouble:
    """One bad package does not harm the others."""

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Iterator[None]:
        points: Mapping[str, Mapping[str, str]] = {
            "learners": {"broken": "broken_drift:Learner", "absent": "broken_drift_absent:Learner"},
            "exports": {"wrong": "json:__doc__"},
            "protocols": {"odd": "json:JSONDecoder"},
        }
        with importable(install(tmp_path, "broken_drift", points, "raise RuntimeError('no licence')\n")):
            yield

    def test_an_entry_point_that_fails_is_named_and_the_others_work(self, broken: None) -> None:
        found: dict[str, Any] = {entry["name"]: entry for entry in answer("list", "learners", "--json")}
        assert "broken_drift 1.0" in found["broken"]["summary"]
        assert "RuntimeError: no licence" in found["broken"]["summary"]
        assert "No module named 'broken_drift_absent'" in found["absent"]["summary"]
        assert found["decayed-mean"]["summary"].startswith("The nearest class mean")
        assert found["er"]["origin"] == "driftline"

    def test_using_it_is_one_clear_paragraph(self, broken: None, fixtures: Path, tmp_path: Path) -> None:
        words = ["--protocol", "clear-iid", "--learners", "broken", "--out", str(tmp_path / "runs")]
        done = driftline("eval", str(fixtures / "finished-stream"), *words)
        assert done.returncode in (1, 2)
        assert "The learner 'broken' of broken_drift 1.0 (broken_drift:Learner) cannot be imported" in done.stderr
        assert "Traceback" not in done.stderr

    def test_what_is_not_what_it_was_registered_as_is_refused(self, broken: None) -> None:
        with pytest.raises(BadPlugin, match="Expected a callable"):
            EXPORTS["wrong"]
        with pytest.raises(BadPlugin, match=r"Expected a class derived from driftline\.eval\.protocol\.Protocol"):
            PROTOCOLS["odd"]

    def test_two_registrations_of_one_name_are_refused_by_name(self, tmp_path: Path) -> None:
        points = {"learners": {"er": "other:Er", "decayed-mean": "other:Mean"}}
        with importable(install(tmp_path, "other", points)):
            with pytest.raises(BadPlugin, match=r"'er' is registered by driftline .* and other 1\.0 \(other:Er\)"):
                LEARNERS["er"]
            with pytest.raises(BadPlugin, match=r"other 1\.0 \(other:Mean\) and mybench 1\.0"):
                LEARNERS["decayed-mean"]
            assert LEARNERS["nap"]

    def test_an_importer_without_a_command_of_its_own_is_refused_before_work(self, tmp_path: Path) -> None:
        targets = {"arrays": "other:read", "clear": "other:read", "dataset": "other:read", "odd": "other:odd"}
        code = "def read(source): ...\ndef odd(source, sizes: list[int] = []): ...\n"
        with importable(install(tmp_path / "other", "other", {"importers": targets}, code)):
            for name, problem in (
                ("arrays", r"'arrays' of other 1.0 (other:read) has the name of our from-arrays."),
                ("dataset", r"'dataset' of other 1.0 (other:read) has the name of our from-dataset."),
                ("clear", "'clear' is registered by driftline"),
                ("odd", "has a parameter sizes of type list[int]. Expected text, a number, a path or True and False."),
            ):
                done = driftline("stream", f"from-{name}", str(tmp_path), "--out", str(tmp_path / "S"))
                assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
            assert not (tmp_path / "S").exists()
            assert "parameter sizes of type" in driftline("stream", "--help").stdout

    def test_an_argument_named_stream_imports_no_importer(self, tmp_path: Path) -> None:
        points = {"importers": {"loud": "loud:read"}}
        with importable(install(tmp_path, "loud", points, "print('imported')\ndef read(source): ...\n")):
            assert "imported" not in driftline("eval", "stream", "--protocol", "clear-iid", "--help").stdout
            assert "imported" in driftline("-q", "stream", "--help").stdout


class TestFiles:
    """A name in a file that somebody sent never imports a module."""

    @pytest.fixture
    def trap(self, tmp_path: Path) -> Iterator[Path]:
        """A module that leaves a mark where it is imported; no entry point names it."""
        mark = tmp_path / "imported"
        with importable(install(tmp_path / "trap", "trap", {}, f"open({str(mark)!r}, 'w').close()\nclass Name: ...\n")):
            yield mark

    @pytest.fixture
    def rows(self, fixtures: Path, tmp_path: Path) -> Path:
        stream = dl.Stream.load(fixtures / "finished-stream")
        dl.evaluate(stream, "clear-iid", ["finetune"], settings={"epochs": 1}, out=tmp_path / "runs")
        return tmp_path / "runs"

    def test_the_user_of_this_process_may(self, trap: Path, fixtures: Path, tmp_path: Path) -> None:
        words = ["--protocol", "clear-iid", "--learners", "trap:Name", "--out", str(tmp_path / "runs")]
        assert driftline("eval", str(fixtures / "finished-stream"), *words).returncode != 0
        assert trap.exists()

    @pytest.mark.parametrize("key", ["learner", "protocol"])
    def test_rows(self, trap: Path, rows: Path, key: str, tmp_path: Path) -> None:
        (path,) = rows.rglob("run.json")
        write_json(path, read_json(path) | {key: "trap:Name"})
        done = driftline("report", str(rows), "--out", str(tmp_path / "report"))
        assert done.returncode == (2 if key == "protocol" else 0)
        assert not trap.exists()

    @pytest.mark.parametrize("changes", [{"learner": "trap:Name"}, {"protocol": "trap:Name"}, {"net": "trap:Name"}])
    def test_a_submission(self, trap, rows, changes, fixtures, tmp_path):
        pack([rows], "somebody", tmp_path / "theirs.zip")
        members = members_of(tmp_path / "theirs.zip")
        (name,) = [name for name in members if name.endswith("run.json")]
        about = json.loads(members[name])
        for key, value in changes.items():  # a setting, if the run has no such key
            (about if key in about else about["settings"])[key] = value
        theirs = written(tmp_path / "theirs.zip", members | {name: json.dumps(about).encode()})
        words = ["--stream", str(fixtures / "finished-stream"), "--again", "1"]
        done = driftline("verify", str(theirs), *words)
        assert done.returncode == (0 if "net" in changes else 1)
        assert "names a Python module" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert not trap.exists()

    def test_a_release(self, trap: Path, tmp_path: Path) -> None:
        release = dl.Release.open(unpacked("finished", tmp_path)).path
        facts = read_json(release / "release.json")
        facts["provenance"]["encoder"] |= {"kind": "trap:Name", "model": "trap:Name"}
        facts["provenance"]["source"] = "trap:Name"
        write_json(release / "release.json", facts)
        for words in (["stream", "from-release", str(release), "--out", str(tmp_path / "S")], ["audit", str(release)]):
            assert driftline(*words).returncode == 0
        assert not trap.exists()
