"""The browse page: the collection as a grid and a map, with counts, a timeline, history of a photo and export."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Thread, main_thread
from typing import Annotated, Any

import numpy as np
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
HIDDEN = ("path", "shard", "member", "n", "vector", "precision")  # columns that are no fact for a person
LENGTH = {"year": 4, "month": 7}  # characters of a day that are known
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
    cache = cache_folder(f"browse {collection.source.kind}", collection.source.inputs)
    vectors = Vectors(collection, cache)
    selections, thumbnails = Selections(collection, vectors), Thumbnails(cache)
    page = template("driftline.pipelines.browse", "browse.html.j2")
    app = local_app("driftline.pipelines.browse")
    seen: dict[int, dict[str, Any]] = {}  # rows on the pages, whose pictures are asked for next

    def asked_of(request: Request, leave: Sequence[str] = ()) -> Asked:
        return Asked.parse([p for p in request.query_params.multi_items() if p[0] not in leave], collection.facets)

    def one(number: int) -> dict[str, Any]:
        found = [seen[number]] if number in seen else collection.photos([number])
        if not found:
            raise BadInput(f"There is no photo {number}.")
        return found[0]

    @app.on("GET", "/")
    def start() -> str:
        return page.render(
            name=collection.source.name, kind=collection.source.kind, size=collection.size,
            facets=headings(collection), has_vectors=bool(vectors), has_model=collection.source.encoder is not None,
            dated=collection.span is not None, prompts=prompts,
        )  # fmt: skip

    @app.on("GET", "/view")
    def view(request: Request) -> dict[str, Any]:
        """Total, counts of every facet, timeline and the first photos."""
        asked = asked_of(request)
        low, high = collection.span or (0, 0)
        return selections.overview(asked) | {
            "size": collection.size, "photos": tiles(asked, 0), "span": [low, high], "bins": BINS,
            "days": [day(low), day(high)],
        }  # fmt: skip

    @app.on("GET", "/rows")
    def rows(request: Request, at: At) -> list[Any]:
        return tiles(asked_of(request, ("at",)), at)

    @app.on("GET", "/values")
    def values(request: Request, facet: str) -> dict[str, Any]:
        """More values of one facet."""
        if facet not in collection.facets:
            raise BadConfig(f"Unknown facet {facet!r}.", "", f"Available: {', '.join(collection.facets)}.")
        return selections.counts(asked_of(request, ("facet",)), facet, MOST_VALUES)

    def tiles(asked: Asked, at: int) -> list[Any]:
        """[number, day, class, reason, score, whether there may be a picture, name] of PAGE photos."""
        numbers, scores = selections.ordered(asked)
        shown = collection.photos(numbers[at : at + PAGE].tolist())
        if len(seen) > SEEN:
            seen.clear()
        seen.update((row["n"], row) for row in shown)
        return [
            [
                row["n"], shown_date(row), row["class"], row["reason"],
                None if scores is None else round(float(scores[at + i]), 3),
                pictured(row), row["title"] or row["id"],
            ]
            for i, row in enumerate(shown)
        ]  # fmt: skip

    def pictured(row: dict[str, Any]) -> bool:
        return collection.source.pictured and (row["shard"] is not None or row["path"] is not None)

    @app.on("GET", "/thumb/{number}")
    def thumb(number: int) -> Response:
        try:
            picture = thumbnails.get(str(number), lambda: _image(collection, one(number)))
        except BadInput as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @app.on("GET", "/picture/{number}")
    def picture(number: int) -> Response:
        try:
            return Response(small(_image(collection, one(number)), LARGE), media_type="image/jpeg")
        except BadInput as error:
            return JSONResponse({"error": str(error)}, 404)

    @app.on("GET", "/photo/{number}")
    def photo(number: int) -> dict[str, Any]:
        """What is known of one photo."""
        row = one(number)
        shown = {k: v for k, v in row.items() if v is not None and k not in HIDDEN}
        if row["uploaded"] is not None:
            shown["uploaded"] = shown_date(row)
        return {"n": number, "facts": shown, "vector": row["vector"] is not None}

    @app.on("GET", "/trace/{number}")
    def trace(number: int) -> dict[str, Any]:
        """The history of one photo."""
        if collection.source.trace is None:
            return {"lines": []}
        from driftline.pipelines.reporting.trace import text

        return {"lines": text(collection.source.trace(one(number)["id"])).splitlines()}

    @app.on("GET", "/map")
    def points(request: Request, colour: str = "time") -> dict[str, Any]:
        """Places of the photos that are asked for (a sample), with a colour by time or class."""
        asked = asked_of(request, ("colour",))
        numbers, _ = selections.ordered(asked)
        return _points(collection, vectors, np.sort(numbers), colour)

    @app.on("POST", "/export")
    def export(query: Annotated[str, Field(max_length=8000)], form: str, rows: list[int]) -> Response:
        """The chosen photos, or all that are asked for, as a file."""
        if form not in FORMS:
            raise BadConfig(f"Unknown form {form!r}.", "", f"Available: {', '.join(FORMS)}.")
        from urllib.parse import parse_qsl

        pairs = parse_qsl(query, keep_blank_values=True)
        numbers = rows or selections.ordered(Asked.parse(pairs, collection.facets))[0].tolist()
        kind = "text/plain" if form == "ids" else "text/csv"
        return StreamingResponse(_lines(collection, numbers, form), media_type=f"{kind}; charset=utf-8")

    def first_screen() -> None:
        with suppress(Exception):  # the same fault is shown when the browser asks
            selections.overview(Asked())
            for tile in tiles(Asked(), 0)[:SCREEN]:
                if not main_thread().is_alive():  # Ctrl-C
                    return
                if tile[5]:
                    thumb(tile[0])

    if ahead:
        Thread(target=first_screen, name="first screen").start()
    return app


def shown_date(row: dict[str, Any]) -> str | None:
    """As precise as it is known: a photo of a folder `1905` has a year."""
    return None if row["uploaded"] is None else day(row["uploaded"])[: LENGTH.get(row["precision"])]


def _image(collection: Collection, row: dict[str, Any]) -> bytes:
    data = collection.source.picture(row)
    if data is None:
        raise BadInput(f"There is no image of {row['id']} on this machine.")
    return data


def _points(collection: Collection, vectors: Vectors, numbers: Any, colour: str) -> dict[str, Any]:
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
