"""What all local pages share: an app that answers mistakes as JSON, and serves the files of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files
from inspect import signature
from typing import Any, TypeVar

from pydantic import ValidationError, validate_call
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadInput, DriftlineError, shortened

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
