"""A run's open batch and where people answer it: the files of venues, and the actions of `driftline mturk`."""

from __future__ import annotations

import base64
import csv
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from curate.core.errors import BadConfig, MissingFile
from curate.core.s3 import S3Rules
from curate.core.s3 import client as s3_client
from curate.validation.batches import read_batch
from curate.validation.mturk import (
    PRODUCTION,
    SANDBOX,
    Plan,
    RunLog,
    approve,
    client,
    collect,
    publish,
    read_rejections,
    status,
)
from curate.validation.platforms import VENUES
from pipelines.runner import folder_of
from pipelines.stage import Context
from pipelines.stages.retrieve import concepts_of
from pipelines.stages.tally import round_folder

ACTIONS = ("estimate", "publish", "status", "collect", "approve")
TITLE = "Which of these are in the image?"
DESCRIPTION = "Look at one image, tick every element that you see in it, and say whether it holds sensitive content."
LONGEST = 7 * 24  # hours that a signed address may live
INLINE = 65_000  # bytes of an image inside its own address


@dataclass(frozen=True)
class OpenBatch:
    """The batch that is asked now. number: its round, from 1. facts: `batch.json`."""

    folder: Path
    number: int
    facts: dict[str, Any]

    def name(self, stem: str) -> str:
        """A file name of this round: the first has the plain one."""
        return stem if self.number == 1 else f"{stem}-{self.number:02d}"

    def images(self) -> dict[str, Path]:
        """item → file, in the order in which they are asked."""
        files = {p.stem: p for p in (self.folder / "images").iterdir()}
        with (self.folder / "batch.csv").open(newline="", encoding="utf-8") as file:
            return {row["item"]: files[row["item"]] for row in csv.DictReader(file)}


def open_batch(context: Context) -> OpenBatch:
    """The last round's batch. Raises MissingFile when nothing was asked."""
    folder = folder_of(context.root, "ask")
    if not (folder / "batch.json").is_file():
        raise MissingFile(
            f"{context.root} has asked nothing yet.",
            "Expected a batch (validation.method: crowd).",
            f"Run: driftline run {context.root} --until ask.",
        )
    found = OpenBatch(folder, 1, read_batch(folder))
    while ((later := round_folder(context.root, found.number + 1)) / "batch.json").is_file():
        facts = read_batch(later)
        if facts["after"] != found.facts["batch"]:  # of a batch that is not asked any more
            break
        found = OpenBatch(later, found.number + 1, facts)
    return found


def hand_out(
    context: Context, venues: list[str], out: Path, images: str | None, hours: float, rules: S3Rules
) -> dict[str, dict[str, int]]:
    """Write the open batch in the form of each venue; returns counts by venue.

    images: where workers find the images: an address that they lie below, `s3://bucket/prefix` (they are stored there
    and the addresses are signed for so many hours), or `inline` (inside the CSV; small ones). None: as configured.
    """
    writers = {name: VENUES[name] for name in venues}
    batch = open_batch(context)
    addresses = _addresses(batch.images(), images or context.config.validation.image_base_url, hours, rules)
    concepts = concepts_of(context.config)
    return {name: write(batch.facts, addresses, concepts, out / name) for name, write in writers.items()}


def _addresses(files: Mapping[str, Path], where: str, hours: float, rules: S3Rules) -> dict[str, str]:
    kinds = {item: mimetypes.guess_type(path.name)[0] or "application/octet-stream" for item, path in files.items()}
    if where == "inline":
        if large := [p for p in files.values() if p.stat().st_size > INLINE]:
            raise BadConfig(
                f"{len(large)} images are larger than {INLINE:,} bytes, {large[0].name} the first.",
                "Expected small images inside the addresses.",
                "Give --images an address or s3://bucket/prefix.",
            )
        return {
            item: f"data:{kinds[item]};base64,{base64.b64encode(path.read_bytes()).decode()}"
            for item, path in files.items()
        }
    parts = urlsplit(where)
    if parts.scheme == "s3" and parts.netloc:
        if not 0 < hours <= LONGEST:
            raise BadConfig(
                f"--hours is {hours:g}.", f"Expected more than 0 and at most {LONGEST}: S3 signs no longer."
            )
        return _signed(files, parts.netloc, parts.path.strip("/"), hours, rules, kinds)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadConfig(f"--images is {where!r}.", "Expected http(s)://…, s3://bucket/prefix or inline.")
    return {item: f"{where.rstrip('/')}/{path.name}" for item, path in files.items()}


def _signed(
    files: Mapping[str, Path], bucket: str, prefix: str, hours: float, rules: S3Rules, kinds: Mapping[str, str]
) -> dict[str, str]:
    service = s3_client(rules, keys=True)
    found = {}
    for item, path in files.items():
        place = {"Bucket": bucket, "Key": f"{prefix}/{path.name}" if prefix else path.name}
        service.put_object(**place, Body=path.read_bytes(), ContentType=kinds[item])
        found[item] = service.generate_presigned_url("get_object", Params=place, ExpiresIn=int(hours * 3600))
    return found


def act(
    context: Context,
    action: str,
    production: bool = False,
    max_spend: float | None = None,
    endpoint: str | None = None,
    profile: str | None = None,
    reject: Path | None = None,
) -> dict[str, Any]:
    """One action on the open batch of a run folder; returns what to tell.

    Sandbox and production have a journal each, for every round. Raises MissingFile when nothing was asked.
    """
    batch, section = open_batch(context), context.config.validation
    plan = Plan(TITLE, DESCRIPTION, section.reward_usd, section.workers)
    images = len(batch.facts["items"])
    if action == "estimate":
        told = {"images": images, "workers": plan.workers, "reward_usd": plan.reward, "cost_usd": plan.cost(images)}
        return told | {"usd_an_hour": batch.facts["usd_an_hour"]}
    if reject is not None and action != "approve":
        raise BadConfig("--reject belongs to approve.", f"The action is {action}.")
    place = endpoint or (PRODUCTION if production else SANDBOX)
    mode = "production" if production else "sandbox"
    run_log = RunLog(context.root / "mturk" / f"{batch.name(mode)}.jsonl")
    service = client(place, profile)
    if action == "publish":
        addresses = _addresses(batch.images(), section.image_base_url, 1, S3Rules())
        page = (batch.folder / "page.html").read_text(encoding="utf-8")
        with context.run_log.progress("mturk", images, "images") as tick:
            made = publish(service, place, batch.facts, page, addresses, plan, run_log, tick, production, max_spend)
        return {"published_now": made, "published": len(run_log.hits()), "cost_usd": plan.cost(images), "at": place}
    if action == "status":
        return {**status(service, run_log, plan), "images": images}
    if action == "collect":
        path = context.root / section.answers / f"{batch.name(f'mturk-{mode}')}.csv"
        return {"answers": collect(service, run_log, batch.facts["batch"], path), "file": str(path)}
    return approve(service, run_log, {} if reject is None else read_rejections(reject))
