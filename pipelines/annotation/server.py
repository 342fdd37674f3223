"""Local validation: the question page that workers on a marketplace see, keyboard first, on loopback."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import secrets
import time
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from jinja2 import Environment, StrictUndefined

from curate.core.errors import DriftlineError
from curate.validation.batches import NONE, question_page
from pipelines.annotation.answer_store import Desk
from pipelines.annotation.batches import open_batch
from pipelines.runner import folder_of
from pipelines.stage import Context
from pipelines.stages.retrieve import concepts_of
from pipelines.web.local_server import LOOPBACK, guard

NAME = r"^[A-Za-z0-9_.-]{1,40}$"
KINDS = {"annotate.css": "text/css", "annotate.js": "text/javascript"}
IMAGES = {"jpg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
COOKIE = "driftline"
SHOWN = ("kept", "background", "surplus", "reserve")  # fates that are asked, in the first round or a later one
GRID = 48  # pictures of a page in grid mode
LARGEST = 100_000  # bytes of a form


def desk_of(context: Context) -> Desk:
    """The batch of a run folder and its local answers. Raises MissingFile when nothing was asked."""
    batch = open_batch(context)
    return Desk(context.root / "annotate" / f"{batch.name('answers')}.sqlite", batch.facts, context.config.seed)


def results_of(context: Context) -> Path:
    """Where local answers are written for `tally`."""
    return context.root / context.config.validation.answers / f"{open_batch(context).name('annotate')}.csv"


def application(context: Context, port: int, token: str | None = None, host: str = LOOPBACK) -> tuple[Any, str]:
    """(the FastAPI app, the path to open, which carries a secret). token: the secret (default: a new one). host: the
    name or address, besides loopback, that the page may be opened under."""
    desk = desk_of(context)
    secret = token or secrets.token_urlsafe(16)
    folder = files("pipelines.annotation")
    images = open_batch(context).images()
    blurred = set(desk.batch["blur"])
    results = results_of(context)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["told"] = lambda value: "–" if value is None else f"{value:.0%}"
    template = environment.from_string(folder.joinpath("templates/annotate.html.j2").read_text(encoding="utf-8"))
    concepts = concepts_of(context.config)
    question = question_page(concepts)
    style = re.search(r"<style>(.*?)</style>", question, re.S)
    digest = base64.b64encode(hashlib.sha256((style.group(1) if style else "").encode()).digest()).decode()
    expected = {}
    for row in _items(context):
        expected[row["id"]] = row["concept"]
    item_of = {id_: item for item, id_ in desk.batch["items"].items()}
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, on_shutdown=[lambda: desk.export(results)])
    guard(app, port, styles=(f"'sha256-{digest}'",), host=host)

    @app.middleware("http")
    async def known(request: Request, call_next: Any) -> Response:
        """Only who opened the address with the secret may see or answer."""
        if request.url.path.startswith("/static/"):
            return await call_next(request)
        given = request.cookies.get(COOKIE) or request.query_params.get("token") or ""
        if not secrets.compare_digest(given.encode(), secret.encode()):
            return PlainTextResponse("Open the address that driftline annotate printed: it carries a secret.", 401)
        if "token" in request.query_params:
            answer: Response = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, secret, httponly=True, samesite="strict")
            return answer
        return await call_next(request)

    @app.exception_handler(DriftlineError)
    def refused(_: Any, error: DriftlineError) -> Response:
        return PlainTextResponse(str(error), 400)

    @app.get("/", response_class=HTMLResponse)
    def start() -> str:
        return template.render(mode="start", grid=[], concept="", concepts=[c.name for c in concepts], annotator="",
                               progress=None, question="")  # fmt: skip

    @app.get("/label", response_class=HTMLResponse)
    def label(annotator: Annotated[str, Query(pattern=NAME)]) -> str:
        progress = desk.progress(annotator)
        coming = desk.following(annotator)
        if not coming:
            desk.export(results)
            return template.render(mode="done", grid=[], concept="", concepts=[], annotator=annotator,
                                   progress=progress, question="")  # fmt: skip
        return _asked(question, coming, annotator, progress, coming[0] in blurred)

    @app.get("/grid", response_class=HTMLResponse)
    def grid(annotator: Annotated[str, Query(pattern=NAME)], concept: str) -> str:
        done = desk.answered(annotator)
        mine = [item_of[id_] for id_ in sorted(item_of) if expected.get(id_) == concept and item_of[id_] not in done][
            :GRID
        ]
        names = [c.name for c in concepts]
        return template.render(mode="grid", blurred=blurred, grid=mine, concept=concept, concepts=names,
                               annotator=annotator, progress=desk.progress(annotator), question="")  # fmt: skip

    @app.get("/image/{item}")
    def image(item: str) -> Response:
        path = images.get(item)
        if path is None:
            return Response(status_code=404)
        kind = IMAGES.get(path.suffix[1:], "application/octet-stream")
        return Response(path.read_bytes(), media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in KINDS:
            return Response(status_code=404)
        return Response(folder.joinpath("static", name).read_bytes(), media_type=KINDS[name])

    @app.post("/answer")
    async def answer(request: Request) -> Response:
        form = await _form(request)
        annotator = _annotator(form)
        begun = form.get("begun", ["0"])[0]
        seconds = int(time.time()) - int(begun) if begun.isdigit() else 0
        sensitive = form.get("sensitive", ["no"])[0] == "yes"
        desk.answer(annotator, form.get("item", [""])[0], form.get("labels", []), sensitive, min(seconds, 86_400))
        return RedirectResponse(f"/label?annotator={quote(annotator)}", 303)

    @app.post("/undo")
    async def undo(request: Request) -> Response:
        annotator = _annotator(await _form(request))
        desk.undo(annotator)
        return RedirectResponse(f"/label?annotator={quote(annotator)}", 303)

    @app.post("/reject")
    async def reject(request: Request) -> Response:
        """A page of the grid: what is marked does not show the concept, the rest does."""
        form = await _form(request)
        annotator, concept = _annotator(form), form.get("concept", [""])[0]
        wrong = set(form.get("wrong", []))
        for item in form.get("shown", []):
            desk.answer(annotator, item, [NONE if item in wrong else concept], False, 0)
        return RedirectResponse(f"/grid?annotator={quote(annotator)}&concept={quote(concept)}", 303)

    @app.post("/finish")
    async def finish(request: Request) -> Response:
        _annotator(await _form(request))
        return PlainTextResponse(
            f"{desk.export(results):,} answers in {results.name}; driftline run goes on with them."
        )

    return app, f"/?token={secret}"


def _items(context: Context) -> list[dict[str, Any]]:
    """What was retrieved as what: the grid shows a concept's own candidates."""
    table = pq.read_table(folder_of(context.root, "retrieve") / "candidates.parquet", columns=["id", "concept", "fate"])
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table["fate"], value_set=pa.array(SHOWN))).to_pylist()
    return rows


