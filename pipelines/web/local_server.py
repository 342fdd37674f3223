"""A server that stays local: loopback, only its own host name and origin, a secret address, strict headers; and what
all pages share: an app that answers mistakes as JSON, and serves the files of a page.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError, validate_call
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, shortened
from driftline.curate.foreign.limits import BODY
from driftline.curate.foreign.names import is_count

if TYPE_CHECKING:
    import uvicorn

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

METHODS = ("GET", "HEAD", "POST")
LOOPBACK = "127.0.0.1"


def guarded(
    app: ASGIApp, port: int, command: str, styles: tuple[str, ...] = (), host: str = LOOPBACK
) -> tuple[ASGIApp, str]:
    """(app, path to open): all paths of `app` behind a new secret, which is the first part of the path.

    A cookie would reach every other server on this host name. Refused are requests to another host name (DNS
    rebinding), writes from another origin, and large bodies; every answer has the headers.

    command: it printed the address. styles: hashes of allowed inline styles. host: a further name or address of this
    server.
    """
    secret = secrets.token_urlsafe(16)
    policy = POLICY.replace("style-src 'self'", " ".join(("style-src 'self'", *styles)))
    hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost", host)}
    origins = {f"http://{host}" for host in hosts}

    def refusal(scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not scope["path"].startswith("/"):  # as of OPTIONS *
            return PlainTextResponse("Expected a path.", 400)
        if scope["method"] not in METHODS:
            return PlainTextResponse(f"Expected {', '.join(METHODS)}.", 405, {"Allow": ", ".join(METHODS)})
        size = headers.get("content-length", "0" if scope["method"] != "POST" else "")
        if "transfer-encoding" in headers or not is_count(size) or int(size) > BODY:
            return PlainTextResponse(f"Expected a body of at most {BODY:,} bytes, with its length.", 413)
        if headers.get("host") not in hosts:
            return PlainTextResponse("This server accepts requests to its own name only.", 421)
        if scope["path"] == "/favicon.ico":
            return Response(status_code=204)
        if not secrets.compare_digest(scope["path"].split("/")[1].encode(), secret.encode()):
            return PlainTextResponse(f"Open the URL that driftline {command} printed: it contains a secret.", 401)
        if scope["method"] == "POST" and headers.get("origin") not in origins:
            return PlainTextResponse("Only pages of this server may change data.", 403)
        return None

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS | {"Content-Security-Policy": policy})
            await send(message)

        answer = refusal(scope)
        if answer is not None:
            answer.headers["Connection"] = "close"  # what follows of the body is not read
        path = scope["path"].removeprefix(f"/{secret}") or "/"
        await (answer or app)({**scope, "path": path}, receive, with_headers)

    return checked, f"/{secret}/"


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """A listening socket; port 0: any free one. Raises BadConfig for a port in use or an address of another machine."""
    # IPPROTO_TCP is explicit, or asyncio does not disable Nagle's algorithm, which costs 40 ms per image.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, TypeError) as error:  # TypeError: a name that is not UTF-8
        sock.close()
        raise BadConfig(
            f"Cannot listen on {host}, port {port} ({getattr(error, 'strerror', error)}).",
            "Expected a free port on an address of this machine.",
            "Try --port 0.",
        ) from None
    sock.listen(128)
    return sock


def server_of(app: ASGIApp) -> "uvicorn.Server":
    """The server of an app: plain HTTP, no socket that stays open, no header that says what it is."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(app, http="h11", ws="none", log_level="warning", server_header=False, access_log=False)
    )


def serve(
    make: Callable[[int], tuple[ASGIApp, str]], port: int, say: Callable[[str], None], host: str = LOOPBACK
) -> None:
    """Serve the app that `make(port)` returns, until Ctrl-C. say: called with the URL to open.

    Raises KeyboardInterrupt with a sentence.
    """
    sock = listen(port, host)
    actual_port = sock.getsockname()[1]
    app, path = make(actual_port)
    asyncio.run(run_in_threadpool(int))  # imports what the first request would wait for
    say(f"http://{host}:{actual_port}{path}")
    try:
        server_of(app).run([sock])
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. What was saved is kept; the same command opens the page again.") from None


KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
F = TypeVar("F", bound=Callable[..., Any])


class LocalApp(Starlette):
    """An app of functions that take what a request says: parts of the path, of the query and of a JSON body by their
    names, converted and checked by their types, or the request or body itself. They run in a pool of threads: one that
    waits for the disk stops nobody else. Text that they return is HTML, data is JSON."""

    def on(self, method: str, path: str) -> Callable[[F], F]:
        """Answer requests to `path` by the function."""

        def add(function: F) -> F:
            names = signature(function).parameters
            checked = validate_call(config={"arbitrary_types_allowed": True})(function)

            async def answer(request: Request) -> Response:
                values: dict[str, Any] = {**request.query_params, **request.path_params, "request": request}
                values |= {"body": await request.body()} if "body" in names else {}
                if method == "POST" and not names.keys() <= values.keys():
                    values |= _object(await request.body())
                call = partial(checked, **{name: values[name] for name in names if name in values})
                try:
                    result = await run_in_threadpool(call)
                except ValidationError as error:
                    first = error.errors()[0]
                    name, value = ".".join(map(str, first["loc"])), shortened(repr(first["input"]), 60)
                    raise BadInput(f"The request has {name} {value}.", f"{first['msg']}.") from None
                if isinstance(result, Response):
                    return result
                return HTMLResponse(result) if isinstance(result, str) else JSONResponse(result)

            self.add_route(path, answer, [method])
            return function

        return add


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json_value(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadInput("The body of the request is no JSON object.", "Expected one.")
    return value


def local_app(package: str, **options: Any) -> LocalApp:
    """An app with the shared files and those of `package` under static/, and errors of driftline as {"error": text}."""
    assets = {
        path.name: path
        for folder in ("driftline.pipelines.web", package)
        for path in files(folder).joinpath("static").iterdir()
    }

    def refused(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    def gone(_: Request, error: Exception) -> Response:
        return Response(status_code=400)

    app = LocalApp(exception_handlers={DriftlineError: refused, ClientDisconnect: gone}, **options)

    @app.on("GET", "/static/{name}")
    def static(name: str) -> Response:
        kind = KINDS.get(name.rpartition(".")[2])
        if name not in assets or kind is None:
            return Response(status_code=404)
        return Response(assets[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    return app
