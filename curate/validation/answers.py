"""Answers: results CSV files of workers → one row per worker and image.

Columns are read by name (the set of `Answer.*` columns varies). Multi-checkbox answers are read in the forms
that marketplaces write: one column with values joined by `|`, one column per box, a JSON document of crowd
elements, a Python list (Turkle).
"""

from __future__ import annotations

import ast
import csv
import hashlib
import hmac
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.ground.errors import BadInput
from curate.validation.batches import NONE

ANSWERS = pa.schema(
    [
        ("item", pa.string()),
        ("id", pa.string()),
        ("worker", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("sensitive", pa.bool_()),
        ("seconds", pa.int32()),
        ("fault", pa.string()),
    ]
)
TRUE = {"true", "on", "1", "yes"}


def read_answers(paths: Sequence[Path], batch: Mapping[str, Any], key: str) -> pa.Table:
    """Results of `batch` (as in batch.json) → table of `ANSWERS`, sorted by item and worker.

    key: secret-like text for the keyed hash that replaces worker ids (they can be tied to public profiles).
    An answer that cannot count keeps its row with a fault: `duplicate` (same worker, same image), `contradiction`
    ("none" with a concept), `empty`, `unknown_label`, `rejected` (by the requester).

    Raises BadInput for a file of another batch, a missing column, or an image that was never asked.
    """
    rows: list[dict[str, Any]] = []
    allowed = {*batch["concepts"], NONE}
    for path in sorted(paths):
        for number, line in _lines(path):
            where = f"{path}, line {number}"
            if line.get("Input.batch") != batch["batch"]:
                raise BadInput(
                    f"{where}: Input.batch is {line.get('Input.batch')!r}.",
                    f"Expected answers to batch {batch['batch']!r}.",
                    "Remove the file from the answers folder: it belongs to another run.",
                )
            item = line.get("Input.item") or ""
            if item not in batch["items"]:
                raise BadInput(f"{where}: the image {item!r} was never asked.", "", "Download the results again.")
            labels = _labels(line, where)
            fault = None
            if line.get("AssignmentStatus", "").lower() == "rejected":
                fault = "rejected"
            elif not labels:
                fault = "empty"
            elif labels - allowed:
                fault = "unknown_label"
            elif NONE in labels and len(labels) > 1:
                fault = "contradiction"
            worker = line.get("WorkerId") or line.get("Turkle.Username") or ""
            seconds = (line.get("WorkTimeInSeconds") or "").strip()
            rows.append(
                {
                    "item": item,
                    "id": batch["items"][item],
                    "worker": hmac.new(key.encode(), worker.encode(), hashlib.sha256).hexdigest()[:16],
                    "labels": sorted(labels),
                    "sensitive": _sensitive(line),
                    "seconds": int(seconds) if seconds.isdigit() else None,
                    "fault": fault,
                }
            )
    rows.sort(key=lambda r: (r["item"], r["worker"]))
    seen: set[tuple[str, str]] = set()
    for row in rows:
        who = (row["item"], row["worker"])
        if who in seen and row["fault"] is None:
            row["fault"] = "duplicate"
        seen.add(who)
    return pa.Table.from_pylist(rows, schema=ANSWERS)


def _lines(path: Path) -> list[tuple[int, dict[str, str]]]:
    csv.field_size_limit(sys.maxsize)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or []
            for column in ("Input.batch", "Input.item"):
                if column not in header:
                    raise BadInput(
                        f"{path} has no column {column}.",
                        "Expected a results CSV of a driftline batch, with its Input.* columns.",
                        "Download the results of the batch again, unedited.",
                    )
            if not any(c.startswith("Answer.") for c in header):
                raise BadInput(
                    f"{path} has no Answer.* column.",
                    "Expected the workers' answers.",
                    "This may be the batch itself, not its results.",
                )
            return [(reader.line_num, {k: v or "" for k, v in line.items() if k}) for line in reader]
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error}).", "", "Save it as UTF-8.") from None


def _labels(line: Mapping[str, str], where: str) -> set[str]:
    """All ticked boxes of one answer."""
    if text := line.get("Answer.taskAnswers"):
        try:
            return _from_json(json.loads(text))
        except (json.JSONDecodeError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{where}: Answer.taskAnswers is not the JSON of crowd elements ({error}).", "", ""
            ) from None
    found: set[str] = set()
    if text := line.get("Answer.labels", "").strip():
        if text.startswith("["):
            try:
                found |= {str(v) for v in ast.literal_eval(text)}
            except (ValueError, SyntaxError):
                raise BadInput(
                    f"{where}: Answer.labels is {text[:80]!r}.", "Expected a list or values joined by '|'."
                ) from None
        else:
            found |= {v for v in text.split("|") if v}
    for column, value in line.items():
        if column.startswith("Answer.labels.") and value.strip().lower() in TRUE:
            found.add(column.removeprefix("Answer.labels."))
    return found


def _from_json(document: Any) -> set[str]:
    found: set[str] = set()
    for answer in document if isinstance(document, list) else [document]:
        for name, value in answer.items():
            if name == "labels" and isinstance(value.get("labels"), list):
                found |= {str(v) for v in value["labels"]}
            elif name == "labels":
                found |= {k for k, v in value.items() if v is True}
            elif name.startswith("labels.") and (value is True or (isinstance(value, dict) and value.get("on"))):
                found.add(name.removeprefix("labels."))
    return found


def _sensitive(line: Mapping[str, str]) -> bool:
    if (value := line.get("Answer.sensitive")) is not None:
        return value.strip().lower() in TRUE
    if line.get("Answer.sensitive.yes", "").strip().lower() in TRUE:
        return True
    return '"sensitive":{"yes":true' in line.get("Answer.taskAnswers", "").replace(" ", "")
