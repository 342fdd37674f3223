"""The native downloader: one event loop, kept connections, original bytes, limits over all of an answer."""

import asyncio
import math
import re
import socket
import ssl
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import aiohttp
from aiohttp import AddrInfoType
from yarl import URL

from driftline.curate.core.errors import without_secrets
from driftline.curate.fetch.address_guard import MESSAGE, Refused, guard, is_private_host, origin
from driftline.curate.fetch.outcome import PLACEHOLDER_URL, Download, opted_out
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.foreign.http import one_address, seconds_after

REDIRECTS = 5
AGENT = "driftline (image research; honours X-Robots-Tag and Retry-After)"
Keep = Callable[[int, Download], None]


def _session(settings: FetchSettings, redirected: bool) -> aiohttp.ClientSession:
    """A session that opens connections to permitted addresses only. redirected: to where other servers point."""
    refused = guard(settings.private_addresses, redirected)

    def permitted(address: AddrInfoType) -> socket.socket:
        if refused(str(address[4][0])):
            raise Refused(MESSAGE)
        return socket.socket(*address[:3])

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=settings.threads, limit_per_host=min(settings.per_host, settings.threads), socket_factory=permitted
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.timeout, sock_read=settings.timeout),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": AGENT, "Accept": "image/*,*/*;q=0.1", "Accept-Encoding": "identity"},
    )


