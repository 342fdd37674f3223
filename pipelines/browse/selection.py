"""What a person asks the page for: filters and an order. And the photos, counts and timeline that answer it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig, did_you_mean
from driftline.pipelines.browse.collection import Collection, Ints, Recent
from driftline.pipelines.reporting.photos import quoted

VALUES = 12  # of a facet that are shown; the page asks for more
BINS = 160  # of the timeline
KEPT = 8  # orders, and counts, that are remembered
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
        self._orders: Recent[Ints] = Recent(KEPT)
        self._counts: Recent[dict[str, Any]] = Recent(KEPT)

    def ordered(self, asked: Asked) -> Ints:
        """Numbers of the photos, in order."""
        return self._orders.get(repr(asked), lambda: self._order(asked))

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
        return self._counts.get(
            repr(replace(asked, sort="oldest")),
            lambda: {
                "total": len(self.ordered(asked)),
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
