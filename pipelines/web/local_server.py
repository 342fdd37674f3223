"""A server that stays local: loopback, only its own host name and origin, strict headers."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from curate.core.errors import BadConfig

# Only this server's own styles, scripts and images; no frames, no forms to other hosts.
POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send forms with the origin "null"
    "Cross-Origin-Resource-Policy": "same-origin",
}

LOOPBACK = "127.0.0.1"


def guard(app: Any, port: int, styles: tuple[str, ...] = (), host: str = LOOPBACK) -> None:
    """Refuse requests to another host name (DNS rebinding) and writes from another origin; add headers to all answers.

    styles: hashes of allowed inline styles. host: a further name or address of this server.
    """
    from fastapi import Request
    from fastapi.responses import PlainTextResponse, Response

    policy = POLICY.replace("style-src 'self'", " ".join(("style-src 'self'", *styles)))
    hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost", host)}
    origins = {f"http://{host}" for host in hosts}

    @app.middleware("http")  # type: ignore[untyped-decorator]
    async def check(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        answer: Response
        if request.headers.get("host") not in hosts:
            answer = PlainTextResponse("This server accepts requests to its own name only.", 421)
        elif request.method != "GET" and request.headers.get("origin") not in origins:
            answer = PlainTextResponse("Only pages of this server may change data.", 403)
        else:
            answer = await call_next(request)
        for name, value in HEADERS.items():
            answer.headers[name] = value
        answer.headers["Content-Security-Policy"] = policy
        return answer


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """A listening socket; port 0: any free one. Raises BadConfig for a port in use or an address of another machine."""
    # IPPROTO_TCP is explicit, or asyncio does not disable Nagle's algorithm, which costs 40 ms per image.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise BadConfig(
            f"Cannot listen on {host}, port {port} ({error.strerror}).",
            "Expected a free port on an address of this machine.",
            "Try --port 0.",
        ) from None
    sock.listen(128)
    return sock


def serve(make: Callable[[int], tuple[Any, str]], port: int, say: Callable[[str], None], host: str = LOOPBACK) -> None:
    """Serve the app that `make(port)` returns, until Ctrl-C. say: called with the URL to open."""
    import uvicorn

    sock = listen(port, host)
    actual_port = sock.getsockname()[1]
    app, path = make(actual_port)
    say(f"http://{host}:{actual_port}{path}")
    config = uvicorn.Config(app, log_level="warning", server_header=False, access_log=False)
    uvicorn.Server(config).run([sock])
