"""Flickr's live API: every photo uploaded in a span of time, in windows small enough for its search to be complete.

`flickr.photos.search` shows at most 4,000 results of a query (later pages repeat earlier ones), large windows return
only a part, and `total` cannot be trusted. So a window is halved until its total is well below that, down to one
second, then divided by licence. For every window, the promised and the received number of photos are kept.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote, quote_plus

import pyarrow as pa
from pydantic import Field, model_validator

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.settings import SPEED, Positive, Time
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.foreign.cells import NOTHING
from driftline.curate.foreign.http import LARGEST, Client, Policy, Reply, Temporary
from driftline.curate.foreign.names import is_count
from driftline.curate.metadata.columns import DEGREES, FLICKR_BEGAN, LONGEST_RAW
from driftline.curate.metadata.schema import batch_of, rebatch
from driftline.curate.sources.base import HERE, Source, Workplace

ENDPOINT = "https://api.flickr.com/services/rest/"
CEILING = 4000  # results that a query shows
HALVED_ABOVE = 3000  # results that a window may promise: well below the ceiling, because totals are not exact
PER_PAGE = 500
READ = 4096  # photos that become records at a time
MISSING = 0.05  # share of a window's total that may be missing before the window is halved
SHORTEST = 60  # seconds: a shorter window that misses photos is not halved, because then the total is wrong
SIZES = {  # as misc.urls.html has them
    "url_l": "requested at no more than 1024 pixels",
    "url_c": "requested at no more than 800 pixels",
    "url_z": "requested at no more than 640 pixels",
    "url_m": "requested at no more than 500 pixels",
}
EXTRAS = f"date_upload,date_taken,license,owner_name,tags,geo,description,media,{','.join(SIZES)},url_o"
WANTED = {"original": ("url_o", *SIZES), "large": tuple(SIZES), "medium": ("url_m",)}
COMMONS = "creativecommons.org/"
Licences = Mapping[str, Sequence[str]]  # Flickr's id → name and address


@dataclass(frozen=True)
class Window:
    """A part of the query that is asked at once."""

    start: int
    """earliest upload time, seconds UTC"""
    end: int
    """latest upload time, exclusive"""
    licences: tuple[str, ...]
    """Flickr's ids"""

    def parts(self) -> "list[Window]":
        """Its halves; of a window of one second, one window for each licence; of one licence, nothing."""
        if self.end - self.start > 1:
            middle = (self.start + self.end) // 2
            return [Window(self.start, middle, self.licences), Window(middle, self.end, self.licences)]
        several = len(self.licences) > 1
        return [Window(self.start, self.end, (licence,)) for licence in self.licences] if several else []

    def name(self) -> str:
        """Name of the window's file."""
        return f"{self.start}-{self.end}-{'_'.join(self.licences)}.json"


