"""Code of others extends driftline: by entry points of a package outside the repository, and by `package.module:Name`.

The package is a folder with a module and metadata, as an installer leaves it; driftline knows nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import contracts.test_datasets as dataset_contract
import contracts.test_encoders as encoder_contract
import contracts.test_exports as export_contract
import contracts.test_learners as learner_contract
import contracts.test_measures as measure_contract
import contracts.test_networks as network_contract
import contracts.test_platforms as platform_contract
import contracts.test_protocols as protocol_contract
import contracts.test_samplers as sampler_contract
import contracts.test_shifts as shift_contract
import contracts.test_sources as source_contract
import contracts.test_stream_exports as stream_export_contract
import pytest
from support.console import answer, driftline
from support.plugins import ACME, importable

import driftline as dl
from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.registry import Registry
from driftline.curate.core.seeding import rng_for
from driftline.curate.export import EXPORTS
from driftline.pipelines.cli.imports import import_app
from driftline.pipelines.cli.listing import REGISTRIES
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.stages import STAGES
from driftline.stream_builder.export import EXPORTS as STREAM_EXPORTS
from driftline.stream_builder.measures.shift_distance import distances

pytestmark = pytest.mark.usefixtures("packages")
STAGE = '''
from driftline.pipelines.run.stage import Counts, Stage
import pyarrow.parquet as pq
from driftline.curate.core.atomic_io import write_parquet

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
# group of entry points → kind of `driftline list`, if they differ
KINDS = {"stream_exports": "stream-exports", "measures": "distances"}


@pytest.fixture(params=["entry point", "module"])
def how(request: pytest.FixtureRequest) -> str:
    """How driftline comes to know the objects."""
    return str(request.param)


def called(group: str, how: str) -> str:
    """What a user writes: the registered name, or the object's place."""
    ((name, target),) = ACME[group].items()
    return {"entry point": name, "module": target}[how]


