"""Requests to Prolific's API: token, lists page by page, and what is certain of a request that failed.

After the "Prolific API for Data Collectors" 1.0.0, https://docs.prolific.com/openapi.json (copies of July to October
2026), with its pages "List submissions" (page, page_size: 20 unless asked, no largest one; ordering), "API
fundamentals" (statuses) and "Managing high loads" (no fixed limits; 429 passes: wait longer each time). Totals of lists
and what comes after their last page are not in the document: nothing here depends on them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from urllib.parse import urlencode

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished, shortened
from driftline.curate.core.outside.http import Client, Policy, Reply, Temporary

ENDPOINT, TOKEN = "https://api.prolific.com", "PROLIFIC_TOKEN"
PAGE = 100  # entries of a page that are asked for
TRIES, BACKOFF = 5, 1.0
LARGEST = 256 << 20  # bytes of one answer: all responses of a batch come in one
UNSURE = frozenset({408, 409, 425})  # refusals after which a request was perhaps carried out
GO_ON = "The same command continues."


class Open(Unfinished):
    """Nobody knows whether Prolific carried out a request."""


class Service:
    """Calls to the API: token, retries of what may be repeated, errors as one sentence."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        """Raises BadConfig without a token in the environment."""
        token = os.environ.get(TOKEN, "").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise BadConfig(
                f"The variable {TOKEN} holds no token.", "Expected Prolific's API token.", f"Export {TOKEN}."
            )
        self.endpoint = endpoint.rstrip("/")
        self._client = Client(secret=token, timeout=30.0, largest=LARGEST)
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None, absent: Any = None) -> Any:
        """The document of one call. GET is repeated after 5xx and lost connections, everything after 429.

        absent: what to return for 404. Raises Open if a POST was perhaps carried out; after every other error it was
        not: BadConfig for the token, Unfinished where the service is out of order, DriftlineError for a refusal.
        """

        def document(reply: Reply) -> Any:
            if reply.status == 404 and absent is not None:
                return absent
            if reply.status >= 300:
                raise self._refused(method, path, reply.status, reply.body)
            if len(reply.body) > LARGEST:
                raise BadInput(f"Prolific's answer to {path} is too large.", f"Expected at most {LARGEST:,} bytes.")
            try:
                value = json_value(reply.body) if reply.body else {}
            except (ValueError, RecursionError):
                raise _unclear(method)(f"Prolific's answer to {path} is not JSON.", "", GO_ON) from None
            if isinstance(value, dict) and value.get("error"):
                text = self._client.hidden(shortened(json.dumps(value["error"])))
                raise _unclear(method)(f"Prolific's answer to {path} has an error inside: {text}", "", GO_ON)
            return value

        data = None if body is None else json.dumps(body).encode()
        return self._asked(method, f"{self.endpoint}/api/v1{path}", path, document, data, self._headers)

    def _asked(
        self, method: str, url: str, path: str, read: Callable[[Reply], Any], body: Any, headers: Mapping[str, str]
    ) -> Any:
        policy = Policy(TRIES, BACKOFF)
        try:
            return self._client.ask(method, url, read, policy, body=body, headers=headers)
        except Temporary as failure:
            problem = f"Prolific did not answer {method} {path} ({failure})."
            if failure.wait > policy.patience:
                problem = f"Prolific asks to wait for {failure.wait:,.0f} seconds ({method} {path}, {failure})."
            raise (Unfinished if failure.sure else Open)(problem, "", GO_ON) from None

    def _refused(self, method: str, path: str, status: int, data: bytes) -> DriftlineError:
        if status in (401, 403):
            return BadConfig(
                f"Prolific refuses the token of {TOKEN} (HTTP {status}).",
                "Expected one of the workspace.",
                f"Export another one. {GO_ON}",
            )
        text = self._client.hidden(data.decode("utf-8", "replace"))
        problem = f"Prolific answers {method} {path} with HTTP {status}: {shortened(text)}"
        if 400 <= status < 500 and status not in UNSURE:
            return DriftlineError(problem)
        return _unclear(method)(problem, "", GO_ON)

    def upload(self, address: str, data: bytes, kind: str) -> None:
        """PUT to a signed address, without the token."""

        def stored(reply: Reply) -> None:
            if reply.status >= 300:
                raise Unfinished(f"The upload ended with HTTP {reply.status}.", "", GO_ON)

        self._asked("PUT", address, "the images", stored, data, {"Content-Type": kind})

    def all(self, path: str, total: int | None = None, **query: str) -> list[dict[str, Any]]:
        """Every entry of a list, page by page; query: filters and order.

        total: entries that the service counts. None: it counts none, and perhaps has no pages; the list ends where a
        page brings nothing new. Raises Unfinished for a page that is repeated or missing.
        """
        entries = dict[str, dict[str, Any]]()
        for number in count(1):
            if total is not None and len(entries) >= total:
                break
            address = f"{path}?{urlencode({**query, 'page': number, 'page_size': PAGE})}"
            results = self.call("GET", address, absent={"results": []} if number > 1 else None)["results"]
            fresh = {entry["id"]: entry for entry in results}
            new = fresh.keys() - entries.keys()
            if total is None and not new:
                break
            if total is not None and (not results or len(new) < len(results)):
                what = "repeats entries" if results else "is empty"
                problem = f"{what} on page {number}, after {len(entries):,} of {total:,} entries"
                raise Unfinished(f"Prolific's list {path} {problem}.", "", "The same command reads it again.")
            entries |= fresh
        return list(entries.values())


def _unclear(method: str) -> type[Unfinished]:
    return Open if method == "POST" else Unfinished
