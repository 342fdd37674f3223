"""A loopback server that speaks the part of MediaWiki's Action API that lists files by upload time, and its rules.

It refuses programs without a contact, sorts that do not go with aistart, cursors that it did not give, and more than a
number of queries at once; it may lag.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


def file(number: int, uploaded: int, **more: Any) -> dict[str, Any]:
    """One file as the API lists it."""
    name = f"Bicycle_{number}.jpg"
    return {
        "name": name,
        "timestamp": datetime.fromtimestamp(uploaded, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
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
        "ns": 6,
        "title": f"File:{name.replace('_', ' ')}",
        **more,
    }


class WikimediaServer:
    """page: files of a page. fail: number of a query → raw answer instead (status, headers, body). cursor: instead of
    the next page's."""

    def __init__(
        self,
        files: list[dict[str, Any]],
        page: int = 500,
        fail: Mapping[int, tuple[int, dict[str, str], bytes]] | None = None,
        cursor: Any = None,
    ) -> None:
        self.files, self.page, self.cursor = files, page, cursor
        self.queries: list[dict[str, str]] = []
        self.busy = self.most = 0
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
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
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, query: dict[str, str], agent: str) -> tuple[int, dict[str, str], bytes]:
        """One page of the list."""
        if "@" not in agent and "http" not in agent:
            return 403, {}, b"Please set a user-agent and respect our robot policy"
        if query.get("aisort") != "timestamp":
            return error("badparams", "aistart can only be used with aisort=timestamp")
        if "maxlag" not in query or int(query["ailimit"]) > 500:
            return error("toomany", "ailimit may not be over 500")
        low, high = query["aistart"], query["aiend"]
        hits = sorted((f for f in self.files if low <= str(f.get("timestamp")) <= high), key=lambda f: f["timestamp"])
        start = 0
        if "aicontinue" in query:
            known = [i for i, f in enumerate(hits) if token(f) == query["aicontinue"]]
            if not known or query.get("continue") != "-||":
                return error("badcontinue", "Invalid continue param.")
            start = known[0]
        document: dict[str, Any] = {"batchcomplete": True, "query": {"allimages": hits[start : start + self.page]}}
        if self.cursor is not None:
            document["continue"] = self.cursor
        elif start + self.page < len(hits):
            document["continue"] = {"aicontinue": token(hits[start + self.page]), "continue": "-||"}
        return 200, {}, json.dumps(document).encode()


def token(one: Mapping[str, Any]) -> str:
    """The cursor that leads to a file."""
    return f"{one['timestamp']}|{one['name']}"


def error(code: str, info: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """An error as the API reports it: with status 200."""
    return 200, headers, json.dumps({"error": {"code": code, "info": info}}).encode()