async def _form(request: Request) -> dict[str, list[str]]:
    body = await request.body()
    if len(body) > LARGEST:
        raise DriftlineError("The form is too large.", f"Expected at most {LARGEST:,} bytes.", "")
    return parse_qs(body.decode("utf-8", "replace"), max_num_fields=1000)


def _annotator(form: dict[str, list[str]]) -> str:
    name = form.get("annotator", [""])[0]
    if not re.match(NAME, name):
        raise DriftlineError(f"The annotator is {name!r}.", "Expected letters, digits, '-', '_' or '.'.", "")
    return name


def _asked(question: str, coming: list[str], annotator: str, progress: Any, blurred: bool) -> str:
    """The marketplace's page, with this item's image, this server's address and the next image ahead."""
    item, *after = coming
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{html.escape(value, quote=True)}">'
        for name, value in (("item", item), ("annotator", annotator), ("begun", str(int(time.time()))))
    )
    agreement = "" if progress.agreement is None else f" · agreement {progress.agreement:.0%}"
    bar = (
        f'<header class="desk"><span>{html.escape(annotator)}: {progress.done} of {progress.total}{agreement}</span>'
        f'<progress max="{progress.total}" value="{progress.done}"></progress>'
        "<span><kbd>1</kbd>… options <kbd>n</kbd> none <kbd>s</kbd> sensitive <kbd>Enter</kbd> next "
        '<kbd>u</kbd> undo <kbd>v</kbd> view</span></header><form method="post" action="/undo" id="undo">'
        f'<input type="hidden" name="annotator" value="{html.escape(annotator)}"></form>'
    )
    ahead = "".join(f'<link rel="prefetch" href="/image/{i}" as="image">' for i in after)
    head = (
        f'{ahead}<link rel="stylesheet" href="/static/annotate.css"><script src="/static/annotate.js" defer></script>'
    )
    return (
        question.replace("${image_url}", f"/image/{item}")
        .replace('action="/mturk/externalSubmit"', 'action="/answer" id="question"')
        .replace("</head>", head + "</head>", 1)
        .replace("<body>", f'<body class="{"blurred" if blurred else "clear"}">' + bar, 1)
        .replace("</form>\n</body>", hidden + "</form>\n</body>", 1)
    )
