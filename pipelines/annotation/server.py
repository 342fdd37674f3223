"""Local validation on loopback: the question page that MTurk workers see, with keys for everything."""

import base64
import hashlib
import html
import re
import sqlite3
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote

from markupsafe import escape
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from driftline.curate.core.errors import BadInput, DriftlineError, shortened
from driftline.curate.foreign.names import is_count, one_form
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.answers.answer_store import AnswerStore, unstored
from driftline.curate.validation.answers.answers import worker_key
from driftline.curate.validation.asking.batches import NONE, expected_of, question_page
from driftline.pipelines.annotation.batches import answers_so_far, grid_of, open_batch
from driftline.pipelines.stages.base import Context
from driftline.pipelines.web.local_server import LOOPBACK, guarded, local_app
from driftline.pipelines.web.rendering import template

PACKAGE = "driftline.pipelines.annotation"
IMAGES = {"jpg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
PERSON = 80  # characters of a name
GRID = 40  # images of a page in grid mode


def answer_store_of(context: Context) -> AnswerStore:
    """The open batch of a run folder and its local answers, with those that others gave and that count for it. Raises
    MissingFile if there is no batch."""
    facts = open_batch(context).facts
    rows, _ = answers_so_far(context, facts)
    elsewhere = ((row["worker"], row["item"], row["labels"]) for row in rows)
    path = context.root / "annotate" / f"{facts['batch']}.sqlite"
    return AnswerStore(path, facts, context.config.seed, elsewhere, worker_key(context.root))


def application(
    context: Context, port: int, host: str = LOOPBACK, say: Callable[[str], object] = str
) -> tuple[ASGIApp, str]:
    """(app, path to open, which contains a secret).

    host: a name or address, besides loopback, under which the page may be opened. say: called with the number of open
    images.
    """
    pages = Pages(context)
    say(pages.waiting())

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        pages.exported()

    def not_stored(_: Any, error: Any) -> Response:
        return PlainTextResponse(f"Nothing was stored. {unstored(pages.store.path, error)}", 507)

    app = local_app(PACKAGE, lifespan=lifespan)
    app.add_exception_handler(DriftlineError, lambda _, error: PlainTextResponse(str(error), 400))
    app.add_exception_handler(sqlite3.Error, not_stored)
    for path in ("/", "/label", "/conflicts", "/grid"):
        app.on("GET", path)(getattr(pages, path[1:] or "start"))
    app.on("GET", "/image/{item}")(pages.image)
    for path in ("/answer", "/skip", "/undo", "/reject", "/finish"):
        app.on("POST", path)(getattr(pages, path[1:]))
    style = re.search(r"<style>(.*?)</style>", pages.question, re.S)
    digest = base64.b64encode(hashlib.sha256((style.group(1) if style else "").encode()).digest()).decode()
    styles = (f"'sha256-{digest}'",)
    return guarded(app, port, "annotate", styles, host)


class Pages:
    """What the page shows, and what it stores. A method answers the path of its name."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.store = answer_store_of(context)
        batch = open_batch(context)
        self.images, self.before = batch.images(), len(batch.before)
        self.results = context.root / context.config.validation.answers / f"annotate-{batch.facts['batch']}.csv"
        self.page, self.bar = (template(PACKAGE, f"{name}.html.j2") for name in ("annotate", "asked"))
        self.question = question_page(context.config.retrieve.complete_concepts())
        grid = grid_of(context)
        self.candidates: dict[str, list[str]] = {}  # concept → its items
        for id_, item in sorted((id_, item) for item, id_ in self.store.batch["items"].items()):
            if id_ in grid:
                self.candidates.setdefault(grid[id_], []).append(item)

    def waiting(self) -> str:
        """How many images are open, and how many are not."""
        closed = len(self.store.closed())
        text = f"{len(self.store.batch['items']) - closed:,} images are open."
        if answered := closed + self.before:
            text += f" {answered:,} have their answers."
        return text

    def export(self) -> int:
        """Write the results file; returns how many answers it has."""
        return self.store.export(self.results)

    def exported(self) -> None:
        """The same at the end of a queue and of the server: a results file that somebody broke stops nobody here."""
        with suppress(DriftlineError):  # the run says it
            self.export()

    def _rendered(self, mode: str, annotator: str = "", concept: str = "", **values: Any) -> str:
        progress = self.store.progress(annotator) if annotator else None
        return self.page.render(
            mode=mode, annotator=annotator, concept=concept, progress=progress, size=GRID,
            begun=int(time.time()), background=concept == BACKGROUND,
            **({"grid": (), "marked": (), "answers": 0} | values),
        )  # fmt: skip

    def _asked(self, coming: list[str], annotator: str, note: str = "", view: str = "label") -> str:
        """The MTurk page with the first coming item's image, a form that posts to this server, and the next image
        preloaded. note: what others say of the image."""
        item, *after = coming
        fields = {"item": item, "annotator": annotator, "begun": str(int(time.time())), "view": view}
        progress = self.store.progress(annotator)
        bar = self.bar.render(fields=fields, annotator=annotator, progress=progress, note=note)
        hidden = "".join(f'<input type="hidden" name="{name}" value="{html.escape(v)}">' for name, v in fields.items())
        head = (
            "".join(f'<link rel="prefetch" href="image/{i}" as="image">' for i in after)
            + '<link rel="icon" href="static/icon.svg" type="image/svg+xml"><link rel="stylesheet" '
            'href="static/page.css"><script src="static/annotate.js" defer></script></head>'
        )
        unfold = "" if progress["done"] else " open"
        question = self.question
        for label in self.store.undone(annotator).get(item, []):
            question = question.replace(box := f'name="labels" value="{escape(label)}"', f"{box} checked")
        return (
            question.replace("${image_url}", f"image/{item}")
            .replace('action="/mturk/externalSubmit"', 'action="answer" id="question"')
            .replace("</head>", head, 1)
            .replace("<details open>", f'<section aria-label="Instructions"><details{unfold}>', 1)
            .replace("</details>", "</details></section>", 1)
            .replace("<body>", f'<body class="annotate">{bar}', 1)
            .replace("</form>\n</body>", hidden + '</form>\n<div class="message" role="status"></div></body>', 1)
        )

    def start(self) -> str:
        closed = self.store.closed()
        names = [*self.store.batch["concepts"], *({BACKGROUND} & self.candidates.keys())]
        left = [(name, sum(item not in closed for item in self.candidates.get(name, ()))) for name in names]
        return self._rendered("start", open=left, waiting=self.waiting())

    def label(self, annotator: str) -> str:
        annotator = person_name(annotator)
        coming = self.store.following(annotator)
        if not coming:
            self.exported()
            return self._rendered("done", annotator, answers=self.store.total())
        return self._asked(coming, annotator)

    def conflicts(self, annotator: str) -> str:
        """Adjudication: images on which annotators differ, one by one, with their answers."""
        annotator = person_name(annotator)
        coming = self.store.conflicts(annotator, self.context.config.validation.agree)
        if not coming:
            self.exported()
            return self._rendered("settled", annotator, answers=self.store.total())
        votes = "; ".join(f"{n} × {labels}" for labels, n in self.store.votes(coming[0]))
        self.store.show(annotator, coming[0], f"others: {votes}")
        return self._asked(coming[:2], annotator, f"{len(coming):,} in conflict. Others say: {votes}", "conflicts")

    def grid(self, annotator: str, concept: str) -> str:
        """Candidates of one concept; a page that was taken back comes first, with its marks."""
        annotator = person_name(annotator)
        undone = self.store.undone(annotator, concept)
        candidates = sorted(self.candidates.get(concept, []), key=lambda item: item not in undone)
        marked = {item for item, labels in undone.items() if set(labels) != expected_of(concept)}
        unanswered = self.store.unanswered(annotator, candidates, GRID, concept)
        return self._rendered("grid", annotator, concept, grid=unanswered, marked=marked)

    def image(self, item: str) -> Response:
        path = self.images.get(item)
        if path is None:
            return Response(status_code=404)
        kind = IMAGES.get(path.suffix[1:], "application/octet-stream")
        return Response(path.read_bytes(), media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    def answer(self, body: bytes) -> Response:
        form = Form.of(body)
        labels, sensitive = form.texts("labels"), form.text("sensitive") == "yes"
        self.store.answer(form.annotator, form.text("item"), labels, sensitive, form.seconds)
        return form.back()

    def skip(self, body: bytes) -> Response:
        form = Form.of(body)
        self.store.skip(form.annotator, form.text("item"))
        return form.back()

    def undo(self, body: bytes) -> Response:
        """Take back the last screen, and show it again."""
        form = Form.of(body)
        page = self.store.undo(form.annotator)
        return form.back(form.text("concept") if page is None else page)

    def reject(self, body: bytes) -> Response:
        """A page of the grid: the marked images do not show the concept, the others do. Marked background shows some
        concept: it stays open for the other mode."""
        form = Form.of(body)
        concept, wrong, shown = form.text("concept"), set(form.texts("wrong")), form.texts("shown")
        marked = [] if concept == BACKGROUND else [NONE]
        answers = {item: marked if item in wrong else sorted(expected_of(concept)) for item in shown}
        self.store.answer_together(form.annotator, answers, seconds=form.seconds, page=concept)
        return form.back(concept)

    def finish(self, body: bytes) -> Response:
        Form.of(body)
        text = f"{self.export():,} answers in {self.results.name}; driftline run continues with them."
        return PlainTextResponse(text)


def person_name(text: str) -> str:
    """The name that a person typed: in one Unicode form, with plain spaces inside and none around it. Raises BadInput
    unless it has 1 to 80 printable characters, or where a spreadsheet would take it for a formula.

    >>> person_name(" Zoe\u0308 O'Neill ")
    "Zoë O'Neill"
    """
    name = "".join(" " if unicodedata.category(c) == "Zs" else c for c in one_form(text)).strip(" ")
    plain = re.sub("(?<=.)[\u200c\u200d](?=.)", "", name)  # they join letters of Persian and Indian names
    if not 1 <= len(name) <= PERSON or not plain.isprintable() or name[0] in "=+-@":
        raise BadInput(
            f"The annotator is {shortened(repr(text), 100)}.",
            f"Expected a name of 1 to {PERSON} printable characters that does not begin with =, +, - or @.",
        )
    return name


@dataclass(frozen=True)
class Form:
    """What a page posts."""

    annotator: str
    """who posts"""
    values: dict[str, list[str]]
    """of each field"""

    @classmethod
    def of(cls, body: bytes) -> "Form":
        """The form that a request posts. Raises BadInput for the name of the person."""
        values = parse_qs(body.decode("utf-8", "replace"), max_num_fields=1000)
        return cls(person_name(values.get("annotator", [""])[0]), values)

    def texts(self, name: str) -> list[str]:
        """The values of one field."""
        return self.values.get(name, [])

    def text(self, name: str) -> str:
        """The first value of one field; "" without one."""
        return self.values.get(name, [""])[0]

    @property
    def seconds(self) -> int:
        """Time since the page was made; 0 if it does not say when."""
        begun = self.text("begun")
        return max(0, min(int(time.time()) - int(begun), 86_400)) if is_count(begun) and int(begun) else 0

    def back(self, concept: str = "") -> Response:
        """To the grid of a concept; without one to the page that the form came from: the conflicts, or one by one."""
        annotator = quote(self.annotator)
        view = "conflicts" if self.text("view") == "conflicts" else "label"
        place = f"grid?annotator={annotator}&concept={quote(concept)}" if concept else f"{view}?annotator={annotator}"
        return RedirectResponse(place, 303)
