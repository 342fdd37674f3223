"""Requests to servers of other people: deadlines, repetitions, pauses as long as a server asks, nothing secret said.

Redirects are not followed: no server leads a request, and the key in it, to another one.

Not through `Client`: images, thousands at once, each from another host (`fetch`: aiohttp, or img2dataset, which has its
own requests); S3 and the Hugging Face Hub, whose libraries sign and resume.
They use `seconds_after` and `Policy` where the library leaves the pauses to its caller.
"""

import math
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any, TypeVar
from urllib.parse import quote

from driftline.curate.core.errors import BadConfig, DriftlineError, Unfinished, shortened, without_secrets

T = TypeVar("T")
LARGEST = 32 << 20  # bytes of one answer
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # statuses that another request may change
YEAR = 366 * 86_400.0
PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_HOST = r"[a-z0-9_.-]+|\[[0-9a-f:.]+\]"
_ADDRESS = re.compile(r"(?ai)(https?)://(\[[^]/?#@]+\]|[^/?#@:[]+)(?::0*([1-9][0-9]{0,4}))?([/?][^#]*)?(#.*)?")


def one_address(url: str) -> str | None:
    """The form in which a web address is requested and compared; None for what is none, or names a user.

    Scheme and host are in lower case, the host by IDNA [UTS 46], without the scheme's own port and the fragment. Path
    and query are percent-encoded UTF-8 where they are not printable ASCII; what is stays as it is, also its escapes.

    >>> one_address("HTTPS://ÖX.de:443/a b%2Fc.jpg#x"), one_address("https://h/a.jpg"), one_address("https://u:p@h/a.jpg")
    ('https://xn--x-0ga.de/a%20b%2Fc.jpg', 'https://h/a.jpg', None)
    """
    match = _ADDRESS.fullmatch(url)
    if match is None or re.search(r"[\x00-\x1f\x7f]", url):
        return None
    scheme, host, port, rest = match[1].lower(), match[2].lower(), int(match[3] or 0), match[4] or ""
    if not host.isascii():
        from yarl import URL  # of aiohttp, which requests addresses

        try:
            host = URL.build(scheme=scheme, host=host).raw_host or ""
        except ValueError:
            return None
    if port > 0xFFFF or not re.fullmatch(_HOST, host):
        return None
    shown = f":{port}" if port not in (0, {"http": 80, "https": 443}[scheme]) else ""
    return f"{scheme}://{host}{shown}{quote(rest, safe=PRINTABLE, errors='surrogatepass')}"


class Temporary(Exception):
    """The request may succeed later. args: the reason."""

    def __init__(self, reason: str, wait: float = 0.0, sure: bool = True) -> None:
        """wait: seconds that the server asks to wait. sure: whether nothing was done, or may be done twice."""
        super().__init__(reason)
        self.wait, self.sure = wait, sure


@dataclass(frozen=True)
class Policy:
    """How often a request is repeated, and after which pauses."""

    tries: int = 6
    """requests at most"""
    first: float = 1.0
    """seconds before the second request; doubling, and up to a quarter more, so that clients do not come together"""
    longest: float = 60.0
    """the longest pause of its own, seconds"""
    patience: float = 600.0
    """the longest pause that a server may ask for, seconds; after a longer one there is no further request"""

    def pause(self, attempt: int, failure: Temporary) -> float | None:
        """Seconds before the request after `attempt` (from 0); None: there is none."""
        if attempt + 1 >= self.tries or failure.wait > self.patience or not failure.sure:
            return None
        own = min(self.first * 2.0 ** min(attempt, 60), self.longest) * random.uniform(1.0, 1.25)  # of no output
        return max(failure.wait, own)

    def error(self, name: str, failure: Temporary, way_out: str) -> DriftlineError:
        """What to raise where a service has not answered."""
        if failure.wait > self.patience:
            return DriftlineError(f"{name} asks to wait for {failure.wait:,.0f} seconds ({failure}).", "", way_out)
        return DriftlineError(f"{name} did not answer {self.tries} times in a row ({failure}).", "", way_out)


def repeat(once: Callable[[], T], policy: Policy) -> T:
    """What `once` returns; it is called again after Temporary. Raises the last Temporary."""
    for attempt in count():
        try:
            return once()
        except Temporary as failure:
            if (pause := policy.pause(attempt, failure)) is None:
                raise
            time.sleep(pause)
    raise AssertionError


