"""A loopback server of JSON documents by path, as museums serve IIIF: with redirects, limits and errors."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]


class DocumentServer:
    """documents: path → a document, raw reply (status, headers, body), or function of the number of the request, from
    1, that returns one of these. Others are not found."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        self.agents: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer; of two, the second waits 40 ms for the receipt of the first

            def do_GET(self) -> None:
                outer.asked[self.path] += 1
                outer.agents.add(self.headers.get("User-Agent", ""))
                status, headers, body = outer.reply(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def reply(self, path: str) -> Reply:
        """What a path is answered with."""
        found = self.documents.get(path, (404, {}, b"not here"))
        if callable(found):
            found = found(self.asked[path])
        return (
            found
            if isinstance(found, tuple)
            else (200, {"Content-Type": "application/ld+json"}, json.dumps(found).encode())
        )

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()
