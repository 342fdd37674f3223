"""What a run would ask of people, and what it would ask and compute again, by what its store knows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from driftline.curate.embedding.features import encoder_name
from driftline.curate.fetch.address_guard import mostly_private
from driftline.curate.fetch.job import rules_of
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import outcomes
from driftline.curate.store.vectors import looks
from driftline.curate.validation.answers.answers import JUDGE
from driftline.curate.validation.asking.batches import estimate, wage
from driftline.curate.validation.settings import PRICES
from driftline.pipelines.annotation.batches import OpenBatch, answers_so_far
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.stages.ask import Ask, gold_of, items_of, judged_of, standing_of
from driftline.pipelines.stages.embed import spec_of

LOOKED_UP = 5_000  # addresses of the sample


def again(context: Context, sample: pa.Table | None, photos: int | None, todo: set[str]) -> dict[str, Any] | None:
    """Requests and vectors that are needed though a store is there, and the images that it knows; None without one.

    sample: table of some of the photos with the column url. photos: how many there are, with or without an image.
    """
    place = context.store()
    if place is None or not (place.folder / "index.sqlite").is_file() or sample is None or photos is None:
        return None
    urls = list(dict.fromkeys(url for url in sample["url"].to_pylist() if url))
    some = urls[:: max(1, len(urls) // LOOKED_UP)]
    counts: dict[str, Any] = {"requests": None, "embeddings": None, "answered": 0, "images": 0}
    if some:
        private = context.config.fetch.private_addresses
        if private == "auto" and not mostly_private(urls):
            private = "refuse"
        rules = rules_of(context.config.fetch.model_copy(update={"private_addresses": private}))
        with open_store(place.folder) as store:
            answers = outcomes(store, some)
            usable = [one for one in answers.values() if one.sha256 is not None or one.rules == rules]
            digests = [one.sha256 for one in usable if one.sha256 is not None]
            counts |= {"answered": len(usable), "images": len(digests)}
            if "fetch" in todo:
                counts["requests"] = round(photos * (1 - len(usable) / len(some)))
            if "embed" in todo:
                name = encoder_name(spec_of(context).load(), context.config.embed.batch)
                misses = len(usable) - len(digests)
                images = len(some) - misses
                counts["embeddings"] = round(photos * (images - len(looks(store, name, digests))) / len(some))
    return counts


def questions(context: Context, batch: OpenBatch | None = None) -> dict[str, Any] | None:
    """What people are asked about the candidates of a run, and what it costs: the images and gold questions of the
    stage `ask` itself, without those that were answered before. None: no people are asked.

    batch: the open batch, if `ask` is done. No judge is asked: `at_most` says whether answers of judges are missing.
    """
    settings = context.config.validation
    if settings.method != "crowd":
        return None
    inputs = {name: folder_of(context.root, name) for name in Ask.needs}
    items = items_of(inputs["retrieve"]).to_pylist()
    asked, unasked = {item["id"]: item["id"] for item in items}, False
    if settings.skip_people != "never":
        judged, alone = judged_of(context, sorted(asked), inputs, ask=False)
        endpoints = [JUDGE + judge.name for judge in settings.judges if judge.kind == "endpoint"]
        unasked = any(judged["worker"].to_pylist().count(name) < len(asked) for name in endpoints)
        asked = {id_: id_ for id_ in asked if alone.asks(id_)}
    facts: dict[str, Any] = {"batch": "", "items": asked, "concepts": []} if batch is None else batch.facts
    rows, own = answers_so_far(context, facts)
    answers = Counter(row["id"] for row in rows)
    begun = own or facts.get("after") is not None  # its gold questions are drawn already
    stand = standing_of(context).answered()
    ids = set(facts["items"].values() if begun else asked) - stand
    left = {id_ for id_ in ids if answers[id_] < settings.workers}
    shown = [] if begun else [item for item in items if item["id"] in left]
    gold = set(gold_of(context, shown, inputs["bucket"], set())) if shown else set()
    basis = "the candidates; judges have not answered all" if unasked else "the candidates"
    return priced(context, len(left | gold), len(gold - left), unasked, basis)


def expected_questions(context: Context, candidates: int) -> dict[str, Any] | None:
    """The same before retrieval, when only the most is known. candidates: their number."""
    settings = context.config.validation
    if settings.method != "crowd":
        return None
    gold = round(settings.gold_share * candidates) if settings.gold is not None else 0
    reasons = [f"{candidates:,} candidates", *(["before judges answer"] if settings.skip_people != "never" else [])]
    return priced(context, candidates + gold, gold, True, ", ".join(reasons))


def priced(context: Context, images: int, gold: int, at_most: bool, known_by: str) -> dict[str, Any]:
    """Questions, hours and US dollars of a batch of `images`, `gold` among them."""
    settings = context.config.validation
    answers = images * settings.workers
    return {
        "images": images, "gold": gold, "workers": settings.workers, "answers": answers,
        "hours": round(answers * settings.seconds / 3600, 2),
        "usd": estimate(images, settings), "platform": settings.platform, "fee": PRICES[settings.platform].source,
        "usd_an_hour": wage(settings.reward_usd, settings.seconds), "least_an_hour": PRICES[settings.platform].hourly,
        "at_most": at_most, "word": "at most" if at_most else "about", "known_by": known_by,
    }  # fmt: skip


def lines(counts: dict[str, Any]) -> list[str]:
    """The same for people."""
    texts = []
    if counts["requests"] is not None:
        texts.append(f"about {counts['requests']:,} requests; the store knows the other photos")
    if counts["embeddings"] is not None:
        texts.append(f"about {counts['embeddings']:,} vectors; the store has the others")
    return texts