def succeeded(*words: str) -> str:
    done = driftline(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(*words: str) -> Any:
    return json.loads(succeeded(*words, "--json"))


def test_the_package_extends_every_registry_that_takes_entry_points() -> None:
    registries = [registry for kind in REGISTRIES if isinstance(registry := REGISTRIES[kind], Registry)]
    assert set(ACME) == {registry.group for registry in registries if registry.group}


@pytest.mark.parametrize("group", ACME)
def test_it_is_listed_with_its_package(group: str) -> None:
    ((name, target),) = ACME[group].items()
    entries = {entry["name"]: entry for entry in answer("list", KINDS.get(group, group), "--json")}
    assert (entries[name]["origin"], entries[name]["target"]) == ("acme_drift 1.0", target)
    assert any(row.items() <= entries[name].items() for row in dl.list_registered(KINDS.get(group, group)))


@pytest.mark.proof("processes")
def test_a_process_of_its_own_needs_nothing_but_the_path(packages: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "driftline.pipelines.cli", "list", "learners", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "acme-prototype" in [entry["name"] for entry in json.loads(done.stdout)]


class TestCommandLine:
    def test_learner_and_protocol_are_evaluated_and_reported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        learner, protocol, runs = called("learners", how), called("protocols", how), str(tmp_path / "runs")
        words = ["--protocol", protocol, "--learners", f"{learner}(weight=0.9),majority", "--seeds", "0-1"]
        results = document("eval", str(fixtures / "finished-stream"), *words, "--out", runs)
        assert [result["learner"] for result in results["results"]] == [f"{learner}(weight=0.9)", "majority"]
        assert results["skipped"] == []
        plugin = ["--plugin", protocol] if how == "module" else []
        succeeded("report", runs, "--out", str(tmp_path / "report"), *plugin)
        page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
        assert "wrong answers" in page
        best = min(result["scores"]["wrong"]["mean"] for result in results["results"])
        tex = (tmp_path / "report" / "scores.tex").read_text(encoding="utf-8")
        assert rf"\mathbf{{{best:.0f} " in tex, "fewer wrong answers are better"

    def test_settings_of_both_are_checked_by_name(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--protocol", called("protocols", how), "--learners", called("learners", how), "--set", "weigth=1"]
        done = driftline("eval", str(fixtures / "finished-stream"), *words, "--out", str(tmp_path))
        assert done.returncode == 2
        assert "Did you mean 'weight'?" in done.stderr

    def test_a_release_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--format", called("exports", how), "--out", str(tmp_path / "out")]
        succeeded("release", str(fixtures / "finished"), *words)
        (written,) = (tmp_path / "out").rglob("images.txt")
        assert len(written.read_text().splitlines()) == 24

    def test_a_stream_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        words = ["--format", called("stream_exports", how), "--out", str(tmp_path / "out")]
        succeeded("stream", "export", str(fixtures / "finished-stream"), *words)
        (written,) = (tmp_path / "out").rglob("ledger.txt")
        stream = dl.Stream.load(fixtures / "finished-stream")
        n = sum(len(split) for step in stream.steps for split in step.splits.values())
        assert len(written.read_text().splitlines()) == n

    def test_a_batch_is_written_for_a_platform(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        platform, out = called("platforms", how), str(tmp_path / "out")
        words = ["--format", platform, "--image-base-url", "https://images.example", "--out", out]
        counts = document("batch", str(fixtures / "waiting"), *words)["batches"][platform]
        letters = list((tmp_path / "out").rglob("letter-*.txt"))
        assert counts["answers"] == counts["images"] * len(letters) > 0
        assert letters[0].read_text().count("https://images.example/") == counts["images"]

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
        assert re.search(r"<h1>acme-squares-R:.*invert", text, re.IGNORECASE)
        assert ">Drift<" in text

    def test_an_importer_has_a_command_with_its_options(
        self, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if how == "module":
            pytest.skip("a command is registered, or it is none")
        monkeypatch.setattr(import_app, "registered_commands", import_app.registered_commands[:])
        name, diary = f"from-{called('importers', how)}", tmp_path / "diary.txt"
        diary.write_text("\n".join(f"{2010 + i % 3}|{'ab'[i % 2]}|{i}" for i in range(60)))
        assert "--separator TEXT" in succeeded("stream", name, "--help")
        assert "--separator TEXT" in succeeded("-q", "stream", name, "--help")
        assert f"{name} " in succeeded("stream", "--help")
        saved = document("stream", name, str(diary), "--separator", "|", "--seed", "3", "--out", str(tmp_path / "S"))
        assert (saved["steps"], saved["samples"], saved["out"]) == (3, 60, str(tmp_path / "S"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["S", "diary.txt"]

    def test_a_network_is_trained(self, how: str, tmp_path: Path) -> None:
        dl.compose(dl.open_dataset("acme-squares"), "R", (60, 40), test_size=20).save(tmp_path / "S")
        words = ["--protocol", "seq-to-final", "--learners", "erm", "--set", f"network={called('networks', how)}"]
        more = ["--set", "epochs=2", "--set", "budget=small", "--out", str(tmp_path / "runs")]
        results = document("eval", str(tmp_path / "S"), *words, *more)
        assert [result["learner"] for result in results["results"]] == ["erm"], results["skipped"]

    def test_a_source_and_an_encoder_make_a_release(self, how: str, tmp_path: Path) -> None:
        write_album(tmp_path, 24)
        collection, run = called("sources", how), str(tmp_path / "run")
        succeeded("init", run, "--preset", "folder", "--set", f"collection.source={collection}",
                  *album_settings(how))  # fmt: skip
        text = (tmp_path / "run" / "driftline.yaml").read_text(encoding="utf-8")
        assert '  separator: ";"  # between the three' in text, "the source brings its own keys"
        assert "sidecar" not in text, "and no others"
        succeeded("run", run, "--workers", "1")
        release = dl.Release.open(run)
        assert len(release.table) == 12
        assert release.facts["provenance"]["source"] == collection
        assert release.features("clip").shape == (12, 12)
        card = (release.path / "README.md").read_text(encoding="utf-8")
        assert f"Source: `{collection}`" in card
        assert "fingerprint `colours-x`" in card, "of the encoder"
        assert document("trace", run, "photo-0")["events"][0]["stage"] == "ingest"


def album_settings(how: str) -> list[str]:
    settings = {
        "collection.path": "album.txt", "collection.separator": "';'", "filter.upload_after_capture": False,
        "buckets": "{kind: calendar, unlabelled: []}", "embed.encoder": called("encoders", how), "embed.model": "x",
        "retrieve": "{per_class: 8, depth: 8, background_share: 0, short: fewer, overlap: allow, concepts: "
        "[{name: car, prompts: [a car]}, {name: bus, prompts: [a bus]}]}",
        "validation": "{method: catalogue}", "release": "{per_class: 2, splits: 1, short: fewer, own: true}",
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
            (network_contract.TestNetwork, "acme-narrow"),
        )
        for check in dir(checks) if check.startswith("test_")
    ])  # fmt: skip
    def test_learner_shift_measure_and_network(self, checks: type, check: str, name: str) -> None:
        getattr(checks(), check)(name)

    @pytest.mark.parametrize(("checks", "check", "name"), [
        (checks, check, name)
        for checks, name in (
            (encoder_contract.TestEncoder, "acme-colours"),
            (dataset_contract.TestDataset, "acme-squares"),
        )
        for check in dir(checks) if check.startswith("test_")
    ])  # fmt: skip
    def test_encoder_and_dataset(self, checks: type, check: str, name: str, tmp_path: Path) -> None:
        getattr(checks(), check)(name, tmp_path)

    def test_sampler(self) -> None:
        checks = sampler_contract.TestSampler()
        checks.test_draws_from_the_past_and_no_more_than_asked_for("acme-oldest", 0)
        checks.test_the_same_generator_gives_the_same_positions("acme-oldest")
        checks.test_asking_for_more_than_there_is_gives_what_there_is("acme-oldest")
        checks.test_says_what_it_is("acme-oldest")

    def test_platform(self, tmp_path: Path) -> None:
        platform_contract.test_every_image_is_asked_and_counted("acme-post", tmp_path)
        platform_contract.test_no_file_depends_on_gold_questions_or_ids("acme-post", tmp_path)

    def test_stream_export(self, tmp_path: Path) -> None:
        images = stream_export_contract.images()
        stream_export_contract.test_an_export_writes_every_sample_and_the_same_bytes_again(
            "acme-ledger", images, tmp_path
        )
        stream_export_contract.test_an_export_takes_features_or_says_that_it_needs_images(
            "acme-ledger", tmp_path / "features"
        )

    def test_settings_of_learner_and_protocol(self) -> None:
        learner_contract.test_defaults_are_settings_that_fit("acme-prototype")
        learner_contract.test_every_setting_has_a_meaning("acme-prototype")
        protocol_contract.test_every_setting_has_a_meaning("acme-last-step")

    @pytest.mark.parametrize("check", [
        "columns_order_and_ids", "restart_in_the_middle_gives_the_same_rest",
        "empty_input_is_an_error_that_names_the_file", "missing_input_is_an_error_that_names_the_path",
    ])  # fmt: skip
    def test_source(self, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(vars(source_contract), "acme_album", write_album)
        getattr(source_contract, f"test_{check}")("acme-album", tmp_path)

    def test_a_missing_sample_or_reader_fails_and_says_where_it_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(pytest.fail.Exception, match=r"Expected acme_album\(folder, n\) .* in .*test_sources"):
            source_contract.test_columns_order_and_ids("acme-album", tmp_path)
        with pytest.raises(pytest.fail.Exception, match=r"Expected read_acme_listing\(folder\) .* in .*test_exports"):
            export_contract.test_every_registered_format_has_every_image("acme-listing", {}, None)  # type: ignore[arg-type]
        with pytest.raises(pytest.fail.Exception, match=r"Expected read_acme_ledger\(folder, stream\)"):
            stream_export_contract.test_an_export_has_every_sample_in_order(
                "acme-ledger", {}, stream_export_contract.images()
            )
        monkeypatch.delitem(encoder_contract.MODELS, "table")
        with pytest.raises(pytest.fail.Exception, match="'table' needs a model: .* in MODELS"):
            encoder_contract.loaded("table", tmp_path)
        monkeypatch.delitem(dataset_contract.SAMPLES, "imagenet")
        with pytest.raises(pytest.fail.Exception, match="'imagenet' needs files: .* in SAMPLES"):
            dataset_contract.opened("imagenet", tmp_path)

    def test_every_key_of_the_source_is_described(self) -> None:
        source_contract.test_every_key_of_a_source_is_described("acme-album")

    def test_export(self, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def read(folder: Path) -> export_contract.Samples:
            rows = [line.split() for line in (folder / "images.txt").read_text(encoding="utf-8").splitlines()]
            return {id_: (int(bucket), int(label), sha256) for id_, bucket, label, sha256 in rows}

        monkeypatch.setitem(vars(export_contract), "read_acme_listing", read)
        release = dl.Release.open(fixtures / "finished")
        assert EXPORTS["acme-listing"](release, tmp_path / "first")["images"] == len(release.table)
        exports = {"acme-listing": tmp_path / "first"}
        export_contract.test_every_registered_format_has_every_image("acme-listing", exports, release)

    @pytest.mark.proof("matrix")
    def test_protocol(self, stream: dl.Stream) -> None:
        protocol_contract.test_the_learner_never_holds_a_test_split("acme-last-step", stream)
        protocol_contract.test_declared_scores_are_returned_and_the_primary_one_is_declared("acme-last-step", stream)
        protocol_contract.test_every_learner_has_scores_in_range_or_is_refused_by_name("acme-last-step", "vectors")
        protocol_contract.test_every_learner_is_deterministic_in_any_company("acme-last-step")


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


class TestPython:
    """The same names from Python, in this process."""

    def test_a_source_and_an_encoder_embed_photos(self, how: str, tmp_path: Path) -> None:
        write_album(tmp_path, 8)
        collection = {"source": called("sources", how), "path": "album.txt", "separator": ";"}
        changes = {"filter.upload_after_capture": False, "buckets": {"kind": "calendar", "unlabelled": []},
                   "embed.encoder": called("encoders", how), "embed.model": "x"}  # fmt: skip
        run = dl.init(tmp_path / "run", settings={"collection": collection, **changes})
        entries = {entry["stage"]: entry for entry in run.run(until="embed", workers=1)}
        assert entries["ingest"]["counts"]["kept"] == 8
        assert read_json(next(run.path.rglob("encoder.json")))["kind"] == called("encoders", how)

    def test_a_dataset_is_composed_measured_exported_and_evaluated(self, how: str, tmp_path: Path) -> None:
        shift, measure = called("shifts", how), called("measures", how)
        stream = dl.compose(
            called("datasets", how), f"R:{{{shift}}}" if ":" in shift else f"R:{shift}", (60,) * 3, test_size=20
        )
        assert len(distances(stream, [measure])[measure]) == 3
        STREAM_EXPORTS.resolve(called("stream_exports", how))(stream, tmp_path / "out")
        n = sum(len(split) for step in stream.steps for split in step.splits.values())
        assert len((tmp_path / "out" / "ledger.txt").read_text().splitlines()) == n
        results = dl.evaluate(stream, called("protocols", how), [called("learners", how)])
        assert results["results"][0]["scores"]["final"]["mean"] > 0.4

    def test_a_network_and_a_sampler_are_settings(self, how: str, fixtures: Path) -> None:
        squares = dl.compose(called("datasets", how), "R", (60, 40), test_size=20)
        settings = {"network": called("networks", how), "epochs": 1, "budget": "small"}
        results = dl.evaluate(squares, "seq-to-final", ["erm"], settings=settings)
        assert results["results"][0]["settings"]["network"] == settings["network"], results["skipped"]
        stream = dl.Stream.load(fixtures / "finished-stream")
        sampler = {"sampler": called("samplers", how), "shift": 2, "batch": 2}
        results = dl.evaluate(stream, "near-future", ["fc-only"], settings=sampler)
        assert results["results"][0]["settings"]["sampler"] == sampler["sampler"], results["skipped"]

    def test_a_release_is_exported(self, how: str, fixtures: Path, tmp_path: Path) -> None:
        counts = EXPORTS.resolve(called("exports", how))(dl.Release.open(fixtures / "finished"), tmp_path)
        assert counts == {"images": 24}


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
