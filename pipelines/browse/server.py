"""The browse page: the collection as a grid, with counts, a timeline, history of a photo; prompts to try."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from threading import Lock, Thread, main_thread
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.pipelines.browse.collection import BINS, FACETS, Asked, Collection, Selections
from driftline.pipelines.browse.prompts import Prompts, Query, share_text
from driftline.pipelines.stages.photos import history_text
from driftline.pipelines.stages.state import is_finished
from driftline.pipelines.web.local_server import guarded, local_app
from driftline.pipelines.web.rendering import LARGE, THUMBNAIL, day, small, template

PAGE = 120  # photos that one answer brings
SCREEN = 48  # of these are on the first screen
THUMBNAILS = 5000  # that are kept
SEEN = 2000  # rows that are kept because their pictures will be asked for
PER_BUCKET = 12  # photos that a prompt shows of a time bucket
MOST_VALUES = 500  # of one facet
HIDDEN = ("path", "shard", "member", "n", "vector", "precision", "address")  # columns that are no fact for a person
LENGTH = {"year": 4, "month": 7}  # characters of a day that are known
At = Annotated[int, Field(ge=0, le=10**12)]
Text = Annotated[str, Field(max_length=8000)]
Name = Annotated[str, Field(max_length=80)]


def application(collection: Collection, port: int, ahead: bool = False) -> tuple[ASGIApp, str]:
    """(app for one collection, path to open, which contains a secret).

    ahead: make what the first screen shows at once, beside the start of server and browser.
    """
    shown = Pages(collection)
    app = local_app("driftline.pipelines.browse")
    for path, function in (
        ("/", shown.start), ("/view", shown.view), ("/rows", shown.rows), ("/values", shown.values),
        ("/thumb/{number}", shown.thumb), ("/picture/{number}", shown.picture), ("/photo/{number}", shown.photo),
        ("/trace/{number}", shown.trace), ("/prompts", shown.prompts),
    ):  # fmt: skip
        app.on("GET", path)(function)
    app.on("POST", "/mark")(shown.mark)
    app.on("POST", "/save")(shown.save)
    if ahead:
        Thread(target=shown.first_screen, name="first screen").start()
    return guarded(app, port, "browse")


class Pages:
    """What the page shows. A method answers the path of its name."""

    def __init__(self, collection: Collection) -> None:
        self.collection, self.selections = collection, Selections(collection)
        self._thumbnail = lru_cache(THUMBNAILS)(lambda number: small(self._image(number), THUMBNAIL))
        self.page = template("driftline.pipelines.browse", "browse.html.j2")
        self.seen: dict[int, dict[str, Any]] = {}  # rows on the pages, whose pictures are asked for next
        self._lock = Lock()
        context = collection.source.context
        embedded = context is not None and is_finished(context.root, "embed")
        self.tried = Prompts(context, collection) if context is not None and embedded else None

    def _asked(self, request: Request, leave: str = "") -> Asked:
        words = [(name, value) for name, value in request.query_params.multi_items() if name != leave]
        return Asked.parse(words, self.collection.facets)

    def _row(self, number: int) -> dict[str, Any]:
        with self._lock:
            seen = self.seen.get(number)
        rows = [seen] if seen else self.collection.photos([number])
        if not rows:
            raise BadInput(f"There is no photo {number}.")
        return rows[0]

    def start(self) -> str:
        collection = self.collection
        return self.page.render(
            name=collection.source.name, kind=collection.source.kind, size=collection.size,
            facets={name: FACETS[name] for name in collection.facets}, dated=collection.span is not None,
            concepts=None if self.tried is None else self.tried.texts(),
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
        """The tiles of PAGE photos."""
        shown = self.collection.photos(self.selections.ordered(asked)[at : at + PAGE].tolist())
        self._keep(shown)
        return list(map(_tile, shown))

    def _keep(self, rows: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            if len(self.seen) > SEEN:
                self.seen.clear()
            self.seen.update((row["n"], row) for row in rows)

    def _prompts(self) -> Prompts:
        if self.tried is None:
            raise BadConfig("Nothing reads prompts here.", "Expected a run whose embed stage is done.")
        return self.tried

    def prompts(self, text: Text = "", concept: Name = "") -> dict[str, Any]:
        """What prompts, one a line, retrieve in each time bucket, with marks; without any, those of a saved concept."""
        tried = self._prompts()
        text = text if text.strip() else tried.texts().get(concept, "")
        found, unread = tried.view(Query.parse(text), concept, PER_BUCKET)
        for bucket in found:
            self._keep(bucket.photos)
        buckets = [
            {
                "name": bucket.name, "share": share_text(bucket.marks), "marks": bucket.marks,
                "photos": [_tile(row, score) for row, score in zip(bucket.photos, bucket.scores, strict=True)],
            }
            for bucket in found
        ]  # fmt: skip
        share = share_text([mark for bucket in found for mark in bucket.marks])
        return {"text": text, "unread": unread, "share": share, "buckets": buckets}

    def mark(self, concept: Name, number: int, right: bool | None, text: Text) -> dict[str, Any]:
        """Keep a mark of a photo, and show the prompts again."""
        if not concept:
            raise BadInput("A mark belongs to a concept.", "Expected its name.")
        self._prompts().marks.add(concept, self._row(number)["id"], right)
        return self.prompts(text, concept)

    def save(self, concept: Name, text: Text) -> dict[str, str]:
        """Write prompts into the run's file."""
        if not concept:
            raise BadInput("The prompts belong to a concept.", "Expected its name.")
        self._prompts().save(concept, Query.parse(text))
        return {"message": f"Saved as the prompts of {concept}. The next driftline run uses them."}

    def _image(self, number: int) -> bytes:
        row = self._row(number)
        data = self.collection.source.picture(row)
        if data is None:
            raise BadInput(f"There is no image of {row['id']} on this machine.")
        return data

    def thumb(self, number: int) -> Response:
        try:
            picture = self._thumbnail(number)
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
        return {"n": number, "facts": facts}

    def trace(self, number: int) -> dict[str, Any]:
        """The history of one photo."""
        if self.collection.source.trace is None or self.collection.source.withdrawn(self._row(number)):
            return {"lines": []}
        return {"lines": history_text(self.collection.source.trace(self._row(number)["id"])).splitlines()}

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


def _tile(row: dict[str, Any], score: float | None = None) -> list[Any]:
    """[number, day, class, reason, score, whether there may be a picture, name]."""
    pictured = row["shard"] is not None or row["path"] is not None
    rounded = None if score is None else round(float(score), 3)
    return [row["n"], shown_date(row), row["class"], row["reason"], rounded, pictured, row["title"] or row["id"]]
