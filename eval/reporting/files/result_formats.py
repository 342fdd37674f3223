"""Results in other formats: Every Eval Ever, Hugging Face's evaluation results, and the log of a model in service.

Every Eval Ever 0.3.0: a JSON file for each result, and a JSON line for each test sample that decides the primary score.
Hugging Face: `eval.yaml` makes a data set a benchmark, `.eval_results/*.yaml` stands in a model's repository.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import sha256_bytes, write_bytes, write_json, write_text
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.registry import Registry
from driftline.eval import outcomes
from driftline.eval.protocol import Document, Score, kind_of, primary_of, scores_of
from driftline.eval.reporting.files.logs import write_logs
from driftline.eval.results import Results
from driftline.eval.rows import Run, digest, grouped
from driftline.eval.scoring import ranking
from driftline.eval.scoring.aggregate import summary
from driftline.eval.scoring.ranking import entry_of, mean_of, ranked
from driftline.stream_builder.stream import Stream

SCHEMA = "0.3.0"  # of Every Eval Ever
FORMATS = Registry("result format", {"every-eval-ever": f"{__name__}:_every_eval_ever",
                                     "huggingface": f"{__name__}:_hugging_face",
                                     "log": "driftline.eval.reporting.files.logs:write_logs"})  # fmt: skip


@dataclass(frozen=True)
class About:
    """What rows do not say."""

    by: str
    """organisation or person that ran the evaluation"""
    version: str
    """of driftline"""
    when: datetime
    """time of the export"""
    dataset: str = ""
    """USER/NAME of the benchmark on the Hub; "": it is not there"""


def write_results(
    paths: Sequence[Path], out: Path, formats: Sequence[str], about: About, streams: Sequence[Stream] = ()
) -> dict[str, int]:
    """Write the results of rows in some of the FORMATS, each in a folder of its own; returns the number of files.

    streams: give samples their ids. Raises UnknownName, BadConfig, and what `outcomes.find` and `outcomes.check_stream`
    raise."""
    for name in formats:
        FORMATS.entry(name)
    if "huggingface" in formats and not re.fullmatch(r"[\w.-]+/[\w.-]+", about.dataset):
        raise BadConfig(f"--dataset is {about.dataset!r}.", "Expected USER/NAME of the benchmark on the Hub.")
    runs, _ = outcomes.find(paths)
    counts = dict.fromkeys(formats, 0)
    by_digest = {stream.sha256: stream for stream in streams}
    documents = []
    for (sha, protocol, name), group in sorted(grouped(runs).items()):
        document = Results(summary(group, name, sha, protocol))
        documents.append(document)
        stream = by_digest.get(group[0].about["stream"]["sha256"])
        if stream is not None:
            outcomes.check_stream(group, stream)
        if "every-eval-ever" in formats:
            counts["every-eval-ever"] += _every_eval_ever(document, group, stream, about, out / "every-eval-ever")
        if "log" in formats:
            counts["log"] += write_logs(group, stream, out / "log" / slug(f"{protocol}-{name}"))
    if "huggingface" in formats:
        counts["huggingface"] = _hugging_face(documents, about, out / "huggingface")
    return counts


def slug(text: str) -> str:
    """A name that may stand in a path and in a model's id.

    >>> slug("er(memory=5)")
    'er-memory-5'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "unnamed"


def _every_eval_ever(
    document: Document, runs: Sequence[Run], stream: Stream | None, about: About, out: Path
) -> int:  # fmt: skip
    """data/BENCHMARK/driftline/LEARNER/UUID.json and UUID_samples.jsonl of each result."""
    by_digest = {digest(run): run for run in runs}
    benchmark = slug(f"{document['protocol']}-{document['stream']['name']}")
    written = 0
    for place in ranked(document):
        result, model = place.result, f"driftline/{slug(place.name)}"
        identity = "/".join([document["stream"]["sha256"], *result["runs"]])
        name = str(uuid.UUID(bytes=hashlib.sha256(identity.encode()).digest()[:16], version=4))  # the schema's kind
        folder = Path("data", benchmark, "driftline", slug(place.name))
        record = _record(document, place.name, result, model, benchmark, about)
        own = [by_digest[run] for run in result["runs"] if run in by_digest]
        primary = primary_of(document)
        key = {
            "schema_version": SCHEMA,
            "evaluation_id": record["evaluation_id"],
            "model_id": model,
            "evaluation_name": f"{benchmark}: {primary.label}",
            "evaluation_result_id": f"{benchmark}/{primary.name}",
        }
        lines = [
            json.dumps(key | line, ensure_ascii=False) for run in own for line in _instances(document, run, stream)
        ]
        if lines:
            data = ("\n".join(lines) + "\n").encode()
            samples = folder / f"{name}_samples.jsonl"
            write_bytes(out / samples, data)
            record["detailed_evaluation_results"] = {
                "format": "jsonl", "file_path": samples.as_posix(), "hash_algorithm": "sha256",
                "checksum": sha256_bytes(data), "total_rows": len(lines),
            }  # fmt: skip
        write_json(out / folder / f"{name}.json", record)
        written += 1 + bool(lines)
    return written


