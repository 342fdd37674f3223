"""A run's batch and Mechanical Turk: the actions of `driftline mturk`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.ground.errors import BadConfig, MissingFile
from curate.validation.batches import read_batch
from curate.validation.mturk import (
    PRODUCTION,
    SANDBOX,
    Journal,
    Plan,
    approve,
    client,
    collect,
    publish,
    read_rejections,
    status,
)
from pipelines.runner import folder_of
from pipelines.stage import Context

ACTIONS = ("estimate", "publish", "status", "collect", "approve")
TITLE = "Which of these are in the image?"
DESCRIPTION = "Look at one image, tick every element that you see in it, and say whether it holds sensitive content."


def act(
    context: Context,
    action: str,
    production: bool = False,
    max_spend: float | None = None,
    endpoint: str | None = None,
    profile: str | None = None,
    reject: Path | None = None,
) -> dict[str, Any]:
    """One action on the batch of a run folder; returns what to tell.

    Sandbox and production have a journal each. Raises MissingFile when nothing was asked.
    """
    folder = folder_of(context.root, "ask")
    if not (folder / "batch.json").is_file():
        raise MissingFile(
            f"{context.root} has asked nothing yet.",
            "Expected a batch (validation.method: crowd).",
            f"Run: driftline run {context.root} --until ask.",
        )
    batch, section = read_batch(folder), context.config.validation
    plan = Plan(TITLE, DESCRIPTION, section.reward_usd, section.workers)
    images = len(batch["items"])
    if action == "estimate":
        return {"images": images, "workers": plan.workers, "reward_usd": plan.reward, "cost_usd": plan.cost(images)}
    if reject is not None and action != "approve":
        raise BadConfig("--reject belongs to approve.", f"The action is {action}.")
    place = endpoint or (PRODUCTION if production else SANDBOX)
    journal = Journal(context.root / "mturk" / f"{'production' if production else 'sandbox'}.jsonl")
    service = client(place, profile)
    if action == "publish":
        base = section.image_base_url.rstrip("/")
        addresses = {p.stem: f"{base}/{p.name}" for p in sorted((folder / "images").iterdir())}
        page = (folder / "page.html").read_text(encoding="utf-8")
        with context.journal.progress("mturk", images, "images") as tick:
            made = publish(service, place, batch, page, addresses, plan, journal, tick, production, max_spend)
        return {"published_now": made, "published": len(journal.hits()), "cost_usd": plan.cost(images), "at": place}
    if action == "status":
        return {**status(service, journal, plan), "images": images}
    if action == "collect":
        path = context.root / section.answers / f"mturk-{'production' if production else 'sandbox'}.csv"
        return {"answers": collect(service, journal, batch["batch"], path), "file": str(path)}
    return approve(service, journal, {} if reject is None else read_rejections(reject))
