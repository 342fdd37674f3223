"""Answers of people in a store, by the SHA-256 of an image and the fingerprint of the question that they read; and the
verdicts that stay when answers are deleted.

A page asks one question for each concept: does the image show it? An answer to an earlier page counts if that page had
every option that there is now, with the same text; ticks of options that are gone are left out. Who did not see an
option cannot have ticked it.

What a run keeps of people's answers after `driftline forget` is the table FORGOTTEN. A row is of a photo, by its
SHA-256, and of a concept of the page that people read: the verdict and its counts, nothing of a single answer or
person. It stands until enough new answers to the photo are there, or the page changes.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import (
    check_format,
    fingerprint,
    json_value,
    read_object,
    write_json,
    write_parquet,
)
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.tables import read_parquet
from driftline.curate.retrieval.settings import Concept
from driftline.curate.store.database import Place, open_store
from driftline.curate.validation.answers.answers import Line, read_answers, table_of
from driftline.curate.validation.answers.verdicts import VERDICTS
from driftline.curate.validation.asking.batches import NONE
from driftline.curate.validation.settings import FORGOTTEN

FORMAT = 1  # of a batch in the run folder
WAY_OUT = "Restore it from a copy. If there is none, delete it: the answers to its batch stay, and do not count."
Digests = Callable[[Collection[str]], Mapping[str, str]]
KEY = b"deleted"  # in the metadata of its schema: a list of what was deleted when, as JSON
COUNTS = ("decision", "votes", "answers", "agreement", "sensitive")  # columns of VERDICTS
COLUMNS = pa.schema(
    [
        ("sha256", pa.string()),
        ("concept", pa.string()),
        ("options", pa.string()),
        *(VERDICTS.field(name) for name in COUNTS),
        ("people", pa.int32()),
    ]
)
PEOPLE = pa.schema([("id", pa.string()), ("people", pa.int32())])
Pair = tuple[str, str]  # id, concept
Row = Mapping[str, Any]


def options_of(concepts: Sequence[Concept]) -> dict[str, str]:
    """Concept → fingerprint of what workers read about it."""
    return {c.name: fingerprint([c.name, c.option or c.name, c.examples])[:16] for c in concepts}


@dataclass(frozen=True)
class StoredAnswers:
    """The answers in a store, as one run uses them."""

    place: Place
    folder: Path
    """where the run keeps what it asked, one file a batch: its answers outlive its store"""
    options: Mapping[str, str]
    """concept → fingerprint of what workers read about it now"""
    digests: Digests
    """ids of photos of the run → their SHA-256, by id"""
    key: str
    """text for the keyed hash of worker ids"""
    since: int = 0
    """seconds since the epoch: `earlier` leaves out what was known before, whose verdicts stand without it"""

    def take_batch(self, facts: Mapping[str, Any]) -> None:
        """Record a batch (content of batch.json) before anybody answers it."""
        digests = self.digests(set(facts["items"].values()))
        record = {"format": FORMAT, "facts": facts, "digests": dict(digests), "options": dict(self.options)}
        write_json(self.folder / f"{facts['batch']}.json", record)
        with open_store(self.place.folder) as store, store.transaction() as base:
            _take_batch(base, record)

    def take_lines(self, lines: Mapping[str, Sequence[Line]]) -> None:
        """Take all answers to known batches. lines: by batch."""
        with open_store(self.place.folder) as store, store.transaction() as base:
            self._take_lines(base, lines)

    def _take_lines(self, base: Connection, lines: Mapping[str, Sequence[Line]]) -> None:
        batches = {name for (name,) in base.execute("SELECT name FROM batches")}
        for path in sorted(self.folder.glob("*.json")):
            if path.stem not in batches:  # the store is another one than it was
                record = read_object(path, {"facts": dict, "digests": dict, "options": dict}, WAY_OUT)
                check_format(path, record.get("format"), FORMAT, WAY_OUT)
                _take_batch(base, record)
                batches.add(path.stem)
        for name in sorted(batches & lines.keys()):
            _take(base, name, lines[name], self.key)

    def uncounted(self, lines: Mapping[str, Sequence[Line]], asked: Collection[str]) -> dict[str, int]:
        """Why lines of results files count for none of the photos `asked` (ids) → how many lines."""
        reasons: Counter[str] = Counter()
        digests = set(self.digests(asked).values())
        query = "SELECT facts, digests, options FROM batches WHERE name = ?"
        with open_store(self.place.folder) as store:
            for name, some in lines.items():
                if (row := store.base.execute(query, (name,)).fetchone()) is None:
                    reasons[f"{some[0][0]}: Input.batch is {name!r}, which this run never asked"] += len(some)
                    continue
                facts, digest_of, then = map(json.loads, row)
                if changes := page_changes(then, self.options):
                    reasons[f"the page was another one ({changes})"] += len(some)
                    continue
                ids = [facts["items"].get(line.get("Input.item", "")) for _, line in some]
                reasons["their photos are not asked now"] += sum(digest_of.get(id_) not in digests for id_ in ids)
        return {why: n for why, n in sorted(reasons.items()) if n}

    def earlier(self, batch: Mapping[str, Any], lines: Mapping[str, Sequence[Line]] | None = None) -> pa.Table:
        """What was answered about the images of a batch on other pages, as a table of ANSWERS with the names of this
        batch, sorted by item and worker. lines: as if `take_lines` had taken them."""
        ids = {id_: item for item, id_ in batch["items"].items()}
        rows: list[dict[str, Any]] = []
        fits: dict[str, bool] = {}
        with open_store(self.place.folder) as store:
            if lines is not None:
                store.base.execute("BEGIN IMMEDIATE")  # without a COMMIT
                self._take_lines(store.base, lines)
            anybody = store.base.execute("SELECT 1 FROM answers LIMIT 1").fetchone()
            for id_, digest in self.digests(ids).items() if anybody else ():
                answers = store.base.execute(
                    "SELECT worker, options, assignment, labels, sensitive, seconds, fault FROM answers "
                    "WHERE sha = ? AND batch <> ? AND time >= ? ORDER BY batch, worker, number",
                    (bytes.fromhex(digest), batch["batch"], self.since),
                )
                for worker, options, assignment, labels, sensitive, seconds, fault in answers:
                    if options not in fits:
                        fits[options] = not page_changes(json.loads(options), self.options)
                    if not fits[options]:
                        continue
                    ticked = [label for label in json.loads(labels) if label in self.options]
                    rows.append(
                        {
                            "item": ids[id_], "id": id_, "worker": worker, "assignment": assignment,
                            "labels": ticked or [NONE], "sensitive": bool(sensitive), "seconds": seconds,
                            "fault": fault,
                        }
                    )  # fmt: skip
        return table_of(rows)

    def said(self, worker: str, question: bytes, digests: Collection[str]) -> dict[str, tuple[list[str], bool, Any]]:
        """SHA-256 → (labels, sensitive, fault): what a judge said before about these images. question: 16 bytes that
        stand for what it was asked."""
        query = "SELECT sha, labels, sensitive, fault FROM answers WHERE worker = ? AND question = ?"
        with open_store(self.place.folder) as store:
            rows = store.base.execute(query, (worker, question)).fetchall() if self.place.reads else []
        known = {sha.hex(): (json.loads(labels), bool(flag), fault) for sha, labels, flag, fault in rows}
        return {digest: known[digest] for digest in digests if digest in known}

    def keep_said(
        self, worker: str, question: bytes, digest: str, said: tuple[list[str], bool, Any], model: str
    ) -> None:
        """Keep what a judge said; it is on disk when this returns. model: its name as the server reports it."""
        labels, sensitive, fault = said
        row = (bytes.fromhex(digest), question, worker, "", 0, "{}", None, json.dumps(labels), sensitive, None, fault,
               model, int(time.time()))  # fmt: skip
        with open_store(self.place.folder) as store, store.transaction() as base:
            base.execute(f"INSERT OR REPLACE INTO answers VALUES ({', '.join('?' * 13)})", row)


def merged(own: pa.Table, earlier: pa.Table) -> pa.Table:
    """Answers to one batch and earlier ones: of a worker's several answers to an image the first one counts."""
    if not len(earlier):
        return own
    rows = sorted([*earlier.to_pylist(), *own.to_pylist()], key=lambda row: (row["item"], row["worker"]))
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        pair = row["item"], row["worker"]
        if row["fault"] is None and seen[pair]:
            row["fault"] = "duplicate"
        seen[pair] += row["fault"] is None
    return table_of(rows)