class Flickr(Source):
    """Flickr's live API; its key is read from the environment variable FLICKR_API_KEY and never written anywhere.

    A run that was stopped does not ask again for windows that are finished, and a later `end` asks for new ones only.
    """

    start: Time
    """photos uploaded from this time on"""
    end: Time
    """photos uploaded before this time"""
    licences: tuple[int, ...] | None = None
    """Flickr's ids of the licences, as flickr.photos.licenses.getInfo lists them when the run begins (null: all of
    Creative Commons)"""
    search: dict[str, str] = Field(default_factory=dict)
    """further arguments of the query, e.g. {text: bicycle}"""
    size: Literal["medium", "large", "original"] = "large"
    """largest image that is taken; where an original is not served, the next smaller one is"""
    rate: Annotated[Positive, SPEED] = 3600
    """queries an hour"""
    endpoint: str = ENDPOINT
    """URL of the API"""
    records_version: ClassVar[int] = 4

    @model_validator(mode="after")
    def _is_not_empty(self) -> "Flickr":
        if self.start >= self.end:
            raise ValueError(f"The span [{self.start}, {self.end}) is empty. Expected start < end")
        return self

    def requested(self, url: str) -> str:
        """The largest size of Flickr's copies."""
        if self.size == "original" and "_o." in url.rpartition("/")[2]:
            return ""
        return SIZES["url_m" if self.size == "medium" else "url_l"]

    def lists_others(self) -> bool:
        """Originals of free accounts are not served since 2025: then a smaller size is."""
        return self.size == "original"

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """None: the source is not on this machine."""
        return []

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a photo, in order of (upload time, id) within each window, windows in order of time."""
        yield from rebatch(self._read(at, skip), rows)

    def _read(self, at: Workplace, skip: int) -> Iterator[pa.RecordBatch]:
        api, ledger = Api(self.endpoint, self.rate), self.ledger(at)
        licences = self._licences(api, ledger)
        spans = self._span(ledger, tuple(licences))
        row = 0
        for photos in (photos for window in spans for photos in self._windows(api, window, ledger)):
            for low in range(0, len(photos), READ):
                records = [self._record(licences, one, row + i) for i, one in enumerate(photos[low : low + READ])]
                if row + len(records) > skip:
                    yield batch_of(records).slice(max(0, skip - row))
                row += len(records)
        if row == 0:
            problem = "Flickr's answer is empty: it has no photos in this span."
            raise BadInput(problem, "Expected at least one.", "Widen collection.start and collection.end.")

    def _licences(self, api: "Api", ledger: Path) -> Licences:
        """The licences whose photos are listed. Flickr is asked once a run, and again for an id that was not there.
        Raises BadConfig for one that Flickr does not have."""
        path = ledger / "licences.json"
        listed: Licences = read_json(path) if path.is_file() else {}
        wanted = [str(n) for n in self.licences or ()]
        if not listed or not set(wanted) <= listed.keys():
            listed = api.licences()
            write_json(path, listed)
        if unknown := [n for n in wanted if n not in listed]:
            available = ", ".join(f"{n} ({listed[n][0]})" for n in sorted(listed, key=int))
            raise BadConfig(f"Flickr has no licence {unknown[0]}.", f"It has {available}.", "Set collection.licences.")
        if self.licences is None:
            wanted = [n for n in sorted(listed, key=int) if COMMONS in listed[n][1]]
        if not wanted:
            named = f"Of {len(listed)} licences of {self.endpoint}, none is of Creative Commons."
            raise BadConfig(named, "", "Set collection.licences.")
        return {n: listed[n] for n in wanted}

    def ledger(self, at: Workplace = HERE) -> Path:
        """Folder of Flickr's licences and of the finished windows of this query, one JSON file each: photos that were
        promised and received."""
        return at.work / "flickr" / fingerprint([self.endpoint, dict(self.search)])[:16]

    def _span(self, ledger: Path, licences: tuple[str, ...]) -> list[Window]:
        """Windows that cover the span: those that were read for an earlier `end`, then one for the rest."""
        names = [path.stem.split("-") for path in ledger.glob(f"*-{'_'.join(licences)}.json")]
        read = [(int(start), int(end)) for start, end, _ in names if start.isdecimal() and end.isdecimal()]
        windows, moment = [], self.start
        while moment < self.end:
            end = max((end for start, end in read if start == moment and end <= self.end), default=self.end)
            windows.append(Window(moment, end, licences))
            moment = end
        return windows

    def _windows(self, api: "Api", window: Window, ledger: Path) -> Iterator[list[Any]]:
        """Photos of each window that could be read whole, in order of time."""
        path = ledger / window.name()
        if not path.is_file():
            write_json(path, self._ask(api, window))
        answer = read_json(path)
        if answer["halved"]:
            for part in window.parts():
                yield from self._windows(api, part, ledger)
        else:
            yield answer["photos"]

    def _ask(self, api: "Api", window: Window) -> dict[str, Any]:
        """One window: its photos, or {"halved": True} if it is too large to be complete."""
        arguments = {
            **self.search,
            "min_upload_date": str(window.start),
            "max_upload_date": str(window.end - 1),
            "license": ",".join(window.licences),
            "media": "photos",
            "sort": "date-posted-asc",
            "extras": EXTRAS,
            "per_page": str(PER_PAGE),
        }
        seen: dict[str, Any] = {}
        total = returned = 0
        splits = bool(window.parts())
        for page in range(1, CEILING // PER_PAGE + 1):
            answer = api.photos({**arguments, "page": str(page)})
            total = max(total, _count(answer.get("total")))
            if splits and total > HALVED_ABOVE:
                return {"halved": True, "total": total}
            listed = answer.get("photo")
            photos: list[Any] = listed if isinstance(listed, list) else []
            before = len(seen)
            for photo in photos:
                seen.setdefault(_key(photo), photo)
            returned += len(photos)
            # The reported number of pages is wrong at times, too: a page with nothing new ends the window.
            if len(seen) == before or (len(photos) < PER_PAGE and len(seen) >= total):
                break
        missing = total - len(seen)
        partial = window.end - window.start > SHORTEST and missing > max(5, MISSING * total)
        if splits and (len(seen) > HALVED_ABOVE or partial):
            return {"halved": True, "total": total, "unique": len(seen)}
        ordered = sorted(
            seen.values(),
            key=lambda p: (_count(p.get("dateupload") if isinstance(p, dict) else None), _key(p).rjust(20, "0")),
        )
        return {"halved": False, "total": total, "returned": returned, "unique": len(seen), "photos": ordered}

    def _record(self, licences: Licences, photo: Any, row: int) -> dict[str, Any]:
        def bad(fault: str) -> dict[str, Any]:
            return {"row": row, "fault": fault, "raw": json.dumps(photo)[:LONGEST_RAW]}

        if not isinstance(photo, dict) or not re.fullmatch("[0-9]{1,90}", str(photo.get("id", ""))):
            return bad("bad_id")
        if (uploaded := _read(seconds_of, photo.get("dateupload"))) is None:
            return bad("bad_upload_time")
        if str(photo.get("license")) not in licences:
            return bad("other_licence")
        owner = text_of(photo.get("owner"))
        licence, licence_url = licences[str(photo["license"])]
        sizes = [(url, name) for name in WANTED[self.size] if (url := text_of(photo.get(name)))]
        extra = None
        if len(sizes) > 1 and sizes[0][1] == "url_o":
            extra = json.dumps({"other_url": sizes[1][0], "other_size": SIZES[sizes[1][1]]})
        description = photo.get("description")
        place = {name: _read(float, photo.get(name)) for name in DEGREES}
        unknown = str(photo.get("datetakenunknown", "0")) == "1"
        located = any(place.values())  # what Flickr writes for an unknown position is 0, 0
        place = {name: x if located and abs(x or 0.0) <= DEGREES[name] else None for name, x in place.items()}
        return {
            "id": str(photo["id"]),
            "row": row,
            "url": sizes[0][0] if sizes else None,
            "uploaded": uploaded if uploaded >= FLICKR_BEGAN else None,
            "taken": None if unknown else _read(seconds_of, photo.get("datetaken")),
            "user": owner,
            "nickname": text_of(photo.get("ownername")),
            "title": text_of(photo.get("title")),
            "description": text_of(description.get("_content") if isinstance(description, dict) else description),
            "tags": ",".join(quote_plus(t) for t in str(photo.get("tags") or "").split()) or None,
            "licence": licence,
            "licence_url": licence_url or None,
            "page_url": f"https://www.flickr.com/photos/{quote(owner, safe='@')}/{photo['id']}/" if owner else None,
            "media": "video" if photo.get("media") == "video" else "photo",
            "extra": extra,
            **place,
        }


class Api:
    """A small client: a steady rate, retries of temporary failures, and no key in any message.

    Documents, read on 2026-11-27: flickr.com/services/api/flickr.photos.search.html (errors 1 … 18 are of the query),
    flickr.photos.licenses.getInfo.html, misc.urls.html; flickr.com/services/developer/api (3,600 queries an hour).
    """

    def __init__(self, endpoint: str, rate: int) -> None:
        self._key, self._endpoint = os.environ.get("FLICKR_API_KEY", "").strip(), endpoint
        if not self._key:
            raise BadConfig(
                "The environment variable FLICKR_API_KEY is not set.",
                "Expected a key of Flickr's API.",
                "Get one at https://www.flickr.com/services/apps/create/ (Pro accounts only) and export it.",
            )
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        self._client = Client(headers, self._key, rate / 3600)
        self._policy = Policy(first=3 * 3600 / rate, longest=180 * 3600 / rate)  # limits are often of a minute

    def photos(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """`flickr.photos.search` → its `photos`. Raises BadConfig for a refused key, DriftlineError where Flickr does
        not answer."""
        return self._asked("flickr.photos.search", "photos", arguments)

    def licences(self) -> Licences:
        """`flickr.photos.licenses.getInfo`. Raises as `photos`."""
        listed = self._asked("flickr.photos.licenses.getInfo", "licenses", {}).get("license")
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        return {
            number: (text_of(entry.get("name")) or f"Flickr licence {number}", text_of(entry.get("url")) or "")
            for entry in entries
            if is_count(number := str(entry.get("id")))
        }

    def _asked(self, method: str, holder: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """holder: the key of the answer that has the result."""
        fields = {"method": method, "api_key": self._key, "format": "json", "nojsoncallback": "1"}
        try:
            return self._client.ask(
                "GET", self._endpoint, lambda reply: self._result(reply, holder), self._policy,
                fields={**arguments, **fields},
            )  # fmt: skip
        except Temporary as failure:
            way_out = "Run the same command again later: finished pages are kept."
            raise self._policy.error("Flickr", failure, way_out) from None

    def _result(self, reply: Reply, holder: str) -> dict[str, Any]:
        """Raises Temporary for whatever is no answer."""
        if reply.status != 200 or len(reply.body) > LARGEST:
            raise reply.again(f"status {reply.status}" if reply.status != 200 else "too_large")
        try:
            text = json.dumps(json.loads(reply.body.decode("utf-8-sig")), ensure_ascii=False)
        except (ValueError, RecursionError):
            raise reply.again("not_json") from None
        document = json.loads(text.encode("utf-8", "replace"))  # no file can hold halves of surrogate pairs
        if not isinstance(document, dict):
            raise reply.again("JSON that is no object")
        if document.get("stat") == "ok" and isinstance(result := document.get(holder), dict):
            return result
        code, words = document.get("code"), str(document.get("message", "")).replace(self._key, "…")[:200]
        if code in (100, 116, 96, 97, 98, 99):
            raise BadConfig(
                f"Flickr rejects the key: {words}.", "", "Check FLICKR_API_KEY: only Pro accounts have keys."
            )
        if code in (1, 2, 3, 4, 5, 11, 12, 14, 17, 18, 111, 112):
            raise BadConfig(f"Flickr rejects the query: {words}.", "", "Check collection.search.")
        raise reply.again(self._client.hidden(f"error {code}: {words}"))


def text_of(value: Any) -> str | None:
    """Text without NUL; None for words for nothing and for other types."""
    text = value.replace("\x00", "\ufffd").strip() if isinstance(value, str) else ""
    return None if text.lower() in NOTHING else text


def _key(photo: Any) -> str:
    return str(photo.get("id")) if isinstance(photo, dict) else json.dumps(photo)[:200]


def _count(value: Any) -> int:
    text = str(value)
    return int(text) if is_count(text) else 0


def _read(convert: Callable[[str], Any], value: Any) -> Any:
    try:
        return convert(str(value))
    except (ValueError, OverflowError):
        return None
