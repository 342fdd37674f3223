"""A stand-in of MediaWiki's Action API (allimages, imageinfo, continue) and of Commons' thumbnails, as published.

Documents, read on 2026-11-27: mediawiki.org/wiki/API:Allimages (aisort, aistart, aiend, limits; as a generator its
parameters begin with "g"), API:Imageinfo (iiprop, iilimit, iistart), API:Continue, API:JSON_version_2 (formatversion),
API:Errors_and_warnings (unrecognised parameters are warnings), Manual:Maxlag_parameter, Common_thumbnail_sizes,
Wikimedia_APIs/Rate_limits, foundation.wikimedia.org/wiki/Policy:Wikimedia_Foundation_User-Agent_Policy.

Pages come in the order of their page ids. What is beyond `iilimit` has a cursor, `iistart`, only if the query is about
one file. An answer that would be too long has the cursor `iicontinue`, and no `batchcomplete`: files come in the order
of their names. A listing without a file has no `query`. Special:Redirect/file leads to another host (`thumbnails`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.faults import picture
from support.serving import serving

FIELDS = {
    "timestamp": ("timestamp",),
    "user": ("user",),
    "url": ("url", "descriptionurl"),
    "size": ("size", "width", "height"),
    "mime": ("mime",),
    "extmetadata": ("extmetadata",),
}  # of `iiprop`
DEFAULT_LIMIT, MOST_FILES, MOST_TITLES, MOST_VERSIONS = 10, 500, 50, 500
KNOWN = ("action", "format", "formatversion", "maxlag", "generator", "gaisort", "gaidir", "gaistart", "gaiend",
         "gailimit", "gaicontinue", "prop", "iiprop", "iilimit", "iistart", "iicontinue", "continue",
         "titles")  # fmt: skip
STEPS = (20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840)  # mediawiki.org/wiki/Common_thumbnail_sizes
REFUSAL = "Use thumbnail steps listed on https://w.wiki/GHai. Please contact noc@wikimedia.org for further information"


def file(
    number: int, uploaded: int, earlier: Sequence[tuple[int, str]] = (), title: Any = "", **more: Any
) -> dict[str, Any]:
    """One file as imageinfo has it. uploaded: time of the current version. earlier: (time, user) of older ones, the
    newest first. more: fields of the current version."""
    name = f"Bicycle_{number}.jpg"
    current = {
        "timestamp": iso(uploaded),
        "user": "Nino",
        "size": 100_000,
        "width": 4000,
        "height": 3000,
        "url": f"https://upload.wikimedia.org/wikipedia/commons/a/ab/{name}",
        "descriptionurl": f"https://commons.wikimedia.org/wiki/File:{name}",
        "mime": "image/jpeg",
        "extmetadata": {
            "DateTimeOriginal": {"value": "2011-03-01 10:00:00", "source": "commons-desc-page"},
            "Artist": {"value": "<a href='//commons.wikimedia.org/wiki/User:Nino'>Nino &amp; co</a>"},
            "LicenseShortName": {"value": "CC BY-SA 4.0"},
            "LicenseUrl": {"value": "https://creativecommons.org/licenses/by-sa/4.0"},
            "ImageDescription": {"value": "<p>A red\n bicycle</p>"},
            "Categories": {"value": "Bicycles|Red things"},
            "GPSLatitude": {"value": "50.5"},
            "GPSLongitude": {"value": "8.25"},
        },
        **more,
    }
    archive = f"https://upload.wikimedia.org/wikipedia/commons/archive/a/ab/{name}"
    older = [{**current, "timestamp": iso(t), "user": user, "url": archive} for t, user in earlier]
    return {
        "pageid": 1 + number * 7919 % 10_007,
        "ns": 6,
        "title": f"File:{name.replace('_', ' ')}" if title == "" else title,
        "imagerepository": "local",
        "imageinfo": [current, *older],
    }


class WikimediaServer:
    """page: files of a page at most. lag: seconds that the databases are behind. fail: number of a query → raw answer
    instead (status, headers, body). cursor: instead of the next page's. room: versions that fit into an answer."""

    def __init__(
        self,
        files: list[dict[str, Any]],
        page: int = 500,
        fail: Mapping[int, tuple[int, dict[str, str], bytes]] | None = None,
        cursor: Any = None,
        room: int = 10_000,
        lag: float = 0.0,
    ) -> None:
        self.lag = lag
        self.files, self.page, self.cursor, self.room = files, page, cursor, room
        self.cursors: list[dict[str, str]] = []
        self.queries: list[dict[str, str]] = []
        self.busy = self.most = 0
        self.thumbnails = ""  # where Special:Redirect/file leads
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer; of two, the second waits 40 ms for the receipt of the first

            def do_GET(self) -> None:
                if "/wiki/Special:Redirect/file/" in self.path:
                    name, _, width = self.path.rpartition("/")[2].partition("?width=")
                    self.send_response(302)
                    self.send_header("Location", f"{outer.thumbnails}/thumb/a/ab/{name}/{width}px-{name}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                with lock:
                    outer.busy += 1
                    outer.most = max(outer.most, outer.busy)
                    query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
                    outer.queries.append(query)
                    number = len(outer.queries)
                agent = self.headers.get("User-Agent", "")
                status, headers, body = (fail or {}).get(number) or outer.answer(query, agent)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                with lock:
                    outer.busy -= 1

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}/w/api.php"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, query: dict[str, str], agent: str) -> tuple[int, dict[str, str], bytes]:
        """One answer to `action=query`."""
        if not has_contact(agent):
            return 403, {}, b"Please set a user-agent and respect our robot policy"
        if query.get("format") != "json":
            return 200, {}, b"<!DOCTYPE html><html>"
        if self.lag > float(query.get("maxlag", "inf")):
            return error("maxlag", f"Waiting for a host: {self.lag} seconds lagged", **{"Retry-After": "5"})
        cursor = ("continue", "gaicontinue", "iicontinue", "iistart")
        sent = {key: query[key] for key in cursor if key in query}
        if sent and sent not in self.cursors:
            return error("badcontinue", "Invalid continue param.")
        try:
            hits, further = self.titled(query) if "titles" in query else self.listed(query)
        except ValueError as refusal:
            return error(*refusal.args)
        pages, cut = self.versions(hits, query)
        document: dict[str, Any] = {"query": {"pages": pages}} if pages else {}
        if query.get("formatversion") != "2" and pages:
            document["query"]["pages"] = {str(page["pageid"]): page for page in pages}
        if cut:
            own = {"gaicontinue": query["gaicontinue"]} if "gaicontinue" in query else {}
            further = {**own, **cut, "continue": f"{'gaicontinue' if own else ''}||"}
        else:
            document["batchcomplete"] = True if query.get("formatversion") == "2" else ""
        if self.cursor is not None:
            further = self.cursor
        if further:
            document["continue"] = further
            if self.cursor is None:
                self.cursors.append(further)
        unknown = sorted(query.keys() - set(KNOWN))
        if unknown:
            document["warnings"] = {"main": {"warnings": f"Unrecognized parameters: {', '.join(unknown)}."}}
        return 200, {}, json.dumps(document).encode()

    def titled(self, query: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The files of `titles`. Raises ValueError with code and info."""
        titles = query["titles"].split("|")
        if len(titles) > MOST_TITLES:
            raise ValueError("toomanyvalues", 'Too many values supplied for parameter "titles". The limit is 50.')
        return [f for f in self.files if f["title"] in titles], {}

    def listed(self, query: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The files of `generator=allimages`, and the cursor. Raises ValueError with code and info."""
        if query.get("generator") != "allimages":
            return [], {}
        by_time = query.get("gaisort") == "timestamp"
        if "gaistart" in query and not by_time:
            raise ValueError("badparams", "gaistart can only be used with gaisort=timestamp")
        size = min(int(query.get("gailimit", DEFAULT_LIMIT)), MOST_FILES, self.page)
        low, high = query.get("gaistart", ""), query.get("gaiend", "9")
        hits = [f for f in self.files if low <= current(f) <= high]
        hits.sort(key=lambda f: (current(f), f["pageid"]) if by_time else (str(f["title"]), f["pageid"]))
        start = [token(f) for f in hits].index(query["gaicontinue"]) if "gaicontinue" in query else 0
        further = {}
        if start + size < len(hits):
            further = {"gaicontinue": token(hits[start + size]), "continue": "gaicontinue||"}
        return hits[start : start + size], further

    def versions(self, files: list[dict[str, Any]], query: dict[str, str]) -> tuple[list[Any], dict[str, str]]:
        """Pages in the order of their ids, each with its versions, and the cursor of what did not fit."""
        limit = min(int(query.get("iilimit", 1)), MOST_VERSIONS)
        names = [n for prop in query.get("iiprop", "timestamp|user").split("|") for n in FIELDS.get(prop, ())]
        pages = {str(f["title"]): {k: v for k, v in f.items() if k != "imageinfo"} for f in files}
        cut: dict[str, str] = {}
        room = self.room
        from_title, _, from_time = query.get("iicontinue", "").rpartition("|")
        for f in sorted(files, key=lambda f: str(f["title"])):
            title = str(f["title"])
            if cut or title < from_title:
                continue
            since = from_time if title == from_title else query.get("iistart", "")
            listed = [v for v in f["imageinfo"] if not since or v["timestamp"] <= since]
            for n, version in enumerate(listed):
                at = version["timestamp"]
                if n == limit or not room:
                    if len(files) == 1:
                        cut = {"iistart": at}
                    elif not room:
                        cut = {"iicontinue": f"{title}|{at}"}
                    break
                pages[title].setdefault("imageinfo", []).append({k: version[k] for k in names if k in version})
                room -= 1
        return sorted(pages.values(), key=lambda page: page["pageid"]), cut


@dataclass
class Thumbnails:
    """What the host of the thumbnails serves. status: of a refusal. in_page: whether its text is in the page only."""

    url: str = ""
    steps: tuple[int, ...] = STEPS
    status: int = 400
    in_page: bool = True
    asked: list[str] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)


