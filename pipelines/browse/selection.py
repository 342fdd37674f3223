"""What a person asks the page for: filters, a prompt, an order. And the photos, counts and timeline that answer it;
similarity by exact inner products over the stored vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, did_you_mean
from driftline.curate.core.vectors import unit
from driftline.curate.foreign.names import is_count
from driftline.pipelines.browse.collection import FACETS, LISTS, Collection, Ints, Recent
from driftline.pipelines.reporting.photos import quoted

if TYPE_CHECKING:
    from driftline.curate.encoders import Encoder

BLOCK = 1024  # vectors that are widened at a time: they stay in the cache of the processor
REMEMBERED = 8  # rankings
Floats = npt.NDArray[np.float32]


class Vectors:
    """The vectors of a collection."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.files = collection.source.vectors
        self._scores: Recent[Floats] = Recent(REMEMBERED)
        self._encoders: Recent[Encoder] = Recent(1)

    def __bool__(self) -> bool:
        """Whether there are vectors."""
        return any(file.rows for file in self.files)

    @cached_property
    def _places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.collection.vector_rows()

    def to_text(self, text: str) -> Floats:
        """(N,) cosine of each photo to a prompt, -inf without a vector. Raises BadConfig without a model."""
        load = self.collection.source.encoder
        if load is None:
            raise BadConfig("There is no model that reads prompts.", "Expected a run whose embed stage is done.")
        query = np.asarray(self._encoders.get("", load).texts([text])[0], np.float32)
        return self._to(f"text {text}", unit(query))

    def to_photo(self, number: int) -> Floats:
        """(N,) similarity of each photo to one of them. Raises BadConfig if it has no vector."""
        photos, rows = self._places
        at = np.searchsorted(photos, number)
        if at >= len(photos) or photos[at] != number:
            raise BadConfig(f"The photo {number} has no vector.", "Expected a photo that was embedded.")
        return self._to(f"photo {number}", self._row(int(rows[at])))

    def _row(self, row: int) -> Floats:
        for file in self.files:
            if row < file.rows:
                return unit(np.asarray(file.map()[row], np.float32))
            row -= file.rows
        raise BadConfig(f"There is no vector {row}.")

    def _to(self, key: str, query: Floats) -> Floats:
        def compute() -> Floats:
            blocks = [block @ query for block in self._blocks()]
            photos, rows = self._places
            scores = np.full(self.collection.size, -np.inf, np.float32)
            scores[photos] = np.concatenate(blocks)[rows]
            return scores

        return self._scores.get(key, compute)

    def _blocks(self) -> Iterator[Floats]:
        """All vectors as float32, BLOCK at a time."""
        for file in self.files:
            stored = file.map() if file.rows else np.zeros((0, file.width), np.float32)
            for low in range(0, file.rows, BLOCK):
                yield np.asarray(stored[low : low + BLOCK], np.float32)


VALUES = 12  # of a facet that are shown; the page asks for more
BINS = 160  # of the timeline
KEPT = 8  # orders, and counts, that are remembered
ORDERS = ("oldest", "newest", "random", "nearest")
FOUND_IN = ("id", "title", "place", "class", "uploader")  # columns that `find` looks in
DAY = 24 * 3600


@dataclass(frozen=True)
class Asked:
    """Filters, prompt and order."""

    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """column → values, any of which a photo must have; "": no value"""
    since: int | None = None
    """first second, UTC"""
    until: int | None = None
    """second after the last one, UTC"""
    find: str = ""
    """text in id, title, path, class or uploader"""
    text: str = ""
    """prompt: photos are ranked by their cosine to it"""
    like: int | None = None
    """number of a photo: photos are ranked by their similarity to it"""
    sort: str = "oldest"
    """one of ORDERS"""

    @staticmethod
    def parse(pairs: Iterable[tuple[str, str]], facets: Sequence[str]) -> Asked:
        """The query of an address: facets by name (several times), since, until, find, text, like, sort.

        Raises BadConfig for unknown names and values of another form.
        """
        chosen: dict[str, tuple[str, ...]] = {}
        plain: dict[str, str] = {}
        names = (*facets, "since", "until", "find", "text", "like", "sort")
        for name, value in pairs:
            if name in facets:
                chosen[name] = (*chosen.get(name, ()), value)
            elif name in names and name not in plain:
                plain[name] = value
            else:
                raise BadConfig(
                    f"Unknown filter {name!r}.", did_you_mean(name, names), f"Available: {', '.join(names)}."
                )
        sort = plain.get("sort") or ("nearest" if plain.get("text") or plain.get("like") else "oldest")
        if sort not in ORDERS:
            raise BadConfig(f"Unknown order {sort!r}.", did_you_mean(sort, ORDERS), f"Available: {', '.join(ORDERS)}.")
        until = _second("until", plain.get("until"))
        return Asked(
            chosen, _second("since", plain.get("since")), None if until is None else until + DAY,
            plain.get("find", ""), plain.get("text", "").strip(), _whole("like", plain.get("like")),
            sort=sort,
        )  # fmt: skip

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
            if filled and name in LISTS:
                either.append(f"list_has_any({column}, ?)")
                values.append(filled)
            elif filled:
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
        if self.text or self.like is not None:
            parts.append("vector IS NOT NULL")
        return " AND ".join(parts) or "true", values


