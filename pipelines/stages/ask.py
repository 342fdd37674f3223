"""ask: candidates → a batch of questions for workers; then the run waits."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.errors import BadInput
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.settings import FORGOTTEN
from driftline.pipelines.stages.base import Context, Counts, Records, Stage

if TYPE_CHECKING:
    import pyarrow as pa

    from driftline.curate.validation.answers.stored import Standing, StoredAnswers
    from driftline.curate.validation.judges import Alone

JUDGED = "judged.parquet"  # answers of judges, a table of ANSWERS


def items_schema() -> "pa.Schema":
    """Columns of items.parquet."""
    import pyarrow as pa

    return pa.schema([("id", pa.string()), ("bucket", pa.int32()), ("concept", pa.string()), ("score", pa.float32())])


class Ask(Stage):
    """Write the batch: a CSV for MTurk's requester page, the question page, images under opaque names."""

    name: ClassVar[str] = "ask"
    records: ClassVar[Records] = (("items.parquet", ""),)
    needs: ClassVar[tuple[str, ...]] = ("fetch", "bucket", "embed", "retrieve")

    def settings(self) -> Any:
        """What workers see, and in which order."""
        config = self.context.config
        concepts = [[c.name, c.option, c.examples] for c in config.retrieve.complete_concepts()]
        return [config.seed, config.validation.identity(self.name), concepts]

    def outside(self) -> list[Path]:
        """The gold questions."""
        gold = self.context.config.validation.gold
        return [] if gold is None else [self.context.path(gold)]

    def check(self) -> None:
        """The gold questions can be read, and judges have their keys."""
        from driftline.curate.validation.asking.batches import read_gold
        from driftline.curate.validation.judges import key_of

        for path in self.outside():
            read_gold(path, [c.name for c in self.context.config.retrieve.concepts])
        for judge in self.context.config.validation.judges:
            key_of(judge)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """candidates → items.parquet, batch.csv, page.html, images/, batch.json."""
        items = items_of(inputs["retrieve"])
        write_parquet(out / "items.parquet", items)
        if self.context.config.validation.method == "crowd":
            left = items.to_pylist()
            if self.context.config.validation.judges:
                ids = sorted({item["id"] for item in left})
                judged, alone = judged_of(self.context, ids, inputs)
                write_parquet(out / JUDGED, judged)
                left = [item for item in left if alone.asks(item["id"])]
                self.context.run_log.say(
                    f"ask: judges agree on {len(alone.decided):,} of {len(ids):,} images without people; of these "
                    f"{len(alone.audited):,}, drawn at random, are asked all the same"
                )
            facts = batch_of(self.context, left, inputs, out)
            self.context.run_log.say(
                f"ask: {len(facts['items']):,} images × {facts['workers']} answers: free by yourself; about "
                f"${facts['estimate_usd']:,.2f} with fees for paid workers, ${facts['usd_an_hour']:,.2f} an hour each"
            )
        photos = len(set(items["id"].to_pylist()))  # one may be asked for several concepts
        return Counts(photos, photos, {})


