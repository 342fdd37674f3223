"""Rows: raw counts of one run, on disk; scores are computed from them and from nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import read_json, write_json, write_parquet
from curate.core.errors import MissingFile
from curate.core.formats import check_format

FORMAT = 1
SKIPPED = "skipped"
PER_CLASS = ("class_n", "class_correct")
OF_CLOCKS = ("seconds", "asking", "correcting")  # fields of a row that no second run repeats
ROWS = pa.schema(
    [
        ("tested_on", pa.string()),
        ("n", pa.int64()),
        ("n_correct", pa.int64()),
        ("learned_to", pa.int64()),
        ("seen", pa.int64()),
        ("corrections", pa.int64()),
        ("seconds", pa.float64()),
        ("stored", pa.int64()),
        ("recall", pa.float64()),
        ("asking", pa.float64()),
        ("correcting", pa.float64()),
        ("class_n", pa.list_(pa.int64())),
        ("class_correct", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True)
class Row:
    """One test: n samples, n_correct of them right. tested_on: which samples. learned_to: index of the last
    step learned (-1: none). seen: training samples seen. corrections: corrections given. seconds: since the run
    began, of this process. stored: bytes that the learner kept then, where that was asked. recall: of the learner's
    search. asking, correcting: seconds that single predictions and corrections took, where that was measured.
    class_n, class_correct: the same counts for each label from 0, where they were kept."""

    tested_on: str
    n: int
    n_correct: int
    learned_to: int = -1
    seen: int = 0
    corrections: int = 0
    seconds: float = 0.0
    stored: int = 0
    recall: float = 1.0
    asking: float = 0.0
    correcting: float = 0.0
    class_n: Sequence[int] = ()
    class_correct: Sequence[int] = ()


@dataclass(frozen=True)
class Run:
    """about: `run.json` (protocol, learner, settings, seed, stream, cost). rows: in the order of the walk."""

    about: dict[str, Any]
    rows: list[Row]


def counted(row: Row) -> dict[str, Any]:
    """What a second run repeats: all but the clocks."""
    return {key: list(v) if key in PER_CLASS else v for key, v in vars(row).items() if key not in OF_CLOCKS}


def digest(run: Run) -> str:
    """Twelve hexadecimal digits of what a run was and what it counted, clocks left out: equal runs have equal ones."""
    about = {key: run.about[key] for key in ("protocol", "learner", "settings", "protocol_settings", "seed", "stream")}
    told = f"{json.dumps(about, sort_keys=True, default=str)}{[counted(row) for row in run.rows]!r}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def save(folder: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write one run; `run.json` last."""
    write_parquet(folder / "rows.parquet", pa.Table.from_pylist([asdict(r) for r in rows], schema=ROWS))
    write_json(folder / "run.json", {"format": FORMAT, **about})


def load(folder: Path) -> Run:
    """Read one run. Raises BadInput for rows of another version."""
    about = read_json(folder / "run.json")
    check_format(folder / "run.json", about.get("format"), FORMAT, "Evaluate again.")
    with pq.ParquetFile(folder / "rows.parquet") as file:  # a third of what read_table costs for a small file
        return Run(about, [Row(**row) for row in file.read(use_threads=False).to_pylist()])


def keep_skipped(
    out: Path, protocol: str, stream: Mapping[str, str], asked: Sequence[str], skipped: Sequence[Mapping[str, str]]
) -> None:
    """Beside the rows, why learners have none. asked: those just tried; what was said of others before stays."""
    path = (
        out
        / protocol
        / SKIPPED
        / f"{hashlib.sha256(json.dumps(stream, sort_keys=True).encode()).hexdigest()[:12]}.json"
    )
    before = read_json(path)["skipped"] if path.is_file() else []
    told = [one for one in before if one["learner"] not in asked] + [dict(one) for one in skipped]
    if told or path.is_file():
        write_json(path, {"protocol": protocol, "stream": dict(stream), "skipped": told})


def find_skipped(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What `keep_skipped` wrote below some folders."""
    files = sorted({file for path in paths for file in path.rglob(f"{SKIPPED}/*.json")})
    return [read_json(file) for file in files]


def find(paths: Sequence[Path]) -> list[Run]:
    """All runs below some folders, in path order. Raises MissingFile when there is none."""
    folders = sorted({p.parent for path in paths for p in path.rglob("run.json")})
    if not folders:
        raise MissingFile(
            f"There are no runs in {', '.join(map(str, paths))}.",
            "Expected folders with run.json.",
            "Make them with driftline eval.",
        )
    return [load(folder) for folder in folders]
