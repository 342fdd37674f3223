"""Batches: candidates → what workers are asked, in MTurk requester-UI form (CSV + question page).

Image names are opaque and the expected class is in no file that a worker can see: an address such as
`…/soccer/12.jpg` would tell the answer.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from curate.concepts import Concept
from curate.ground.errors import BadConfig
from curate.ground.files import write_bytes, write_json, write_text
from curate.ground.rng import name_for, rng_for

NONE = "none"  # value of the exclusive box "None of the above"
FIELDS = ("batch", "item", "image_url")


def question_page(concepts: Sequence[Concept]) -> str:
    """CLEAR's question [supplement, figures 3 and 4] as plain HTML forms with `${image_url}` for the image.

    Plain inputs, because every marketplace and clone reads them; no script from another host. Concept texts are
    escaped; `$` in them is written as an entity, so that no template engine takes it for a variable.
    """
    from jinja2 import Environment

    template = files("curate").joinpath("templates/question.html.j2").read_text(encoding="utf-8")
    page = (
        Environment(autoescape=True)
        .from_string(template)
        .render(options=[(c.name, c.option) for c in concepts], nothing=NONE)
    )
    return page.replace("@@image_url@@", "${image_url}")


def write_batch(
    items: Sequence[tuple[str, str, bytes, str]],
    concepts: Sequence[Concept],
    out: Path,
    seed: int,
    workers: int,
    reward: float,
    image_base_url: str,
) -> dict[str, Any]:
    """items: (id, expected class, image bytes, extension). Writes `batch.csv`, `page.html`, `images/`,
    `batch.json`; returns what `batch.json` holds, item names included. Rows are in random order (seeded).
    """
    for concept in concepts:
        if concept.name == NONE or "|" in concept.name:
            raise BadConfig(
                f"A concept is named {concept.name!r}.",
                f"Expected a name other than {NONE!r} and without '|'.",
            )
    batch = name_for(seed, "batch", *sorted(id_ for id_, *_ in items))
    order = rng_for(seed, "batch order").permutation(len(items))
    names: dict[str, str] = {}
    rows = []
    for i in order.tolist():
        id_, _, data, extension = items[i]
        item = name_for(seed, "item", batch, id_)
        names[item] = id_
        write_bytes(out / "images" / f"{item}.{extension}", data)
        rows.append((batch, item, f"{image_base_url.rstrip('/')}/{item}.{extension}"))
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    writer.writerow(FIELDS)
    writer.writerows(rows)
    write_text(out / "batch.csv", buffer.getvalue())
    write_text(out / "page.html", question_page(concepts))
    facts = {
        "batch": batch,
        "items": names,
        "concepts": [c.name for c in concepts],
        "workers": workers,
        "reward_usd": reward,
        "estimate_usd": estimate(len(items), workers, reward),
    }
    write_json(out / "batch.json", facts)
    return facts


def estimate(images: int, workers: int, reward: float) -> float:
    """US dollars for asking `workers` people about each image; MTurk's fee is 20 %, at least $0.01 an answer.

    >>> estimate(100, 3, 0.02)
    9.0
    """
    return round(images * workers * (reward + max(0.2 * reward, 0.01)), 2)


def read_batch(folder: Path) -> dict[str, Any]:
    """`batch.json` of a finished ask stage."""
    facts: dict[str, Any] = json.loads((folder / "batch.json").read_text(encoding="utf-8"))
    return facts
