"""The open batch of a run, and its files for crowd platforms."""

import base64
import csv
import mimetypes
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadConfig, MissingFile
from driftline.curate.core.parsing import rows_of
from driftline.curate.metadata.withdrawals import NAME, withdrawals
from driftline.curate.validation.answers.answer_store import COLUMNS, AnswerStore
from driftline.curate.validation.answers.answers import JUDGE, of_people, read_answers, read_lines
from driftline.curate.validation.answers.stored import merged
from driftline.curate.validation.asking import PLATFORMS
from driftline.curate.validation.asking.batches import estimate, read_batch, wage
from driftline.curate.validation.asking.crowd import round_folder
from driftline.curate.validation.settings import PRICES
from driftline.pipelines.stages import ask
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import folder_of

MAX_INLINE = 65_000  # bytes of an image that is put into its own URL


@dataclass(frozen=True)
class OpenBatch:
    """The batch that waits for answers now."""

    folder: Path
    """where its files are"""
    number: int
    """its round, from 1"""
    facts: dict[str, Any]
    """`batch.json`"""
    before: frozenset[str] = frozenset()
    """ids in the batches before it that have their answers"""

    def images(self) -> dict[str, Path]:
        """item → image file, in the order in which the items are asked."""
        files = {p.stem: p for p in (self.folder / "images").iterdir()}
        with (self.folder / "batch.csv").open(newline="", encoding="utf-8") as file:
            items = [row["item"] for row in csv.DictReader(file)]
        return {item: files[item] for item in items if item in self.facts["items"]}


def open_batch(context: Context) -> OpenBatch:
    """The batch of the last round, without photos that were withdrawn since or whose answers were deleted. Raises
    MissingFile without a batch."""
    folder = folder_of(context.root, "ask")
    if not (folder / "batch.json").is_file():
        raise MissingFile(
            f"{context.root} has no batch yet.",
            "Expected the stage ask to be done, with validation.method: crowd.",
            f"Run: driftline run {context.root} --until ask.",
        )
    batch = OpenBatch(folder, 1, read_batch(folder))
    last = batch.facts["batch"]
    if ((rest := round_folder(context.root, 1)) / "batch.json").is_file():  # what was not answered before
        facts = read_batch(rest)
        batch = _after(batch, rest, 1, facts) if facts["after"] == last else batch
    while ((later := round_folder(context.root, batch.number + 1)) / "batch.json").is_file():
        facts = read_batch(later)
        if facts["after"] != last:  # it follows a batch of other settings
            break
        batch, last = _after(batch, later, batch.number + 1, facts), facts["batch"]
    if gone := {one.id for one in withdrawals(context.root / NAME)} | ask.standing_of(context).answered():
        items = {item: id_ for item, id_ in batch.facts["items"].items() if id_ not in gone}
        batch = replace(batch, facts=batch.facts | {"items": items})
    return batch


def _after(batch: OpenBatch, folder: Path, number: int, facts: dict[str, Any]) -> OpenBatch:
    before = batch.before.union(batch.facts["items"].values()).difference(facts["items"].values())
    return OpenBatch(folder, number, facts, before)


def grid_of(context: Context) -> dict[str, str]:
    """Id → the concept in whose grid a candidate stands: the one for which it is asked, of others the one for which it
    may be asked in a later round. A photo of several concepts stands in none: it is asked one by one."""
    table = pq.read_table(folder_of(context.root, "retrieve") / "candidates.parquet", columns=["id", "concept", "fate"])
    concepts: dict[str, list[str]] = {}
    for fates in (("kept", "background"), ("surplus", "reserve")):
        rows = table.filter(pc.is_in(table["fate"], value_set=pa.array(fates)))
        new: dict[str, list[str]] = {}
        for id_, concept in rows_of(rows, "id", "concept"):
            new.setdefault(id_, []).append(concept)
        concepts = new | concepts
    return {id_: concept for id_, (concept, *more) in concepts.items() if not more}


