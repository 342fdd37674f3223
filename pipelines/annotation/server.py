"""Local validation on loopback: the question page that MTurk workers see, with keys for everything."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.outside.names import is_count
from driftline.curate.validation.asking.batches import NONE, question_page
from driftline.pipelines.annotation.answer_store import AnswerStore, Progress, unstored
from driftline.pipelines.annotation.batches import open_batch, opinions_of, unknown_judge
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.web.local_server import LOOPBACK, guarded
from driftline.pipelines.web.page import local_app
from driftline.pipelines.web.rendering import template

NAME = r"^[A-Za-z0-9_.-]{1,40}$"
Named = Annotated[str, Field(pattern=NAME)]
IMAGES = {"jpg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
SHOWN = ("kept", "background", "surplus", "reserve")  # outcomes of retrieval that are asked in some round
GRID = 40  # images of a page in grid mode
COMPLETE = "https://app.prolific.com/submissions/complete?cc="
PLACES = (
    "?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}"  # Prolific fills them in
)


def answer_store_of(context: Context) -> AnswerStore:
    """The open batch of a run folder and its local answers. Raises MissingFile if there is no batch."""
    batch = open_batch(context)
    return AnswerStore(context.root / "annotate" / f"{batch.name('answers')}.sqlite", batch.facts, context.config.seed)


def results_of(context: Context) -> Path:
    """The file in which `tally` finds the local answers."""
    return context.root / context.config.validation.answers / f"{open_batch(context).name('annotate')}.csv"


@dataclass(frozen=True)
class Study:
    """The page as an external study of Prolific: participants come with PROLIFIC_PID, and leave with a code."""

    code: str
    """completion code of the study"""
    images: int = 20
    """images for one participant"""
    hold: int = 3600
    """seconds after which the unanswered images of a participant are given to others, too"""
    public: str = ""
    """address of the reverse proxy with TLS, such as https://labels.example.org"""


