"""Zenodo on loopback: the documented requests of a deposit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.hub_server import TOKEN
from support.serving import serving


class Zenodo:
    """The state of one deposit, number 7."""

    def __init__(self) -> None:
        self.address = ""
        self.files: dict[str, bytes] = {}
        self.metadata: dict[str, Any] = {}
        self.published = False
        self.fault = 0  # status of the request that sets the metadata


@contextmanager
def zenodo() -> Iterator[Zenodo]:
    """A running stand-in."""
    state = Zenodo()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = self.reply(body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = handle_one

        def reply(self, body: bytes) -> tuple[int, Any]:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" or TOKEN in self.path:
                return 401, {}
            home = "/api/deposit/depositions"
            if self.path.startswith("/bucket/"):
                state.files[self.path.removeprefix("/bucket/")] = body
                return 201, {}
            if self.command == "PUT" and self.path == f"{home}/7":
                if state.fault:
                    return state.fault, {}
                state.metadata = json.loads(body)["metadata"]
                return 200, {}
            if self.path == f"{home}/7/actions/publish":
                state.published = True
                return 202, {}
            if (self.command, self.path) in (("POST", home), ("GET", f"{home}/7")):
                files = [
                    {"filename": name, "checksum": f"md5:{hashlib.md5(data).hexdigest()}"}
                    for name, data in state.files.items()
                ]
                doi = {"prereserve_doi": {"doi": "10.5281/zenodo.7"}}
                links = {"bucket": f"{state.address}/bucket"}
                return 201, {"id": 7, "submitted": False, "files": files, "metadata": doi, "links": links}
            return 404, {}

    with serving(Handler) as address:
        state.address = address
        yield state
