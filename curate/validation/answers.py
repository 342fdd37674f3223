"""Answers: results CSV files of workers → one row per worker and image.

Columns are read by name (the set of `Answer.*` columns varies). Multi-checkbox answers are read in the forms
that marketplaces write: one column with values joined by `|`, one column per box, a JSON document of crowd
elements, a Python list (Turkle), the API's XML.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import hmac
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.core.errors import BadInput
from curate.validation.batches import NONE

ANSWERS = pa.schema(
    [
        ("item", pa.string()),
        ("id", pa.string()),
        ("worker", pa.string()),
        ("assignment", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("sensitive", pa.bool_()),
        ("seconds", pa.int32()),
        ("fault", pa.string()),
    ]
)
TRUE = {"true", "on", "1", "yes"}
XML_NAMES = "{http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2005-10-01/QuestionFormAnswers.xsd}"
Line = tuple[str, Mapping[str, str]]  # where it stands, and its cells by column


def read_lines(paths: Iterable[Path]) -> dict[str, list[Line]]:
    """Results files → lines by the batch that they name. Raises BadInput for a file that is none."""
    found: dict[str, list[Line]] = {}
    for path in sorted(paths):
        for number, line in _lines(path):
            found.setdefault(line["Input.batch"], []).append((f"{path}, line {number}", line))
    return found


def refuse_foreign(lines: Mapping[str, Sequence[Line]], known: Sequence[str]) -> None:
    """Raise BadInput where a line names a batch other than those of this run."""
    for batch in sorted(set(lines) - set(known)):
        where, _ = lines[batch][0]
        raise BadInput(
            f"{where}: Input.batch is {batch!r}.",
            f"Expected answers to batch {' or '.join(map(repr, known))}.",
            "Remove the file from the answers folder: it belongs to another run.",
        )


def read_answers(lines: Sequence[Line], batch: Mapping[str, Any], key: str) -> pa.Table:
    """Lines that name `batch` (as in batch.json) → table of `ANSWERS`, sorted by item and worker.

    key: secret-like text for the keyed hash that replaces worker ids (they can be tied to public profiles).
    An answer that cannot count keeps its row with a fault: `duplicate` (same worker, same image), `contradiction`
    ("none" with a concept), `empty`, `unknown_label`, `rejected` (by the requester), `over_cap` (beyond the batch's
    `per_worker`; which of a worker's answers count does not depend on their order in the files).

    Raises BadInput for an image that was never asked, and for answers in a form that nothing writes.
    """
    rows: list[dict[str, Any]] = []
    allowed = {*batch["concepts"], NONE}
    hashes: dict[str, str] = {}
    for where, line in lines:
        item = line.get("Input.item") or ""
        if item not in batch["items"]:
            raise BadInput(f"{where}: the image {item!r} was never asked.", "", "Download the results again.")
        labels, sensitive = _answer(line, where)
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
        if worker not in hashes:
            hashes[worker] = hmac.new(key.encode(), worker.encode(), hashlib.sha256).hexdigest()[:16]
        seconds = (line.get("WorkTimeInSeconds") or "").strip()
        rows.append(
            {
                "item": item,
                "id": batch["items"][item],
                "worker": hashes[worker],
                "assignment": line.get("AssignmentId") or None,
                "labels": sorted(labels),
                "sensitive": sensitive,
                "seconds": int(seconds) if seconds.isdigit() else None,
                "fault": fault,
            }
        )
    rows.sort(key=lambda r: (r["item"], r["worker"]))
    seen: set[tuple[str, str]] = set()
    counted: Counter[str] = Counter()
    cap = batch.get("per_worker")
    for row in rows:
        who = (row["item"], row["worker"])
        if row["fault"] is None:
            if who in seen:
                row["fault"] = "duplicate"
            elif cap is not None and counted[row["worker"]] >= cap:
                row["fault"] = "over_cap"
            else:
                counted[row["worker"]] += 1
        seen.add(who)
    return pa.Table.from_pylist(rows, schema=ANSWERS)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    csv.field_size_limit(sys.maxsize)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
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
            for cells in reader:
                if cells:
                    if len(cells) != len(header):
                        raise BadInput(
                            f"{path}, line {reader.line_num} has {len(cells)} cells, the header {len(header)}.",
                            "Expected as many.",
                            "Download the results of the batch again, unedited.",
                        )
                    yield reader.line_num, dict(zip(header, cells, strict=True))
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error}).", "", "Save it as UTF-8.") from None
    except csv.Error as error:
        raise BadInput(f"{path} is no CSV file ({error}).", "Expected the results as downloaded.") from None


def _answer(line: Mapping[str, str], where: str) -> tuple[set[str], bool]:
    """All ticked boxes of one answer, and whether it says "sensitive"."""
    if text := line.get("Answer.taskAnswers"):
        try:
            document = json.loads(text)
            return _from_json(document), _sensitive_in(document)
        except (json.JSONDecodeError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{where}: Answer.taskAnswers is not the JSON of crowd elements ({error}).", "", ""
            ) from None
    if (text := line.get("Answer.xml") or "").lstrip().startswith("<"):
        line = {f"Answer.{name}": value for name, value in fields_of(text).items()}
    found: set[str] = set()
    if text := line.get("Answer.labels", "").strip():
        if text.startswith("["):
            try:
                found |= {str(v) for v in ast.literal_eval(text)}
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                raise BadInput(
                    f"{where}: Answer.labels is {text[:80]!r}.", "Expected a list or values joined by '|'."
                ) from None
        else:
            found |= {v for v in text.split("|") if v}
    for column, value in line.items():
        if column.startswith("Answer.labels.") and value.strip().lower() in TRUE:
            found.add(column.removeprefix("Answer.labels."))
    said = line.get("Answer.sensitive", line.get("Answer.sensitive.yes", ""))
    return found, said.strip().lower() in TRUE


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


def _sensitive_in(document: Any) -> bool:
    """A radio button of crowd elements: `{"sensitive": {"yes": true, "no": false}}`, or its value."""
    for answer in document if isinstance(document, list) else [document]:
        said = answer.get("sensitive")
        if (said.get("yes") is True) if isinstance(said, dict) else (str(said).strip().lower() in TRUE):
            return True
    return False


def fields_of(document: str) -> dict[str, str]:
    """Field → value of an answer's XML; values of one name joined by "|". Raises BadInput for what is no such XML."""
    if "<!DOCTYPE" in document or "<!ENTITY" in document:
        raise BadInput("An answer's XML declares a document type.", "Expected QuestionFormAnswers without entities.")
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise BadInput(f"An answer's XML cannot be read ({error}).", "Expected QuestionFormAnswers.") from None
    found: dict[str, str] = {}
    for answer in root.iter(f"{XML_NAMES}Answer"):
        name = answer.findtext(f"{XML_NAMES}QuestionIdentifier") or ""
        value = answer.findtext(f"{XML_NAMES}FreeText") or ""
        chosen = [e.text or "" for e in answer.iter(f"{XML_NAMES}SelectionIdentifier")]
        parts = [p for p in (found.get(name), value, *chosen) if p]
        found[name] = "|".join(parts)
    return found
