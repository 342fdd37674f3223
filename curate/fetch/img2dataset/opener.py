"""Limits of img2dataset's urllib: http and https only, no private address, a maximum of bytes, a total deadline.

img2dataset downloads through `urllib.request.urlopen`, whose opener a program may install. This one closes what its own
settings leave open: it reads `file:` addresses, a slow server can block a shard for ever, it stores bodies of any size,
follows redirects anywhere, and ignores Retry-After.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from email.message import Message
from functools import partial
from typing import IO, Any
from urllib.parse import unquote

from driftline.curate.core.outside.http import one_address
from driftline.curate.core.outside.secrets import without_secrets
from driftline.curate.fetch.address_guard import MESSAGE, Mode, Refused, guard, origin
from driftline.curate.fetch.outcome import ERROR_PAGE, PLACEHOLDER_URL, opted_out, refused_width


class Watch:
    """Shuts every socket that is older than `deadline` seconds, so that a read that hangs on it fails."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._opened: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, sock: socket.socket) -> None:
        """Start the clock of `sock`."""
        with self._lock:
            self._opened[sock] = time.monotonic()

    def _run(self) -> None:
        while True:
            time.sleep(min(1.0, self.deadline / 4))
            now = time.monotonic()
            with self._lock:
                for sock, opened in list(self._opened.items()):
                    if sock.fileno() < 0:
                        del self._opened[sock]
                    elif now - opened > self.deadline:
                        del self._opened[sock]
                        with contextlib.suppress(OSError):  # it was closed in the meantime
                            sock.shutdown(socket.SHUT_RDWR)


class Redirects(urllib.request.HTTPRedirectHandler):
    """Refuses placeholders, and remembers where another server points."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if re.search(PLACEHOLDER_URL, newurl.partition("?")[0]):
            raise ValueError(f"placeholder: redirect to {without_secrets(newurl)[:150]}")
        # urllib has escaped the host, too
        address = one_address(re.sub("//[^/?#]*", lambda part: unquote(part[0]), newurl, count=1))
        if address is None:
            raise ValueError(f"invalid url: {without_secrets(newurl)[:150]}")
        new = super().redirect_request(req, fp, code, msg, headers, address)  # type: ignore[arg-type]
        if new is not None:  # a redirect to the same server is as good as its first address
            new.unverifiable = req.unverifiable or origin(new.full_url) != origin(req.full_url)
        return new


class OptOut(urllib.request.BaseHandler):
    """Refuses images whose server says so."""

    handler_order = 100  # before the status is judged

    def http_response(self, req: urllib.request.Request, response: Any) -> Any:
        # img2dataset's own check takes all before a colon for an agent's name
        if response.status == 200 and opted_out(response.headers.get_all("X-Robots-Tag", [])):
            raise ValueError("use of image disallowed")
        return response

    https_response = http_response


class Errors(urllib.request.HTTPDefaultErrorHandler):
    """Says what a server asks to wait."""

    def http_error_default(
        self, req: urllib.request.Request, fp: IO[bytes] | None, code: int, msg: str, hdrs: Message
    ) -> Any:
        after = hdrs.get("Retry-After")
        words = refused_width(fp.read(ERROR_PAGE).decode("utf-8", "replace")) if fp and code in (400, 429) else ""
        words = f"{words or msg} (Retry-After: {after})" if after else words or msg
        raise urllib.request.HTTPError(req.full_url, code, words, hdrs, fp)


def install(max_bytes: int, deadline: float, private: Mode) -> None:
    """Make this the opener of `urllib.request.urlopen` in this process."""
    watch = Watch(deadline)

    class Response(http.client.HTTPResponse):
        def read(self, amt: int | None = None) -> bytes:
            return super().read(amt) if amt is not None else _whole(super().read, self.length, max_bytes, deadline)

    class Plain(http.client.HTTPConnection):
        response_class = Response

        def __init__(self, *args: Any, redirected: bool = False, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._create_connection = partial(_connect, guard(private, redirected), watch)

    class Secure(http.client.HTTPSConnection):
        response_class = Response

        def __init__(self, *args: Any, redirected: bool = False, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._create_connection = partial(_connect, guard(private, redirected), watch)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req, redirected=req.unverifiable)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req, redirected=req.unverifiable)

    opener = urllib.request.OpenerDirector()  # an empty one: no file:, ftp: or data: addresses, no proxies
    checks = (Redirects(), OptOut(), Errors(), urllib.request.HTTPErrorProcessor(), urllib.request.UnknownHandler())
    for handler in (PlainHandler(), SecureHandler(), *checks):
        opener.add_handler(handler)
    urllib.request.install_opener(opener)


def _whole(read: Callable[..., bytes], length: int | None, most: int, deadline: float) -> bytes:
    """All bytes of an answer. Raises ValueError for more than `most`, TimeoutError for one that takes too long."""
    if length is not None and length > most:
        raise ValueError(f"too many bytes: {length}")
    start = time.monotonic()
    try:
        data = read() if length is not None else read(most + 1)
    except http.client.IncompleteRead:
        if time.monotonic() - start > deadline * 0.9:
            raise TimeoutError("timed out: no whole answer in time") from None
        raise
    if len(data) > most:
        raise ValueError(f"too many bytes: more than {most}")
    if time.monotonic() - start > deadline:
        raise TimeoutError("timed out: no whole answer in time")
    return data


def _connect(
    refused: Callable[[str], bool], watch: Watch, address: tuple[str, int], timeout: Any = None, source: Any = None
) -> socket.socket:
    """The first connection that can be opened to one of the host's addresses. Raises Refused if one is private."""
    host, port = address
    addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    if any(refused(str(entry[4][0])) for entry in addresses):
        raise Refused(f"private address: {MESSAGE}")
    failure: OSError | None = None
    for family, kind, protocol, _, place in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout if isinstance(timeout, int | float) else None)
            sock.connect(place)
        except OSError as error:
            failure = error
            sock.close()
            continue
        watch.add(sock)
        return sock
    raise failure or OSError(f"{host} has no address")