@contextmanager
def thumbnails() -> Iterator[Thumbnails]:
    """Serves until the block ends."""
    host = Thumbnails()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            agent = self.headers.get("User-Agent", "")
            host.asked.append(self.path)
            host.agents.add(agent)
            width = int(self.path.rpartition("/")[2].partition("px-")[0])
            if width in host.steps and has_contact(agent):
                self.send_response(200)
                body = picture()
            else:
                self.send_response(host.status, None if host.in_page else REFUSAL)
                page = f"<br>Error: {host.status}, {REFUSAL} (a765913)<br>" if host.in_page else ""
                body = f"<!DOCTYPE html><style>{' ' * 9_000}</style>{page}".encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with serving(Handler) as address:
        host.url = address
        yield host


def has_contact(agent: str) -> bool:
    """Whether a User-Agent says how to reach its owner."""
    return "@" in agent or "http" in agent


def iso(seconds: int) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def current(one: Mapping[str, Any]) -> str:
    """The time of a file's current version."""
    return str(one["imageinfo"][0].get("timestamp"))


def token(one: Mapping[str, Any]) -> str:
    """The cursor that leads to a file."""
    return f"{current(one)}|{one['pageid']}"


def error(code: str, info: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """An error as the API reports it: with status 200."""
    return 200, headers, json.dumps({"error": {"code": code, "info": info}}).encode()
