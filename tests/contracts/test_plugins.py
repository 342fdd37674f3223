"""Code of others extends driftline: by entry points of a package outside the repository, and by `package.module:Name`.
Plug-ins that fail harm nothing else, and a name in a file that somebody sent never imports a module.

The package is examples/mybench, copied with its metadata as an installer leaves it; driftline knows nothing of it.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
from contracts import test_exports, test_learners, test_protocols, test_registries, test_sources, test_stream_exports
from support.console import driftline
from support.helpers import drifting
from support.plugins import POINTS, importable, install
from support.small_runs import unpacked
from support.submissions import members_of, written

import driftline as dl
from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import BadPlugin
from driftline.curate.core.registry import Registry
from driftline.curate.core.seeding import rng_for
from driftline.curate.export import EXPORTS
from driftline.eval.leaderboard.submission import pack
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS
from driftline.pipelines.actions.listing import REGISTRIES
from driftline.pipelines.actions.makers import import_app
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.stages import STAGES

pytestmark = pytest.mark.usefixtures("packages")
ROOT = Path(__file__).resolve().parents[2]
# group of entry points → kind of `driftline list`, if they differ
KINDS = {"stream_exports": "stream-exports", "measures": "distances"}


@pytest.fixture(params=["entry point", "module"])
def how(request: pytest.FixtureRequest) -> str:
    """How driftline comes to know the objects."""
    return str(request.param)


def called(group: str, how: str) -> str:
    """What a user writes: the registered name, or the object's place."""
    name, target = next(iter(POINTS[group].items()))
    return {"entry point": name, "module": target}[how]


