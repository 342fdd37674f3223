"""What keeps a local server local: loopback, only its own host name and origin, strict headers."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from curate.core.errors import BadConfig

# Only this server's own style, script and pictures; no frames, no forms to elsewhere.
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
    """Refuse requests under another host name (a page elsewhere whose name was made to mean this machine) and writes
    that another origin sent; add the headers to every answer. styles: hashes of inline styles that may apply. host: a
    further name that this server answers under."""
    from fastapi import Request
    from fastapi.responses import PlainTextResponse, Response

    policy = POLICY.replace("style-src 'self'", " ".join(("style-src 'self'", *styles)))
    hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost", host)}
    origins = {f"http://{host}" for host in hosts}

    @app.middleware("http")  # type: ignore[untyped-decorator]
    async def check(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        answer: Response
        if request.headers.get("host") not in hosts:
            answer = PlainTextResponse("This server answers under its own name only.", 421)
        elif request.method != "GET" and request.headers.get("origin") not in origins:
            answer = PlainTextResponse("Only this server's own page may change anything.", 403)
        else:
            answer = await call_next(request)
        for name, value in HEADERS.items():
            answer.headers[name] = value
        answer.headers["Content-Security-Policy"] = policy
        return answer


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """A listening socket; port 0: any free one. Raises BadConfig for one in use, or an address that is not ours."""
    # Named as TCP, or asyncio does not switch off Nagle's delay: 40 ms a picture
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise BadConfig(
            f"{host}, port {port} cannot be used ({error.strerror}).",
            "Expected a free port of this machine.",
            "Try --port 0.",
        ) from None
    sock.listen(128)
    return sock


def serve(make: Callable[[int], tuple[Any, str]], port: int, say: Callable[[str], None], host: str = LOOPBACK) -> None:
    """Serve the app that `make(port)` returns until Ctrl-C, on loopback unless told otherwise; say its address with the
    path to open."""
    import uvicorn

    sock = listen(port, host)
    taken = sock.getsockname()[1]
    app, path = make(taken)
    say(f"http://{host}:{taken}{path} (Ctrl-C ends it)")
    config = uvicorn.Config(app, log_level="warning", server_header=False, access_log=False)
    uvicorn.Server(config).run([sock])