def page_changes(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Why an answer to a page with the options `then` does not answer the page of `now`; "" if it does.

    >>> [page_changes(then, {"car": "a", "bus": "b"}) for then in ({"car": "x"}, {"car": "a", "bus": "b", "van": "c"})]
    ["'bus' is new, the text of 'car' has changed", '']
    """
    texts = {name: f"the text of {name!r} has changed" if name in then else f"{name!r} is new" for name in now}
    return ", ".join(texts[name] for name in sorted(now) if then.get(name) != now[name])


def _take_batch(base: Connection, record: Mapping[str, Any]) -> None:
    parts = [json.dumps(record[name]) for name in ("facts", "digests", "options")]
    base.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?)", (record["facts"]["batch"], *parts))


def _take(base: Connection, name: str, lines: Sequence[Line], key: str) -> None:
    """Take the answers to one batch in the place of what was known of them; the first date stays."""
    query = "SELECT facts, digests, options FROM batches WHERE name = ?"
    facts, digests, options = base.execute(query, (name,)).fetchone()
    digest_of = json.loads(digests)
    question = bytes.fromhex(fingerprint(json.loads(options)))[:16]
    venue = ",".join(sorted({Path(place.rpartition(", line ")[0]).stem for place, _ in lines}))
    query = "SELECT sha, worker, number, time FROM answers WHERE batch = ?"
    times = {tuple(pair): moment for *pair, moment in base.execute(query, (name,))}
    seen: Counter[tuple[bytes, str]] = Counter()
    rows = []
    table = read_answers(lines, json.loads(facts), key)
    for id_, *values in rows_of(table, "id", "worker", "assignment", "labels", "sensitive", "seconds", "fault"):
        worker, assignment, labels, sensitive, seconds, fault = values
        if id_ not in digest_of:
            continue
        sha = bytes.fromhex(digest_of[id_])  # of two photos, where a file is there twice
        number = seen[sha, worker]
        seen[sha, worker] += 1
        moment = times.get((sha, worker, number), int(time.time()))
        ticked = json.dumps(list(labels))
        rows.append(
            (sha, question, worker, name, number, options, assignment, ticked, sensitive, seconds, fault, venue, moment)
        )
    base.execute("DELETE FROM answers WHERE batch = ?", (name,))
    base.executemany(f"INSERT INTO answers VALUES ({', '.join('?' * 13)})", rows)


@dataclass(frozen=True)
class Standing:
    """The verdicts that stand for the photos and the page of a run."""

    rows: Mapping[Pair, Row] = field(default_factory=dict)
    """(id, concept) → COUNTS, and `people`: how many of the answers were of people"""
    deleted: Sequence[Row] = ()
    """what was deleted, the oldest first; see `deletions`"""

    def answered(self) -> set[str]:
        """Ids that people answered."""
        return {id_ for (id_, _), row in self.rows.items() if row["people"]}

    def covers(self, item: Row) -> bool:
        """Whether the verdict of an item (id, concept) stands."""
        return (item["id"], item["concept"]) in self.rows

    def people(self, items: Sequence[Row]) -> pa.Table:
        """Id and `people` of the items whose verdict stands."""
        pairs = sorted({(i["id"], self.rows[i["id"], i["concept"]]["people"]) for i in items if self.covers(i)})
        return pa.table({"id": [id_ for id_, _ in pairs], "people": [n for _, n in pairs]}, PEOPLE)

    def merged(self, items: Sequence[Row], verdicts: pa.Table) -> pa.Table:
        """Verdicts of all items, in their order: those of `verdicts`, and of the other items those that stand."""
        if not self.rows:
            return verdicts
        new = {(row["id"], row["concept"]): row for row in verdicts.to_pylist()}
        pairs = [(item["id"], item["concept"]) for item in items]
        rows = [
            new.get(pair) or {**item, **{name: self.rows[pair][name] for name in COUNTS}}
            for pair, item in zip(pairs, items, strict=True)
        ]
        return pa.Table.from_pylist(rows, schema=VERDICTS)


def deletions(root: Path) -> list[dict[str, Any]]:
    """What was deleted in a run folder, the oldest first: `time` (seconds since the epoch), `date`, `release` before
    it, how many `answers` of how many `people` to how many `images`, and their `agreement`."""
    path = root / FORGOTTEN
    if not path.is_file():
        return []
    entries: list[dict[str, Any]] = json_value((pq.read_schema(path).metadata or {}).get(KEY, b"[]"))
    return entries


def briefly(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The deletions of a run folder without their agreement: as plain data, and a line each."""
    entries = [{k: one[k] for k in ("date", "release", "answers", "people", "images")} for one in deletions(root)]
    return entries, [
        f"answers deleted on {one['date']}, after release {one['release']}: {one['answers']:,} of "
        f"{one['people']:,} people to {one['images']:,} images; their labels stay"
        for one in entries
    ]


def standing(root: Path, photos: pa.Table, options: Mapping[str, str]) -> Standing:
    """What stands in a run folder. photos: id and sha256 of the run's photos. options: concept → fingerprint of what
    people read about it now. Raises BadInput for a damaged file, MissingFile without one."""
    table = _rows(root)
    ids = defaultdict[str, list[str]](list)
    for id_, digest in rows_of(
        photos.filter(pc.is_in(photos["sha256"], value_set=table["sha256"].combine_chunks())), "id", "sha256"
    ):
        ids[digest].append(id_)
    fits = {text for text in table["options"].to_pylist() if not page_changes(json_value(text), options)}
    rows = {
        (id_, row["concept"]): row
        for row in table.to_pylist()
        if row["options"] in fits
        for id_ in ids.get(row["sha256"], ())
    }
    return Standing(rows, deletions(root))


def _rows(root: Path) -> pa.Table:
    return read_parquet(
        root / FORGOTTEN, COLUMNS.names, "Restore it from a copy: without it, images are asked about again."
    )


def freeze(
    root: Path,
    entry: Row,
    verdicts: pa.Table,
    people: Mapping[str, int],
    digests: Mapping[str, str],
    options: Mapping[str, str],
) -> None:
    """Write what stays before answers are deleted, beside what stands already.

    entry: see `deletions`. verdicts: of everything asked. people: id → answers of people. digests: id → SHA-256.
    options: see `standing`.
    """
    before = _rows(root).to_pylist() if (root / FORGOTTEN).is_file() else []
    text = json.dumps(dict(options), sort_keys=True)
    rows = {(row["sha256"], row["concept"], row["options"]): row for row in before}
    for row in verdicts.to_pylist():
        key = digests.get(row["id"], ""), row["concept"], text
        if row["decision"] == "pending" or not key[0]:
            continue
        n = people.get(row["id"]) or rows.get(key, {}).get("people", 0)
        rows[key] = dict(zip(COLUMNS.names, (*key, *(row[name] for name in COUNTS), n), strict=True))
    table = pa.Table.from_pylist([rows[key] for key in sorted(rows)], COLUMNS)
    entries = json.dumps([*deletions(root), dict(entry)])
    write_parquet(root / FORGOTTEN, table.replace_schema_metadata({KEY: entries}))