def _record(
    document: Document, name: str, result: Mapping[str, Any], model: str, benchmark: str, about: About
) -> dict[str, Any]:
    """The aggregate record of one result."""
    seconds = str(int(about.when.timestamp()))
    data: dict[str, Any] = {"dataset_name": document["stream"]["name"]}
    if about.dataset:
        data |= {"source_type": "hf_dataset", "hf_repo": about.dataset}
    else:
        data |= {"source_type": "other", "source_id": document["stream"]["sha256"]}
    # no mean over some of the seeds
    scores = [score for score in scores_of(document) if ranking.rank(score, result)[0] == 1]
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{benchmark}/{model}/{seconds}",
        "retrieved_timestamp": seconds,
        "source_metadata": {
            "source_name": "driftline",
            "source_type": "evaluation_run",
            "source_organization_name": about.by,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "driftline", "version": about.version},
        "model_info": {
            "name": name,
            "id": model,
            "developer": "driftline",
            "additional_details": {key: str(value) for key, value in sorted(result["settings"].items())}
            | {"deployment_type": "self_deployed", "model_availability": "unknown"},
        },
        "evaluation_results": [_score(score, result, benchmark, data) for score in scores],
    }


def _score(score: Score, result: Mapping[str, Any], benchmark: str, data: Mapping[str, Any]) -> dict[str, Any]:
    is_share = score.unit == "share"
    metric = {
        "metric_id": f"driftline.{score.name}",
        "metric_name": score.label,
        "metric_kind": "accuracy" if is_share else score.name,
        "metric_unit": "proportion" if is_share else score.unit,
        "lower_is_better": not score.higher_is_better,
    }
    metric |= {"score_type": "continuous", "min_score": 0.0, "max_score": 1.0} if is_share else {}
    entry = entry_of(score, result)
    over = {"seeds": result["seeds"], "values": entry["values"], "sd": entry.get("sd")}
    return {
        "evaluation_result_id": f"{benchmark}/{score.name}",
        "evaluation_name": f"{benchmark}: {score.label}",
        "source_data": dict(data),
        "metric_config": metric,
        "score_details": {
            "score": mean_of(score, result),
            "details": {key: json.dumps(value) for key, value in over.items()},
        },
    }


def _instances(document: Document, run: Run, stream: Stream | None) -> Iterator[dict[str, Any]]:
    """One record for each test sample that decides the primary score of a run."""
    names = list(stream.classes) if stream is not None else []
    flat = None if stream is None else _samples(stream)
    for row in kind_of(document).roles.decisive(run.rows):
        if row.answers is None:
            continue
        for sample, label, predicted in zip(
            row.answers.sample.tolist(), row.answers.label.tolist(), row.answers.predicted.tolist(), strict=True
        ):
            id_, text = (str(sample), f"sample {sample}") if flat is None else flat[sample]
            right, given = (names[c] if c < len(names) else str(c) for c in (label, predicted))
            yield {
                "sample_id": id_,
                "interaction_type": "single_turn",
                "input": {"raw": text, "reference": [right]},
                "output": {"raw": [given]},
                "answer_attribution": [
                    {"turn_idx": 0, "source": "output.raw", "extracted_value": given,
                     "extraction_method": "exact_match", "is_terminal": True}
                ],
                "evaluation": {"score": float(label == predicted), "is_correct": label == predicted},
                "metadata": {
                    "seed": str(run.about["seed"]),
                    "tested_on": row.tested_on,
                    "learned_to": str(row.learned_to),
                },
            }  # fmt: skip


def _samples(stream: Stream) -> list[tuple[str, str]]:
    """(id, text) of every sample, by its position; of images and features, the text is the id."""
    pairs: list[tuple[str, str]] = []
    for step in stream.steps:
        for name in (name for name in ("train", "val", "test") if name in step.splits):
            split = step.splits[name]
            ids = [str(id_) for id_ in split.ids]
            texts = [str(text) for text in split.x] if stream.x_shape == () else ids
            pairs += zip(ids, texts, strict=True)
    return pairs


def _hugging_face(documents: Sequence[Document], about: About, out: Path) -> int:
    """eval.yaml of the benchmark, and .eval_results of each learner."""
    import yaml

    tasks = [(slug(f"{d['protocol']}-{d['stream']['name']}"), d) for d in documents]
    benchmark = {
        "name": about.dataset.partition("/")[2],
        "description": f"Accuracy over time: {', '.join(task for task, _ in tasks)}.",
        "evaluation_framework": "driftline",
        "tasks": [{"id": task, "config": "default", "split": "test"} for task, _ in tasks],
    }
    write_text(out / "benchmark" / "eval.yaml", yaml.safe_dump(benchmark, sort_keys=False, allow_unicode=True))
    written = 1
    for task, document in tasks:
        primary = primary_of(document)
        for place in ranked(document):
            if (value := mean_of(primary, place.result)) is None:
                continue
            entry = {
                "dataset": {"id": about.dataset, "task_id": task},
                "value": round(100 * value if primary.unit == "share" else value, 4),
                "date": about.when.astimezone(UTC).date().isoformat(),
                "notes": f"{primary.label}, mean of {len(place.result['seeds'])} seeds, by {about.by}",
            }
            path = out / "models" / slug(place.name) / ".eval_results" / f"{task}.yaml"
            write_text(path, yaml.safe_dump([entry], sort_keys=False, allow_unicode=True))
            written += 1
    return written
