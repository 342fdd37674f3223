"""Code of others extends driftline: by entry points of a package outside the repository, by `package.module:Name`, and
inside by one file and one line in the registry.

The package is a folder with a module and metadata, as an installer leaves it; driftline knows nothing of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import contracts.test_exports as export_contract
import contracts.test_learners as learner_contract
import contracts.test_measures as measure_contract
import contracts.test_protocols as protocol_contract
import contracts.test_shifts as shift_contract
import contracts.test_sources as source_contract
import pytest
from support.console import answer, driftline
from support.plugins import ACME, importable, install, install_acme

import driftline as dl
from curate.core.atomic_io import read_json, write_json
from curate.core.errors import BadPlugin
from curate.core.seeding import rng_for
from curate.export import EXPORTS
from eval.leaderboard.submission import pack
from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS
from pipelines.cli.app import main
from pipelines.cli.listing import REGISTRIES
from pipelines.demo.draw import photo
from pipelines.stages import STAGES

STAGE = '''
from pipelines.stage import Counts, Stage
import pyarrow.parquet as pq
from curate.core.atomic_io import write_parquet

class Count(Stage):
    """Lists what is in the release."""
    name = "count"
    needs = ("publish",)
    def settings(self):
        return {}
    def run(self, inputs, out):
        ids = pq.read_table(inputs["publish"] / "release" / "metadata.parquet", columns=["id"])
        write_parquet(out / "ids.parquet", ids)
        return Counts(len(ids), len(ids), {})
'''
ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "v0.1.0"
KINDS = {"stream_exports": "stream-exports"}  # group of entry points → kind of `driftline list`, if they differ


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


@pytest.fixture(params=["entry point", "module", "one line"])
def how(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How driftline comes to know the objects; "one line": a file, and one line in each registry's own table."""
    if request.param != "one line":
        yield request.param
        return
    code = (ROOT / "tests" / "support" / "acme_drift.py").read_text(encoding="utf-8")
    for group, entries in ACME.items():
        for name, target in entries.items():
            own = REGISTRIES[KINDS.get(group, group)]._own
            monkeypatch.setitem(own, name.replace("acme", "own"), target.replace("acme_drift", "own_drift"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_drift.py").write_text(code, encoding="utf-8")
    with importable(tmp_path / "own"):
        yield request.param


def called(group: str, how: str) -> str:
    """What a user writes: the registered name, or the object's place."""
    ((name, target),) = ACME[group].items()
    return {"entry point": name, "module": target, "one line": name.replace("acme", "own")}[how]


def command(how: str, *words: str) -> CompletedProcess[str]:
    """The command line; in this process where only this process knows the line."""
    if how != "one line":
        return driftline(*words)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["driftline", *words])
        try:
            main()
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())


