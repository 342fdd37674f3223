"""Further readers of bytes from outside: imports of other benchmarks, marketplaces, judges."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from contracts.test_importers import BUILT
from hostile.readers import Make, check_rows, files, reader
from pyarrow import csv

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.errors import BadInput
from driftline.stream_builder.importers import IMPORTERS

OPTIONS: dict[str, dict[str, Any]] = {
    "clear": {"features": "images:8"},
    "folder-by-time": {"size": 8},
    "hub": {"time": "taken", "label": "label", "size": 8},
    "tic": {"size": 8},
    "wild-time": {},
    "wilds": {"size": 8},
}
TABLES = {"hub": "data/*.parquet", "wilds": "rgb_metadata.csv"}  # of which each row is in the stream or is counted
PLACES = {"tic": "tic_year2uids.json", "wild-time": "yearbook.pkl"}


def check_all_rows(folder: Path, names: str, rows: int) -> None:
    """Compare the rows that were read with those that tables of an importer have."""
    paths = list(folder.glob(names))
    if names.endswith(".csv"):
        check_rows(paths[0], rows)
    else:
        assert rows == sum(map(rows_in, paths))


def importer(name: str) -> Callable[[Path], None]:
    """Reads with one importer, and the first images of every split."""

    def read(folder: Path) -> None:
        options = OPTIONS[name] | ({"table": folder / "mine.csv"} if name == "tic" else {})
        made = IMPORTERS[name](folder / PLACES.get(name, ""), **options)
        splits = [split for step in made.steps for split in step.splits.values()]
        for split in splits:
            np.asarray(split.x[:1])
        if name in TABLES:
            left_out = sum(int(few.split()[0]) for few in made.facts.get("left_out", "0").split("; "))
            check_all_rows(folder, TABLES[name], sum(map(len, splits)) + left_out)

    read.__name__ = f"from_{name.replace('-', '_')}"
    return read


def built(name: str) -> Make:
    """Writes what an importer reads."""

    def make(folder: Path) -> None:
        BUILT[name](folder)

    return make


for each in OPTIONS:
    reader(built(each))(importer(each))

BATCH: dict[str, Any] = {"batch": "b1", "items": {"i1": "p1"}, "concepts": ["bus", "car"], "workers": 1}
RESULT = [
    {"from_name": "labels", "value": {"choices": ["bus"]}},
    {"from_name": "sensitive", "value": {"choices": ["no"]}},
]
TASK = {
    "data": {"batch": "b1", "item": "i1"},
    "annotations": [{"id": 7, "completed_by": {"id": 3, "email": "a@x"}, "result": RESULT, "lead_time": 4.3}],
}


def rows_in(path: Path) -> int:
    """Of all row groups: the total beside them may be damaged, and nothing reads it."""
    meta = pq.read_metadata(path)
    return sum(meta.row_group(i).num_rows for i in range(meta.num_row_groups))


@reader(files({"export.json": json.dumps([TASK, TASK])}))
def label_studio(folder: Path) -> None:
    from driftline.curate.validation.answers.answers import read_answers, read_lines

    found = read_lines([folder / "export.json"])
    tasks = json.loads((folder / "export.json").read_text("utf-8-sig"))
    given = [not one.get("was_cancelled") for task in tasks for one in task["annotations"]]
    assert sum(map(len, found.values())) == sum(given)
    for lines in found.values():
        read_answers(lines, BATCH, "k")


def model_answer(folder: Path) -> None:
    choice = {"message": {"content": json.dumps({"labels": ["bus"], "sensitive": False})}, "finish_reason": "stop"}
    write_json(folder / "answer.json", {"choices": [choice], "model": "m"})


@reader(model_answer)
def judges(folder: Path) -> None:
    """An answer of a judge's endpoint."""
    from driftline.curate.foreign.http import Reply, Temporary
    from driftline.curate.retrieval.settings import Concept
    from driftline.curate.validation.judges import Endpoint, question_of
    from driftline.curate.validation.settings import JudgeSettings

    class Said:
        def send(self, *_: Any, **__: Any) -> Reply:
            return Reply(200, {}, (folder / "answer.json").read_bytes())

        def hidden(self, text: str) -> str:
            return text

    judge = JudgeSettings(name="j", url="http://h", model="m")
    endpoint = Endpoint(judge, question_of([Concept(name="bus", prompts=("bus",))], "?"), lambda id_: (b"", ""))
    vars(endpoint)["client"] = Said()
    with suppress(Temporary):
        (labels, *_), model = endpoint._once(b"")
        json.dumps([labels, model]).encode()


