"""What all local pages share: an app that answers mistakes as JSON, and serves the files of a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from curate.core.errors import DriftlineError

KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def local_app(package: str, **options: Any) -> FastAPI:
    """An app with the shared files and those of `package` under static/, and errors of driftline as {"error": text}."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, **options)
    known = {
        path.name: path for folder in ("pipelines.web", package) for path in files(folder).joinpath("static").iterdir()
    }

    @app.exception_handler(DriftlineError)
    def refused(_: Any, error: DriftlineError) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        kind = KINDS.get(name.rpartition(".")[2])
        if name not in known or kind is None:
            return Response(status_code=404)
        return Response(known[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    return app