@dataclass
class _Host:
    """The rate limit of one host, and how long its answers take."""

    free: float = 0.0
    """time of the next request, monotonic seconds"""
    waited: float = 0.0
    """seconds of waiting that it asked for since its last other answer"""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answers: int = 0
    seconds: float = 0.0
    """of all answers"""
    starts: list[float] = field(default_factory=list)
    """of requests in progress, monotonic seconds"""

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Measure a request."""
        start = time.monotonic()
        self.starts.append(start)
        try:
            yield
        finally:
            self.starts.remove(start)
            self.answers += 1
            self.seconds += time.monotonic() - start

    def is_slow(self, patience: float) -> bool:
        """Whether its requests, those in progress included, take more seconds, or it asked to wait for longer."""
        seconds = self.seconds + sum(time.monotonic() - start for start in self.starts)
        return self.waited > patience or seconds > patience * (self.answers + len(self.starts))

    async def turn(self, rate: float | None) -> None:
        """Wait until this host may be requested. rate: requests a second."""
        if rate is None and self.free == 0.0:
            return
        async with self.lock:
            wait = self.free - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if rate is not None:
                self.free = max(self.free, time.monotonic()) + 1 / rate

    def pause(self, seconds: float) -> None:
        """Make the next request wait, because the host asked for it (Retry-After)."""
        end, before = time.monotonic() + seconds, max(self.free, time.monotonic())
        self.waited += max(end - before, 0.0)
        self.free = max(self.free, end)


@dataclass
class _Client:
    """What the requests of one shard share."""

    settings: FetchSettings
    named: aiohttp.ClientSession
    """for the addresses of the collection"""
    redirected: aiohttp.ClientSession
    """for addresses that other servers name"""
    connections: asyncio.Semaphore
    """a request in progress takes one; a host that lets us wait takes none"""
    hosts: dict[str, _Host] = field(default_factory=lambda: defaultdict(_Host))


async def download(
    rows: Sequence[tuple[int, str]], settings: FetchSettings, keep: Keep, patience: float = math.inf
) -> set[str]:
    """Request every (row, url) once; `keep(row, outcome)` is called exactly once for each, in order of arrival, except
    for the rest of the rows of slow hosts. Returns these hosts.

    patience: a host is slow if an answer takes more seconds, on average, or if it asks to wait for longer.
    """
    queues: dict[str, deque[tuple[int, str]]] = defaultdict(deque)
    for row, url in rows:
        queues[host_of(url)].append((row, url))
    slow: set[str] = set()
    async with _session(settings, False) as named, _session(settings, True) as redirected:
        client = _Client(settings, named, redirected, asyncio.Semaphore(settings.threads))

        async def serve(queue: deque[tuple[int, str]]) -> None:
            while queue:
                row, url = queue.popleft()
                keep(row, await _one(client, url))

        async def watch(tasks: Mapping[str, Sequence[asyncio.Task[None]]]) -> None:
            while left := {name: busy for name, ts in tasks.items() if (busy := [t for t in ts if not t.done()])}:
                await asyncio.wait([task for busy in left.values() for task in busy], timeout=patience / 20)
                for name in [name for name in left if client.hosts[name].is_slow(patience)]:
                    if not all(task.done() for task in left[name]):
                        slow.add(name)
                    for task in left[name]:
                        task.cancel()

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: [
                        group.create_task(serve(queue))
                        for _ in range(min(settings.per_host, settings.threads, len(queue)))
                    ]
                    for name, queue in queues.items()
                }
                if patience < math.inf:
                    group.create_task(watch(tasks))
        except ExceptionGroup as errors:  # of `keep`: a full disk
            raise errors.exceptions[0] from None
    return slow


def host_of(url: str) -> str:
    """The host of an http(s) URL, the name of its queue; "" for any other text."""
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.hostname or "" if parts.scheme in ("http", "https") else ""
    return ""


async def _one(client: _Client, url: str) -> Download:
    settings, first = client.settings, url
    named = client.hosts[host_of(first)]  # a redirect counts for the host that the collection names
    try:
        for _ in range(REDIRECTS + 1):
            name = host_of(url)
            if not name:
                return Download(None, "malformed_url", url[:200])
            if settings.private_addresses == "refuse" and is_private_host(name):  # aiohttp refuses some notations
                return Download(None, "private_address", MESSAGE)
            host = client.hosts[name]
            await host.turn(settings.rate)
            if host.waited > settings.deadline:
                return Download(None, "http_429", f"not requested: {name} asks to wait for too long", host.waited)
            session = client.named if origin(url) == origin(first) else client.redirected
            async with client.connections, asyncio.timeout(settings.deadline):
                with named.asked():
                    answer = await _ask(session, url, settings, host)
            if isinstance(answer, Download):
                return answer
            target = urljoin(url, answer)
            if not (url := one_address(target) or ""):
                return Download(None, "malformed_url", without_secrets(target)[:200])
        return Download(
            None, "redirect_loop", f"more than {REDIRECTS} redirects, the last to {without_secrets(url)[:150]}"
        )
    except TimeoutError:
        return Download(None, "timeout", "no whole answer in time")
    except aiohttp.ClientPayloadError:
        return Download(None, "truncated_body", "the body is shorter than announced")
    except (ssl.SSLError, aiohttp.ClientSSLError) as error:
        return Download(None, "tls_failed", _text(error))
    except aiohttp.ClientConnectorError as error:
        refused = isinstance(error.os_error, Refused)
        return Download(None, "private_address" if refused else "connection_failed", _text(error.os_error))
    except aiohttp.InvalidURL as error:
        return Download(None, "malformed_url", _text(error))
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
        # the same behaviour of a server causes one of several errors: microseconds decide
        return Download(None, "connection_failed", "the connection was closed before the answer was whole")
    except (aiohttp.ClientError, ValueError, OSError) as error:  # not HTTP, or not a URL
        return Download(None, "download_failed", _text(error))


async def _ask(session: aiohttp.ClientSession, url: str, settings: FetchSettings, host: _Host) -> Download | str:
    """The outcome, or the address of a redirect."""
    # escapes stay as they are; printable ASCII that URLs must not have is escaped
    address = URL(quote(url, safe="%:/?#[]@!$&'()*+,;=~"), encoded=True)
    async with session.get(address, allow_redirects=False) as response:
        status = response.status
        if status in (301, 302, 303, 307, 308) and "Location" in response.headers:
            # bytes that are not UTF-8 arrive as lone surrogates
            target = re.sub(r"[\udc80-\udcff]", lambda c: f"%{ord(c[0]) - 0xDC00:02X}", response.headers["Location"])
            if re.search(PLACEHOLDER_URL, target.partition("?")[0]):
                return Download(None, "placeholder", f"redirect to {without_secrets(target)[:150]}")
            return target
        if status != 200:
            after = seconds_after(response.headers.get("Retry-After")) if status in (429, 503) else 0.0
            if after:
                host.pause(after)
            fault = "http_5xx" if status >= 500 else f"http_{status}"
            return Download(None, fault, f"{status} {response.reason or ''}".strip()[:200], after)
        host.waited = 0.0
        if opted_out(response.headers.getall("X-Robots-Tag", [])):
            return Download(None, "opted_out", "X-Robots-Tag")
        return await _body(response, settings.max_bytes)


async def _body(response: aiohttp.ClientResponse, most: int) -> Download:
    length = response.content_length
    if length is not None and length > most:
        return Download(None, "too_many_bytes", f"{length} bytes")
    if length is not None and "Content-Encoding" not in response.headers:
        return Download(await response.read())
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return Download(None, "too_many_bytes", f"more than {most} bytes")
    return Download(b"".join(pieces))


def _text(error: Any) -> str:
    return (str(error) or type(error).__name__)[:200]