def succeeded(how: str, *words: str) -> str:
    done = command(how, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(how: str, *words: str) -> Any:
    return json.loads(succeeded(how, *words, "--json"))


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


class TestCommandLine:
    def test_learner_and_protocol_are_evaluated_and_reported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        learner, protocol, runs = called("learners", how), called("protocols", how), str(tmp_path / "runs")
        words = ["--protocol", protocol, "--learners", f"{learner}(weight=0.9),majority", "--seeds", "0-1"]
        results = document(how, "eval", str(fixtures / "finished-stream"), *words, "--out", runs)
        assert [result["learner"] for result in results["results"]] == [f"{learner}(weight=0.9)", "majority"]
        assert results["skipped"] == []
        plugin = ["--plugin", protocol] if how == "module" else []
        succeeded(how, "report", runs, "--out", str(tmp_path / "report"), *plugin)
        page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
        assert "wrong answers" in page
        best = min(result["scores"]["wrong"]["mean"] for result in results["results"])
        tex = (tmp_path / "report" / "scores.tex").read_text(encoding="utf-8")
        assert rf"\mathbf{{{best:.3f}" in tex, "fewer wrong answers are better"

    def test_settings_of_both_are_checked_by_name(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--protocol", called("protocols", how), "--learners", called("learners", how), "--set", "weigth=1"]
        done = command(how, "eval", str(fixtures / "finished-stream"), *words, "--out", str(tmp_path))
        assert done.returncode == 2
        assert "Did you mean 'weight'?" in done.stderr

    def test_a_release_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--format", called("exports", how), "--out", str(tmp_path / "out")]
        succeeded(how, "release", str(fixtures / "finished"), *words)
        (written,) = (tmp_path / "out").rglob("images.txt")
        assert len(written.read_text().splitlines()) == 24

    def test_a_dataset_is_shifted_and_measured(self, how: str, tmp_path: Path) -> None:
        out, shift = str(tmp_path / "S"), called("shifts", how)
        sequence = f"R:{{{shift}}}" if how == "module" else f"R:{shift}"
        words = ["--sequence", sequence, "--sizes", "60,40,40", "--test-size", "20", "--out", out]
        succeeded(how, "stream", "compose", "--base", called("datasets", how), *words)
        assert len(dl.Stream.load(out).steps) == 3
        measure = called("measures", how)
        measured = document(how, "stream", "measure", out, "--distance", measure)
        assert len(measured[measure]) == 3

    def test_a_network_is_trained(self, how: str, tmp_path: Path) -> None:
        dl.compose(dl.open_dataset("acme-squares"), "R", (60, 40), 20).save(tmp_path / "S")
        words = ["--protocol", "seq-to-final", "--learners", "erm", "--set", f"network={called('networks', how)}"]
        more = ["--set", "epochs=2", "--set", "budget=small", "--out", str(tmp_path / "runs")]
        results = document(how, "eval", str(tmp_path / "S"), *words, *more)
        assert [result["learner"] for result in results["results"]] == ["erm"], results["skipped"]

    def test_a_source_and_an_encoder_make_a_release(self, how: str, tmp_path: Path) -> None:
        write_album(tmp_path, 24)
        collection, run = called("sources", how), str(tmp_path / "run")
        succeeded(how, "init", run, "--preset", "folder", "--set", f"collection.source={collection}",
                  *album_settings(how))  # fmt: skip
        text = (tmp_path / "run" / "driftline.yaml").read_text(encoding="utf-8")
        assert '  separator: ";"  # between the three' in text, "the source brings its own keys"
        assert "sidecar" not in text, "and no others"
        succeeded(how, "run", run, "--workers", "1")
        release = dl.Release.open(run)
        assert len(release.table) == 12
        assert release.facts["provenance"]["source"] == collection
        assert release.features("clip").shape == (12, 12)
        assert document(how, "trace", run, "photo-0")["events"][0]["stage"] == "ingest"


def album_settings(how: str) -> list[str]:
    settings = {
        "collection.path": "album.txt", "collection.separator": "';'", "filter.upload_after_capture": False,
        "buckets": "{kind: calendar, unlabelled: []}", "embed.encoder": called("encoders", how), "embed.model": "x",
        "retrieve": "{per_class: 8, depth: 8, background: false, short: fewer, overlap: allow, concepts: "
        "[{name: car, prompts: [a car]}, {name: bus, prompts: [a bus]}]}",
        "validation": "{method: catalogue}", "release": "{per_class: 2, splits: 1, short: fewer}",
    }  # fmt: skip
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def write_album(folder: Path, n: int) -> dict[str, Any]:
    """n photos of two classes and three years, and the list of them; the settings of its source."""
    lines = []
    for i in range(n):
        label, year = ("car", "bus")[i % 2], 2010 + i // 2 % 3
        photo([label], 0.2, rng_for(i, "album")).save(folder / f"{i}.jpg")
        lines.append(f"../{i}.jpg;{label};{year}\n")
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "album.txt").write_text("".join(lines), encoding="utf-8")
    return {"path": folder / "run" / "album.txt", "separator": ";"}


class TestContracts:
    """The checks that driftline's own entries pass, called with those of the package."""

    @pytest.mark.parametrize(("checks", "check", "name"), [
        (checks, check, name)
        for checks, name in (
            (learner_contract.TestLearner, "acme-prototype"),
            (shift_contract.TestShift, "acme-invert"),
            (measure_contract.TestDistance, "acme-centres"),
        )
        for check in dir(checks) if check.startswith("test_")
    ])  # fmt: skip
    def test_learner_shift_and_measure(self, checks: type, check: str, name: str) -> None:
        getattr(checks(), check)(name)

    @pytest.mark.parametrize("check", [
        "columns_order_and_ids", "restart_in_the_middle_gives_the_same_rest",
        "empty_input_is_an_error_that_names_the_file", "missing_input_is_an_error_that_names_the_path",
    ])  # fmt: skip
    def test_source(self, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(vars(source_contract), "acme-album", write_album)
        getattr(source_contract, f"test_{check}")("acme-album", tmp_path)

    def test_export(self, fixtures: Path, tmp_path: Path) -> None:
        release = dl.Release.open(fixtures / "finished")
        assert EXPORTS["acme-listing"](release, tmp_path / "first")["images"] == len(release.table)
        exports = {"acme-listing": tmp_path / "first"}
        export_contract.test_every_registered_format_has_every_image("acme-listing", exports, release)

    def test_protocol(self, stream: dl.Stream) -> None:
        protocol_contract.test_the_learner_never_holds_a_test_split("acme-last-step", stream)
        protocol_contract.test_every_learner_is_deterministic_and_scores_are_in_range("acme-last-step", stream)


def test_a_stage_inside_is_one_file_and_one_line(
    tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_stage.py").write_text(STAGE, encoding="utf-8")
    monkeypatch.setitem(STAGES._own, "count", "own_stage:Count")
    run = dl.Run(Path(shutil.copytree(fixtures / "finished", tmp_path / "run", copy_function=shutil.copy2)))
    with importable(tmp_path):
        last = run.run(workers=1)[-1]
        assert (last["stage"], last["state"], last["counts"]["kept"]) == ("count", "done", 24)
        id_ = run.release().table["id"][0].as_py()
        assert [event["stage"] for event in run.trace(id_)["events"]][-2:] == ["publish", "count"]
        assert "count" in run._repr_html_()


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
    def test_a_submission(
        self, trap: Path, rows: Path, changes: dict[str, str], fixtures: Path, tmp_path: Path
    ) -> None:
        pack([rows], "somebody", tmp_path / "theirs.zip")
        theirs = forged(tmp_path / "theirs.zip", changes)
        words = ["--stream", str(fixtures / "finished-stream"), "--again", "1"]
        done = driftline("verify", str(theirs), *words)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert not trap.exists()

    def test_a_release(self, trap: Path, tmp_path: Path) -> None:
        with tarfile.open(FIXTURES / "finished.tar.gz") as file:
            file.extractall(tmp_path, filter="data")
        release = dl.Release.open(tmp_path / "finished").path
        facts = read_json(release / "release.json")
        facts["provenance"]["encoder"] |= {"kind": "trap:Name", "model": "trap:Name"}
        facts["provenance"]["source"] = "trap:Name"
        write_json(release / "release.json", facts)
        for words in (["stream", "from-release", str(release), "--out", str(tmp_path / "S")], ["audit", str(release)]):
            assert driftline(*words).returncode == 0
        assert not trap.exists()


def forged(path: Path, changes: Mapping[str, str]) -> Path:
    """A submission whose run says something else, with the right hash; a setting, if the run has no such key."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(members["manifest.json"])
    for name in [name for name in members if name.endswith("run.json")]:
        about = json.loads(members[name])
        for key, value in changes.items():
            (about if key in about else about["settings"])[key] = value
        members[name] = json.dumps(about).encode()
        manifest["files"][name] = hashlib.sha256(members[name]).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path
