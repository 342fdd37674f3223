"""Wikimedia Commons: every photo uploaded in a span of time, by the MediaWiki Action API.

Protocol: mediawiki.org/wiki/API:Allimages as a generator (gaisort=timestamp, gaistart, gaiend: the time of the current
version; at most 500 files a page), API:Imageinfo (iilimit: versions of each file, newest first; with several files,
what is beyond iilimit is cut without a cursor, and only an answer that gets too long has iicontinue; with one file
iistart continues), API:Continue (every key of `continue` is sent back, until `batchcomplete`; answers are merged),
API:Etiquette (requests in series, a User-Agent with a contact, gzip), Manual:Maxlag_parameter (maxlag=5; the error
`maxlag` comes with status 200 and Retry-After), Common_thumbnail_sizes (the widths that are served),
Wikimedia_APIs/Rate_limits (200 requests a minute with a User-Agent as the policy asks, else 10). Read on 2026-11-27.
The fields of `extmetadata` are those of the extension CommonsMetadata: texts that people wrote, with HTML in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, quote_plus, urlsplit

import pyarrow as pa
from pydantic import Field, model_validator

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.outside.json_api import JsonApi, agent, text_of, text_of_html
from driftline.curate.core.settings import SPEED, Contact, Positive, Time
from driftline.curate.core.times.dates import iso, seconds_of
from driftline.curate.fetch.address_guard import leaves_public
from driftline.curate.metadata.column_mapping import LONGEST_RAW
from driftline.curate.metadata.columns import safe_id
from driftline.curate.metadata.schema import rebatch
from driftline.curate.sources.base import HERE, Source, Workplace, check_span, degrees_of, empty_span, numbered

ENDPOINT = "https://commons.wikimedia.org/w/api.php"
PAGE = 500  # files a page
VERSIONS = 500  # of a file that an answer has at most
DAY = 86_400
MAXLAG = 5  # seconds, as Wikimedia recommends
STEPS = (20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840)  # widths that are served, November 2026
EMPTY = 50  # pages without a new file after which a cursor counts as endless
PHOTOS = ("image/jpeg", "image/png", "image/webp", "image/tiff", "image/gif")
LATER = ("maxlag", "ratelimited", "readonly")  # errors after which the same request may succeed


class Wikimedia(Source):
    """Wikimedia Commons: photos by the time and user of their first version, with licence and author.

    Bytes are those of the current version; of a file with several, `extra` has their number and the current one's time
    and user. Each day has its own pages in DIR/downloads; a day that is finished is not asked for again, also if `end`
    moves.
    """

    start: Time
    """photos uploaded from this time on; files first uploaded earlier and replaced since are rejects"""
    end: Time
    """photos uploaded before this time; files that were replaced later are not listed"""
    contact: Annotated[Contact, SPEED]
    """your e-mail or web page: Wikimedia blocks programs that do not name one"""
    width: Annotated[int, Field(ge=20, le=STEPS[-1])] | None = 1280
    """pixels, rounded up to a width that Wikimedia serves: it scales larger photos down (null: the original files)"""
    rate: Annotated[Positive, SPEED] = 10_800
    """queries an hour; Wikimedia allows 200 a minute to programs that name a contact"""
    endpoint: str = ENDPOINT
    """address of the API"""
    records_version: ClassVar[int] = 2

    @model_validator(mode="after")
    def _is_not_empty(self) -> Wikimedia:
        check_span(self.start, self.end)
        return self

    @property
    def step(self) -> int | None:
        """The width that is requested, pixels; None: the original files."""
        return None if self.width is None else next(step for step in STEPS if step >= self.width)

    def identity(self, stage: str) -> dict[str, Any]:
        """With the width that is requested: the addresses follow from it."""
        return super().identity(stage) | {"width": self.step}

    def notes(self) -> list[str]:
        """Whether the width is rounded."""
        if self.width == self.step:
            return []
        return [f"Wikimedia serves no width of {self.width} pixels; collection.width is rounded up to {self.step}."]

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """None: the source is not on this machine."""
        return []

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a file, in order of the current versions' times."""
        yield from rebatch(self._read(at, skip), rows)

    def _read(self, at: Workplace, skip: int) -> Iterator[pa.RecordBatch]:
        api = JsonApi("Wikimedia", self.rate, {"User-Agent": agent(self.contact)}, busy, leaves_public(self.endpoint))
        spans = ((start, end, self.ledger(at) / f"{start}-{end}") for start, end in days(self.start, self.end))
        chunks = (images for span in spans for images in self._pages(api, *span))
        yield from numbered(chunks, skip, self._record, empty_span("Wikimedia"))

    def ledger(self, at: Workplace = HERE) -> Path:
        """Folder of the pages that were read: START-END/NNNNN.json, with files and cursor."""
        return at.work / "wikimedia" / fingerprint([self.endpoint, "versions"])[:16]

    def _pages(self, api: JsonApi, start: int, end: int, folder: Path) -> Iterator[list[Any]]:
        """The files of a day, page by page. Raises DriftlineError for a cursor that leads nowhere."""
        cursor: dict[str, Any] | None = {}
        met: set[str] = set()
        names: set[str] = set()
        number = idle = 0
        while cursor is not None:
            path = folder / f"{number:05d}.json"
            if not path.is_file():
                write_json(path, self._ask(api, start, end, cursor))
            page = read_json(path)
            fresh = [image for image in page["images"] if _key(image) not in names]
            names |= {_key(image) for image in fresh}
            yield fresh
            cursor, number, idle = page["continue"], number + 1, 0 if fresh else idle + 1
            token = json.dumps(cursor, sort_keys=True)
            if cursor is not None and (token in met or idle == EMPTY):
                why = "repeats" if token in met else f"gives no new file for {EMPTY} pages"
                raise DriftlineError(
                    f"Wikimedia's cursor {why} in {iso(start)} … {iso(end)}: {token[:200]}.",
                    "Expected every page to lead further.",
                    f"Remove {folder} and run the same command again.",
                )
            met.add(token)

    def _ask(self, api: JsonApi, start: int, end: int, cursor: dict[str, Any]) -> dict[str, Any]:
        """One page: its files, and the cursor of the next (None: it is the last)."""
        listing = {
            "generator": "allimages",
            "gaisort": "timestamp",
            "gaidir": "newer",
            "gaistart": iso(start),
            "gaiend": iso(end - 1),
            "gailimit": str(PAGE),
            "iiprop": "timestamp|user|url|size|mime|extmetadata",
        }
        files, further = self._batch(api, listing, cursor)
        for title in [t for t, versions in files.items() if len(versions) >= VERSIONS and len(files) > 1]:
            files[title] += self._batch(api, {"titles": title, "iiprop": "timestamp|user"}, {})[0].get(title, [])
        images = [_image(title, versions) for title, versions in files.items()]
        return {"images": sorted(images, key=_key), "continue": further}

    def _batch(
        self, api: JsonApi, fields: dict[str, str], cursor: dict[str, Any]
    ) -> tuple[dict[str, list[Any]], dict[str, Any] | None]:
        """Title → versions, newest first, of one batch of files; the cursor of the next batch."""
        files: dict[str, list[Any]] = {}
        while True:
            document = self._query(api, fields | {key: str(value) for key, value in cursor.items()})
            before = sum(map(len, files.values()))
            for page in document.get("query", {}).get("pages", []):
                own = page if isinstance(page, dict) else {}
                versions = own.get("imageinfo")
                files.setdefault(str(own.get("title")), []).extend(versions if isinstance(versions, list) else [])
            further = document.get("continue")
            if further is not None and not isinstance(further, dict):
                raise DriftlineError(f"Wikimedia's cursor is {str(further)[:100]!r}.", "Expected an object.")
            if further is None or document.get("batchcomplete"):
                return files, further
            if before == sum(map(len, files.values())):
                raise DriftlineError(
                    f"Wikimedia's cursor gives no new version: {str(further)[:200]}.", "Expected one in each answer."
                )
            cursor = further

    def _query(self, api: JsonApi, fields: dict[str, str]) -> dict[str, Any]:
        """One answer. Raises BadConfig for one that is no answer of a MediaWiki, or an error."""
        same = {"action": "query", "format": "json", "formatversion": "2", "maxlag": str(MAXLAG)}
        answer = api.get(self.endpoint, same | {"prop": "imageinfo", "iilimit": str(VERSIONS)} | fields)
        document = answer.document
        if answer.fault or not isinstance(document, dict):
            raise BadConfig(
                f"{self.endpoint} answers with {answer.fault or 'JSON that is no object'}.",
                "Expected the API of a MediaWiki.",
                "Check collection.endpoint and collection.contact.",
            )
        if "error" in document:
            error = document["error"] if isinstance(document["error"], dict) else {}
            problem = f"{error.get('code')}: {str(error.get('info', ''))[:200]}"
            raise BadConfig(f"Wikimedia refuses the query ({problem}).", "", "Check the section collection.")
        return document

    def _record(self, image: Any, row: int) -> dict[str, Any]:
        def bad(fault: str) -> dict[str, Any]:
            return {"row": row, "fault": fault, "raw": json.dumps(image)[:LONGEST_RAW]}

        name = text_of(image.get("name")) if isinstance(image, dict) else None
        if name is None:
            return bad("bad_id")
        try:
            uploaded = seconds_of(str(image["first"]["timestamp"]))
        except (KeyError, ValueError, OverflowError):
            return bad("bad_upload_time")
        if image.get("mime") not in PHOTOS:
            return bad("not_a_photo")
        if uploaded < self.start:
            return bad("uploaded_before_start")
        metadata = image.get("extmetadata")
        extra: dict[str, Any] = metadata if isinstance(metadata, dict) else {}  # PHP writes an empty object as a list

        def text(key: str) -> str | None:
            entry = extra.get(key)
            return plain(entry.get("value")) if isinstance(entry, dict) else None

        x, y = degrees_of(text("GPSLongitude"), 180), degrees_of(text("GPSLatitude"), 90)
        return {
            "id": safe_id(name),
            "row": row,
            "url": self._url(name, image),
            "uploaded": uploaded,
            "taken": _taken(text("DateTimeOriginal")),
            "user": text_of(image["first"].get("user")),
            "nickname": text("Artist"),
            "title": name.rpartition(".")[0].replace("_", " ") or name,
            "description": text("ImageDescription"),
            "tags": ",".join(quote_plus(t) for t in (text("Categories") or "").split("|") if t.strip()) or None,
            "licence": text("LicenseShortName"),
            "licence_url": text("LicenseUrl"),
            "page_url": text_of(image.get("descriptionurl")),
            "media": "photo",
            "longitude": x if y is not None else None,
            "latitude": y if x is not None else None,
            "extra": None
            if image["versions"] == 1
            else json.dumps(
                {"versions": image["versions"], "file_version": image.get("timestamp"), "file_user": image.get("user")}
            ),
        }

    def requested(self, url: str) -> str:
        """The width, of photos that Wikimedia scales down."""
        return f"requested at a width of {self.step} pixels" if url.endswith(f"?width={self.step}") else ""

    def _url(self, name: str, image: dict[str, Any]) -> str | None:
        """The file, or the address that redirects to a smaller one: Special:Redirect/file."""
        url, wide = text_of(image.get("url")), image.get("width")
        if url is None or self.step is None or not isinstance(wide, int) or wide <= self.step:
            return url
        parts = urlsplit(self.endpoint)
        return f"{parts.scheme}://{parts.netloc}/wiki/Special:Redirect/file/{quote(name, safe='')}?width={self.step}"


