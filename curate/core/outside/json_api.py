"""JSON APIs of other people: one request at a time, a steady rate, and pauses as long as the server asks for.

The size of a document is limited, and halves of surrogate pairs, which no file can hold, are replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.outside.http import AGAIN, LARGEST, Client, Policy, PrivateAddress, Reply, Temporary, repeat

REDIRECTS = 5
PRIVATE = "private_address"


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    document: Any
    """the JSON document; None if there is a fault"""
    fault: str = ""
    """http_404, not_json, too_large, private_address, …; "" for a document"""


class JsonApi:
    """A client that never asks twice at once.

    name: of the service, for messages. rate: requests an hour. headers: of every request. busy: a document → why the
    same request must be sent again later, "" if it need not. refused: whether a URL must not be requested, by its text
    (IP address "") and by the IP address of its host. odd_again: whether a fault is no answer, but a reason to ask
    again. secret: a key, which no message holds.
    """

    def __init__(
        self,
        name: str,
        rate: int,
        headers: Mapping[str, str],
        busy: Callable[[Any], str] = lambda document: "",
        refused: Callable[[str, str], bool] = lambda url, address: False,
        odd_again: bool = False,
        secret: str = "",
    ) -> None:
        accept = {"Accept": "application/json, application/ld+json", "Accept-Encoding": "gzip"}
        self._name, self._busy, self._refused, self._odd_again = name, busy, refused, odd_again
        self._client = Client({**accept, **headers}, secret, rate / 3600, refused=refused)
        self._policy = Policy(first=3 * 3600 / rate, longest=180 * 3600 / rate)  # limits are often of a minute

    def get(self, url: str, fields: Mapping[str, str] | None = None) -> Answer:
        """The document at an address; redirects are followed. Raises DriftlineError after too many temporary failures,
        and if the server asks to wait for too long."""
        try:
            return repeat(lambda: self._once(url, fields), self._policy)
        except Temporary as failure:
            raise self._policy.error(
                self._name, failure, "Run the same command again later: finished pages are kept."
            ) from None

    def _once(self, url: str, fields: Mapping[str, str] | None) -> Answer:
        for _ in range(REDIRECTS):
            if urlsplit(url).scheme not in ("http", "https"):
                return Answer(None, "malformed_url")
            if self._refused(url, ""):
                return Answer(None, PRIVATE)
            try:
                reply = self._client.send("GET", url, fields)
            except BadConfig:
                return Answer(None, "malformed_url")
            except PrivateAddress:
                return Answer(None, PRIVATE)
            if reply.status not in (301, 302, 303, 307, 308) or not reply.headers.get("Location"):
                answer = self.read(reply)
                if answer.fault and self._odd_again:
                    raise reply.again(answer.fault)
                return answer
            url, fields = urljoin(url, reply.headers["Location"]), None
        return Answer(None, "redirect_loop")

    def read(self, reply: Reply) -> Answer:
        """What a reply says. Raises Temporary."""
        if reply.status in AGAIN:
            raise reply.again(f"status {reply.status}")
        if reply.status != 200:
            return Answer(None, f"http_{reply.status}")
        if len(reply.body) > LARGEST:
            return Answer(None, "too_large")
        try:
            document = whole(json.loads(reply.body.decode("utf-8-sig")))
        except (ValueError, RecursionError):
            return Answer(None, "not_json")
        if reason := self._busy(document):
            raise reply.again(self._client.hidden(reason))
        return Answer(document)


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