def items_of(retrieved: Path) -> "pa.Table":
    """The candidates that the first batch asks about, columns of `items_schema`."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    candidates = pq.ParquetFile(retrieved / "candidates.parquet").read()  # read_table would import pandas
    asked = pc.match_substring_regex(candidates["fate"], r"\A(kept|background)\z")  # as pa.array would
    return candidates.filter(asked).select(items_schema().names)


def judged_of(
    context: Context, ids: list[str], inputs: Mapping[str, Path], ask: bool = True
) -> "tuple[pa.Table, Alone]":
    """(answers of the judges as a table of ANSWERS, what they decide without people).

    ask: False asks no endpoint: what it did not answer before is left to people.
    """
    import numpy as np

    from driftline.curate.embedding.vector_store import vectors_of
    from driftline.curate.release.packing import FetchedImages
    from driftline.curate.validation.judges import decided_alone, judged

    config = context.config
    answers = judged(
        config.validation,
        config.retrieve.complete_concepts(),
        ids,
        FetchedImages.open(inputs["fetch"], inputs["bucket"] / "members.parquet", ids).plain,
        lambda some: vectors_of(inputs["embed"], some),
        np.load(inputs["retrieve"] / "queries.npy"),
        answers_of(context, inputs["bucket"], make=False),
        context.run_log,
        ask,
    )
    return answers, decided_alone(answers, config.validation, config.seed)


def batch_of(
    context: Context,
    items: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, Path],
    out: Path,
    asked: set[str] | None = None,
    after: str | None = None,
) -> dict[str, Any]:
    """Write a batch about `items` (id, bucket, concept, score), gold questions among them; returns its facts.

    asked: ids of earlier batches, which are not asked again as gold questions. after: name of the batch before.
    """
    from driftline.curate.release.packing import FetchedImages
    from driftline.curate.validation.asking.batches import write_batch

    config, concepts = context.config, context.config.retrieve.complete_concepts()
    gold = gold_of(context, items, inputs["bucket"], asked or set())
    shown = sorted({*(item["id"] for item in items), *gold})
    images = FetchedImages.open(inputs["fetch"], inputs["bucket"] / "members.parquet", shown)
    facts = write_batch(
        [(id_, *images.plain(id_)) for id_ in shown], concepts, out, config.seed, config.validation, gold, after=after
    )
    answers_of(context, inputs["bucket"]).take_batch(facts)
    return facts


def results_files(context: Context) -> list[Path]:
    """The files with answers of people, but none that a kill left unfinished."""
    if context.config.validation.method == "catalogue":
        return []
    folder = context.answers_folder
    return sorted(p for p in folder.glob("[!.]*.*") if p.suffix.lower() in (".csv", ".json")) if folder.is_dir() else []


def local_files(context: Context) -> list[tuple[Path, Path]]:
    """The answers of the local page: (SQLite file, results file) of each batch that was opened."""
    paths = sorted((context.root / "annotate").glob("*.sqlite"))
    return [(p, context.answers_folder / f"annotate-{p.stem}.csv") for p in paths]


def export_all(context: Context) -> int:
    """Write the results files of the local page; returns how many answers they have."""
    import sqlite3

    from driftline.curate.validation.answers.answer_store import AnswerStore, unstored

    total = 0
    for path, results in local_files(context):
        with closing(AnswerStore(path)) as store:
            try:
                total += store.export(results)
            except sqlite3.Error as error:
                raise unstored(path, error) from None
    return total


def answers_of(context: Context, bucketed: Path, make: bool = True) -> "StoredAnswers":
    """The answers of people to all batches: in the run's store, without one beside the batches. make: see
    `worker_key`."""
    import pyarrow.parquet as pq

    from driftline.curate.core.parsing import rows_of
    from driftline.curate.store.database import Place
    from driftline.curate.validation.answers.answers import worker_key
    from driftline.curate.validation.answers.stored import StoredAnswers, deletions, options_of

    folder = context.root / "batches"

    def digests(ids: Collection[str]) -> dict[str, str]:
        rows = rows_of(pq.ParquetFile(bucketed / "members.parquet").read(["id", "sha256"]), "id", "sha256")
        asked = set(ids)  # pc.is_in would need them as an array, which imports pandas
        return {id_: digest for id_, digest in rows if id_ in asked}

    options = options_of(context.config.retrieve.complete_concepts())
    place = context.store() or Place(folder)
    since = max((one["time"] for one in deletions(context.root)), default=0)
    return StoredAnswers(place, folder, options, digests, worker_key(context.root, make), since)


def standing_of(context: Context) -> "Standing":
    """The verdicts whose answers were deleted, for the photos and the page of a run now."""
    import pyarrow.parquet as pq

    from driftline.curate.validation.answers.stored import Standing, options_of, standing
    from driftline.pipelines.stages.state import folder_of

    if not (context.root / FORGOTTEN).is_file():
        return Standing()
    photos = pq.ParquetFile(folder_of(context.root, "bucket") / "members.parquet").read(["id", "sha256"])
    return standing(context.root, photos, options_of(context.config.retrieve.complete_concepts()))


def gold_of(
    context: Context, items: Sequence[Mapping[str, Any]], bucketed: Path, asked: set[str]
) -> dict[str, frozenset[str]]:
    """Questions with known answers: those of the file, and the background's lowest cosines for "none"."""
    section = context.config.validation
    if section.gold is None:
        return {}
    import pyarrow.parquet as pq

    from driftline.curate.validation.asking.batches import NONE, draw_gold, read_gold

    gold = read_gold(context.path(section.gold), [c.name for c in context.config.retrieve.concepts])
    stored = set(pq.ParquetFile(bucketed / "members.parquet").read(["id"])["id"].to_pylist())
    if strange := sorted(set(gold) - stored):
        raise BadInput(
            f"{section.gold} names {len(strange)} photos without an image in this run, {strange[0]!r} the first.",
            "Expected ids of fetched photos.",
            "driftline trace shows where a photo was dropped.",
        )
    wanted = round(section.gold_share * len({item["id"] for item in items}))
    nothing = frozenset({NONE})
    if nothing not in gold.values():
        lowest = sorted((i["score"], i["id"]) for i in items if i["concept"] == BACKGROUND)
        gold |= {id_: nothing for _, id_ in lowest[: max(1, wanted // (len(set(gold.values())) + 1))]}
    return draw_gold({i: labels for i, labels in gold.items() if i not in asked}, wanted, context.config.seed)
