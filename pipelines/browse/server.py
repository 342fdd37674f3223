"""The browse page: the collection as a grid and a map, with counts, a timeline, history of a photo and export."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Thread, main_thread
from typing import Annotated, Any
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from driftline.curate.core.atomic_io import csv_text
from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.outside.escaping import no_formula
from driftline.pipelines.browse.collection import Collection
from driftline.pipelines.browse.selection import BINS, Asked, Selections, headings
from driftline.pipelines.browse.vectors import Vectors
from driftline.pipelines.web.dates import day
from driftline.pipelines.web.local_server import guarded
from driftline.pipelines.web.page import LocalApp, local_app
from driftline.pipelines.web.rendering import template
from driftline.pipelines.web.thumbnails import LARGE, Thumbnails, cache_folder, small

PAGE = 120  # photos that one answer brings
SCREEN = 48  # of these are on the first screen
SEEN = 2000  # rows that are kept because their pictures will be asked for
POINTS = 6000  # of the map
COLOURS = 10  # classes with a colour of their own
MOST_VALUES = 500  # of one facet
EXPORTED = ("id", "uploaded", "bucket", "class", "outcome", "reason", "uploader", "licence", "title", "place")
HIDDEN = ("path", "shard", "member", "n", "vector", "precision", "address")  # columns that are no fact for a person
LENGTH = {"year": 4, "month": 7}  # characters of a day that are known
UNDECIDED = "bucket: date_undecided"
FORMS = ("csv", "ids", "withdrawn")
At = Annotated[int, Field(ge=0, le=10**12)]


def application(collection: Collection, port: int, ahead: bool = False) -> tuple[ASGIApp, str]:
    """(app for one collection, path to open, which contains a secret). ahead: see `pages`."""
    return guarded(pages(collection, ahead), port, "browse")


def pages(collection: Collection, ahead: bool = False, prompts: str = "") -> LocalApp:
    """The app, without the guard of a local server.

    ahead: make what the first screen shows at once, beside the start of server and browser. prompts: address of the
    page where prompts are tried; "": none.
    """
    shown = Pages(collection, prompts)
    app = local_app("driftline.pipelines.browse")
    for path, function in (
        ("/", shown.start), ("/view", shown.view), ("/rows", shown.rows), ("/values", shown.values),
        ("/thumb/{number}", shown.thumb), ("/picture/{number}", shown.picture), ("/photo/{number}", shown.photo),
        ("/trace/{number}", shown.trace), ("/map", shown.map),
    ):  # fmt: skip
        app.on("GET", path)(function)
    app.on("POST", "/export")(shown.export)
    app.on("POST", "/date")(shown.date)
    if ahead:
        Thread(target=shown.first_screen, name="first screen").start()
    return app


class Pages:
    """What the page shows. A method answers the path of its name."""

    def __init__(self, collection: Collection, prompts: str) -> None:
        cache = cache_folder(f"browse {collection.source.kind}", collection.source.inputs)
        self.collection, self.prompts = collection, prompts
        self.vectors = Vectors(collection, cache)
        self.selections, self.thumbnails = Selections(collection, self.vectors), Thumbnails(cache)
        self.page = template("driftline.pipelines.browse", "browse.html.j2")
        self.seen: dict[int, dict[str, Any]] = {}  # rows on the pages, whose pictures are asked for next

    def _asked(self, request: Request, leave: str = "") -> Asked:
        words = [(name, value) for name, value in request.query_params.multi_items() if name != leave]
        return Asked.parse(words, self.collection.facets)

    def _row(self, number: int) -> dict[str, Any]:
        seen = [self.seen[number]] if number in self.seen else []
        rows = self.collection.hidden(seen) or self.collection.photos([number])
        if not rows:
            raise BadInput(f"There is no photo {number}.")
        return rows[0]

    def start(self) -> str:
        collection = self.collection
        return self.page.render(
            name=collection.source.name, kind=collection.source.kind, size=collection.size,
            facets=headings(collection), has_vectors=bool(self.vectors),
            has_model=collection.source.encoder is not None, dated=collection.span is not None, prompts=self.prompts,
        )  # fmt: skip

    def view(self, request: Request) -> dict[str, Any]:
        """Total, counts of every facet, timeline and the first photos."""
        asked = self._asked(request)
        low, high = self.collection.span or (0, 0)
        return self.selections.overview(asked) | {
            "size": self.collection.size, "photos": self._tiles(asked, 0), "span": [low, high], "bins": BINS,
            "days": [day(low), day(high)],
        }  # fmt: skip

    def rows(self, request: Request, at: At) -> list[Any]:
        return self._tiles(self._asked(request, "at"), at)

    def values(self, request: Request, facet: str) -> dict[str, Any]:
        """More values of one facet."""
        if facet not in self.collection.facets:
            raise BadConfig(f"Unknown facet {facet!r}.", "", f"Available: {', '.join(self.collection.facets)}.")
        return self.selections.counts(self._asked(request, "facet"), facet, MOST_VALUES)

    def _tiles(self, asked: Asked, at: int) -> list[Any]:
        """[number, day, class, reason, score, whether there may be a picture, name] of PAGE photos."""
        numbers, scores = self.selections.ordered(asked)
        shown = self.collection.photos(numbers[at : at + PAGE].tolist())
        if len(self.seen) > SEEN:
            self.seen.clear()
        self.seen.update((row["n"], row) for row in shown)
        pictured = self.collection.source.pictured
        return [
            [
                row["n"], shown_date(row), row["class"], row["reason"],
                None if scores is None else round(float(scores[at + i]), 3),
                pictured and (row["shard"] is not None or row["path"] is not None), row["title"] or row["id"],
            ]
            for i, row in enumerate(shown)
        ]  # fmt: skip

    def _image(self, number: int) -> bytes:
        row = self._row(number)
        data = self.collection.source.picture(row)
        if data is None:
            raise BadInput(f"There is no image of {row['id']} on this machine.")
        return data

    def thumb(self, number: int) -> Response:
        try:
            if self.collection.is_withdrawn(self._row(number)):  # it may be in the cache
                raise BadInput(f"The photo {number} was withdrawn.")
            picture = self.thumbnails.get(str(number), lambda: self._image(number))
        except BadInput as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    def picture(self, number: int) -> Response:
        try:
            return Response(small(self._image(number), LARGE), media_type="image/jpeg")
        except BadInput as error:
            return JSONResponse({"error": str(error)}, 404)

    def photo(self, number: int) -> dict[str, Any]:
        """The facts of one photo."""
        row = self._row(number)
        facts = {k: v for k, v in row.items() if v is not None and k not in HIDDEN}
        if row["uploaded"] is not None:
            facts["uploaded"] = shown_date(row)
        undecided = self.collection.source.settle is not None and row["reason"] == UNDECIDED
        return {"n": number, "facts": facts, "vector": row["vector"] is not None, "undecided": undecided}

    def date(self, number: int, date: Annotated[str, Field(max_length=40)]) -> dict[str, str]:
        """Keep the date that a person settled."""
        row = self._row(number)
        if self.collection.source.settle is None or row["reason"] != UNDECIDED:
            raise BadInput(f"The date of {row['id']} decides its bucket already.")
        self.collection.source.settle(row["id"], date)
        return {"message": "Saved. The next driftline run puts the photo into its bucket."}

    def trace(self, number: int) -> dict[str, Any]:
        """The history of one photo."""
        if self.collection.source.trace is None or self.collection.is_withdrawn(self._row(number)):
            return {"lines": []}
        from driftline.pipelines.reporting.trace import text

        return {"lines": text(self.collection.source.trace(self._row(number)["id"])).splitlines()}

    def map(self, request: Request, colour: str = "time") -> dict[str, Any]:
        """Places of the photos that are asked for (a sample), with a colour by time or class."""
        numbers, _ = self.selections.ordered(self._asked(request, "colour"))
        return _points(self.collection, self.vectors, np.sort(numbers), colour)

    def export(self, query: Annotated[str, Field(max_length=8000)], form: str, rows: list[int]) -> Response:
        """The chosen photos, or all that are asked for, as a file."""
        if form not in FORMS:
            raise BadConfig(f"Unknown form {form!r}.", "", f"Available: {', '.join(FORMS)}.")
        words = parse_qsl(query, keep_blank_values=True)
        numbers = rows or self.selections.ordered(Asked.parse(words, self.collection.facets))[0].tolist()
        kind = "text/plain" if form == "ids" else "text/csv"
        return StreamingResponse(_lines(self.collection, numbers, form), media_type=f"{kind}; charset=utf-8")

    def first_screen(self) -> None:
        """Count, order and shrink what the browser asks for first."""
        with suppress(Exception):  # the same fault is shown when the browser asks
            self.selections.overview(Asked())
            for tile in self._tiles(Asked(), 0)[:SCREEN]:
                if not main_thread().is_alive():  # Ctrl-C
                    return
                if tile[5]:
                    self.thumb(tile[0])


def shown_date(row: dict[str, Any]) -> str | None:
    """As precise as it is known: a photo of a folder `1905` has a year."""
    return None if row["uploaded"] is None else day(row["uploaded"])[: LENGTH.get(row["precision"])]


def _points(collection: Collection, vectors: Vectors, numbers: npt.NDArray[np.int64], colour: str) -> dict[str, Any]:
    """{"points": [[number, x, y, colour], …], "legend": names of the colours, or the first and the last day}; x and y
    from 0 to 1000."""
    if colour not in ("time", "class"):
        raise BadConfig(f"Unknown colour {colour!r}.", "", "Available: time, class.")
    places = vectors.map
    numbers = numbers[np.isfinite(places[numbers, 0])]
    step = max(1, math.ceil(len(numbers) / POINTS))
    shown = numbers[::step]
    rows = {row["n"]: row for row in collection.photos(shown.tolist())}
    if colour == "class":
        names = [name for name, _ in collection.rows(
            'SELECT class, count(*) AS found FROM photos WHERE class IS NOT NULL AND vector IS NOT NULL '
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {COLOURS}"
        )]  # fmt: skip
        of = {name: i for i, name in enumerate(names)}
        colours = [of.get(rows[n]["class"], -1) for n in shown.tolist()]
        legend = names
    else:
        low, high = collection.span or (0, 1)
        times = [rows[n]["uploaded"] for n in shown.tolist()]
        colours = [-1 if t is None else round(100 * (t - low) / max(1, high - low)) for t in times]
        legend = [day(low), day(high)]
    flat = np.rint(places[shown] * 1000).astype(int).tolist()
    points = [[n, x, y, c] for n, (x, y), c in zip(shown.tolist(), flat, colours, strict=True)]
    return {"points": points, "legend": legend, "of": len(numbers)}


def _lines(collection: Collection, numbers: Sequence[int], form: str) -> Iterator[str]:
    """A file of photos: `ids`, one a line; `csv`; `withdrawn`, as the setting filter.withdrawn reads it."""
    columns = {"ids": ("id",), "withdrawn": ("id", "since", "reason")}.get(form, EXPORTED)
    if form != "ids":
        yield csv_text(columns, [])
    for low in range(0, len(numbers), 10_000):
        rows = collection.photos(numbers[low : low + 10_000])
        if form == "csv":
            for row in rows:
                row["uploaded"] = shown_date(row)
        cells = [[no_formula(row.get(name) or "") for name in columns] for row in rows]
        if form == "withdrawn":
            cells = [[row["id"], "", ""] for row in rows]
        yield (
            "".join(f"{row['id']}\n" for row in rows) if form == "ids" else csv_text(columns, cells).partition("\n")[2]
        )