def answers_so_far(context: Context, facts: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """(rows of ANSWERS that count for a batch, whether anybody answered the batch itself). facts: its `batch.json`.

    The answers are those of the local page, of results files, and to other batches whose page counts. No file of the
    run changes.
    """
    lines = read_lines(ask.results_files(context))
    for path, _ in ask.local_files(context):
        with closing(AnswerStore(path)) as store:
            local = [(str(path), dict(zip(COLUMNS, map(str, row), strict=True))) for row in store.rows()]
        lines[path.stem] = [*local, *lines.get(path.stem, [])]
    own = lines.get(facts["batch"], [])
    stored = ask.answers_of(context, folder_of(context.root, "bucket"), make=False)
    is_there = (stored.place.folder / "index.sqlite").is_file()  # a plan makes no store
    shown = [line for line in own if line[1].get("Input.item") in facts["items"]]  # not what was withdrawn since
    table = read_answers(shown, facts, stored.key)
    if is_there:
        table = merged(table, stored.earlier(facts, lines))
    return [row for row in of_people(table).to_pylist() if row["fault"] is None], bool(own)


def questions(context: Context, batch: OpenBatch | None = None) -> dict[str, Any] | None:
    """What people are asked about the candidates of a run, and what it costs: the images and gold questions of the
    stage `ask` itself, without those that were answered before. None: no people are asked.

    batch: the open batch, if `ask` is done. No judge is asked: `at_most` says whether answers of judges are missing.
    """
    settings = context.config.validation
    if settings.method != "crowd":
        return None
    inputs = {name: folder_of(context.root, name) for name in ask.Ask.needs}
    items = ask.items_of(inputs["retrieve"]).to_pylist()
    asked, unasked = {item["id"]: item["id"] for item in items}, False
    if settings.skip_people != "never":
        judged, alone = ask.judged_of(context, sorted(asked), inputs, ask=False)
        endpoints = [JUDGE + judge.name for judge in settings.judges if judge.kind == "endpoint"]
        unasked = any(judged["worker"].to_pylist().count(name) < len(asked) for name in endpoints)
        asked = {id_: id_ for id_ in asked if alone.asks(id_)}
    facts: dict[str, Any] = {"batch": "", "items": asked, "concepts": []} if batch is None else batch.facts
    rows, own = answers_so_far(context, facts)
    answers = Counter(row["id"] for row in rows)
    begun = own or facts.get("after") is not None  # its gold questions are drawn already
    ids = set(facts["items"].values() if begun else asked) - ask.standing_of(context).answered()
    left = {id_ for id_ in ids if answers[id_] < settings.workers}
    shown = [] if begun else [item for item in items if item["id"] in left]
    gold = set(ask.gold_of(context, shown, inputs["bucket"], set())) if shown else set()
    basis = "the candidates; judges have not answered all" if unasked else "the candidates"
    return priced(context, len(left | gold), len(gold - left), unasked, basis)


def priced(context: Context, images: int, gold: int, at_most: bool, known_by: str) -> dict[str, Any]:
    """Questions, hours and US dollars of a batch of `images`, `gold` among them."""
    settings = context.config.validation
    answers, price = images * settings.workers, PRICES[settings.platform]
    return {
        "images": images, "gold": gold, "workers": settings.workers, "answers": answers,
        "hours": round(answers * settings.seconds / 3600, 2),
        "usd": estimate(images, settings), "platform": settings.platform, "fee": price.source,
        "usd_an_hour": wage(settings.reward_usd, settings.seconds), "least_an_hour": price.hourly,
        "at_most": at_most, "word": "at most" if at_most else "about", "known_by": known_by,
    }  # fmt: skip


def write_batches(context: Context, platforms: list[str], out: Path, images: str | None) -> dict[str, dict[str, int]]:
    """Write the open batch as the files of each platform; returns counts by platform.

    images: where workers find the images: a URL prefix, or `inline` (in the CSV; for small images). None: as
    configured.
    """
    writers = {name: PLATFORMS.resolve(name) for name in platforms}
    batch = open_batch(context)
    addresses = _addresses(batch.images(), images or context.config.validation.image_base_url)
    concepts = context.config.retrieve.complete_concepts()
    return {name: write(batch.facts, addresses, concepts, out / name) for name, write in writers.items()}


def _addresses(files: Mapping[str, Path], place: str) -> dict[str, str]:
    if place == "inline":
        if large := [p for p in files.values() if p.stat().st_size > MAX_INLINE]:
            raise BadConfig(
                f"{len(large)} images are larger than {MAX_INLINE:,} bytes (first: {large[0].name}).",
                "Expected small images for --image-base-url inline.",
                "Set --image-base-url to a URL.",
            )
        kinds = {item: mimetypes.guess_type(path.name)[0] or "application/octet-stream" for item, path in files.items()}
        return {
            item: f"data:{kinds[item]};base64,{base64.b64encode(path.read_bytes()).decode()}"
            for item, path in files.items()
        }
    parts = urlsplit(place)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadConfig(f"--image-base-url is {place!r}.", "Expected http(s)://… or inline.")
    return {item: f"{place.rstrip('/')}/{path.name}" for item, path in files.items()}
