"""Rows: raw counts of one run, on disk; scores are computed from them and from nothing else."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from driftline.curate.core import atomic_io
from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.late import pa

FORMAT = 1
SKIPPED = "skipped"
CONTROL = "control"  # folder of the runs of a control, beside those of protocols; it has a file of its plan
PER_CLASS = ("class_n", "class_correct")
OF_CLOCKS = ("seconds", "asking", "correcting")  # fields of a row that a second run does not repeat
DERIVED = ("last_change", "constant")  # from answers and training labels, no counts of their own
EVIDENCE = 5  # answers of two models that tell them apart, if they differ
UNSAID = -2  # `Row.last_change` before the end of a run
ROWS_DIGEST = "rows_sha256"  # of the file of rows, in its record
PREDICTIONS, PREDICTIONS_DIGEST = "predictions.parquet", "predictions_sha256"  # if it is there
NEEDED: dict[str, type | tuple[type, ...]] = {  # of a record
    "protocol": str, "learner": str, "settings": dict, "protocol_settings": dict, "seed": int, "stream": dict,
    "steps": int, "stored_bytes": int, "gradient_steps": int, "seconds": (int, float),
}  # fmt: skip
MOST_ROWS = 200_000  # of one run
IDENTITY = ("protocol", "protocol_settings", "learner", "settings", "seed", "stream", "steps", "code_of")  # of a run

Key = tuple[str, str, str]  # of a document: see `key_of`


@dataclass(eq=False)
class Answers:
    """Records of one test, in the order of its samples: as they were given, from the end of the run on as they are
    stored (see `predictions.table`)."""

    sample: Any
    """(N,) positions in the stream"""
    label: Any
    """(N,)"""
    predicted: Any
    """(N,)"""
    confidence: Any = None
    """(N,) in 0 … 1, stored as float32 in steps of 1 / 255; NaN: not known; None: nowhere"""
    group: Any = None
    """(N,) number within the stream of the sample's group (uploader, near-duplicates); None: not known, or not read"""

    def __len__(self) -> int:
        return len(self.sample)

    @cached_property
    def right(self) -> Any:
        """(N,) whether an answer is the label."""
        return self.label == self.predicted


@dataclass(frozen=True)
class Row:
    """One test."""

    tested_on: str
    """which samples"""
    n: int
    """samples"""
    n_correct: int
    """right answers"""
    learned_to: int = -1
    """index of the last step learned; -1: none"""
    seen: int = 0
    """training samples seen"""
    corrections: int = 0
    """corrections given"""
    seconds: float = 0.0
    """process time since the run began"""
    stored: int = 0
    """bytes that the learner kept, if measured"""
    recall: float = 1.0
    """of the learner's search"""
    asking: float = 0.0
    """seconds of single predictions, if measured"""
    correcting: float = 0.0
    """seconds of corrections, if measured"""
    last_change: int = UNSAID
    """index of the last step that changed the model; -1: none so far; -2: its own, as far as is known"""
    constant: int = -1
    """class that most training samples so far have, the lowest of equal ones: the best constant answer; -1: not
    known"""
    class_n: Sequence[int] = ()
    """samples of each label from 0, if counted"""
    class_correct: Sequence[int] = ()
    """right answers of each label from 0, if counted"""
    answers: Answers | None = field(default=None, repr=False, compare=False)
    """records of the samples (see `predictions`); None: not known"""


def changed(row: Row, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Row:
    """The row with other values of some fields; a report does this a million times, for which `replace` is too slow."""
    copy = object.__new__(Row)
    fields_of = copy.__dict__
    fields_of.update(row.__dict__)
    fields_of.update(values)
    return copy


FIELDS = tuple(f.name for f in fields(Row) if f.name != "answers")
REPEATED = tuple(name for name in FIELDS if name not in (*OF_CLOCKS, *DERIVED))
_OF_DIGEST = attrgetter(*REPEATED)
_COUNTED = "{" + ", ".join(f"{name!r}: %r" for name in REPEATED) + "}"  # `counted`, written without the dictionary


@dataclass(frozen=True)
class Run:
    """One learner under one protocol, for one seed."""

    about: dict[str, Any]
    """`run.json`: protocol, learner, settings, seed, stream, cost"""
    rows: list[Row]
    """in the order of the tests"""


NEEDED_FIELDS = {f.name for f in fields(Row) if f.default is MISSING}
_NO_ROW = Row("", 0, 0)


@cache
def schema() -> "pa.Schema":
    """The columns of `rows.parquet`, with their types."""
    kinds: dict[object, pa.DataType]
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), Sequence[int]: pa.list_(pa.int64())}
    return pa.schema([(f.name, kinds[f.type]) for f in fields(Row) if f.name in FIELDS])


