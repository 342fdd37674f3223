"""The answers of local annotators, in a SQLite file: an acknowledged answer is on disk. And each annotator's queue."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any

from driftline.curate.core.atomic_io import check_format, private
from driftline.curate.core.errors import BadInput
from driftline.curate.core.files import connect
from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.answers.answers import hashed
from driftline.curate.validation.asking.batches import NONE, write_results

FORMAT = 3
OLD = "Export its answers with the driftline that wrote it (run DIR), then rename it: the CSV counts."
COLUMNS = (
    "HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "SubmitTime", "WorkTimeInSeconds", "Input.batch",
    "Input.item", "Answer.labels", "Answer.sensitive", "Answer.shown",
)  # fmt: skip
SCHEMA = """
CREATE TABLE answers (
    annotator TEXT NOT NULL, item TEXT NOT NULL, labels TEXT NOT NULL, sensitive INTEGER NOT NULL,
    seconds INTEGER NOT NULL, number INTEGER NOT NULL, page TEXT NOT NULL, undone INTEGER NOT NULL,
    PRIMARY KEY (annotator, item)
);
CREATE TABLE skipped (annotator TEXT NOT NULL, item TEXT NOT NULL, PRIMARY KEY (annotator, item));
CREATE TABLE shown (
    annotator TEXT NOT NULL, item TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (annotator, item)
);
CREATE INDEX by_number ON answers (number);
CREATE INDEX by_item ON answers (item, undone, labels);
"""
VIEWS = """
PRAGMA temp_store = MEMORY;
CREATE TEMP TABLE elsewhere (annotator TEXT NOT NULL, item TEXT NOT NULL, labels TEXT NOT NULL);
CREATE INDEX temp.elsewhere_by_item ON elsewhere (item, labels);
CREATE INDEX temp.elsewhere_by_annotator ON elsewhere (annotator, item);
CREATE TEMP VIEW own AS SELECT * FROM answers WHERE NOT undone AND labels <> '[]';
CREATE TEMP VIEW counted AS
    SELECT annotator, item, labels FROM own UNION ALL SELECT annotator, item, labels FROM elsewhere;