class Selections:
    """Answers over one collection; the last ones are remembered, so that the next page costs nothing."""

    def __init__(self, collection: Collection, vectors: Vectors) -> None:
        self.collection, self.vectors = collection, vectors
        self._orders: Recent[tuple[Ints, Any]] = Recent(KEPT)
        self._counts: Recent[dict[str, Any]] = Recent(KEPT)

    def ordered(self, asked: Asked) -> tuple[Ints, Any]:
        """(numbers of the photos, in order; their scores, or None without a prompt)."""
        return self._orders.get(repr(asked), lambda: self._order(asked))

    def _order(self, asked: Asked) -> tuple[Ints, Any]:
        condition, values = asked.where()
        numbers = self.collection.numbers(f"SELECT n FROM photos WHERE {condition} ORDER BY n", values)
        scores = None
        if asked.text or asked.like is not None:
            every = self.vectors.to_text(asked.text) if asked.text else self.vectors.to_photo(asked.like or 0)
            scores = every[numbers]
        if asked.sort == "nearest" and scores is not None:
            order = np.argsort(-scores, kind="stable")
            return numbers[order], scores[order]
        if asked.sort == "newest":
            dated = len(numbers) - int(np.count_nonzero(numbers >= self.collection.dated))
            order = np.concatenate([np.arange(dated)[::-1], np.arange(dated, len(numbers))])
        elif asked.sort == "random":
            # A photo keeps its place when filters change: the order is a mix of its number.
            order = np.argsort(numbers * 2_654_435_761 % 4_294_967_296, kind="stable")
        else:
            order = np.arange(len(numbers))
        return numbers[order], None if scores is None else scores[order]

    def overview(self, asked: Asked) -> dict[str, Any]:
        """{"total": photos, "facets": {name: `counts`}, "timeline": `timeline`}."""
        return self._counts.get(
            repr(replace(asked, sort="oldest")),
            lambda: {
                "total": len(self.ordered(asked)[0]),
                "facets": {name: self.counts(asked, name) for name in self.collection.facets},
                "timeline": self.timeline(asked),
            },
        )

    def counts(self, asked: Asked, name: str, most: int = VALUES) -> dict[str, Any]:
        """Values of a facet with counts under all other filters, most first (time buckets in order).

        {"values": [[value, count], …], "more": whether there are others}. The chosen values are always among them:
        after the `most` frequent ones, if they are rarer.
        """
        condition, values = asked.where(without=name)
        column = f"unnest(coalesce({quoted(name)}, [NULL]))" if name in LISTS else quoted(name)
        most = 10_000 if name == "bucket" else most
        rows = self.collection.rows(
            f"SELECT {column} AS value, count(*) AS found FROM photos WHERE {condition} GROUP BY 1 "
            f"ORDER BY found DESC, value LIMIT {most + 1}",
            values,
        )
        pairs = [["" if value is None else value, count] for value, count in rows]
        more, pairs = len(pairs) > most, pairs[:most]
        shown = {value for value, _ in pairs}
        for value in dict.fromkeys(asked.facets.get(name, ())):
            if value not in shown:
                alone = replace(asked, facets={**asked.facets, name: (value,)})
                pairs.append([value, len(self.ordered(alone)[0])])
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


def _whole(name: str, text: str | None) -> int | None:
    if not text:
        return None
    if not (is_count(text) and len(text) < 12):
        raise BadConfig(f"{name} is {text!r}.", "Expected the number of a photo.")
    return int(text)


def headings(collection: Collection) -> dict[str, str]:
    """Facet → heading, of the facets that this collection has."""
    return {name: FACETS[name] for name in collection.facets}