def folder_name(name: str) -> str:
    """A protocol or learner as part of a path.

    >>> folder_name("near-future"), folder_name("er(memory=500)"), folder_name("mypackage.mine:Protocol")
    ('near-future', 'er-memory-500-', 'mypackage-mine-Protocol')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)


def stored_name(about: Mapping[str, Any]) -> str:
    """The folder of a run's rows, below that of its protocol. about: its record, or its identity."""
    digest = atomic_io.fingerprint({key: about.get(key) for key in IDENTITY})
    return f"{folder_name(about['learner'])}-seed{about['seed']}-{digest[:12]}"


def plain(row: Row) -> dict[str, Any]:
    """The columns of `rows.parquet`."""
    return {name: getattr(row, name) for name in FIELDS}


def counted(row: Row) -> dict[str, Any]:
    """What a second run repeats: everything but the clocks."""
    return {name: list(getattr(row, name)) if name in PER_CLASS else getattr(row, name) for name in REPEATED}


def digest(run: Run) -> str:
    """Twelve hexadecimal digits of a run's identity and counts, without clocks: equal runs have equal digests."""
    about = {key: run.about[key] for key in ("protocol", "learner", "settings", "protocol_settings", "seed", "stream")}
    texts = []
    for *numbers, class_n, class_correct in map(_OF_DIGEST, run.rows):
        texts.append(_COUNTED % (*numbers, list(class_n), list(class_correct)))
    content = f"{json.dumps(about, sort_keys=True, default=str)}[{', '.join(texts)}]"
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def last_changes(rows: Sequence[Row], step: Callable[[Row], int | None]) -> dict[int, int]:
    """`learned_to` of the tests of a run → the last step that changed the model. step: of a row (`Roles.step`).

    A model changed if it answers any test otherwise than the model before, confidences included: a learner that never
    learns again, whatever it is offered, gives the same answers to the same tests. Answers that any good model gives
    tell nothing: at least `EVIDENCE` must be wrong, or have a confidence between 0 and 1; else the model changed.
    """
    tests: dict[int, dict[int, Row]] = {}
    for row in rows:
        if (j := step(row)) is not None and row.n:
            tests.setdefault(row.learned_to, {})[j] = row
    changes, before = dict[int, int](), UNSAID
    for i in sorted(tests):
        former = tests.get(before, {})
        shared = [(former[j].answers, row.answers, row) for j, row in tests[i].items() if j in former]
        same = all(a is not None and b is not None and _alike(a, b) for a, b, _ in shared)
        telling = 0  # answers that are wrong or, if that is more, have a confidence between 0 and 1
        for _, answers, row in shared:
            sure = None if answers is None else answers.confidence
            telling += max(row.n - row.n_correct, 0 if sure is None else int(((sure > 0) & (sure < 1)).sum()))
        same = same and telling >= EVIDENCE
        changes[i], before = changes[before] if same else i, i
    return changes


def _alike(a: Answers, b: Answers) -> bool:
    """Whether two tests have the same samples, answers and confidences."""
    import numpy as np

    pairs = [(getattr(a, name), getattr(b, name)) for name in ("sample", "predicted", "confidence")]
    return all(
        (x is None) == (y is None) and (x is None or np.array_equal(x, y, equal_nan=x.dtype.kind == "f"))
        for x, y in pairs
    )


def new_models(rows: Sequence[Row], step: Callable[[Row], int | None]) -> dict[tuple[int, int], Row]:
    """The tests of each model where it last changed, by that step and the tested one: the model that comes after a step
    without a change is the one before, and its tests are no others."""
    return {
        (row.learned_to, j): row
        for row in rows
        if row.n and row.learned_to >= 0 and row.last_change in (UNSAID, row.learned_to)
        if (j := step(row)) is not None
    }


def tested(rows: Sequence[Row]) -> str:
    """Twelve hexadecimal digits of the samples of all tests, in their order: runs that drew the same tests have the
    same. "" for rows without records."""
    positions = [row.answers.sample.astype("int64").tobytes() for row in rows if row.answers is not None]
    return hashlib.sha256(b"".join(positions)).hexdigest()[:12] if positions else ""