"""


def unstored(path: Path, error: Exception) -> BadInput:
    """What is wrong with the file of answers: a full disk, a folder without the right to write, damage."""
    return BadInput(
        f"{path.absolute()} cannot be used ({error}).",
        "Expected a file of answers that can be written.",
        "Free some space, or allow writing; restore a damaged file from a copy. Stored answers stay.",
    )


class AnswerStore:
    """One batch and its answers."""

    def __init__(
        self,
        path: Path,
        batch: dict[str, Any] | None = None,
        seed: int = 0,
        elsewhere: Iterable[tuple[str, str, Sequence[str]]] = (),
        key: str = "",
    ) -> None:
        """path: the SQLite file, whose name is that of the batch (write-ahead log, fsync at every commit: an answer
        survives a kill once `answer` returns). batch: `batch.json`; None: to export. elsewhere: (worker as `hashed`
        by `key`, item, labels) of answers that count for the batch and may be given elsewhere: to earlier batches, on
        platforms. Raises BadInput for a file of another format or a damaged one.
        """
        private(path.parent)
        path.touch(0o600)
        path.chmod(0o600)  # one that was copied
        self.path, self.batch, self.seed, self.key = path, batch or {"batch": path.stem, "items": {}}, seed, key
        self._lock = Lock()
        self._queues: dict[str, list[str]] = {}
        self._closed: tuple[int | None, set[str]] = None, set()  # as of this version of the file
        self._database = connect(path, check_same_thread=False, isolation_level=None)
        try:
            if not self._database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT")
            self._database.execute("PRAGMA synchronous=FULL")
            (number,) = self._database.execute("PRAGMA user_version").fetchone()
            check_format(path, number, FORMAT, OLD)
            self._database.executescript(VIEWS)
            local = set(self._database.execute("SELECT annotator, item FROM answers"))
        except sqlite3.Error as error:
            raise unstored(path, error) from None
        here = {(self._hashed(annotator), item) for annotator, item in local}
        more = [(who, item, json.dumps(sorted(labels))) for who, item, labels in elsewhere if (who, item) not in here]
        self._database.executemany("INSERT INTO elsewhere VALUES (?, ?, ?)", more)

    def _hashed(self, annotator: str) -> str:
        """The name that answers elsewhere have of an annotator."""
        return hashed(annotator, self.key)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def queue(self, annotator: str) -> list[str]:
        """All items in a random order of this annotator's own (seeded), so that fatigue does not hit the same images
        for everyone."""
        if annotator not in self._queues:
            items = sorted(self.batch["items"])
            order = rng_for(self.seed, "annotate", annotator).permutation(len(items))
            self._queues[annotator] = [items[i] for i in order.tolist()]
        return self._queues[annotator]

    def answered(self, annotator: str) -> set[str]:
        """Items that this annotator has answered, here or elsewhere."""
        query = "SELECT item FROM own WHERE annotator = ? UNION SELECT item FROM elsewhere WHERE annotator = ?"
        return {row[0] for row in self._database.execute(query, (annotator, self._hashed(annotator)))}

    def closed(self) -> set[str]:
        """Items that have the answers of `workers` people, here or elsewhere. Not to be changed."""
        (version,) = self._database.execute("PRAGMA data_version").fetchone()  # another process may write, too
        if version != self._closed[0]:
            query = "SELECT item FROM counted GROUP BY item HAVING COUNT(*) >= ?"
            rows = self._database.execute(query, (self.batch["workers"],))
            self._closed = version, {row[0] for row in rows}
        return self._closed[1]

    def _recount(self, items: Iterable[str]) -> None:
        """Bring `closed` up to date after a change of this process, whose lock is held."""
        closed = self.closed()
        for item in items:
            (n,) = self._database.execute("SELECT COUNT(*) FROM counted WHERE item = ?", (item,)).fetchone()
            (closed.add if n >= self.batch["workers"] else closed.discard)(item)

    def _done(self, annotator: str) -> set[str]:
        """Items that this annotator is not asked: answered ones, and closed ones."""
        return self.answered(annotator) | self.closed()

    def following(self, annotator: str, n: int = 2) -> list[str]:
        """The next `n` open items of this annotator's queue, skipped ones last."""
        done = self._done(annotator)
        last = self._skipped(annotator)
        left = [item for item in self.queue(annotator) if item in last and item not in done] if last else []
        first = (item for item in self.queue(annotator) if item not in done and item not in last)
        return list(islice(chain(first, left), n))

    def unanswered(self, annotator: str, candidates: Iterable[str], n: int, page: str) -> list[str]:
        """The first `n` of some items for the grid of a concept: open, neither answered by this annotator nor left to
        the other mode."""
        left = "SELECT item FROM answers WHERE annotator = ? AND page = ? AND labels = '[]' AND NOT undone"
        done = self._done(annotator) | {row[0] for row in self._database.execute(left, (annotator, page))}
        return list(islice((item for item in candidates if item not in done), n))

    def conflicts(self, annotator: str, agree: int) -> list[str]:
        """Items whose answers differ and of which no set of labels has `agree` votes, without those that this annotator
        answered."""
        open_ones = """SELECT item FROM (SELECT item, COUNT(*) AS n FROM counted GROUP BY item, labels)
            GROUP BY item HAVING COUNT(*) > 1 AND MAX(n) < ?"""
        done, last = self.answered(annotator), self._skipped(annotator)
        left = (row[0] for row in self._database.execute(open_ones, (agree,)) if row[0] not in done)
        return sorted(left, key=lambda item: (item in last, item))

    def votes(self, item: str) -> list[tuple[str, int]]:
        """(labels joined by ", ", votes) of one item, most votes first."""
        rows = self._database.execute("SELECT labels, COUNT(*) FROM counted WHERE item = ? GROUP BY labels", (item,))
        return sorted(((", ".join(json.loads(labels)), n) for labels, n in rows), key=lambda vote: (-vote[1], vote[0]))

    def show(self, annotator: str, item: str, note: str) -> None:
        """Record that this annotator was shown an answer of others before answering: it is then not independent."""
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO shown VALUES (?, ?, ?)", (annotator, item, note))

    def skip(self, annotator: str, item: str) -> None:
        """Put an item at the end of this annotator's queue. Raises BadInput for an item that is not in the batch."""
        if item not in self.batch["items"]:
            raise BadInput(f"The item {item!r} is not in the batch.")
        with self._lock:
            self._database.execute("INSERT OR IGNORE INTO skipped VALUES (?, ?)", (annotator, item))

    def _skipped(self, annotator: str) -> set[str]:
        return {r[0] for r in self._database.execute("SELECT item FROM skipped WHERE annotator = ?", (annotator,))}

    def answer(self, annotator: str, item: str, labels: list[str], sensitive: bool, seconds: int) -> None:
        """Store an answer; it is on disk when this returns. A second answer to the same item replaces the first.

        Raises BadInput for an item that is not in the batch, an unknown label, no label, or "none" with other labels.
        """
        self.answer_together(annotator, {item: labels}, sensitive, seconds)

    def answer_together(
        self,
        annotator: str,
        answers: Mapping[str, list[str]],
        sensitive: bool = False,
        seconds: int = 0,
        page: str = "",
    ) -> None:
        """Store the answers of one screen: all or none, and `undo` takes all back. answers: item → labels; without
        labels, an image of a grid stays open for the other mode. seconds: for the screen. page: concept of the grid.

        Raises BadInput as `answer` does.
        """
        for item, labels in answers.items():
            if labels or not page or item not in self.batch["items"]:
                self._check(item, labels)
        with self._lock:
            with self._database:  # one transaction
                self._database.execute("BEGIN IMMEDIATE")
                (last,) = self._database.execute("SELECT COALESCE(MAX(number), 0) FROM answers").fetchone()
                self._database.executemany(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                    [
                        (annotator, item, json.dumps(sorted(set(labels))), int(sensitive), own, last + 1, page)
                        for (item, labels), own in zip(answers.items(), _parts(seconds, len(answers)), strict=True)
                    ],
                )
            self._recount(answers)

    def _check(self, item: str, labels: list[str]) -> None:
        if item not in self.batch["items"]:
            raise BadInput(f"The item {item!r} is not in the batch.")
        unknown = set(labels) - {*self.batch["concepts"], NONE}
        if unknown or not labels or (NONE in labels and len(set(labels)) > 1):
            raise BadInput(
                f"The answer is {sorted(set(labels))}.",
                "Expected one or more of the options, or “None of the above” alone.",
            )

    def undo(self, annotator: str) -> str | None:
        """Take back the answers of this annotator's last screen; returns the concept of its grid, "" for another
        screen, None if there is no answer. They stay in the file, and `undone` shows them."""
        last = "SELECT page, number FROM answers WHERE annotator = ? AND NOT undone ORDER BY number DESC LIMIT 1"
        with self._lock:
            row = self._database.execute(last, (annotator,)).fetchone()
            if row is None:
                return None
            take_back = "UPDATE answers SET undone = 1 WHERE annotator = ? AND number = ? RETURNING item"
            items = self._database.execute(take_back, (annotator, row[1])).fetchall()
            self._recount(item for (item,) in items)
        return str(row[0])

    def undone(self, annotator: str, page: str = "") -> dict[str, list[str]]:
        """Item → labels of the answers that this annotator took back on a grid, or one by one (""), since then not
        given again."""
        query = "SELECT item, labels FROM answers WHERE annotator = ? AND page = ? AND undone"
        return {item: json.loads(text) for item, text in self._database.execute(query, (annotator, page))}

    def total(self) -> int:
        """Answers of all annotators here."""
        return int(self._database.execute("SELECT COUNT(*) FROM own").fetchone()[0])

    def progress(self, annotator: str) -> dict[str, int]:
        """How far this annotator is: items that are `done`, and in `total`."""
        left = len(self.queue(annotator)) - len(self._done(annotator).intersection(self.queue(annotator)))
        (done,) = self._database.execute("SELECT COUNT(*) FROM own WHERE annotator = ?", (annotator,)).fetchone()
        return {"done": done, "total": done + left}

    def rows(self) -> list[tuple[Any, ...]]:
        """All answers as lines of a results file, cells of COLUMNS: also those that were taken back."""
        answers = self._database.execute(
            """SELECT annotator, item, labels, sensitive, seconds, said, number, undone FROM answers LEFT JOIN shown
            USING (annotator, item) WHERE labels <> '[]' ORDER BY item, annotator"""
        )
        batch = self.batch["batch"]
        return [
            (item, f"{item}-{annotator}", annotator, "Undone" if undone else "Submitted", number, seconds,
             batch, item, "|".join(json.loads(labels)), "yes" if sensitive else "no", note or "")
            for annotator, item, labels, sensitive, seconds, note, number, undone in answers
        ]  # fmt: skip

    def export(self, path: Path) -> int:
        """Write all answers as a results CSV for `tally`; returns how many count. Without answers, no file is
        written; an earlier file never loses a line."""
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")  # of two processes one after the other
            if rows := self.rows():
                write_results(path, COLUMNS, rows)
        return sum(row[3] == "Submitted" for row in rows)


def _parts(seconds: int, n: int) -> list[int]:
    """Whole seconds for each of the n images of a screen, as equal as possible.

    >>> _parts(7, 4)
    [1, 2, 2, 2]
    """
    return [(k + 1) * seconds // n - k * seconds // n for k in range(n)]
