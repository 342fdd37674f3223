"""The photos of a run or a release as one table of DuckDB, in order of time; and what a person asks the page for,
filters and an order, with the photos, counts and timeline that answer it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock, RLock
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, did_you_mean, without_secrets
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.photos import quoted

Row = Mapping[str, Any]
Ints = npt.NDArray[np.int64]

# Column → heading. A column is a facet of a collection in which it has several values.
FACETS = {
    "outcome": "Outcome",
    "bucket": "Time bucket",
    "class": "Class",
    "reason": "Why it was dropped",
    "decision": "Label decision",
    "split": "Split",
    "licence": "Licence",
    "uploader": "Uploader",
}
COLUMNS = (
    "id", "uploaded", "precision", "title", "place", "url", "page_url", "path", "shard", "member", "vector", *FACETS,
)  # fmt: skip
OF_OWNERS = ("title", "place", "page_url", "path", "shard", "member", "vector", "uploader")  # of a withdrawn photo


@dataclass(frozen=True)
class Source:
    """What the opener of a run or a release returns."""

    name: str
    """of the collection"""
    kind: str
    """run or release"""
    buckets: Sequence[str]
    """labels of the time buckets, in order"""
    picture: Callable[[Row], bytes | None]
    """a row of the table → bytes of its image; None if there is no image on this machine"""
    context: Context | None = None
    """of a run"""
    trace: Callable[[str], Mapping[str, Any]] | None = None
    """id → history of a photo"""
    withdrawn: Callable[[Row], bool] = lambda row: False
    """whether the owner of a photo (id, address) has withdrawn it"""


class Collection:
    """A source with its table `photos`: n (0 … N - 1, in order of time, photos without a date last) and COLUMNS."""

    def __init__(self, source: Source, database: duckdb.DuckDBPyConnection, query: str) -> None:
        """query: selects some of COLUMNS, and `place_in_order` for photos of the same time."""
        self.source, self._database, self._lock = source, database, Lock()
        database.execute(f"CREATE TEMP VIEW found AS {query}")
        present = {row[0] for row in database.execute("DESCRIBE found").fetchall()}
        database.execute("CREATE TEMP TABLE ordered AS FROM found ORDER BY uploaded NULLS LAST, place_in_order")
        chosen = ", ".join(_typed(database, name, name in present) for name in COLUMNS)
        database.execute(f"CREATE TABLE photos AS SELECT rowid AS n, {chosen} FROM ordered")
        database.execute("DROP TABLE ordered")
        database.execute("DROP VIEW found")
        (self.size,) = self.rows("SELECT count(*) FROM photos")[0]
        self.span: tuple[int, int] | None = None
        # Dates that a filter refused, such as 1970-01-01, would stretch the timeline.
        span = "SELECT min(uploaded), max(uploaded) FROM photos"
        for low, high in self.rows(f"{span} WHERE reason IS NULL OR reason NOT LIKE 'filter:%'") + self.rows(span):
            if self.span is None and low is not None:
                self.span = int(low), int(high)
        (self.dated,) = self.rows("SELECT count(uploaded) FROM photos")[0]
        self.facets = [
            name for name in FACETS if len(self.rows(f"SELECT DISTINCT {quoted(name)} FROM photos LIMIT 2")) > 1
        ]

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock:
            return self._database.execute(query, list(values)).fetchall()

    def numbers(self, query: str, values: Sequence[Any] = ()) -> Ints:
        """The first column of a query, whole numbers."""
        with self._lock:
            columns = self._database.execute(query, list(values)).fetchnumpy()
        return np.asarray(next(iter(columns.values())), np.int64)

    def photos(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of some photos, in the order of `numbers`; unknown numbers are left out."""
        names = ("n", *COLUMNS)
        wanted = ", ".join(str(int(n)) for n in numbers)
        if not wanted:
            return []
        near = f"n BETWEEN {int(min(numbers))} AND {int(max(numbers))}"  # skips the other blocks of the table
        rows = self.rows(f"SELECT {', '.join(map(quoted, names))} FROM photos WHERE {near} AND n IN ({wanted})")
        by_number = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
        for row in by_number.values():
            url = row.pop("url")
            row["address"] = row["place"] if url is None and row["path"] is None else url  # with its token
            row |= {name: without_secrets(row[name]) for name in ("place", "page_url", "reason") if row[name]}
        return [self._shown(by_number[n]) for n in numbers if n in by_number]

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row; of a withdrawn photo only what counts need."""
        if not self.source.withdrawn(row):
            return row
        as_dropped = {} if row["outcome"] == "dropped" else {"outcome": "dropped", "reason": "withdrawn"}
        return row | dict.fromkeys(OF_OWNERS) | as_dropped

    def vector_rows(self) -> tuple[Ints, Ints]:
        """(photos that have a vector, the vectors' rows)."""
        query = "SELECT {} FROM photos WHERE vector IS NOT NULL ORDER BY n"
        return self.numbers(query.format("n")), self.numbers(query.format("vector"))


def _typed(database: duckdb.DuckDBPyConnection, name: str, present: bool) -> str:
    """A column of the table. Facets are enumerations: numbers are counted three times as fast as text."""
    column = quoted(name)
    if not present:
        return f"NULL::VARCHAR AS {column}"
    if name not in FACETS:
        return column
    kind = quoted(f"kind of {name}")
    values = f"SELECT DISTINCT {column} FROM ordered WHERE {column} IS NOT NULL ORDER BY 1"
    database.execute(f"CREATE TYPE {kind} AS ENUM ({values})")
    return f"{column}::{kind} AS {column}"


VALUES = 12  # of a facet that are shown; the page asks for more
BINS = 160  # of the timeline
KEPT = 16  # orders and counts that are remembered
ORDERS = ("oldest", "newest", "random")
FOUND_IN = ("id", "title", "place", "class", "uploader")  # columns that `find` looks in
DAY = 24 * 3600


@dataclass(frozen=True)
class Asked:
    """Filters and order."""

    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """column → values, any of which a photo must have; "": no value"""
    since: int | None = None
    """first second, UTC"""
    until: int | None = None
    """second after the last one, UTC"""
    find: str = ""
    """text in id, title, path, class or uploader"""
    sort: str = "oldest"
    """one of ORDERS"""

    @staticmethod
    def parse(pairs: Iterable[tuple[str, str]], facets: Sequence[str]) -> "Asked":
        """The query of an address: facets by name (several times), since, until, find, sort.

        Raises BadConfig for unknown names and values of another form.
        """
        chosen: dict[str, tuple[str, ...]] = {}
        plain: dict[str, str] = {}
        names = (*facets, "since", "until", "find", "sort")
        for name, value in pairs:
            if name in facets:
                chosen[name] = (*chosen.get(name, ()), value)
            elif name in names and name not in plain:
                plain[name] = value
            else:
                raise BadConfig(
                    f"Unknown filter {name!r}.", did_you_mean(name, names), f"Available: {', '.join(names)}."
                )
        sort = plain.get("sort") or "oldest"
        if sort not in ORDERS:
            raise BadConfig(f"Unknown order {sort!r}.", did_you_mean(sort, ORDERS), f"Available: {', '.join(ORDERS)}.")
        until = _second("until", plain.get("until"))
        since = _second("since", plain.get("since"))
        return Asked(chosen, since, None if until is None else until + DAY, plain.get("find", ""), sort)

    def where(self, without: str = "") -> tuple[str, list[Any]]:
        """The condition in SQL and its values; without: leave out this facet, or "time"."""
        parts: list[str] = []
        values: list[Any] = []
        for name, wanted in self.facets.items():
            if name == without:
                continue
            filled = [value for value in wanted if value]
            column = quoted(name)
            either = [f"{column} IS NULL"] if "" in wanted else []
            if filled:
                either.append(f"{column} IN ({', '.join('?' * len(filled))})")
                values += filled
            parts.append(f"({' OR '.join(either)})")
        for moment, sign in ((self.since, ">="), (self.until, "<")):
            if moment is not None and without != "time":
                parts.append(f"uploaded {sign} ?")
                values.append(moment)
        if self.find:
            parts.append(f"({' OR '.join(f'contains(lower({quoted(c)}), lower(?))' for c in FOUND_IN)})")
            values += [self.find] * len(FOUND_IN)
        return " AND ".join(parts) or "true", values


class Selections:
    """Answers over one collection; the last ones are remembered, so that the next page costs nothing."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._answers: dict[str, Any] = {}
        self._lock = RLock()  # who asks the same waits for the answer

    def _kept(self, question: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if question not in self._answers:
                self._answers[question] = make()
                if len(self._answers) > KEPT:
                    self._answers.pop(next(iter(self._answers)))
            return self._answers[question]

    def ordered(self, asked: Asked) -> Ints:
        """Numbers of the photos, in order."""
        numbers: Ints = self._kept(repr(asked), lambda: self._order(asked))
        return numbers

    def _order(self, asked: Asked) -> Ints:
        condition, values = asked.where()
        numbers = self.collection.numbers(f"SELECT n FROM photos WHERE {condition} ORDER BY n", values)
        if asked.sort == "newest":
            dated = len(numbers) - int(np.count_nonzero(numbers >= self.collection.dated))
            return np.concatenate([numbers[:dated][::-1], numbers[dated:]])
        if asked.sort == "random":  # a photo keeps its place when filters change: the order is a mix of its number
            return numbers[np.argsort(numbers * 2_654_435_761 % 4_294_967_296, kind="stable")]
        return numbers

    def overview(self, asked: Asked) -> dict[str, Any]:
        """{"total": photos, "facets": {name: `counts`}, "timeline": `timeline`}."""
        overview: dict[str, Any] = self._kept(
            f"counts of {replace(asked, sort='oldest')}",
            lambda: {
                "total": len(self.ordered(asked)),
                "facets": {name: self.counts(asked, name) for name in self.collection.facets},
                "timeline": self.timeline(asked),
            },
        )
        return overview

    def counts(self, asked: Asked, name: str, most: int = VALUES) -> dict[str, Any]:
        """Values of a facet with counts under all other filters, most first (time buckets in order).

        {"values": [[value, count], …], "more": whether there are others}. The chosen values are always among them:
        after the `most` frequent ones, if they are rarer.
        """
        condition, values = asked.where(without=name)
        most = 10_000 if name == "bucket" else most
        rows = self.collection.rows(
            f"SELECT {quoted(name)} AS value, count(*) AS found FROM photos WHERE {condition} GROUP BY 1 "
            f"ORDER BY found DESC, value LIMIT {most + 1}",
            values,
        )
        pairs = [["" if value is None else value, count] for value, count in rows]
        more, pairs = len(pairs) > most, pairs[:most]
        shown = {value for value, _ in pairs}
        for value in dict.fromkeys(asked.facets.get(name, ())):
            if value not in shown:
                alone = replace(asked, facets={**asked.facets, name: (value,)})
                pairs.append([value, len(self.ordered(alone))])
        if name == "bucket":
            place = {label: i for i, label in enumerate(self.collection.source.buckets)}
            pairs.sort(key=lambda pair: place.get(pair[0], len(place)))
        return {"values": pairs, "more": more}

    def timeline(self, asked: Asked) -> list[int]:
        """Photos in each of BINS equal spans of time, under all filters but that of time."""
        if self.collection.span is None:
            return []
        low, high = self.collection.span
        condition, values = asked.where(without="time")
        rows = self.collection.rows(
            f"SELECT (uploaded - {low}) * {BINS} // {high - low + 1} AS bin, count(*) FROM photos "
            f"WHERE uploaded BETWEEN {low} AND {high} AND ({condition}) GROUP BY 1",
            values,
        )
        counts = dict(rows)
        return [int(counts.get(i, 0)) for i in range(BINS)]


def _second(name: str, text: str | None) -> int | None:
    """A day as its first second, UTC."""
    if not text:
        return None
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise BadConfig(f"The date {name} is {text!r}.", "Expected YYYY-MM-DD.") from None
