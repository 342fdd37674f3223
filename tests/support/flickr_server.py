"""A loopback server that speaks Flickr's search, with its habits: a ceiling, repeated pages, totals that lie."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CEILING = 4000


def photo(number: int, uploaded: int, licence: int = 4, **more: Any) -> dict[str, Any]:
    """One photo as the API lists it."""
    return {
        "id": str(5_000_000_000 + number),
        "owner": "39089491@N00",
        "ownername": "nino",
        "title": f"photo {number}",
        "description": {"_content": "a\nb"},
        "dateupload": str(uploaded),
        "datetaken": "2011-03-01 10:00:00",
        "datetakenunknown": "0",
        "license": str(licence),
        "tags": "red bicycle,shop",
        "latitude": "50.5",
        "longitude": "8.25",
        "media": "photo",
        "url_m": f"https://live.staticflickr.com/{number}_m.jpg",
        **more,
    }


class FlickrServer:
    """lie: true total → reported total. lossy: windows longer than this many seconds return only every second photo.
    fail: request number → raw answer instead (status, body)."""

    def __init__(
        self,
        photos: list[dict[str, Any]],
        lie: Callable[[int], int] = lambda n: n,
        lossy: int | None = None,
        fail: dict[int, tuple[int, bytes]] | None = None,
    ) -> None:
        self.queries: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
                outer.queries.append(query)
                status, body = (fail or {}).get(len(outer.queries)) or (200, json.dumps(outer.answer(query)).encode())
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
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, query: dict[str, str]) -> dict[str, Any]:
        """One page of a search."""
        if query["api_key"] != "secret-key":
            return {"stat": "fail", "code": 100, "message": f"Invalid API Key {query['api_key']}"}
        low, high = int(query["min_upload_date"]), int(query["max_upload_date"])
        licences = query["license"].split(",")
        hits = [p for p in self.photos if not str(p["dateupload"]).isdigit() or low <= int(p["dateupload"]) <= high]
        hits = [p for p in hits if p["license"] in licences]
        total = len(hits)
        if self.lossy is not None and high - low >= self.lossy:
            hits = hits[::2]
        size, page = int(query["per_page"]), int(query["page"])
        hits = hits[:CEILING]
        pages = max(1, -(-len(hits) // size))
        start = (min(page, pages) - 1) * size  # past the end, the last page comes again
        listed = hits[start : start + size]
        return {"stat": "ok", "photos": {"page": page, "pages": pages, "total": str(self.lie(total)), "photo": listed}}
