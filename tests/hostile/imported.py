"""Further readers of bytes from outside: imports of other benchmarks, marketplaces, judges, iNaturalist's tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from contracts.test_importers import BUILT
from hostile.readers import Make, drained, files, reader
from pyarrow import csv

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.errors import BadInput
from driftline.curate.fetch.outcome import Download
from driftline.curate.fetch.waiting import Answers
from driftline.stream_builder.importers import IMPORTERS

OPTIONS: dict[str, dict[str, Any]] = {
    "clear": {"features": "images:8"},
    "folder-by-time": {"size": 8},
    "hub": {"time": "taken", "label": "label", "size": 8},
    "tic": {"size": 8},
    "wild-time": {},
    "wilds": {"size": 8},
}
PLACES = {"tic": "tic_year2uids.json", "wild-time": "yearbook.pkl"}


def importer(name: str) -> Callable[[Path], None]:
    """Reads with one importer, and the first images of every split."""

    def read(folder: Path) -> None:
        options = OPTIONS[name] | ({"table": folder / "mine.csv"} if name == "tic" else {})
        made = IMPORTERS[name](folder / PLACES.get(name, ""), **options)
        for step in made.steps:
            for split in step.splits.values():
                np.asarray(split.x[:1])

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


@reader(files({"export.json": json.dumps([TASK, TASK])}))
def label_studio(folder: Path) -> None:
    from driftline.curate.validation.answers.answers import read_answers, read_lines

    for lines in read_lines([folder / "export.json"]).values():
        read_answers(lines, BATCH, "k")


def prolific_answers(folder: Path) -> None:
    said = {"instruction_id": "q1", "answer": [{"value": "bus"}]}
    response = {"id": "r", "metadata": {"item": "i1"}, "response": said, "submission_id": "s", "participant_id": "p"}
    write_json(folder / "submissions.json", {"results": [{"id": "s", "status": "AWAITING REVIEW", "time_taken": 40}]})
    write_json(folder / "counts.json", {"AWAITING REVIEW": 1, "TOTAL": 1})
    write_json(folder / "responses.json", {"results": [response], "meta": {"count": 1}})
    steps = [{"format": 1}, {"step": "study", "result": "x"}, {"step": "published", "result": True},
             {"step": "batch", "result": {"id": "b", "labels": "q1", "sensitive": "q2"}}]  # fmt: skip
    (folder / "journal.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


@reader(prolific_answers)
def prolific(folder: Path) -> None:
    """The lists that Prolific answers with, and the journal."""
    from driftline.curate.core.outside.http import Reply
    from driftline.curate.validation.asking.platforms import prolific_api
    from driftline.curate.validation.asking.platforms.prolific_service import Service

    class Pool:
        def ask(self, method: str, address: str, read: Any, *more: Any, **request: Any) -> Any:
            name = next(name for name in ("counts", "submissions", "responses") if name in address)
            return read(Reply(200, {}, (folder / f"{name}.json").read_bytes()))

        def hidden(self, text: str) -> str:
            return text

    service = Service.__new__(Service)
    vars(service).update(endpoint="", _headers={}, _client=Pool())
    prolific_api.collect(service, prolific_api.Journal(folder / "journal.jsonl"), "b1", folder / "out.csv")


def judges_answers(folder: Path) -> None:
    from driftline.curate.validation.judging.cache import AnswerCache

    cache = AnswerCache(folder / "answers.jsonl")
    for i in "12":
        cache.add(**{"image": i, "question": "q", "judge": "j", "requested": "m", "reported": "m", "model": "m",
                   "labels": ["bus"], "sensitive": False, "confidence": 0.5, "fault": None, "usd": 0.5})  # fmt: skip
    content = json.dumps({"labels": ["bus"], "sensitive": False, "confidence": 0.9})
    choice = {"message": {"content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    write_json(folder / "answer.json", {"choices": [choice], "model": "m", "usage": usage})


@reader(judges_answers)
def judges(folder: Path) -> None:
    """The kept answers of judges, as opinions, and a new one of their endpoint."""
    from driftline.curate.retrieval.settings import Concept
    from driftline.curate.validation.judging.cache import AnswerCache
    from driftline.curate.validation.judging.endpoint import Temporary, _Work, response_of
    from driftline.curate.validation.judging.opinions import of_endpoint, table_of
    from driftline.curate.validation.judging.question import question_of
    from driftline.curate.validation.judging.settings import JudgeSettings

    cache = AnswerCache(folder / "answers.jsonl")
    entries = dict(enumerate(cache.entries.values()))
    table_of(of_endpoint({str(i): entry for i, entry in entries.items()}, {str(i): 0 for i in entries}))
    asked = question_of([Concept(name=name, prompts=(name,)) for name in BATCH["concepts"]], "What is it?")
    settings = JudgeSettings(name="j", url="http://h", model="m", budget_usd=1.0, usd_per_million_in=1.0)
    work = _Work(settings, asked, None, lambda id_: (b"", "jpg"), cache, lambda n: None)
    with suppress(Temporary):
        work._store("3", response_of((folder / "answer.json").read_bytes()))


def naturalists_tables(folder: Path) -> None:
    tables = {
        "observations": ["observation_uuid observer_id latitude longitude positional_accuracy taxon_id quality_grade"
                         " observed_on anomaly_score", "o1 7 50.5 8.25 10 31 research 2019-06-01 1.0"],
        "photos": ["photo_uuid photo_id observation_uuid observer_id extension license width height position",
                   "u1 11 o1 7 jpg CC-BY-NC 9 9 1", "u2 10 o1 7 jpeg CC0 9 9 0"],
        "taxa": ["taxon_id ancestry rank_level rank name active", "1  70 kingdom Animalia true",
                 "31 1 10 species Apis true"],
        "observers": ["observer_id login name", "7 nino N."],
    }  # fmt: skip
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("".join(line.replace(" ", "\t") + "\n" for line in lines))


@reader(naturalists_tables)
def inaturalist(folder: Path) -> None:
    from driftline.curate.sources.inaturalist import INaturalist

    drained(INaturalist(path="."), folder)


# --- the log of a model in service, lists of withdrawn photos, answers that wait ------------------------------------

LOG = [{"time": f"2026-0{1 + i % 6}-03T10:00:0{i % 10}Z", "id": f"p{i}", "version": f"v{i % 2}",
        "prediction": "cat" if i % 3 else "dog", "score": i / 100, "label": "cat"} for i in range(40)]  # fmt: skip


def logs(folder: Path) -> None:
    """A log in each form, and labels that came later."""
    table = pa.Table.from_pylist(LOG)
    pq.write_table(table, folder / "log.parquet")
    csv.write_csv(table, folder / "log.csv")
    lines = (json.dumps({"id": row["id"], "label": "dog", "label_time": "2026-07-01"}) for row in LOG[:9])
    (folder / "labels.jsonl").write_text("\n".join(lines) + "\n")


@reader(logs)
def service_log(folder: Path) -> None:
    from driftline.eval.service_log.reading import read_log

    for name in ("log.parquet", "log.csv"):
        read_log([folder / name], labels=[folder / "labels.jsonl"])


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


def answers_that_wait(folder: Path) -> None:
    from driftline.curate.fetch.waiting import add_slow

    waiting = Answers(folder / "00000.waiting", b"key")
    waiting.begin(b"key")
    waiting.add((0, "http://a/0"), Download(b"body\n" * 9, validator="v"))
    waiting.add((1, "http://a/1"), Download(None, "http_404", "gone", 0.0, None))
    waiting.add((2, "http://a/2"), None)
    add_slow(folder, 5.0, ["b"])


@reader(answers_that_wait)
def waiting(folder: Path) -> None:
    from driftline.curate.fetch.waiting import slow_hosts

    slow_hosts(folder, 5.0)
    answers = Answers(folder / "00000.waiting", b"key")
    for row in range(3):
        answer = answers.get(row, f"http://a/{row}")
        assert answer is None or answer.data in (None, b"body\n" * 9)


def pages(folder: Path) -> None:
    """Parquet with lists, dictionaries, and texts that share their beginnings."""
    table = pa.table({"id": [f"photo{i:04}" for i in range(300)], "tags": [["a", "bb"][: i % 3] for i in range(300)],
                      "x": [i / 7 for i in range(300)], "kind": [f"k{i % 3}" for i in range(300)]})  # fmt: skip
    plain = {"use_dictionary": ["kind"], "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}
    pq.write_table(table, folder / "a.parquet", row_group_size=90, compression="zstd", **plain)
    pq.write_table(table, folder / "b.parquet", data_page_version="2.0", compression="gzip")


@reader(pages)
def bounded_parquet(folder: Path) -> None:
    from driftline.curate.core.outside.tables import BoundedParquet, read_parquet, readable

    for name in ("a.parquet", "b.parquet"):
        with suppress(BadInput):
            read_parquet(folder / name)
        with readable(folder / name, "Expected Parquet."), BoundedParquet(folder / name) as file:
            list(file.batches(64, file.schema.names))
