"""A stand-in of Flickr's REST API: photos.search and photos.licenses.getInfo, as published, and its habits.

Documents, read on 2026-11-27: flickr.com/services/api/flickr.photos.search.html (arguments, extras, errors, the first
4,000 results), flickr.photos.licenses.getInfo.html, response.json.html (jsonFlickrApi, stat), request.rest.html
(format), blog.flickr.net/en/2025/06/18/creative-commons-4-0-has-arrived-on-flickr. Arguments that they do not name are
ignored. Not documented, but met: past the last page the last one comes again, totals are not exact (`lie`), and large
windows give a part of their photos only (`lossy`).
"""

import json
from collections.abc import Callable
from typing import Any

from support.stand_ins import Answer, Query, StandIn, serve

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


def photo(number: int, uploaded: int, licence: int = 4, **more: Any) -> dict[str, Any]:
    """One photo, with all extras."""
    return {
        "id": str(5_000_000_000 + number), "owner": "39089491@N00", "ownername": "nino", "title": f"photo {number}",
        "secret": "0123456789", "server": "65535", "farm": 66, "ispublic": 1, "isfriend": 0, "isfamily": 0,
        "dateupload": str(uploaded), "datetaken": "2011-03-01 10:00:00", "datetakengranularity": 0,
        "datetakenunknown": "0", "license": str(licence), "description": {"_content": "a\nb"},
        "tags": "red bicycle,shop", "latitude": "50.5", "longitude": "8.25", "media": "photo",
        "url_m": f"https://live.staticflickr.com/{number}_m.jpg", **more,
    }  # fmt: skip


class FlickrServer(StandIn):
    """lie: true total → reported total. lossy: windows longer than this many seconds return only every second photo.
    fail: number of a search → raw answer instead (status, body)."""

    def __init__(
        self,
        photos: list[dict[str, Any]],
        lie: Callable[[int], int] = lambda n: n,
        lossy: int | None = None,
        fail: dict[int, tuple[int, bytes]] | None = None,
    ) -> None:
        super().__init__()
        self.queries: list[Query] = []
        self.licence_queries = 0
        self.fail, self.key = fail or {}, "secret-key"
        self.photos, self.lie, self.lossy = photos, lie, lossy
        self._running = serve(self)
        self._running.__enter__()
        self.address += "/services/rest/"

    def close(self) -> None:
        """Stop serving."""
        self._running.__exit__(None, None, None)

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        if query.get("method") == "flickr.photos.licenses.getInfo":
            self.licence_queries += 1
            return 200, self.written(query), {}
        self.queries.append(query)
        status, content = self.fail.get(len(self.queries)) or (200, self.written(query))
        return status, content, {}

    def written(self, query: Query) -> bytes:
        """An answer in the format that was asked for."""
        if query.get("format") != "json":
            return b'<?xml version="1.0" encoding="utf-8" ?>\n<rsp stat="ok"></rsp>'
        text = json.dumps(self.answer(query))
        if query.get("nojsoncallback") != "1":
            text = f"jsonFlickrApi({text})"
        return text.encode()

    def answer(self, query: Query) -> dict[str, Any]:
        """The document of a method."""
        method = query.get("method", "")
        if query.get("api_key") != self.key:
            return failed(100, f"Invalid API Key (Key has invalid format) {query.get('api_key')}")
        if method == "flickr.photos.licenses.getInfo":
            return {"licenses": {"license": LICENCES}, "stat": "ok"}
        if method != "flickr.photos.search":
            return failed(112, f'Method "{method}" not found')
        limits = ("min_upload_date", "max_upload_date", "text", "tags", "user_id")
        if not any(name in query for name in limits):
            return failed(3, "Parameterless searches have been disabled. Please use flickr.photos.getRecent instead.")
        hits = self.hits(query)
        total = len(hits)
        first, last = (int(query.get(f"{end}_upload_date", 0)) for end in ("min", "max"))
        if self.lossy is not None and last - first >= self.lossy:
            hits = hits[::2]
        hits = hits[:CEILING]
        size = min(int(query.get("per_page", 100)), 500)
        page = max(1, int(query.get("page", 1)))
        pages = max(1, -(-len(hits) // size))
        start = (min(page, pages) - 1) * size
        listed = [self.shown(one, query) for one in hits[start : start + size]]
        about = {"page": page, "pages": pages, "perpage": size, "total": self.lie(total)}
        return {"photos": {**about, "photo": listed}, "stat": "ok"}

    def hits(self, query: Query) -> list[dict[str, Any]]:
        """The photos of a query, in its order."""
        low, high = int(query.get("min_upload_date", 0)), int(query.get("max_upload_date", 1 << 40))
        licences = query["license"].split(",") if "license" in query else None
        stills = query.get("media") == "photos"
        hits = [
            one
            for one in self.photos
            if (not str(one["dateupload"]).isdigit() or low <= int(str(one["dateupload"])[:99]) <= high)
            and (licences is None or one.get("elsewhere") or str(one["license"]) in licences)
            and not (stills and one["media"] == "video")
        ]
        return hits[::-1] if query.get("sort", "date-posted-desc") == "date-posted-desc" else hits

    def shown(self, one: dict[str, Any], query: Query) -> dict[str, Any]:
        """The fields of a photo that an answer has."""
        names = {*ALWAYS, *(field for extra in query.get("extras", "").split(",") for field in EXTRAS.get(extra, ()))}
        return {name: value for name, value in one.items() if name in names}


def failed(code: int, message: str) -> dict[str, Any]:
    """An error as the API reports it: with status 200."""
    return {"stat": "fail", "code": code, "message": message}
