"""Results for other boards: field by field as their schemas say, with the scores of the rows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.console import document, inside
from support.helpers import drifting

from driftline.curate.core.atomic_io import sha256_file
from driftline.curate.core.errors import BadConfig
from driftline.eval.reporting.files.result_formats import About, write_results
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Stream

ABOUT = About("A group", "0.1.0", datetime(2026, 1, 2, tzinfo=UTC), "me/drifting")
TEXT = (str, type(None))
# Every Eval Ever 0.3.0, as eval.schema.json requires: path → type.
AGGREGATE = {
    "schema_version": str, "evaluation_id": str, "retrieved_timestamp": str, "source_metadata.source_type": str,
    "source_metadata.source_organization_name": str, "source_metadata.evaluator_relationship": str,
    "model_info.name": str, "model_info.id": str, "model_info.additional_details.deployment_type": str,
    "model_info.additional_details.model_availability": str, "eval_library.name": str, "eval_library.version": str,
    "evaluation_results": list,
}  # fmt: skip
RESULT = {
    "evaluation_name": str, "source_data.dataset_name": str, "source_data.source_type": str,
    "metric_config.lower_is_better": bool, "score_details.score": (int, float),
}  # fmt: skip
INSTANCE = {
    "schema_version": str, "evaluation_id": str, "model_id": str, "evaluation_name": str, "sample_id": str,
    "interaction_type": str, "input.raw": str, "input.reference": list, "output.raw": list, "answer_attribution": list,
    "evaluation.score": (int, float), "evaluation.is_correct": bool,
}  # fmt: skip
TOP = {  # additionalProperties is false there
    "schema_version", "evaluation_id", "evaluation_timestamp", "retrieved_timestamp", "source_metadata", "eval_library",
    "model_info", "evaluation_results", "detailed_evaluation_results",
}  # fmt: skip
TOP_OF_INSTANCE = {
    "schema_version", "evaluation_id", "model_id", "evaluation_name", "evaluation_result_id", "sample_id",
    "sample_hash", "interaction_type", "input", "output", "messages", "answer_attribution", "evaluation", "token_usage",
    "performance", "error", "metadata",
}  # fmt: skip


PLACE = re.compile(  # data/BENCHMARK/DEVELOPER/MODEL/UUID of version 4, and the samples beside it
    r"data(/[^/]+){3}/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(\.json|_samples\.jsonl)"
)
THEIRS = shutil.which("every_eval_ever")  # its package, which needs Python 3.12


def check(record: Any, fields: dict[str, Any]) -> None:
    for path, kind in fields.items():
        value = record
        for key in path.split("."):
            assert key in value, path
            value = value[key]
        assert isinstance(value, kind), path


def details_are_texts(value: Any) -> None:
    """`details`, `additional_details` and `metadata` hold texts only."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("details", "additional_details", "metadata"):
                assert all(isinstance(text, str) for text in item.values()), key
            details_are_texts(item)
    elif isinstance(value, list):
        for item in value:
            details_are_texts(item)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream, Any, Path]:
    folder = tmp_path_factory.mktemp("formats")
    stream = drifting(steps=3, n=12).save(folder / "S")
    document = evaluate(stream, "clear-iid", ["nearest-mean", "majority"], [0, 1], out=folder / "runs")
    write_results([folder / "runs"], folder / "out", ["every-eval-ever", "huggingface"], ABOUT, [stream])
    return folder / "out", stream, document, folder / "runs"


def test_every_eval_ever_has_the_scores_of_the_rows(made: tuple[Path, Stream, Any, Path]) -> None:
    out, _, document, _ = made
    files = sorted((out / "every-eval-ever" / "data").rglob("*.json"))
    assert len(files) == 2
    for file in files:
        record = json.loads(file.read_text())
        check(record, AGGREGATE)
        details_are_texts(record)
        assert set(record) <= TOP
        assert record["evaluation_id"].endswith("/1767312000")
        (result,) = (r for r in document["results"] if r["learner"] == record["model_info"]["name"])
        for entry in record["evaluation_results"]:
            check(entry, RESULT)
            name = entry["evaluation_result_id"].rpartition("/")[2]
            assert entry["score_details"]["score"] == result["scores"][name]["mean"]
            assert entry["metric_config"]["score_type"] == "continuous"
            assert {"min_score", "max_score"} <= set(entry["metric_config"])