def save(folder: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write one run; `run.json` last, with the digests of its rows and of the records that are there."""
    atomic_io.sweep(folder)
    table = pa.Table.from_pylist([plain(r) for r in rows], schema=schema())
    # Many columns of few bytes: with zstd, which writes them no shorter, a report reads them in three times the time.
    atomic_io.write_parquet(folder / "rows.parquet", table, compression="snappy")
    digests = {ROWS_DIGEST: atomic_io.sha256_file(folder / "rows.parquet")}
    digests |= (
        {PREDICTIONS_DIGEST: atomic_io.sha256_file(folder / PREDICTIONS)} if (folder / PREDICTIONS).is_file() else {}
    )
    atomic_io.write_json(folder / "run.json", {"format": FORMAT, **about, **digests})


def record(folder: Path) -> dict[str, Any]:
    """The record of one run. Raises BadInput, naming the file, for a run of another version and for a damaged one."""
    about = atomic_io.read_json(folder / "run.json")
    return checked(about if isinstance(about, dict) else {}, folder / "run.json", _again(folder))


def checked(about: dict[str, Any], path: Path, way_out: str) -> dict[str, Any]:
    """A record of a run, from a folder or a submission. Raises BadInput, naming the file, for one that is none."""
    atomic_io.check_format(path, about.get("format"), FORMAT, way_out)
    lacking = [key for key, kind in NEEDED.items() if isinstance(v := about.get(key), bool) or not isinstance(v, kind)]
    lacking += [] if lacking or about["steps"] > 0 else ["steps"]
    costs = ("stored_bytes", "gradient_steps", "seconds")
    lacking += [] if lacking else [key for key in costs if not 0 <= about[key] < math.inf]
    lacking += [] if isinstance(about.get("tests"), str | None) else ["tests"]
    lacking += [] if isinstance(about.get("code_of", {}), dict) else ["code_of"]
    lacking += [] if lacking or _is_timeline(about.get("timeline", {}), about["steps"]) else ["timeline"]
    if lacking:
        raise BadInput(f"{path} has no valid {lacking[0]!r}.", "Expected the record of a run.", way_out)
    if large := [key for key in NEEDED if isinstance(about[key], int) and abs(about[key]) >= 2**63]:
        raise BadInput(f"{path}: {large[0]} has more than 64 bits.", "Expected fewer.", way_out)
    if not all(isinstance(about["stream"].get(key), str) for key in ("name", "sha256")):
        raise BadInput(f"{path} names no stream.", "Expected its name and sha256.", way_out)
    return about


def _is_timeline(value: Any, steps: int) -> bool:
    """Whether a record has a name, and a date if it has dates, for each step."""
    return isinstance(value, dict) and all(
        isinstance(value[key], list) and len(value[key]) == steps and all(isinstance(v, kind) for v in value[key])
        for key, kind in (("names", str), ("dates", int))
        if key in value
    )


def load(folder: Path) -> Run:
    """Read one run. Raises as `record`, also for damaged rows."""
    about, way_out = record(folder), _again(folder)
    path = folder / "rows.parquet"
    if not path.is_file():
        raise BadInput(f"{path} is missing.", "Expected the results of a run.", way_out)
    if not isinstance(expected := about.pop(ROWS_DIGEST, None), str):
        raise BadInput(f"{folder / 'run.json'} has no valid {ROWS_DIGEST!r}.", "Expected the record of a run.", way_out)
    data = path.read_bytes()
    if atomic_io.sha256_bytes(data) != expected:
        raise BadInput(f"{path} was changed after it was written.", f"Expected SHA-256 {expected}.", way_out)
    return Run(about, parsed(data, path, way_out))


def parsed(data: bytes, path: Path, way_out: str) -> list[Row]:
    """The rows of a file of one run; a file of a few bytes may claim millions. Raises BadInput, naming the file."""
    from driftline.curate.foreign.tables import BoundedParquet

    try:
        with BoundedParquet(pa.BufferReader(data), path) as file:
            if file.rows > MOST_ROWS:
                raise BadInput(f"{path} has {file.rows:,} rows.", f"Expected at most {MOST_ROWS:,}.", way_out)
            known = list(schema())
            if odd := [column.name for column in file.schema if column not in known]:
                raise ValueError(f"it has the column {odd[0][:60]!r}")
            columns = file.read(threads=False).to_pydict()
        if not columns.keys() >= NEEDED_FIELDS:
            raise ValueError(f"it has the columns {', '.join(columns)}"[:200])
        rows = [changed(_NO_ROW, zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    except (pa.ArrowException, OSError, TypeError, ValueError, LookupError) as error:
        raise BadInput(f"{path} is damaged: {reason(error)}.", "Expected the results of a run.", way_out) from None
    if not rows:
        raise BadInput(f"{path} has no rows.", "Expected at least one.", way_out)
    return rows


def _again(folder: Path) -> str:
    return f"Remove the folder {folder} and evaluate again."


def keep_skipped(
    out: Path, protocol: str, stream: Mapping[str, str], asked: Sequence[str], skipped: Sequence[Mapping[str, str]]
) -> None:
    """Store beside the rows why learners have none. asked: learners just tried; reasons of the others stay."""
    of_stream = hashlib.sha256(json.dumps(stream, sort_keys=True).encode()).hexdigest()[:12]
    path = out / folder_name(protocol) / SKIPPED / f"{of_stream}.json"
    before = _skipped(path)["skipped"] if path.is_file() else []
    entries = [entry for entry in before if entry["learner"] not in asked] + [dict(entry) for entry in skipped]
    if entries or path.is_file():
        atomic_io.write_json(path, {"protocol": protocol, "stream": dict(stream), "skipped": entries})


def find_skipped(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What `keep_skipped` wrote below some folders."""
    places = [(Path(folder), names) for folder, names in _walk(paths) if os.path.basename(folder) == SKIPPED]
    files = sorted({place / name for place, names in places for name in names if name.endswith(".json")})
    return [_skipped(file) for file in files]


def _skipped(path: Path) -> dict[str, Any]:
    """One file of `keep_skipped`. Raises BadInput."""
    way_out = "Remove it: driftline eval writes it again."
    document = atomic_io.read_object(path, {"protocol": str, "stream": dict, "skipped": list}, way_out)
    if not all(isinstance(document["stream"].get(key), str) for key in ("name", "sha256")):
        raise BadInput(f"{path} names no stream.", "Expected its name and sha256.", way_out)
    for entry in document["skipped"]:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("learner", "because")):
            raise BadInput(f"{path} has an entry without learner and reason.", "", way_out)
    return document