def busy(document: Any) -> str:
    """Why a query must be sent again later; "" if it need not: a lagging or limiting server, an answer without list."""
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        code = str(document["error"].get("code"))
        return f"error {code}" if code in LATER or code.startswith("internal_api_error") else ""
    if isinstance(document, dict) and "query" not in document and document.get("batchcomplete"):
        return ""  # a listing without a file
    query = document.get("query") if isinstance(document, dict) else None
    return "" if isinstance(query, dict) and isinstance(query.get("pages"), list) else "an answer without a list"


def days(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span in parts that end at midnight, UTC.

    >>> list(days(86_000, 200_000))
    [(86000, 86400), (86400, 172800), (172800, 200000)]
    """
    while start < end:
        stop = min(end, (start // DAY + 1) * DAY)
        yield start, stop
        start = stop


def plain(value: Any) -> str | None:
    """A field of extmetadata as text without HTML.

    >>> plain("<a href='x'>Ada &amp; Bob</a>"), plain(3), plain("<br>")
    ('Ada & Bob', '3', None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return text_of_html(str(value))


def _taken(text: str | None) -> int | None:
    """`2009-09-30 07:19:49` → seconds; None for other texts, which people write as they like."""
    try:
        return None if text is None else seconds_of(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _image(title: str, versions: list[Any]) -> dict[str, Any]:
    """What is kept of a file: its name, the current version's fields, the first version's time and user, their number.

    >>> _image("File:A b.jpg", [{"timestamp": "2020", "user": "Bot"}, {"timestamp": "2009", "user": "Ada"}])["first"]
    {'timestamp': '2009', 'user': 'Ada'}
    """
    own = [version for version in versions if isinstance(version, dict)]
    dated = sorted((v for v in own if isinstance(v.get("timestamp"), str)), key=lambda v: str(v["timestamp"]))
    first = {key: dated[0][key] for key in ("timestamp", "user") if key in dated[0]} if dated else {}
    name = title.partition(":")[2].replace(" ", "_")
    return {**(own[0] if own else {}), "name": name, "first": first, "versions": len(own)}


def _key(image: Any) -> str:
    return f"{image.get('timestamp')} {image.get('name')}"
