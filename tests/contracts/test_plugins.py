"""A package outside the repository extends driftline by entry points alone, or by `package.module:Name`.

It is a folder with a module and metadata, as an installer leaves it; nothing of it is known to driftline.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.console import answer, driftline
from support.plugins import ACME, importable, install, install_acme

import driftline as dl
from curate.core.errors import BadPlugin, UnknownName
from curate.export import EXPORTS
from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "v0.1.0"
KINDS = {"stream_exports": "stream-exports"}  # group of entry points → kind of `driftline list`, if they differ
NAMED = ["entry point", "module"]


@pytest.fixture(scope="module", autouse=True)
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that holds the package; it is installed while the tests of this file run."""
    folder = install_acme(tmp_path_factory.mktemp("site-packages"))
    with importable(folder):
        yield folder


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and a stream of features."""
    folder = tmp_path_factory.mktemp("fixtures")
    for name in ("finished", "finished-stream"):
        with tarfile.open(FIXTURES / f"{name}.tar.gz") as file:
            file.extractall(folder, filter="data")
    return folder


def called(group: str, how: str) -> str:
    """What a user writes: the registered name, or the object itself."""
    ((name, target),) = ACME[group].items()
    return name if how == "entry point" else target


def succeeded(*words: str) -> str:
    done = driftline(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("group", ACME)
def test_it_is_listed_with_its_package(group: str) -> None:
    ((name, target),) = ACME[group].items()
    entries = {entry["name"]: entry for entry in answer("list", KINDS.get(group, group), "--json")}
    assert (entries[name]["origin"], entries[name]["target"]) == ("acme_drift 1.0", target)
    assert entries[name] in dl.list_registered(KINDS.get(group, group))


def test_a_process_of_its_own_needs_nothing_but_the_path(packages: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pipelines.cli", "list", "learners", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "acme-prototype" in [entry["name"] for entry in json.loads(done.stdout)]


@pytest.mark.parametrize("how", NAMED)
class TestCommandLine:
    def test_learner_and_protocol_are_evaluated_and_reported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        learner, protocol = called("learners", how), called("protocols", how)
        words = ["--protocol", protocol, "--learners", f"{learner}(weight=0.9),majority", "--seeds", "0-1"]
        document = answer("eval", str(fixtures / "finished-stream"), *words, "--out", str(tmp_path / "runs"), "--json")
        assert [result["learner"] for result in document["results"]] == [f"{learner}(weight=0.9)", "majority"]
        assert document["skipped"] == []
        plugin = ["--plugin", protocol] if how == "module" else []
        succeeded("report", str(tmp_path / "runs"), "--out", str(tmp_path / "report"), *plugin)
        page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
        assert "wrong answers" in page
        best = min(result["scores"]["wrong"]["mean"] for result in document["results"])
        tex = (tmp_path / "report" / "scores.tex").read_text(encoding="utf-8")
        assert rf"\mathbf{{{best:.3f}" in tex, "fewer wrong answers are better"

    def test_settings_of_both_are_checked_by_name(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--protocol", called("protocols", how), "--learners", called("learners", how), "--set", "weigth=1"]
        done = driftline("eval", str(fixtures / "finished-stream"), *words, "--out", str(tmp_path))
        assert done.returncode == 2
        assert "Did you mean 'weight'?" in done.stderr

    def test_a_release_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        succeeded("release", str(fixtures / "finished"), "--format", called("exports", how), "--out", str(tmp_path))
        (written,) = tmp_path.rglob("images.txt")
        assert len(written.read_text().splitlines()) == 24

    def test_a_dataset_is_shifted_and_measured(self, how: str, tmp_path: Path) -> None:
        out = str(tmp_path / "S")
        sequence = f"R:{{{called('shifts', how)}}}"
        words = ["--sequence", sequence, "--sizes", "60,40,40", "--test-size", "20", "--out", out]
        succeeded("stream", "compose", "--base", called("datasets", how), *words)
        assert len(dl.Stream.load(out).steps) == 3
        measure = called("measures", how)
        measured = answer("stream", "measure", out, "--distance", measure, "--json")
        assert len(measured[measure]) == 3

    def test_a_network_is_trained(self, how: str, tmp_path: Path) -> None:
        dl.compose(dl.open_dataset("acme-squares"), "R", (60, 40), 20).save(tmp_path / "S")
        words = ["--protocol", "seq-to-final", "--learners", "erm", "--set", f"network={called('networks', how)}"]
        more = ["--set", "epochs=2", "--set", "budget=small", "--out", str(tmp_path / "runs"), "--json"]
        document = answer("eval", str(tmp_path / "S"), *words, *more)
        assert [result["learner"] for result in document["results"]] == ["erm"], document["skipped"]


def test_python_takes_names_classes_and_instances(fixtures: Path) -> None:
    from acme_drift import LastStep, Prototype  # type: ignore[import-not-found]

    stream = dl.Stream.load(fixtures / "finished-stream")
    results = [
        dl.evaluate(stream, protocol, [learner])
        for protocol, learner in (
            ("acme-last-step", "acme-prototype"),
            ("acme_drift:LastStep", "acme_drift:Prototype"),
            (LastStep, Prototype),
            (LastStep(), Prototype(weight=0.5)),
        )
    ]
    assert len({json.dumps(result["results"][0]["scores"]) for result in results}) == 1
    assert results[0]["protocol"] == results[2]["protocol"] == "acme-last-step", "a registered class has its name"
    assert "wrong answers" in results[0]._repr_html_()


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
        assert found["acme-prototype"]["summary"].startswith("Learner:")
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
        with pytest.raises(BadPlugin, match=r"Expected a class derived from eval\.protocol\.Protocol"):
            PROTOCOLS["odd"]

    def test_two_registrations_of_one_name_are_refused_by_name(self, tmp_path: Path) -> None:
        points = {"learners": {"er": "other:Er", "acme-prototype": "other:Prototype"}}
        with importable(install(tmp_path, "other", points)):
            with pytest.raises(BadPlugin, match=r"'er' is registered by driftline .* and other 1\.0 \(other:Er\)"):
                LEARNERS["er"]
            with pytest.raises(BadPlugin, match=r"other 1\.0 \(other:Prototype\) and acme_drift 1\.0"):
                LEARNERS["acme-prototype"]
            assert LEARNERS["nap"]


class TestFiles:
    """A name in a file that somebody sent never imports a module."""

    @pytest.fixture
    def trap(self, tmp_path: Path) -> Iterator[Path]:
        """A module that leaves a mark where it is imported; no entry point names it."""
        mark = tmp_path / "imported"
        with importable(install(tmp_path / "trap", "trap", {}, f"open({str(mark)!r}, 'w').close()\nclass Name: ...\n")):
            yield mark

    def test_rows(self, trap: Path, fixtures: Path, tmp_path: Path) -> None:
        dl.evaluate(dl.Stream.load(fixtures / "finished-stream"), "clear-iid", ["majority"], out=tmp_path / "runs")
        (path,) = tmp_path.rglob("run.json")
        for changes in ({"learner": "trap:Name"}, {"protocol": "trap:Name"}):
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))
            driftline("report", str(tmp_path / "runs"), "--out", str(tmp_path / "report"))
            assert not trap.exists()
        with pytest.raises(UnknownName, match="names no module that is imported|not registered"):
            dl.report(tmp_path / "runs", tmp_path / "report")
        assert not trap.exists()