def succeeded(*words: str) -> str:
    done = driftline(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(*words: str) -> Any:
    return json.loads(succeeded(*words, "--json"))


def test_the_package_extends_every_registry_that_takes_entry_points_and_is_listed() -> None:
    registries = [registry for kind in REGISTRIES if isinstance(registry := REGISTRIES[kind], Registry)]
    assert set(POINTS) == {registry.group for registry in registries if registry.group}
    for group, names in POINTS.items():
        entries = {entry["name"]: entry for entry in dl.list_registered(KINDS.get(group, group))}
        for name, target in names.items():
            assert (entries[name]["origin"], entries[name]["target"]) == ("mybench 1.0", target)
    assert all(entry["summary"] for kind in REGISTRIES for entry in dl.list_registered(kind)), "says what it is"


@pytest.mark.proof("processes")
def test_a_process_of_its_own_needs_nothing_but_the_path(packages: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "driftline", "list", "learners", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "decayed-mean" in [entry["name"] for entry in json.loads(done.stdout)]


class TestCommandLine:
    def test_learner_and_protocol_are_evaluated_and_reported(self, how: str, tmp_path: Path) -> None:
        learner, protocol, runs = called("learners", how), called("protocols", how), str(tmp_path / "runs")
        words = ["--protocol", protocol, "--learners", f"{learner}(decay=0.9),majority", "--seeds", "0-1"]
        drifting(steps=3, drift=0.5).save(tmp_path / "S")
        results = document("eval", str(tmp_path / "S"), *words, "--out", runs)
        assert [result["learner"] for result in results["results"]] == [f"{learner}(decay=0.9)", "majority"]
        assert results["skipped"] == []
        plugin = ["--plugin", protocol] if how == "module" else []
        succeeded("report", runs, "--out", str(tmp_path / "report"), *plugin)
        page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
        assert "errors added" in page
        best = max(result["scores"]["last_step"]["mean"] for result in results["results"])
        tex = (tmp_path / "report" / "scores.tex").read_text(encoding="utf-8")
        assert rf"\mathbf{{{100 * best:.1f} " in tex

    def test_settings_of_both_are_checked_by_name(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--protocol", called("protocols", how), "--learners", called("learners", how), "--set", "dekay=1"]
        done = driftline("eval", str(fixtures / "finished-stream"), *words, "--out", str(tmp_path))
        assert done.returncode == 2
        assert "Did you mean 'decay'?" in done.stderr

    def test_a_release_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--format", called("exports", how), "--out", str(tmp_path / "out")]
        succeeded("export", str(fixtures / "finished"), *words)
        (written,) = (tmp_path / "out").rglob("labels.tsv")
        assert len(written.read_text().splitlines()) == 24

    def test_a_stream_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--format", called("stream_exports", how), "--out", str(tmp_path / "out")]
        succeeded("export", str(fixtures / "finished-stream"), *words)
        (written,) = (tmp_path / "out").rglob("samples.jsonl")
        stream = dl.Stream.load(fixtures / "finished-stream")
        n = sum(len(split) for step in stream.steps for split in step.splits.values())
        assert len(written.read_text().splitlines()) == n

    def test_a_batch_is_written_for_a_platform(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        platform, out = called("platforms", how), str(tmp_path / "out")
        words = ["--format", platform, "--image-base-url", "https://images.example", "--out", out]
        counts = document("batch", str(fixtures / "waiting"), *words)["batches"][platform]
        (sheet,) = (tmp_path / "out").rglob("sheet.txt")
        assert sheet.read_text().count("https://images.example/") == counts["images"] > 0
        assert counts["answers"] % counts["images"] == 0 < counts["answers"]

    def test_a_sampler_chooses_what_an_online_learner_trains_on(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        learner = f"fc-only(sampler={called('samplers', how)})"
        words = ["--protocol", "near-future", "--learners", learner, "--out", str(tmp_path / "runs")]
        results = document("eval", str(fixtures / "finished-stream"), *words, "--set", "shift=2", "--set", "batch=2")
        assert [result["learner"] for result in results["results"]] == [learner], results["skipped"]

    def test_a_dataset_is_shifted_and_measured(self, how: str, tmp_path: Path) -> None:
        out, shift = str(tmp_path / "S"), called("shifts", how)
        sequence = f"R:{{{shift}}}" if how == "module" else f"R:{shift}"
        words = ["--sequence", sequence, "--sizes", "60,40,40", "--test-size", "20", "--out", out]
        succeeded("stream", "compose", "--base", called("datasets", how), *words)
        assert len(dl.Stream.load(out).steps) == 3
        measure = called("measures", how)
        measured = document("stream", "measure", out, "--distance", measure)
        assert len(measured[measure]) == 3
        runs, report = str(tmp_path / "runs"), tmp_path / "report"
        succeeded("eval", out, "--protocol", "clear-streaming", "--learners", "majority", "--out", runs)
        succeeded("report", runs, "--stream", out, "--out", str(report))
        (page,) = report.glob("stream-*.html")
        text = page.read_text(encoding="utf-8")
        assert re.search(r"<h1>stripes-R:.*fade", text, re.IGNORECASE)
        assert ">Drift<" in text

    def test_a_network_is_trained(self, how: str, tmp_path: Path) -> None:
        dl.compose("stripes", "R", (60, 40), test_size=20).save(tmp_path / "S")
        words = ["--protocol", "seq-to-final", "--learners", "erm", "--set", f"network={called('networks', how)}"]
        more = ["--set", "epochs=2", "--set", "budget=small", "--out", str(tmp_path / "runs")]
        results = document("eval", str(tmp_path / "S"), *words, *more)
        assert [result["learner"] for result in results["results"]] == ["erm"], results["skipped"]

    def test_a_source_brings_its_own_keys(self, how: str, tmp_path: Path) -> None:
        write_diary(tmp_path, 8)
        run, source = str(tmp_path / "run"), called("sources", how)
        keys = {"source": source, "path": "../diary.txt", "separator": "';'"}
        sets = [word for key, value in keys.items() for word in ("--set", f"collection.{key}={value}")]
        succeeded("init", run, "--preset", "folder", *sets, "--set", "filter.upload_after_capture=false")
        text = (tmp_path / "run" / "driftline.yaml").read_text(encoding="utf-8")
        assert '  separator: ";"  # between date and image file' in text
        assert "sidecar" not in text, "and no others"
        stages = document("run", run, "--until", "bucket", "--workers", "1")["stages"]
        assert [entry["counts"]["kept"] for entry in stages if entry["stage"] == "bucket"] == [8]

    def test_an_encoder_makes_the_vectors_of_texts(self, how: str, tmp_path: Path) -> None:
        for side in ("train", "test"):
            (tmp_path / f"{side}.csv").write_text("text,category\na loan,loan\nmy card,card\n", encoding="utf-8")
        encoder = f"{called('encoders', how)}:en"
        succeeded("stream", "from-dataset", str(tmp_path), "--out", str(tmp_path / "S"))
        succeeded("stream", "encode", str(tmp_path / "S"), "--encoder", f"e={encoder}", "--out", str(tmp_path / "V"))
        assert dl.Stream.load(tmp_path / "V" / "e").x_shape == (6,)


def test_an_importer_has_a_command_with_its_options(tmp_path, monkeypatch):
    monkeypatch.setattr(import_app, "registered_commands", import_app.registered_commands[:])
    name, lines = f"from-{called('importers', 'entry point')}", tmp_path / "in" / "samples.jsonl"
    lines.parent.mkdir()
    lines.write_text("\n".join(json.dumps([i % 3, "train", i % 2, [float(i)]]) for i in range(60)))
    assert "--name TEXT" in succeeded("stream", name, "--help")
    assert "--name TEXT" in succeeded("-q", "stream", name, "--help")
    assert f"{name} " in succeeded("stream", "--help")
    saved = document("stream", name, str(lines.parent), "--name", "theirs", "--out", str(tmp_path / "S"))
    assert (saved["steps"], saved["samples"], saved["out"]) == (3, 60, str(tmp_path / "S"))
    assert dl.Stream.load(tmp_path / "S").name == "theirs"


def write_diary(folder: Path, n: int) -> dict[str, Any]:
    """n photos of three years, and the list of them; the settings of its source."""
    lines = []
    for i in range(n):
        photo(["car"], 0.2, rng_for(i, "diary")).save(folder / f"{i}.jpg")
        lines.append(f"{2010 + i // 2 % 3}-06-01;{i}.jpg\n")
    (folder / "diary.txt").write_text("".join(lines), encoding="utf-8")
    return {"path": folder / "diary.txt", "separator": ";"}


class TestContracts:
    """The checks that driftline's own entries pass, called with those of the package."""

    CLASSES: ClassVar = {
        test_learners.TestLearner: "decayed-mean", test_registries.TestShift: "fade",
        test_registries.TestDistance: "mean-shift", test_registries.TestNetwork: "tiny",
        test_registries.TestEncoder: "vowels", test_registries.TestDataset: "stripes",
        test_registries.TestSampler: "recent",
    }  # fmt: skip
    FUNCTIONS: ClassVar = [
        (test_learners.test_defaults_are_settings_that_fit, "decayed-mean"),
        (test_learners.test_every_setting_has_a_meaning, "decayed-mean"),
        (test_protocols.test_every_setting_has_a_meaning, "first-only"),
        (test_registries.test_every_image_is_asked_and_counted, "paper"),
        (test_registries.test_no_file_depends_on_gold_questions_or_ids, "paper"),
        (test_sources.test_every_key_of_a_source_is_described, "diary"),
    ]

    @pytest.mark.parametrize(("check", "name"), [
        *((getattr(kind(), check), name) for kind, name in CLASSES.items() for check in dir(kind) if "test_" in check),
        *FUNCTIONS,
    ])  # fmt: skip
    def test_a_member(self, check: Callable[..., None], name: str, tmp_path: Path) -> None:
        given = {"tmp_path": tmp_path, "memory": 0}
        check(name, *(given[key] for key in inspect.signature(check).parameters if key in given))

    def test_stream_export(self, tmp_path: Path) -> None:
        images = test_stream_exports.images()
        test_stream_exports.test_an_export_writes_every_sample_and_the_same_bytes_again("text", images, tmp_path)
        test_stream_exports.test_an_export_takes_features_or_says_that_it_needs_images("text", tmp_path / "features")

    @pytest.mark.parametrize("check", [
        "columns_order_and_ids", "restart_in_the_middle_gives_the_same_rest",
        "empty_input_is_an_error_that_names_the_file", "missing_input_is_an_error_that_names_the_path",
    ])  # fmt: skip
    def test_source(self, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(vars(test_sources), "diary", write_diary)
        getattr(test_sources, f"test_{check}")("diary", tmp_path)

    def test_a_missing_sample_or_reader_fails_and_says_where_it_goes(self, tmp_path, monkeypatch):
        with pytest.raises(pytest.fail.Exception, match=r"Expected diary\(folder, n\) .* in .*test_sources"):
            test_sources.test_columns_order_and_ids("diary", tmp_path)
        with pytest.raises(pytest.fail.Exception, match=r"Expected read_labels\(folder\) .* in .*test_exports"):
            test_exports.test_every_registered_format_has_every_image("labels", {}, None)  # type: ignore[arg-type]
        with pytest.raises(pytest.fail.Exception, match=r"Expected read_text\(folder, stream\)"):
            test_stream_exports.test_an_export_has_every_sample_in_order("text", {}, test_stream_exports.images())
        monkeypatch.delitem(test_registries.MODELS, "table")
        with pytest.raises(pytest.fail.Exception, match="'table' needs a model: .* in MODELS"):
            test_registries.loaded("table", tmp_path)
        monkeypatch.delitem(test_registries.SAMPLES, "imagenet")
        with pytest.raises(pytest.fail.Exception, match="'imagenet' needs files: .* in SAMPLES"):
            test_registries.opened("imagenet", tmp_path)

    def test_export(self, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def read(folder: Path) -> test_exports.Samples:
            rows = [line.split("\t") for line in (folder / "labels.tsv").read_text(encoding="utf-8").splitlines()]
            return {id_: (int(bucket), int(label), sha256) for id_, bucket, label, sha256 in rows}

        monkeypatch.setitem(vars(test_exports), "read_labels", read)
        release = dl.Release.open(fixtures / "finished")
        assert EXPORTS["labels"](release, tmp_path / "first")["images"] == len(release.table)
        exports = {"labels": tmp_path / "first"}
        test_exports.test_every_registered_format_has_every_image("labels", exports, release)

    @pytest.mark.proof("matrix")
    def test_protocol(self, stream: dl.Stream) -> None:
        test_protocols.test_the_learner_never_holds_a_test_split("first-only", stream)
        test_protocols.test_declared_scores_are_returned_and_the_primary_one_is_declared("first-only", stream)
        test_protocols.test_every_learner_has_scores_in_range_or_is_refused_by_name("first-only", "vectors", True)
        test_protocols.test_every_learner_is_deterministic_in_any_company("first-only")


def test_a_stage_inside_is_one_file_and_one_line(tmp_path, fixtures, monkeypatch):
    monkeypatch.setitem(STAGES._own, "weekday", "mybench.stage:Weekday")
    run = dl.Run(Path(shutil.copytree(fixtures / "finished", tmp_path / "run", copy_function=shutil.copy2)))
    with importable(tmp_path):  # the registry is read again
        done = dl.run(run, workers=1)["stages"][-1]
        assert (done["stage"], done["state"]) == ("weekday", "done")
        assert done["counts"]["read"] == done["counts"]["kept"] + done["counts"]["dropped"].get("weekend", 0)
        kept = pq.read_table(next(run.path.glob("stages/*_weekday")) / "members.parquet")["id"].to_pylist()
        assert "weekday" in [event["stage"] for event in dl.trace(run, kept[0])["events"]]


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
        found: dict[str, Any] = {entry["name"]: entry for entry in document("list", "learners", "--json")}
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