def study_of(code: str, images: int, public: str) -> Study:
    """A study. Raises BadConfig for a code or an address that Prolific would not accept."""
    if not re.fullmatch(NAME, code):
        raise BadConfig(f"The completion code is {code!r}.", "Expected 1 to 40 letters, digits, '-', '_' or '.'.")
    if public and not re.fullmatch(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?", public):
        raise BadConfig(f"--public is {public!r}.", "Expected https://NAME, without a path.")
    return Study(code, images, public=public)


def study_address(url: str, study: Study) -> str:
    """The address to enter at Prolific; url: of the page on this machine."""
    return f"{study.public or url.rpartition('/')[0].rpartition('/')[0]}/{url.split('/')[3]}/{PLACES}"


def suggestions(context: Context, judge: str) -> dict[str, str]:
    """item → what a judge says of it, for annotators to see.

    Raises UnknownName for a judge that the run does not have, BadConfig where judges decide labels: their guarantee
    needs people who did not see what judges say.
    """
    settings = context.config.validation
    if judge not in (known := [one.name for one in settings.judges]):
        raise unknown_judge(judge, known)
    if settings.skip_people != "never":
        raise BadConfig(
            f"--suggest was given with validation.skip_people: {settings.skip_people}.",
            "Expected people who do not see the answers of judges: the audit compares both.",
            "Leave out --suggest, or set skip_people: never.",
        )
    rows = opinions_of(context, open_batch(context))
    return {item: ", ".join(row["labels"]) for item, some in rows.items() for row in some if row["judge"] == judge}


def application(
    context: Context, port: int, host: str = LOOPBACK, study: Study | None = None, suggest: str | None = None
) -> tuple[ASGIApp, str]:
    """(app, path to open, which contains a secret).

    host: a name or address, besides loopback, under which the page may be opened. study: participants see their images
    one by one, without the grid, whose answers are not independent. suggest: a judge whose answer annotators see one by
    one; the results file says where.
    """
    suggested = {} if suggest is None else suggestions(context, suggest)
    store = answer_store_of(context)
    images = open_batch(context).images()
    blurred = set(store.batch["blur"])
    results = results_of(context)
    page = template(
        "driftline.pipelines.annotation",
        "annotate.html.j2",
        share=lambda value: "–" if value is None else f"{value:.0%}",
    )
    concepts = context.config.retrieve.complete_concepts()
    question = question_page(concepts)
    style = re.search(r"<style>(.*?)</style>", question, re.S)
    digest = base64.b64encode(hashlib.sha256((style.group(1) if style else "").encode()).digest()).decode()
    expected = {row["id"]: row["concept"] for row in _items(context)}
    candidates: dict[str, list[str]] = {}  # concept → its items
    for id_, item in sorted((id_, item) for item, id_ in store.batch["items"].items()):
        candidates.setdefault(expected.get(id_, ""), []).append(item)
    names = [c.name for c in concepts]

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        store.export(results)

    app = local_app("driftline.pipelines.annotation", lifespan=lifespan)

    def refused(_: Any, error: Exception) -> Response:
        return PlainTextResponse(str(error), 400)

    def not_stored(_: Any, error: Any) -> Response:
        return PlainTextResponse(f"Nothing was stored. {unstored(store.path, error)}", 507)

    app.add_exception_handler(DriftlineError, refused)
    app.add_exception_handler(sqlite3.Error, not_stored)

    def rendered(mode: str, annotator: str = "", concept: str = "", grid: list[str] | None = None) -> str:
        progress = store.progress(annotator) if annotator else None
        return page.render(
            mode=mode, annotator=annotator, concept=concept, grid=grid or [], concepts=names, progress=progress,
            blurred=blurred, size=GRID, begun=int(time.time()), complete=f"{COMPLETE}{study.code}" if study else "",
        )  # fmt: skip

    def asked(coming: list[str], annotator: str, note: str, view: str = "label") -> str:
        flagged = store.flagged(annotator, coming[0])
        blur = coming[0] in blurred
        return _asked(question, coming, annotator, store.progress(annotator), blur, note, view, flagged)

    def assign(annotator: str) -> None:
        if study is not None:
            store.assign(annotator, study.images, store.batch["workers"], study.hold)

    @app.on("GET", "/")
    def start(request: Request) -> Response:
        if study is None:
            return Response(rendered("start"), media_type="text/html")
        given = [request.query_params.get(name, "") for name in ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")]
        if not all(re.fullmatch(NAME, value) for value in given):
            return PlainTextResponse("Open this page from Prolific: its address lacks PROLIFIC_PID.", 400)
        return RedirectResponse(f"label?annotator={quote(given[0])}", 303)

    @app.on("GET", "/label")
    def label(annotator: Named) -> str:
        assign(annotator)
        coming = store.following(annotator)
        if not coming:
            store.export(results)
            return rendered("done", annotator)
        note = ""
        if coming[0] in suggested:
            note = f"{suggest} suggests: {suggested[coming[0]]}"
            store.show(annotator, coming[0], note)
        return asked(coming, annotator, note)

    @app.on("GET", "/conflicts")
    def conflicts(annotator: Named) -> str:
        """Adjudication: images on which annotators differ, one by one, with their answers."""
        one_by_one(study)
        coming = store.conflicts(annotator, context.config.validation.agree)
        if not coming:
            store.export(results)
            return rendered("settled", annotator)
        votes = "; ".join(f"{n} × {labels}" for labels, n in store.votes(coming[0]))
        store.show(annotator, coming[0], f"others: {votes}")
        return asked(coming[:2], annotator, f"{len(coming):,} in conflict. Others say: {votes}", "conflicts")

    @app.on("GET", "/grid")
    def grid(annotator: Named, concept: str) -> str:
        one_by_one(study)
        return rendered("grid", annotator, concept, store.unanswered(annotator, candidates.get(concept, []), GRID))

    @app.on("GET", "/image/{item}")
    def image(item: str) -> Response:
        path = images.get(item)
        if path is None:
            return Response(status_code=404)
        kind = IMAGES.get(path.suffix[1:], "application/octet-stream")
        return Response(path.read_bytes(), media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    @app.on("POST", "/answer")
    async def answer(request: Request) -> Response:
        form = await _form(request)
        annotator = _annotator(form)
        sensitive = form.get("sensitive", ["no"])[0] == "yes"
        assign(annotator)
        if study is not None and form.get("item", [""])[0] not in store.queue(annotator):
            raise DriftlineError("This image was not given to you.", "", "Open the study from Prolific again.")
        store.answer(annotator, form.get("item", [""])[0], form.get("labels", []), sensitive, _seconds(form))
        return RedirectResponse(_back(form, annotator), 303)

    @app.on("POST", "/skip")
    @app.on("POST", "/flag")
    async def note(request: Request) -> Response:
        """Skip an image, or flag it and stay; both with a comment, which may be empty."""
        form = await _form(request)
        annotator = _annotator(form)
        keep = store.flag if request.scope["path"] == "/flag" else store.skip
        keep(annotator, form.get("item", [""])[0], form.get("comment", [""])[0])
        write_json(context.root / "annotate" / "comments.json", store.comments())
        return RedirectResponse(_back(form, annotator), 303)

    @app.on("POST", "/undo")
    async def undo(request: Request) -> Response:
        """Take back the last screen."""
        form = await _form(request)
        annotator = _annotator(form)
        store.undo(annotator)
        return RedirectResponse(_back(form, annotator), 303)

    @app.on("POST", "/reject")
    async def reject(request: Request) -> Response:
        """A page of the grid: the marked images do not show the concept, the others do."""
        one_by_one(study)
        form = await _form(request)
        annotator, concept = _annotator(form), form.get("concept", [""])[0]
        wrong, shown = set(form.get("wrong", [])), form.get("shown", [])
        answers = {item: [NONE if item in wrong else concept] for item in shown}
        store.answer_together(annotator, answers, seconds=_seconds(form) / max(1, len(shown)))
        return RedirectResponse(_back(form, annotator), 303)

    @app.on("POST", "/finish")
    async def finish(request: Request) -> Response:
        _annotator(await _form(request))
        return PlainTextResponse(
            f"{store.export(results):,} answers in {results.name}; driftline run continues with them."
        )

    return guarded(app, port, "annotate", (f"'sha256-{digest}'",), host, study.public if study else "")


def one_by_one(study: Study | None) -> None:
    """Raise DriftlineError in a study: its participants must not see the expected answer."""
    if study is not None:
        raise DriftlineError("This page is not part of the study.", "", "Open the study from Prolific again.")


def _items(context: Context) -> list[dict[str, Any]]:
    """id, concept and fate of the candidates: the grid shows the candidates of one concept."""
    table = pq.read_table(folder_of(context.root, "retrieve") / "candidates.parquet", columns=["id", "concept", "fate"])
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table["fate"], value_set=pa.array(SHOWN))).to_pylist()
    return rows


async def _form(request: Request) -> dict[str, list[str]]:
    return parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=1000)


