"""The native downloader: one event loop, kept connections, original bytes, limits over all of an answer."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from curate.fetch.address_guard import Refused, is_private, is_private_host
from curate.fetch.outcome import PLACEHOLDER_URL, Download, opted_out, seconds_after
from curate.fetch.settings import FetchSettings

REDIRECTS = 5
AGENT = "driftline (image research; honours X-Robots-Tag and Retry-After)"
Keep = Callable[[int, Download], None]


class _Guarded(AbstractResolver):
    """Resolves a name once, so that the connection goes to the address that was checked."""

    def __init__(self) -> None:
        self._plain = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await self._plain.resolve(host, port, family)
        if private := [entry["host"] for entry in addresses if is_private(entry["host"])]:
            raise Refused(f"{host} is {private[0]}, an address of a private network")
        return addresses

    async def close(self) -> None:
        await self._plain.close()


@dataclass
class _Host:
    """The rate limit of one host."""

    free: float = 0.0
    """time of the next request, monotonic seconds"""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        self.free = max(self.free, time.monotonic() + seconds)


def download(rows: Sequence[tuple[int, str]], settings: FetchSettings, keep: Keep) -> None:
    """Request every (row, url) once; `keep(row, outcome)` is called exactly once for each, in order of arrival."""
    asyncio.run(_all(rows, settings, keep))


async def _all(rows: Sequence[tuple[int, str]], settings: FetchSettings, keep: Keep) -> None:
    connector = aiohttp.TCPConnector(
        limit=settings.threads,
        limit_per_host=min(settings.per_host, settings.threads),
        resolver=None if settings.private_addresses == "allow" else _Guarded(),
    )
    limits = aiohttp.ClientTimeout(total=None, sock_connect=settings.timeout, sock_read=settings.timeout)
    hosts: dict[str, _Host] = defaultdict(_Host)
    left = iter(rows)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=limits,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": AGENT, "Accept": "image/*,*/*;q=0.1", "Accept-Encoding": "identity"},
    ) as session:

        async def serve() -> None:
            for row, url in left:
                keep(row, await _one(session, url, settings, hosts))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(settings.threads, len(rows))):
                group.create_task(serve())


async def _one(session: aiohttp.ClientSession, url: str, settings: FetchSettings, hosts: dict[str, _Host]) -> Download:
    try:
        for _ in range(REDIRECTS + 1):
            parts = urlsplit(url)
            host = parts.hostname
            if parts.scheme not in ("http", "https") or not host:
                return Download(None, "malformed_url", url[:200])
            if settings.private_addresses != "allow" and is_private_host(host):
                return Download(None, "private_address", f"{host} is an address of a private network")
            await hosts[host].turn(settings.rate)
            async with asyncio.timeout(settings.deadline):
                answer = await _ask(session, url, settings, hosts[host])
            if isinstance(answer, Download):
                return answer
            url = urljoin(url, answer)
        return Download(None, "redirect_loop", f"more than {REDIRECTS} redirects, the last to {url[:150]}")
    except Refused as error:
        return Download(None, "private_address", str(error))
    except TimeoutError:
        return Download(None, "timeout", "no whole answer in time")
    except aiohttp.ClientPayloadError:
        return Download(None, "truncated_body", "the body is shorter than announced")
    except (ssl.SSLError, aiohttp.ClientSSLError) as error:
        return Download(None, "tls_failed", _text(error))
    except aiohttp.ClientConnectorDNSError as error:
        refused = isinstance(error.os_error, Refused)
        return Download(None, "private_address" if refused else "connection_failed", _text(error.os_error))
    except aiohttp.ClientConnectorError as error:
        return Download(None, "connection_failed", _text(error.os_error))
    except aiohttp.InvalidURL as error:
        return Download(None, "malformed_url", _text(error))
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
        # the same behaviour of a server causes one of several errors: microseconds decide
        return Download(None, "connection_failed", "the connection was closed before the answer was whole")
    except (
        aiohttp.ClientError,
        ValueError,
        OSError,
    ) as error:  # not HTTP, or not a URL
        return Download(None, "download_failed", _text(error))


async def _ask(session: aiohttp.ClientSession, url: str, settings: FetchSettings, host: _Host) -> Download | str:
    """The outcome, or the address of a redirect."""
    async with session.get(url, allow_redirects=False) as response:
        status = response.status
        if status in (301, 302, 303, 307, 308) and "Location" in response.headers:
            target = response.headers["Location"]
            if re.search(PLACEHOLDER_URL, target.partition("?")[0]):
                return Download(None, "placeholder", f"redirect to {target[:150]}")
            return target
        if status != 200:
            after = seconds_after(response.headers.get("Retry-After")) if status in (429, 503) else 0.0
            if after:
                host.pause(after)
            fault = "http_5xx" if status >= 500 else f"http_{status}"
            return Download(None, fault, f"{status} {response.reason or ''}".strip()[:200], after)
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
