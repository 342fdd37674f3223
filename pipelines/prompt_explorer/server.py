"""The explore page: enter prompts, see what each retrieves per bucket, mark, compare, save."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from driftline.curate.core.errors import DriftlineError
from driftline.pipelines.prompt_explorer.explorer import Explorer
from driftline.pipelines.prompt_explorer.query import Query
from driftline.pipelines.prompt_explorer.views import BINS, BucketView, Share, View
from driftline.pipelines.run.stage import Context
from driftline.pipelines.web.local_server import guarded
from driftline.pipelines.web.page import LocalApp, local_app
from driftline.pipelines.web.rendering import template

MAX_IMAGES = 200  # of a bucket on one page
MAX_PROMPT = 8000  # characters of a prompt field
Text = Annotated[str, Field(max_length=MAX_PROMPT)]
Name = Annotated[str, Field(min_length=1, max_length=80)]
Count = Annotated[int, Field(ge=1, le=MAX_IMAGES)]


def application(context: Context, port: int) -> tuple[ASGIApp, str]:
    """(app for one run folder, path to open, which contains a secret). Raises DriftlineError if the folder has no
    embedded images."""
    explorer = Explorer(context)
    page_of = template(
        "driftline.pipelines.prompt_explorer", "explore.html.j2", address=address, share=share_text, bars=bars
    )
    app = local_app("driftline.pipelines.prompt_explorer")

    def views(a: str, b: str, concept: str, k: int) -> list[View]:
        return [explorer.view(Query.parse(text), concept, k) for text in (a, b) if Query.parse(text).prompts]

    @app.on("GET", "/")
    def page(a: Text = "", b: Text = "", concept: Text = "", k: Count = 12) -> str:
        prompts_of = {c.name: "\n".join([*c.prompts, *(f"- {n}" for n in c.negatives)]) for c in explorer.concepts}
        if concept in prompts_of and not a.strip():
            a = prompts_of[concept]
        shown = views(a, b, concept, k)
        return page_of.render(
            a=a, b=b, concept=concept, k=k, max_images=MAX_IMAGES, concepts=prompts_of, views=shown,
            samples=[] if shown else explorer.samples(k), cost=explorer.cost(),
            buckets=list(explorer.buckets.values()),
            name=context.root.resolve().name, max_prompt=MAX_PROMPT,
        )  # fmt: skip

    @cache
    def collection() -> LocalApp:
        from driftline.pipelines.browse.run_table import run_collection
        from driftline.pipelines.browse.server import pages

        return pages(run_collection(context), prompts="../")

    async def photos(scope: Scope, receive: Receive, send: Send) -> None:
        await (await run_in_threadpool(collection))(scope, receive, send)

    app.mount("/photos", photos)  # the page of `driftline browse`, opened when it is asked for

    @app.on("GET", "/thumb")
    def thumb(id: Text) -> Response:  # noqa: A002  the name in the address
        try:
            return Response(explorer.thumbnail(id), media_type="image/jpeg", headers={"Cache-Control": "max-age=3600"})
        except DriftlineError as error:
            return JSONResponse({"error": str(error)}, 404)

    @app.on("POST", "/mark")
    def mark(concept: Name, id: Text, right: bool | None, a: Text = "", b: Text = "", k: Count = 12) -> dict[str, Any]:  # noqa: A002
        explorer.mark(concept, id, right)
        return {
            "shares": [
                {"all": share_text(view.share), "buckets": [share_text(bucket.share) for bucket in view.buckets]}
                for view in views(a, b, concept, k)
            ]
        }

    @app.on("POST", "/save")
    def save(concept: Name, prompt: Text) -> dict[str, str]:
        explorer.save(concept, Query.parse(prompt))
        return {"saved": concept}

    return guarded(app, port, "explore")


def address(id_: str) -> str:
    """The path of a photo's thumbnail."""
    return "thumb?id=" + quote(id_, safe="")


def share_text(share: Share) -> str:
    """ "8 of 10 right: 0.80 (0.49 to 0.94)"."""
    if share.marked == 0:
        return "none marked"
    low, high = share.interval
    return f"{share.right} of {share.marked} right: {share.right / share.marked:.2f} ({low:.2f} to {high:.2f})"


def bars(bucket: BucketView) -> dict[str, Any]:
    """The histogram as bars (x, width, height, above the cut) in a box of 200 × 40, from the first score to the last.

    Heights are logarithmic, so that the few images above the cut are visible.
    """
    filled = [i for i, n in enumerate(bucket.histogram) if n]
    if not filled:
        return {"bars": [], "low": 0.0, "high": 0.0, "cut": None}
    first, last = filled[0], filled[-1] + 1
    top = math.log1p(max(bucket.histogram))
    width = 200 / (last - first)
    scale = 2 / BINS
    cut = (bucket.cut + 1) / scale
    return {
        "bars": [
            ((i - first) * width, width * 0.9, 40 * math.log1p(bucket.histogram[i]) / top, i + 1 > cut)
            for i in range(first, last)
        ],
        "low": first * scale - 1,
        "high": last * scale - 1,
        "cut": (cut - first) * width,
    }
