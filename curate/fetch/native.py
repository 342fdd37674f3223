"""The native way: one event loop, kept connections, original bytes, every limit a total one."""

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
from curate.fetch.rules import PLACEHOLDER_URL, FetchRules, Got, opted_out, seconds_after

REDIRECTS = 5
AGENT = "driftline (image research; honours X-Robots-Tag and Retry-After)"
Keep = Callable[[int, Got], None]


class _Guarded(AbstractResolver):
    """Names are looked up once, and the address that was checked is the one that is asked."""

    def __init__(self) -> None:
        self._plain = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._plain.resolve(host, port, family)
        if bad := [entry["host"] for entry in found if is_private(entry["host"])]:
            raise Refused(f"{host} is {bad[0]}, an address of a private network")
        return found

    async def close(self) -> None:
        await self._plain.close()


@dataclass
class _Host:
    """What one host may be asked: no sooner than `free` (monotonic seconds), then one token at a time."""

    free: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def turn(self, rate: float | None) -> None:
        """Wait for this host's next free moment."""
        if rate is None and self.free == 0.0:
            return
        async with self.lock:
            wait = self.free - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if rate is not None:
                self.free = max(self.free, time.monotonic()) + 1 / rate

    def pause(self, seconds: float) -> None:
        """The host asked for a pause (Retry-After)."""
        self.free = max(self.free, time.monotonic() + seconds)


def download(rows: Sequence[tuple[int, str]], rules: FetchRules, keep: Keep) -> None:
    """Ask for every (row, url) once; `keep(row, outcome)` is called exactly once for each, as they come."""
    asyncio.run(_all(rows, rules, keep))


async def _all(rows: Sequence[tuple[int, str]], rules: FetchRules, keep: Keep) -> None:
    connector = aiohttp.TCPConnector(
        limit=rules.threads,
        limit_per_host=min(rules.per_host, rules.threads),
        resolver=None if rules.private else _Guarded(),
    )
    limits = aiohttp.ClientTimeout(total=None, sock_connect=rules.timeout, sock_read=rules.timeout)
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
                keep(row, await _one(session, url, rules, hosts))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(rules.threads, len(rows))):
                group.create_task(serve())


async def _one(session: aiohttp.ClientSession, url: str, rules: FetchRules, hosts: dict[str, _Host]) -> Got:
    try:
        for _ in range(REDIRECTS + 1):
            parts = urlsplit(url)
            host = parts.hostname
            if parts.scheme not in ("http", "https") or not host:
                return Got(None, "malformed_url", url[:200])
            if not rules.private and is_private_host(host):
                return Got(None, "private_address", f"{host} is an address of a private network")
            await hosts[host].turn(rules.rate)
            async with asyncio.timeout(rules.deadline):
                answer = await _ask(session, url, rules, hosts[host])
            if isinstance(answer, Got):
                return answer
            url = urljoin(url, answer)
        return Got(None, "redirect_loop", f"more than {REDIRECTS} redirects, the last to {url[:150]}")
    except Refused as error:
        return Got(None, "private_address", str(error))
    except TimeoutError:
        return Got(None, "timeout", "no whole answer in time")
    except aiohttp.ClientPayloadError:
        return Got(None, "truncated_body", "the body is shorter than it was to be")
    except (ssl.SSLError, aiohttp.ClientSSLError) as error:
        return Got(None, "tls_failed", _words(error))
    except aiohttp.ClientConnectorDNSError as error:
        refused = isinstance(error.os_error, Refused)
        return Got(None, "private_address" if refused else "connection_failed", _words(error.os_error))
    except aiohttp.ClientConnectorError as error:
        return Got(None, "connection_failed", _words(error.os_error))
    except aiohttp.InvalidURL as error:
        return Got(None, "malformed_url", _words(error))
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
        # one and the same server behaviour is seen as one of several errors: a matter of microseconds
        return Got(None, "connection_failed", "the connection was closed before the answer was whole")
    except (aiohttp.ClientError, ValueError, OSError) as error:  # answers that are no HTTP, addresses that are no URL
        return Got(None, "download_failed", _words(error))


async def _ask(session: aiohttp.ClientSession, url: str, rules: FetchRules, host: _Host) -> Got | str:
    """The outcome, or the address that it redirects to."""
    async with session.get(url, allow_redirects=False) as response:
        status = response.status
        if status in (301, 302, 303, 307, 308) and "Location" in response.headers:
            target = response.headers["Location"]
            if re.search(PLACEHOLDER_URL, target.partition("?")[0]):
                return Got(None, "placeholder", f"redirect to {target[:150]}")
            return target
        if status != 200:
            after = seconds_after(response.headers.get("Retry-After")) if status in (429, 503) else 0.0
            if after:
                host.pause(after)
            fault = "http_5xx" if status >= 500 else f"http_{status}"
            return Got(None, fault, f"{status} {response.reason or ''}".strip()[:200], after)
        if opted_out(response.headers.getall("X-Robots-Tag", [])):
            return Got(None, "opted_out", "X-Robots-Tag")
        return await _body(response, rules.images.max_bytes)


async def _body(response: aiohttp.ClientResponse, most: int) -> Got:
    length = response.content_length
    if length is not None and length > most:
        return Got(None, "too_many_bytes", f"{length} bytes")
    if length is not None and "Content-Encoding" not in response.headers:
        return Got(await response.read())
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return Got(None, "too_many_bytes", f"more than {most} bytes")
    return Got(b"".join(pieces))


def _words(error: Any) -> str:
    return (str(error) or type(error).__name__)[:200]
