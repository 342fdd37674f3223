"""What a run would ask and compute again, by what its store knows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from curate.embedding.reuse import encoder_name
from curate.fetch.address_guard import mostly_private
from curate.fetch.reuse import rules_of
from curate.store.database import opened
from curate.store.photos import outcomes
from curate.store.vectors import looks
from pipelines.living import questions_left
from pipelines.stage import Context
from pipelines.stages.embed import spec_of

LOOKED_UP = 5_000  # addresses of the sample


def again(context: Context, sample: pa.Table | None, photos: int | None, todo: set[str]) -> dict[str, Any] | None:
    """Requests, vectors and questions that are needed though a store is there, and what it saves; None without one.

    sample: table of some of the photos with the column url.
    """
    place = context.store()
    if place is None or not (place.folder / "index.sqlite").is_file() or sample is None or photos is None:
        return None
    urls = list(dict.fromkeys(url for url in sample["url"].to_pylist() if url))
    some = urls[:: max(1, len(urls) // LOOKED_UP)]
    found: dict[str, Any] = {"requests": None, "embeddings": None, "questions": None}
    if some:
        private = context.config.fetch.private_addresses
        if private == "auto" and not mostly_private(urls):
            private = "refuse"
        rules = rules_of(context.config.fetch.model_copy(update={"private_addresses": private}))
        with opened(place.folder) as store:
            known = outcomes(store, some)
            usable = [one for one in known.values() if one.sha256 is not None or one.rules == rules]
            digests = [one.sha256 for one in usable if one.sha256 is not None]
            if "fetch" in todo:
                found["requests"] = round(photos * (1 - len(usable) / len(some)))
            if "embed" in todo:
                name = encoder_name(spec_of(context).load(), context.config.embed.batch)
                misses = len(usable) - len(digests)
                images = len(some) - misses
                found["embeddings"] = round(photos * (images - len(looks(store, name, digests))) / len(some))
    if "ask" in todo and "retrieve" not in todo:
        found["questions"] = questions_left(context)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    said = []
    if found["requests"] is not None:
        said.append(f"about {found['requests']:,} requests; the store knows the other photos")
    if found["embeddings"] is not None:
        said.append(f"about {found['embeddings']:,} vectors; the store has the others")
    if (asked := found["questions"]) is not None:
        said.append(f"{asked['images']:,} images that nobody answered, ${asked['usd']:,.2f} if paid workers do")
    return said
