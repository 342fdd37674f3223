"""What stand-ins of services share: faults and an HTTP server.

A stand-in names its document and the day of reading. It ignores parameters that the document does not name. Those of
Flickr and the Hub, which cannot be asked in a test, have a contract (contracts/test_stand_ins.py).
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from support.serving import serving

EXAMPLES = Path(__file__).parents[1] / "fixtures" / "services"
Answer = tuple[int, Any, dict[str, str]]
Query = dict[str, str]


class StandIn:
    """faults: [method, pattern of the path, fault, times left]. A fault is a status; a document or bytes, answered with
    status 200; (status, document, headers); "drop", which cuts the connection before anything is done; "lose", which
    cuts it afterwards; or a function without arguments that is called before the request is carried out."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[tuple[str, str]] = []
        self.faults: list[list[Any]] = []

    def seen(self, headers: Any, body: bytes) -> None:
        """Called for every request, before its fault."""

    def fault(self, method: str, path: str) -> Any:
        """The fault of a request, which is used up; None without one."""
        for entry in self.faults:
            if entry[0] == method and re.search(entry[1], path) and entry[3] > 0:
                entry[3] -= 1
                return entry[2]
        return None

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        """Status, document (or bytes) and headers of the answer: 404 for what the stand-in does not know."""
        return 404, {"status": 404, "message": "not found"}, {}

    def planned(self, fault: Any) -> Answer | None:
        """The answer that a fault is; None for one that is none."""
        if isinstance(fault, tuple):
            return fault
        if isinstance(fault, int):
            return fault, {"status": fault, "message": "planned"}, {}
        return (200, fault, {}) if isinstance(fault, dict | list | bytes) else None


Service = TypeVar("Service", bound=StandIn)


@contextmanager
def serve(state: Service) -> Iterator[Service]:
    """The stand-in, answering on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer; of two, the second waits 40 ms for the client's receipt

        def log_message(self, *_: Any) -> None:
            pass

        def cut(self) -> None:
            self.close_connection = True
            self.connection.close()

        def handle_one(self) -> None:
            parts = urlsplit(self.path)
            path, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests.append((self.command, path))
            state.seen(self.headers, body)
            fault = state.fault(self.command, path)
            if fault == "drop":
                return self.cut()
            if callable(fault):
                fault()
            status, document, headers = state.planned(fault) or state.reply(
                self.command, path, query, self.headers, body
            )
            if fault == "lose":
                return self.cut()
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection |= "Content-Length" in headers  # the answer is cut
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_one

    with serving(Handler) as address:
        state.address = address
        yield state


def example(service: str, name: str) -> Any:
    """A recorded shape: an example of a service's document, with other values (fixtures/services/SERVICE.json)."""
    return json.loads((EXAMPLES / f"{service}.json").read_text())["examples"][name]


def check_shape(recorded: Any, answer: Any, where: str = "answer") -> None:
    """Raise AssertionError unless an answer has every field of a recorded one, of the same type."""
    assert type(answer) is type(recorded), f"{where} is {type(answer).__name__}, not {type(recorded).__name__}"
    if isinstance(recorded, dict):
        for name, value in recorded.items():
            assert name in answer, f"{where} has no {name!r}"
            check_shape(value, answer[name], f"{where}.{name}")
    elif isinstance(recorded, list) and recorded:
        for number, value in enumerate(answer):
            check_shape(recorded[0], value, f"{where}[{number}]")