# --- the log of a model in service, lists of withdrawn photos ------------------------------------

LOG = [{"time": f"2026-0{1 + i % 6}-03T10:00:0{i % 10}Z", "id": f"p{i}", "version": f"v{i % 2}",
        "prediction": "cat" if i % 3 else "dog", "score": i / 100, "label": "cat"} for i in range(40)]  # fmt: skip


def logs(folder: Path) -> None:
    """A log in each form, and labels that came later."""
    table = pa.Table.from_pylist(LOG)
    pq.write_table(table, folder / "log.parquet")
    csv.write_csv(table, folder / "log.csv")
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LOG))
    lines = (json.dumps({"id": row["id"], "label": "dog", "label_time": "2026-07-01"}) for row in LOG[:9])
    (folder / "labels.jsonl").write_text("\n".join(lines) + "\n")


@reader(logs, each=True)
def service_log(folder: Path) -> None:
    from driftline.eval.logs.reading import read_log

    for path in folder.iterdir():
        if path.name == "labels.jsonl":
            read_log([LOG], labels=[path])
            continue
        log = read_log([path])
        dropped = ("not_a_row", "unreadable_time", "no_time", "no_id", "no_version", "no_prediction", "duplicates")
        assert log.counts["read"] == len(log) + sum(log.counts[why] for why in dropped)
        if path.suffix == ".csv":
            check_rows(path, log.counts["read"])
        elif path.suffix == ".jsonl":
            assert log.counts["read"] == sum(map(bool, map(bytes.strip, path.read_bytes().splitlines())))
        else:
            assert log.counts["read"] == rows_in(path)


@reader(
    files({"t.csv": "time,id,label,a,b\n" + "".join(f"2020-01-{i:02},p{i},c{i % 3},{i},.5\n" for i in range(1, 20))})
)
def stream_table(folder: Path) -> None:
    """A table of samples: each row is in the stream, or one line is named."""
    from driftline.stream_builder.builders.table import from_table

    stream = from_table(folder / "t.csv", x=["a", "b"], period=1)
    left_out = int(stream.facts.get("left_out", "0").split()[0])
    check_rows(folder / "t.csv", left_out + sum(len(split) for split in stream.steps[0].splits.values()))


@reader(
    files(
        {
            "withdrawn.csv": 'id,url,reason,date\np1,http://a/1,"asked, twice",2026-01-01\np2,,,\n',
            "WITHDRAWN.csv": "salt,digest,since\n" + "ab,cd,1.0\n" * 3,
        }
    )
)
def withdrawn(folder: Path) -> None:
    from driftline.curate.metadata.withdrawals import listed, listed_withdrawals, withdrawn_ids

    withdrawn_ids(folder / "withdrawn.csv")
    listed(["p1"], [(salt, digest) for salt, digest, _ in listed_withdrawals(folder)])


def pages(folder: Path) -> None:
    """Parquet with lists, dictionaries, and texts that share their beginnings."""
    table = pa.table({"id": [f"photo{i:04}" for i in range(300)], "tags": [["a", "bb"][: i % 3] for i in range(300)],
                      "x": [i / 7 for i in range(300)], "kind": [f"k{i % 3}" for i in range(300)]})  # fmt: skip
    plain = {"use_dictionary": ["kind"], "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}
    pq.write_table(table, folder / "a.parquet", row_group_size=90, compression="zstd", **plain)
    pq.write_table(table, folder / "b.parquet", data_page_version="2.0", compression="gzip")


@reader(pages)
def bounded_parquet(folder: Path) -> None:
    from driftline.curate.foreign.tables import BoundedParquet, read_parquet, readable

    for name in ("a.parquet", "b.parquet"):
        with suppress(BadInput):
            read_parquet(folder / name)
        with readable(folder / name, "Expected Parquet."), BoundedParquet(folder / name) as file:
            list(file.batches(64, file.schema.names))
