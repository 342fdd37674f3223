"""JSON APIs of other people: one request at a time, a steady rate, and pauses as long as the server asks for.

The size of a document is limited, and halves of surrogate pairs, which no file can hold, are replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from time import monotonic, sleep, time
from typing import Any
from urllib.parse import urljoin, urlsplit

from curate.core.errors import DriftlineError
from curate.core.outside.names import is_count

ATTEMPTS = 6
LARGEST = 32 << 20  # bytes of one answer
LONGEST_WAIT = 600.0  # seconds that a server may ask to wait
REDIRECTS = 5
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
PRIVATE = "private_address"


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    document: Any
    """the JSON document; None if there is a fault"""
    fault: str = ""
    """http_404, not_json, too_large, private_address, …; "" for a document"""


def agent(contact: str) -> str:
    """The User-Agent header: who asks, and how the owner of the server reaches them."""
    try:
        number = version("driftline")
    except PackageNotFoundError:  # run from a folder
        number = "0"
    return f"driftline/{number} ({contact}) urllib3"


class JsonApi:
    """A client that never asks twice at once.

    name: of the service, for messages. rate: requests an hour. headers: of every request. busy: a document → why the
    same request must be sent again later, "" if it need not. refused: whether a URL must not be requested.
    """

    def __init__(
        self,
        name: str,
        rate: int,
        headers: Mapping[str, str],
        busy: Callable[[Any], str] = lambda document: "",
        refused: Callable[[str], bool] = lambda url: False,
    ) -> None:
        import urllib3

        self._name, self._pause, self._next = name, 3600 / rate, 0.0
        self._headers = {"Accept": "application/json, application/ld+json", "Accept-Encoding": "gzip", **headers}
        self._busy, self._refused = busy, refused
        self._pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=10, read=60))

    def get(self, url: str, fields: Mapping[str, str] | None = None) -> Answer:
        """The document at an address; redirects are followed. Raises DriftlineError after ATTEMPTS temporary failures,
        and if the server asks to wait for longer than LONGEST_WAIT."""
        failure = ""
        for attempt in range(ATTEMPTS):
            answer, failure, wait = self._once(url, fields)
            if answer is not None:
                return answer
            if wait > LONGEST_WAIT:
                raise DriftlineError(
                    f"{self._name} asks to wait for {wait:,.0f} seconds ({failure}).", "",
                    "Run the same command again later: finished pages are kept.",
                )  # fmt: skip
            if attempt + 1 < ATTEMPTS:
                sleep(max(wait, min(2.0**attempt, 60) * self._pause))
        raise DriftlineError(
            f"{self._name} did not answer {ATTEMPTS} times in a row ({failure}).",
            "Expected JSON.",
            "Run the same command again later: finished pages are kept.",
        )

    def _once(self, url: str, fields: Mapping[str, str] | None) -> tuple[Answer | None, str, float]:
        """(the answer or None, the temporary failure, seconds that the server asks to wait)."""
        import urllib3

        for _ in range(REDIRECTS):
            if urlsplit(url).scheme not in ("http", "https") or self._refused(url):
                return Answer(None, PRIVATE if urlsplit(url).scheme in ("http", "https") else "malformed_url"), "", 0.0
            sleep(max(0.0, self._next - monotonic()))
            self._next = monotonic() + self._pause
            try:
                reply = self._pool.request(
                    "GET", url, fields=dict(fields or {}), headers=self._headers, redirect=False, preload_content=False
                )
                body = reply.read(LARGEST + 1, decode_content=True)
                reply.release_conn()
            except urllib3.exceptions.LocationValueError:
                return Answer(None, "malformed_url"), "", 0.0
            except (urllib3.exceptions.HTTPError, OSError) as error:
                return None, type(error).__name__, 0.0
            if reply.status not in (301, 302, 303, 307, 308) or not reply.headers.get("Location"):
                return self._judged(reply.status, reply.headers, body)
            url, fields = urljoin(url, reply.headers["Location"]), None
        return Answer(None, "redirect_loop"), "", 0.0

    def _judged(self, status: int, headers: Mapping[str, str], body: bytes) -> tuple[Answer | None, str, float]:
        wait = _seconds(headers.get("Retry-After"))
        if status in TEMPORARY:
            return None, f"status {status}", wait
        if status != 200:
            return Answer(None, f"http_{status}"), "", 0.0
        if len(body) > LARGEST:
            return Answer(None, "too_large"), "", 0.0
        try:
            document = whole(json.loads(body.decode("utf-8-sig")))
        except (ValueError, RecursionError):
            return Answer(None, "not_json"), "", 0.0
        if reason := self._busy(document):
            return None, reason, wait
        return Answer(document), "", 0.0


def _seconds(text: str | None) -> float:
    """Retry-After, seconds or a date [RFC 9110, 10.2.3] → seconds from now."""
    if text is None:
        return 0.0
    if is_count(text.strip()):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, TypeError):
        return 0.0


def whole(value: Any) -> Any:
    """The document without halves of surrogate pairs."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text if text.isascii() else text.encode("utf-8", "replace"))


def text_of(value: Any) -> str | None:
    """Text without NUL and lone surrogates; None for empty text and for other types."""
    if not isinstance(value, str):
        return None
    clean = value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode().strip()
    return clean or None
