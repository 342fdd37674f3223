"""A stand-in of Flickr's REST API: photos.search and photos.licenses.getInfo, as published, and its habits.

Documents, read on 2026-11-27: flickr.com/services/api/flickr.photos.search.html (arguments, extras, errors, the first
4,000 results), flickr.photos.licenses.getInfo.html, response.json.html (jsonFlickrApi, stat), request.rest.html
(format), blog.flickr.net/en/2025/06/18/creative-commons-4-0-has-arrived-on-flickr. Arguments that they do not name are
ignored. Not documented, but met: past the last page the last one comes again, totals are not exact (`lie`), and large
windows give a part of their photos only (`lossy`).
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from support.stand_ins import StandIn

CEILING = 4000
DEED = "https://creativecommons.org/licenses"
LICENCES = [  # as getInfo lists them; the ids of version 4.0 are examples
    {"id": "0", "name": "All Rights Reserved", "url": ""},
    {"id": "4", "name": "Attribution License", "url": f"{DEED}/by/2.0/"},
    {"id": "2", "name": "Attribution-NonCommercial License", "url": f"{DEED}/by-nc/2.0/"},
    {"id": "1", "name": "Attribution-NonCommercial-ShareAlike License", "url": f"{DEED}/by-nc-sa/2.0/"},
    {"id": "7", "name": "No known copyright restrictions", "url": "https://www.flickr.com/commons/usage/"},
    {"id": "11", "name": "CC BY 4.0", "url": f"{DEED}/by/4.0/"},
]
ALWAYS = ("id", "owner", "secret", "server", "farm", "title", "ispublic", "isfriend", "isfamily")
EXTRAS = {
    "date_upload": ("dateupload",),
    "date_taken": ("datetaken", "datetakengranularity", "datetakenunknown"),
    "license": ("license",),
    "owner_name": ("ownername",),
    "geo": ("latitude", "longitude"),
    **{name: (name,) for name in ("description", "tags", "media")},
    **{f"url_{size}": (f"url_{size}", f"height_{size}", f"width_{size}") for size in "sqtmnzclo"},
}
Query = dict[str, str]


def photo(number: int, uploaded: int, licence: int = 4, **more: Any) -> dict[str, Any]:
    """One photo, with all extras."""
    return {
        "id": str(5_000_000_000 + number),
        "owner": "39089491@N00",
        "secret": "0123456789",
        "server": "65535",
        "farm": 66,
        "ispublic": 1,
        "isfriend": 0,
        "isfamily": 0,
        "ownername": "nino",
        "title": f"photo {number}",
        "description": {"_content": "a\nb"},
        "dateupload": str(uploaded),
        "datetaken": "2011-03-01 10:00:00",
        "datetakengranularity": 0,
        "datetakenunknown": "0",
        "license": str(licence),
        "tags": "red bicycle,shop",
        "latitude": "50.5",
        "longitude": "8.25",
        "media": "photo",
        "url_m": f"https://live.staticflickr.com/{number}_m.jpg",
        **more,
    }


class FlickrServer(StandIn):
    """lie: true total → reported total. lossy: windows longer than this many seconds return only every second photo.
    fail: number of a search → raw answer instead (status, body)."""

    RULES: ClassVar[tuple[str, ...]] = (
        "a page has 100 photos unless per_page says otherwise",
        "a page has at most 500 photos",
        "page counts from 1 and is 1 unless asked for",
        "photos at min_upload_date are returned",
        "photos at max_upload_date are returned",
        "license has several ids, separated by commas",
        "the latest photo comes first unless sort says otherwise",
        "media: photos leaves videos out",
        "only the first 4,000 results are returned",
        "a photo has the extras that were asked for and no others",
        "a key that is not valid is error 100",
        "a search without a limit is error 3",
        "an unknown method is error 112",
        "an answer is JSON only with format=json",
        "JSON is wrapped in a function unless nojsoncallback=1",
    )

    def __init__(
        self,
        photos: list[dict[str, Any]],
        lie: Callable[[int], int] = lambda n: n,
        lossy: int | None = None,
        fail: dict[int, tuple[int, bytes]] | None = None,
        broken: str = "",
    ) -> None:
        super().__init__(broken)
        self.queries: list[Query] = []
        self.licence_queries = 0
        self.fail, self.key = fail or {}, "secret-key"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer; of two, the second waits 40 ms for the receipt of the first

            def do_GET(self) -> None:
                query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
                fault = None
                if query.get("method") == "flickr.photos.licenses.getInfo":
                    outer.licence_queries += 1
                else:
                    outer.queries.append(query)
                    fault = outer.fail.get(len(outer.queries))
                status, body = fault or (200, outer.written(query))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.photos, self.lie, self.lossy = photos, lie, lossy
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}/services/rest/"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()

    def written(self, query: Query) -> bytes:
        """An answer in the format that was asked for."""
        if query.get("format") != "json" and self.keeps("an answer is JSON only with format=json"):
            return b'<?xml version="1.0" encoding="utf-8" ?>\n<rsp stat="ok"></rsp>'
        text = json.dumps(self.answer(query))
        if query.get("nojsoncallback") != "1" and self.keeps("JSON is wrapped in a function unless nojsoncallback=1"):
            text = f"jsonFlickrApi({text})"
        return text.encode()

    def answer(self, query: Query) -> dict[str, Any]:
        """The document of a method."""
        method = query.get("method", "")
        if query.get("api_key") != self.key and self.keeps("a key that is not valid is error 100"):
            return failed(100, f"Invalid API Key (Key has invalid format) {query.get('api_key')}")
        if method == "flickr.photos.licenses.getInfo":
            return {"licenses": {"license": LICENCES}, "stat": "ok"}
        if method != "flickr.photos.search" and self.keeps("an unknown method is error 112"):
            return failed(112, f'Method "{method}" not found')
        limits = ("min_upload_date", "max_upload_date", "text", "tags", "user_id")
        if not any(name in query for name in limits) and self.keeps("a search without a limit is error 3"):
            return failed(3, "Parameterless searches have been disabled. Please use flickr.photos.getRecent instead.")
        hits = self.hits(query)
        total = len(hits)
        first, last = (int(query.get(f"{end}_upload_date", 0)) for end in ("min", "max"))
        if self.lossy is not None and last - first >= self.lossy:
            hits = hits[::2]
        if self.keeps("only the first 4,000 results are returned"):
            hits = hits[:CEILING]
        usual = 100 if self.keeps("a page has 100 photos unless per_page says otherwise") else 50
        most = 500 if self.keeps("a page has at most 500 photos") else 1000
        size = min(int(query.get("per_page", usual)), most)
        counted = 0 if self.keeps("page counts from 1 and is 1 unless asked for") else 1
        page = max(1, int(query.get("page", 1)) + counted)
        pages = max(1, -(-len(hits) // size))
        start = (min(page, pages) - 1) * size
        listed = [self.shown(one, query) for one in hits[start : start + size]]
        about = {"page": page, "pages": pages, "perpage": size, "total": self.lie(total)}
        return {"photos": {**about, "photo": listed}, "stat": "ok"}

    def hits(self, query: Query) -> list[dict[str, Any]]:
        """The photos of a query, in its order."""
        after = 0 if self.keeps("photos at min_upload_date are returned") else 1
        before = 0 if self.keeps("photos at max_upload_date are returned") else 1
        low, high = int(query.get("min_upload_date", 0)) + after, int(query.get("max_upload_date", 1 << 40)) - before
        licences = query["license"].split(",") if "license" in query else None
        if licences and not self.keeps("license has several ids, separated by commas"):
            licences = licences[:1]
        stills = query.get("media") == "photos" and self.keeps("media: photos leaves videos out")
        hits = [
            one
            for one in self.photos
            if (not str(one["dateupload"]).isdigit() or low <= int(one["dateupload"]) <= high)
            and (licences is None or one.get("elsewhere") or str(one["license"]) in licences)
            and not (stills and one["media"] == "video")
        ]
        latest = self.keeps("the latest photo comes first unless sort says otherwise")
        if query.get("sort", "date-posted-desc" if latest else "date-posted-asc") == "date-posted-desc":
            hits = hits[::-1]
        return hits

    def shown(self, one: dict[str, Any], query: Query) -> dict[str, Any]:
        """The fields of a photo that an answer has."""
        if not self.keeps("a photo has the extras that were asked for and no others"):
            return one
        names = {*ALWAYS, *(field for extra in query.get("extras", "").split(",") for field in EXTRAS.get(extra, ()))}
        return {name: value for name, value in one.items() if name in names}


def failed(code: int, message: str) -> dict[str, Any]:
    """An error as the API reports it: with status 200."""
    return {"stat": "fail", "code": code, "message": message}
