"""Answers: results CSV files of marketplaces, and exports of Label Studio → one row per worker and image.

Columns are read by name, because the set of `Answer.*` columns varies. Answers with several checkboxes are read in all
forms that marketplaces write: one column with values joined by `|`, one column per checkbox, a JSON document of crowd
elements, a Python list (Turkle).
"""

import ast
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.atomic_io import TEMPORARY
from driftline.curate.core.errors import BadInput, DriftlineError
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.times.dates import ZONES
from driftline.curate.foreign.cells import NOTHING, truth
from driftline.curate.foreign.delimited import csv_rows
from driftline.curate.foreign.names import is_count
from driftline.curate.validation.asking.batches import CREATED, NONE

ANSWERS = pa.schema(
    [
        ("item", pa.string()),
        ("id", pa.string()),
        ("worker", pa.string()),
        ("assignment", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("sensitive", pa.bool_()),
        ("seconds", pa.int32()),
        ("time", pa.float64()),
        ("fault", pa.string()),
    ]
)
SECONDS = r"[0-9]{1,9}(\.0)?"
LONGEST = 10_000  # characters of a Python list of labels
KEY = "workers.key"
LABEL_STUDIO = "label-studio "  # begins the names of its people
JUDGE = "judge:"  # begins the names of models, which are not hashed
Line = tuple[str, Mapping[str, str]]  # "FILE, line N", and its cells by column


class Version(NamedTuple):
    """An answer, as a file has it."""

    number: int
    """of the line, from 0"""
    worker: str
    place: str
    """FILE, line N"""
    line: Mapping[str, str]
    annotation: tuple[str, ...]
    """image, annotation id, time when it was made"""


def read_lines(paths: Iterable[Path]) -> dict[str, list[Line]]:
    """Results files → lines by batch. Raises BadInput for a file that is not a results file."""
    lines: dict[str, list[Line]] = {}
    for path in sorted(paths):
        for number, line in _lines(path):
            lines.setdefault(line["Input.batch"], []).append((f"{path}, line {number}", line))
    return lines


def hashed(worker: str, key: str) -> str:
    """What stands for a worker's id: a keyed hash, because ids can be linked to public profiles."""
    return hmac.new(key.encode(), worker.encode(), hashlib.sha256).hexdigest()[:16]


def worker_key(root: Path, make: bool = True) -> str:
    """The key for `hashed` of a run: random, in a file that is never published, since who knows it can try all names.

    make: write the file if there is none; else the key of this call is used by nobody else.
    """
    path, key = root / KEY, secrets.token_hex(32)
    if make and not path.is_file():
        handle, temporary = tempfile.mkstemp(dir=root, prefix=TEMPORARY)  # only its owner reads it
        with os.fdopen(handle, "w") as file:
            file.write(key)
        with suppress(FileExistsError):  # another process was first
            os.link(temporary, path)
        os.unlink(temporary)
    return path.read_text(encoding="ascii") if path.is_file() else key


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of ANSWERS; without rows in the way that does not import pandas."""
    return pa.Table.from_pylist(rows, schema=ANSWERS) if rows else pa.Table.from_batches([], ANSWERS)


def people_of(answers: pa.Table) -> dict[str, int]:
    """Id → answers of people that count. answers: table of ANSWERS, or its columns id, worker and fault."""
    rows = rows_of(answers, "id", "worker", "fault")
    return Counter(id_ for id_, worker, fault in rows if fault is None and not worker.startswith(JUDGE))


def of_people(answers: pa.Table) -> pa.Table:
    """The answers that people gave."""
    return answers.filter(pc.invert(pc.starts_with(answers["worker"], JUDGE)))


def read_answers(lines: Sequence[Line], batch: Mapping[str, Any], key: str) -> pa.Table:
    """Lines of `batch` (content of batch.json) → table of `ANSWERS`, sorted by item and worker.

    key: for the keyed hash that replaces ids of people. time: seconds since the epoch, or the number of the screen,
    when the answer was given; null where the file does not say it.

    An answer that does not count keeps its row, with the reason in the column fault: `duplicate` (same worker and
    image), `contradiction` ("none" with a concept), `empty`, `unknown_label`, `unreadable` (in an unknown form),
    `rejected` (by the requester), `returned` (by the worker, or not handed in), `undone` (by the worker), `placeholder`
    (nothing filled in the worker's id). Of one person's answers to an image the first counts; of Label Studio's, where
    people change them, the newest. Blanks and case of a label do not matter where they fit one option only.

    Raises BadInput for an image that was never asked, and as `_annotations`.
    """
    return table_of(_rows_of(lines, batch, key))


def uncounted(lines: Sequence[Line], batch: Mapping[str, Any], key: str) -> str:
    """How many lines of `batch` do not count, with the first one of each reason; "" if all count."""
    rows = _rows_of(lines, batch, key)
    faulty = sorted((row for row in rows if row["fault"]), key=lambda row: row["number"])
    counts = Counter(row["fault"] for row in faulty)
    reasons = []
    for reason, n in counts.most_common():
        first = next(row for row in faulty if row["fault"] == reason)
        size = f" ({n:,})" if len(counts) > 1 else ""
        reasons.append(f"{reason}{size}, first {first['said']!r} in {Path(first['place']).name}")
    return f"{len(rows):,} read, {len(faulty):,} do not count: {'; '.join(reasons)}" if faulty else ""


def _rows_of(lines: Sequence[Line], batch: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The rows of `read_answers`, with `place` and `number` of their lines, and what is `said` there."""
    rows: list[dict[str, Any]] = []
    allowed = {*batch["concepts"], NONE}
    forms: dict[str, list[str]] = {}
    for name in sorted(allowed):
        forms.setdefault(_form(name), []).append(name)
    hashes: dict[str, str] = {}
    for number, worker, place, line, _ in _annotations(lines):
        item = line.get("Input.item") or ""
        if item not in batch["items"]:
            raise BadInput(f"{place}: the image {item!r} was never asked.", "", "Download the results again.")
        reason = None
        try:
            labels, sensitive = _answer(line)
            fitting = [(label, forms.get(_form(label), [])) for label in labels - allowed]
            labels -= {label for label, names in fitting if len(names) == 1 or _form(label) in NOTHING}
            labels |= {names[0] for _, names in fitting if len(names) == 1}
        except (ValueError, TypeError, AttributeError, SyntaxError, MemoryError, RecursionError, DriftlineError):
            labels, sensitive, reason = set(), False, "unreadable"
        status = line.get("AssignmentStatus", "").lower()
        reasons = {
            status: status in ("rejected", "returned", "undone"),
            "placeholder": "{{%" in worker,
            "empty": not labels,
            "unknown_label": bool(labels - allowed),
            "contradiction": NONE in labels and len(labels) > 1,
        }
        reason = reason or next((why for why, holds in reasons.items() if holds), None)
        if worker not in hashes:
            hashes[worker] = worker if worker.startswith(JUDGE) else hashed(worker, key)
        seconds = line.get("WorkTimeInSeconds") or ""
        said = "; ".join(cell for name, cell in line.items() if name.startswith("Answer.") and cell)
        rows.append(
            {
                "place": place,
                "number": number,
                "said": said[:60] if reason == "unreadable" else "|".join(sorted(labels)),
                "item": item,
                "id": batch["items"][item],
                "worker": hashes[worker],
                "assignment": line.get("AssignmentId") or None,
                "labels": sorted(labels),
                "sensitive": sensitive,
                "seconds": int(float(seconds)) if re.fullmatch(SECONDS, seconds) else None,
                "time": _time(line),
                "fault": reason,
                "rank": -(_time(line) or 0) if worker.startswith(LABEL_STUDIO) else 0,
            }
        )
    rows.sort(key=lambda r: (r["item"], r["worker"], r["rank"]))
    seen: set[tuple[str, str]] = set()
    for row in rows:
        key_ = (row["item"], row["worker"])
        if row["fault"] is None and key_ in seen:
            row["fault"] = "duplicate"
        if row["fault"] != "returned":  # who gives a submission back may take part again
            seen.add(key_)
    return rows


def _form(label: str) -> str:
    return re.sub(r"^(\d+)\.0$", r"\1", " ".join(label.split()).casefold())


def _annotations(lines: Sequence[Line]) -> Iterator[Version]:
    """All answers; of an annotation that several exports of Label Studio have, the newest.

    Names that exports give to the author of one annotation, such as a number and an e-mail address, are one person.
    Raises BadInput for a number whose answers to an image differ between two exports: it may be two people.
    """
    exported: dict[tuple[str, ...], list[Version]] = {}
    of_number: dict[tuple[str, str], list[Version]] = {}
    for number, (place, line) in enumerate(lines):
        worker = line.get("WorkerId") or line.get("Turkle.Username") or ""
        worker = re.sub(rf"^({LABEL_STUDIO})?(\d+)\.0$", r"\1\2", worker)
        assignment, created = line.get("AssignmentId") or "", line.get(CREATED, "")
        if worker.casefold() in NOTHING:  # of no known person: each answer stands alone
            worker = f"nobody {place if assignment.casefold() in NOTHING else assignment}"
        annotation = line["Input.item"], assignment, str(_moment(created) or created)
        version = Version(number, worker, place, line, annotation)
        if not (worker.startswith(LABEL_STUDIO) and annotation[1]):
            yield version
            continue
        exported.setdefault(annotation, []).append(version)
        if is_count(worker.removeprefix(LABEL_STUDIO)):
            of_number.setdefault((annotation[0], worker), []).append(version)
    for versions in of_number.values():
        _refuse_two_people(versions)
    alias: dict[str, str] = {}

    def person(name: str) -> str:
        return person(alias[name]) if name in alias else name

    for versions in exported.values():
        first, *others = sorted({person(version.worker) for version in versions})
        if len({v.worker for v in versions if is_count(v.worker.removeprefix(LABEL_STUDIO))}) < 2:
            alias |= dict.fromkeys(others, first)
    newest: dict[tuple[Any, str], Version] = {}
    for version in chain.from_iterable(exported.values()):
        key = version.annotation, person(version.worker)
        newest[key] = max(newest.get(key, version), version, key=lambda one: _time(one.line) or 0)
    yield from (version._replace(worker=worker) for (_, worker), version in newest.items())


def _refuse_two_people(versions: Sequence[Version]) -> None:
    """Raise BadInput for different answers by one number, unless one changed the other, or an export has both."""
    in_file: dict[str, set[tuple[str, ...]]] = {}
    for version in versions:
        in_file.setdefault(version.place.rpartition(", line ")[0], set()).add(version.annotation)
    for one, other in combinations(versions, 2):
        answers = [[of.line.get(f"Answer.{name}") for name in ("labels", "sensitive")] for of in (one, other)]
        changed = one.annotation == other.annotation and _time(one.line) != _time(other.line)
        both = any(len(there & {one.annotation, other.annotation}) == 2 for there in in_file.values())
        if answers[0] != answers[1] and not (changed or both):
            problem = f"{one.worker} answers {answers[0][0]!r} to the image {one.annotation[0]} in {one.place}, and"
            raise BadInput(
                f"{problem} {answers[1][0]!r} in {other.place}.",
                "Is it the same person, or are there two?",
                "The same: keep the newer export only. Two: write their e-mail addresses into completed_by.",
            )


def _time(line: Mapping[str, str]) -> float | None:
    """When an answer was given, or the number of the screen of `annotate`."""
    return _moment(line.get("SubmitTime") or "")


def _moment(text: str) -> float | None:
    """The seconds of a time that MTurk (`Thu Oct 09 07:30:20 PDT 2025`, whose zone is left out: a file has one) or
    Label Studio (ISO 8601) wrote, or of a number."""
    if re.fullmatch("[0-9]{1,15}", text):
        return float(text)
    words = text.split()
    try:
        if len(words) == 6:
            return datetime.strptime(" ".join([*words[:4], words[5], "+0000"]), "%a %b %d %H:%M:%S %Y %z").timestamp()
        moment = datetime.fromisoformat(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return seconds if abs(seconds) > ZONES else None
    except (ValueError, OverflowError):
        return None


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    if path.suffix.lower() == ".json":
        from driftline.curate.validation.asking.platforms import read_label_studio

        yield from read_label_studio(path)
        return
    expected = "Expected a results CSV of a driftline batch, with its Input.* columns."
    again = "Download the results of the batch again, unedited."
    for number, line in csv_rows(path, ["Input.batch", "Input.item"], expected, again):
        if not any(column.startswith("Answer.") for column in line):
            raise BadInput(
                f"{path} has no Answer.* column.",
                "Expected the workers' answers.",
                "This may be the batch and not its results.",
            )
        yield number, {column: cell.strip() for column, cell in line.items()}


def _answer(line: Mapping[str, str]) -> tuple[set[str], bool]:
    """(all ticked checkboxes of one answer, whether it says "sensitive"). Raises many kinds for other forms."""
    if text := line.get("Answer.taskAnswers"):
        document = json.loads(text)
        return {_text(label) for label in _from_json(document)}, _sensitive_in(document)
    labels: set[str] = set()
    if text := line.get("Answer.labels"):
        if text.startswith("["):
            labels |= {_text(v) for v in ast.literal_eval(text[:LONGEST])}
        else:
            labels |= {v for v in text.split("|") if v}
    for column, value in line.items():
        if column.startswith("Answer.labels.") and truth(value):
            labels.add(column.removeprefix("Answer.labels."))
    sensitive = line.get("Answer.sensitive", line.get("Answer.sensitive.yes", ""))
    return labels, truth(sensitive)


def _text(label: Any) -> str:
    """The label. Raises ValueError for nothing, and for half of a surrogate pair, which is no text."""
    if label is None:
        raise ValueError("no label")
    str(label).encode()
    return str(label)


def _from_json(document: Any) -> set[Any]:
    labels: set[Any] = set()
    for answer in document if isinstance(document, list) else [document]:
        for name, value in answer.items():
            if name == "labels" and isinstance(value.get("labels"), list):
                labels |= {*value["labels"]}
            elif name == "labels":
                labels |= {k for k, v in value.items() if v is True}
            elif name.startswith("labels.") and (value is True or (isinstance(value, dict) and value.get("on"))):
                labels.add(name.removeprefix("labels."))
    return labels


def _sensitive_in(document: Any) -> bool:
    """A radio button of crowd elements: `{"sensitive": {"yes": true, "no": false}}`, or its value."""
    for answer in document if isinstance(document, list) else [document]:
        value = answer.get("sensitive")
        if (value.get("yes") is True) if isinstance(value, dict) else truth(str(value)):
            return True
    return False