def seconds_after(value: str | None, most: float = 120.0) -> float:
    """Retry-After, seconds or a date [RFC 9110, 10.2.3] → seconds from now, at most `most`; 0 without a valid one.

    >>> seconds_after("3"), seconds_after("9" * 400), seconds_after("soon"), seconds_after("nan"), seconds_after(None)
    (3.0, 120.0, 0.0, 0.0, 0.0)
    """
    if value is None:
        return 0.0
    try:
        wait = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, TypeError, OverflowError):
            return 0.0
        wait = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return min(max(wait, 0.0), most) if wait == wait else 0.0


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """at most `largest` bytes and one"""

    def again(self, reason: str) -> Temporary:
        """The error by which the request is repeated."""
        return Temporary(reason, seconds_after(self.headers.get("Retry-After"), YEAR))


class Client:
    """A client of one service.

    headers: of every request. secret: a key, which no message holds. rate: requests a second. timeout: seconds without
    a byte. deadline: seconds for a whole answer. largest: bytes of an answer. connections: threads that use it.
    """

    def __init__(
        self, headers: Mapping[str, str] | None = None, secret: str = "", rate: float = math.inf,
        timeout: float = 60.0, deadline: float = 300.0, largest: int = LARGEST, connections: int = 1,
    ) -> None:  # fmt: skip
        import urllib3

        self._headers, self._secret, self._deadline, self._largest = dict(headers or {}), secret, deadline, largest
        self._between, self._next = 1 / rate, 0.0
        limits = urllib3.Timeout(connect=min(10.0, timeout), read=timeout)
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False, timeout=limits)

    def send(
        self, method: str, url: str, fields: Mapping[str, str] | None = None, body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:  # fmt: skip
        """One request; a redirect is an answer. Raises Temporary for a connection that fails, is lost or takes longer
        than the deadline, BadConfig for what is no address."""
        from urllib3.exceptions import HTTPError, LocationValueError

        if self._between:
            time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + self._between
        end = time.monotonic() + self._deadline
        parts: list[bytes] = []
        size = 0
        if hasattr(body, "seek"):
            body.seek(0)
        try:
            answer = self._pool.request(
                method, url, fields=dict(fields or {}) or None, body=body, headers={**self._headers, **(headers or {})},
                redirect=False, preload_content=False,
            )  # fmt: skip
            try:
                while size <= self._largest and (part := answer.read1(1 << 16, decode_content=True)):
                    if time.monotonic() > end:
                        raise TimeoutError
                    parts.append(part)
                    size += len(part)
            finally:
                answer.release_conn() if size <= self._largest else answer.close()
        except LocationValueError:
            raise BadConfig(f"{self.hidden(shortened(url, 200))!r} is no URL.", "Expected http(s)://….") from None
        except (HTTPError, OSError) as error:
            raise Temporary(type(error).__name__, sure=method != "POST") from None
        return Reply(answer.status, answer.headers, b"".join(parts)[: self._largest + 1])

    def ask(self, method: str, url: str, read: Callable[[Reply], T], policy: Policy, **request: Any) -> T:
        """What `read` returns of the first answer that is not temporary; it may raise `Reply.again`, too. A POST is
        repeated only after 429, because it was carried out perhaps. Raises the last Temporary, and as `send`."""

        def once() -> T:
            reply = self.send(method, url, **request)
            if reply.status in AGAIN and (method != "POST" or reply.status == 429):
                raise reply.again(f"status {reply.status}")
            return read(reply)

        return repeat(once, policy)

    def hidden(self, text: str) -> str:
        """The text without the secret, and without user and password of an address."""
        text = without_secrets(text)
        for form in {self._secret, quote(self._secret, safe="")} - {""}:
            text = text.replace(form, "…")
        return text


def limit_hub() -> None:
    """Let `huggingface_hub`, which sleeps for as long as a server asks, raise Unfinished where that is longer than
    `Policy.patience`, from now on."""
    from huggingface_hub import get_session

    session = get_session()
    hooks = session.event_hooks
    if _not_longer not in hooks["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _not_longer]}


def _not_longer(response: Any) -> None:
    """Look at Retry-After, and at `t` of the header RateLimit [draft-ietf-httpapi-ratelimit-headers]."""
    limits = re.findall(r"\bt=(\d+)", response.headers.get("RateLimit", ""))
    wait = max(seconds_after(value, YEAR) for value in (response.headers.get("Retry-After"), *limits))
    if response.status_code >= 400 and wait > Policy().patience:
        problem = f"The Hub asks to wait for {wait:,.0f} seconds (status {response.status_code})."
        raise Unfinished(problem, "", "Run the same command again later: it continues.")