def _seconds(form: dict[str, list[str]]) -> int:
    """Time since the page was made; 0 if it does not say when."""
    begun = form.get("begun", ["0"])[0]
    return max(0, min(int(time.time()) - int(begun), 86_400)) if is_count(begun) and int(begun) else 0


def _back(form: dict[str, list[str]], annotator: str) -> str:
    """The page that a form came from: the grid of a concept, the conflicts, or one by one."""
    concept, view = form.get("concept", [""])[0], form.get("view", ["label"])[0]
    if concept:
        return f"grid?annotator={quote(annotator)}&concept={quote(concept)}"
    return f"{view if view == 'conflicts' else 'label'}?annotator={quote(annotator)}"


def _annotator(form: dict[str, list[str]]) -> str:
    name = form.get("annotator", [""])[0]
    if not re.fullmatch(NAME, name):
        raise DriftlineError(f"The annotator is {name!r}.", "Expected 1 to 40 letters, digits, '-', '_' or '.'.")
    return name


def _asked(
    question: str,
    coming: list[str],
    annotator: str,
    progress: Progress,
    blurred: bool,
    note: str,
    view: str,
    flagged: bool,
) -> str:
    """The MTurk page with this item's image, a form that posts to this server, and the next image preloaded.

    note: what others say of the image. view: label or conflicts.
    """
    item, *after = coming
    fields = {"item": item, "annotator": annotator, "begun": str(int(time.time())), "view": view}
    hidden = "".join(f'<input type="hidden" name="{name}" value="{html.escape(v)}">' for name, v in fields.items())
    agreement = "" if progress.agreement is None else f" · agreement {progress.agreement:.0%}"
    pace = "" if progress.pace is None else f" · {progress.pace:.0f} a minute"
    bar = (
        '<header class="top bar"><h1><span class="brand">driftline</span> annotate '
        f"<small>{html.escape(annotator)}: {progress.done} of {progress.total}{pace}{agreement}</small></h1>"
        f'<progress max="{progress.total}" value="{progress.done}" aria-label="Answered"></progress>'
        '<span class="soft keys"><kbd>1</kbd> … options <kbd>n</kbd> none <kbd>s</kbd> sensitive <kbd>Enter</kbd> next '
        f'<kbd>v</kbd> view</span><form method="post" action="undo" id="undo">{hidden}'
        f'<button>Undo <kbd>u</kbd></button></form><form method="post" action="skip" id="skip">{hidden}'
        '<input name="comment" maxlength="500" placeholder="Comment" aria-label="Comment" autocomplete="off"> '
        f'<button>Skip <kbd>k</kbd></button> <button id="flag" formaction="flag">{"Flagged" if flagged else "Flag"} '
        "<kbd>f</kbd></button></form></header>"
        + (f'<aside class="note" aria-label="What others say">{html.escape(note)}</aside>' if note else "")
    )
    ahead = "".join(f'<link rel="prefetch" href="image/{i}" as="image">' for i in after)
    head = (
        f'{ahead}<link rel="icon" href="static/icon.svg" type="image/svg+xml"><link rel="stylesheet" '
        'href="static/page.css"><script src="static/annotate.js" defer></script>'
    )
    return (
        question.replace("${image_url}", f"image/{item}")
        .replace('action="/mturk/externalSubmit"', 'action="answer" id="question"')
        .replace("</head>", head + "</head>", 1)
        .replace("<details open>", f'<section aria-label="Instructions"><details{"" if progress.done else " open"}>', 1)
        .replace("</details>", "</details></section>", 1)
        .replace("<body>", f'<body class="annotate {"blurred" if blurred else "clear"}">' + bar, 1)
        .replace("</form>\n</body>", hidden + '</form>\n<div class="message" role="status"></div></body>', 1)
    )