def test_every_instance_decides_the_primary_score(made: tuple[Path, Stream, Any, Path]) -> None:
    out, stream, document, _ = made
    tested = {id_ for step in stream.steps[1:] for id_ in step["test"].ids.tolist()}
    for file in sorted((out / "every-eval-ever" / "data").rglob("*.jsonl")):
        record = json.loads(file.with_name(file.name.replace("_samples.jsonl", ".json")).read_text())
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        details = record["detailed_evaluation_results"]
        assert (details["total_rows"], details["checksum"]) == (len(lines), sha256_file(file))
        assert out / "every-eval-ever" / details["file_path"] == file
        for line in lines:
            check(line, INSTANCE)
            details_are_texts(line)
            assert set(line) <= TOP_OF_INSTANCE
            assert line["evaluation_id"] == record["evaluation_id"]
            assert line["evaluation"]["is_correct"] == (line["output"]["raw"] == line["input"]["reference"])
        assert {line["sample_id"] for line in lines} == tested
        (result,) = (r for r in document["results"] if r["learner"] == record["model_info"]["name"])
        right = sum(line["evaluation"]["is_correct"] for line in lines) / len(lines)
        assert right == pytest.approx(result["scores"]["next_domain"]["mean"])


def test_files_are_where_they_are_looked_for(made: tuple[Path, Stream, Any, Path]) -> None:
    root = made[0] / "every-eval-ever"
    files = [path.relative_to(root).as_posix() for path in root.rglob("*.json*")]
    assert len(files) == 4
    assert [name for name in files if not PLACE.fullmatch(name)] == []


@pytest.mark.skipif(THEIRS is None, reason="the command every_eval_ever is not installed; it needs Python 3.12")
def test_their_own_package_finds_nothing(made: tuple[Path, Stream, Any, Path], tmp_path: Path) -> None:
    """Also in results of protocols whose scores are no shares."""
    stream = drifting(classes=6, n=120).save(tmp_path / "S")
    evaluate(stream, "ocrr", ["substrate"], [0], {"every": 20}, tmp_path / "runs")
    write_results([tmp_path / "runs"], tmp_path / "out", ["every-eval-ever"], ABOUT, [stream])
    for root in (made[0] / "every-eval-ever", tmp_path / "out" / "every-eval-ever"):
        files = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.json*"))]
        done = subprocess.run([str(THEIRS), "validate", "--format", "json", *files], cwd=root, capture_output=True)
        assert [found["errors"] for found in json.loads(done.stdout)] == [[]] * len(files)


def test_hugging_faces_files(made: tuple[Path, Stream, Any, Path]) -> None:
    out, _, document, _ = made
    benchmark = yaml.safe_load((out / "huggingface" / "benchmark" / "eval.yaml").read_text())
    assert set(benchmark) == {"name", "description", "evaluation_framework", "tasks"}
    assert benchmark["tasks"] == [{"id": "clear-iid-drifting", "config": "default", "split": "test"}]
    for result in document["results"]:
        path = out / "huggingface" / "models" / result["learner"] / ".eval_results" / "clear-iid-drifting.yaml"
        (entry,) = yaml.safe_load(path.read_text())
        assert entry["dataset"] == {"id": "me/drifting", "task_id": "clear-iid-drifting"}
        assert entry["value"] == pytest.approx(100 * result["scores"]["next_domain"]["mean"], abs=1e-3)
        assert entry["date"] == "2026-01-02"


def test_what_is_refused(made: tuple[Path, Stream, Any, Path], tmp_path: Path) -> None:
    _, _, _, runs = made
    with pytest.raises(BadConfig, match="Expected USER/NAME"):
        write_results([runs], tmp_path, ["huggingface"], About("x", "0", ABOUT.when))
    assert not list(tmp_path.iterdir())


def test_the_command_says_who_ran_it_and_where_the_benchmark_is(
    made: tuple[Path, Stream, Any, Path], tmp_path: Path
) -> None:
    words = ("results", made[3], "--by", "Our group", "--dataset", "us/benchmark", "--stream", made[0].parent / "S")
    document(*words, "--format", "huggingface, every-eval-ever", "--out", tmp_path)
    text = "".join(path.read_text() for path in sorted(tmp_path.rglob("*.yaml")) + sorted(tmp_path.rglob("*.json")))
    assert "id: us/benchmark" in text
    assert "Our group" in text
    samples = [
        json.loads(line)["sample_id"] for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert set(samples) == {id_ for step in made[1].steps[1:] for id_ in step["test"].ids.tolist()}
    assert "Expected text in UTF-8" in inside(*words[:2], "--by", "\udcff", "--out", tmp_path).stderr