def grouped(runs: Sequence[Run]) -> dict[Key, list[Run]]:
    """The runs of each protocol and stream."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        groups.setdefault(key_of(run.about), []).append(run)
    return groups


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that differ in their seed only, together."""
    by_identity: dict[str, list[Run]] = {}
    for run in runs:
        parts = ("learner", "settings", "protocol_settings", "code_of", "edited_while_running")
        key = json.dumps([run.about.get(part) for part in parts], sort_keys=True)
        by_identity.setdefault(key, []).append(run)
    return list(by_identity.values())


def key_of(about: Mapping[str, Any]) -> Key:
    """A run's record → digest of the stream, protocol, name of the stream."""
    return stream_digest(about["stream"]), about["protocol"], about["stream"]["name"]


def stream_digest(stream: Mapping[str, str]) -> str:
    """What a record says about its stream → SHA-256, of the stream or of what its draws have in common."""
    return stream.get("family", stream["sha256"])


def folders(paths: Sequence[Path], none: bool = False) -> list[Path]:
    """The folders of all runs below some folders, in order, without those of their controls. Raises MissingFile if
    there is none, unless `none`."""
    places = sorted(Path(folder) for folder in {folder for folder, files in _walk(paths) if "run.json" in files})
    if not places and not none:
        problem = f"There are no runs in {', '.join(map(str, paths))}."
        raise MissingFile(problem, "Expected folders with run.json.", "Make them with driftline eval.")
    return places


def _walk(paths: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Folders below some folders, and the files in each; not those below the folder of a control."""
    for path in paths:
        for folder, inside, files in os.walk(path):  # in a third of the time of rglob
            if CONTROL in inside and any(Path(folder, CONTROL).glob("*.json")):
                inside.remove(CONTROL)
            yield folder, files


def find(paths: Sequence[Path]) -> list[Run]:
    """All runs below some folders, in path order. Raises MissingFile if there is none."""
    return [load(folder) for folder in folders(paths)]
