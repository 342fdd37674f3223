"""tally: answers → verdicts; if too few images were accepted, the next candidates are asked (release.short: reopen)."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from driftline.curate.core.atomic_io import read_json, write_parquet
from driftline.curate.validation.settings import FORGOTTEN
from driftline.pipelines.stages.ask import (
    JUDGED,
    answers_of,
    batch_of,
    export_all,
    items_schema,
    results_files,
    standing_of,
)
from driftline.pipelines.stages.base import Counts, Records, Stage, parts_of
from driftline.pipelines.stages.retrieve import Retrieve

if TYPE_CHECKING:
    import pyarrow as pa

    from driftline.curate.validation.asking.crowd import Crowd, Items


class Tally(Stage):
    """Import the answers and judge every image; waits while answers are missing."""

    name: ClassVar[str] = "tally"
    records: ClassVar[Records] = (("answers.parquet", ""), ("labels.parquet", "decision"))
    needs: ClassVar[tuple[str, ...]] = ("filter", "fetch", "bucket", "embed", "retrieve", "ask")
    hint: ClassVar[str] = (
        "No image shows a concept of retrieve.concepts by its answers: change the concepts; of no_majority, decide the "
        "conflicts on the page of driftline annotate. driftline status DIR --dropped lists all."
    )

    def settings(self) -> Any:
        """The rules of counting, the labels of the source's catalogue, and the sizes of classes that rounds fill."""
        config = self.context.config
        return [
            config.seed,
            config.validation.identity(self.name),
            [c.label for c in config.retrieve.complete_concepts()],
            self._wanted() if config.release.short == "reopen" else None,
        ]

    def outside(self) -> list[Path]:
        """The answer files, and what stands of deleted ones."""
        stands = self.context.root / FORGOTTEN
        crowd = self.context.config.validation.method == "crowd"
        return results_files(self.context) + ([stands] if crowd and stands.is_file() else [])

    def prepare(self) -> None:
        """Write the results files of the local page: a server that was killed did not. Only their owner reads all."""
        export_all(self.context)
        for path in results_files(self.context):
            with suppress(OSError):  # of somebody else
                path.chmod(0o600)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """answers/*.csv, *.json → answers, asked, labels.parquet. Raises Waiting while answers are missing."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from driftline.curate.core.parsing import best_of
        from driftline.curate.validation.answers.verdicts import BEST

        config = self.context.config
        reopens, crowd = config.release.short == "reopen", None
        items: Items = pq.ParquetFile(inputs["ask"] / "items.parquet").read().to_pylist()  # as `items_of`
        asked: Items = []
        number, verdicts, to_people = 1, pa.table({}), items
        if config.validation.method == "crowd":
            crowd = self._crowd(inputs)
            to_people = [item for item in items if crowd.alone.asks(item["id"])]
        while to_people and (crowd is None or crowd.answered(to_people, number)):
            asked += [item | {"round": number} for item in items]
            verdicts = self._by_catalogue(inputs, asked) if crowd is None else crowd.verdicts(asked)
            items = self._next_items(inputs, asked, verdicts, number) if reopens else []
            if not items and reopens and crowd is not None and number < config.validation.rounds:
                items = crowd.known(self._unasked(inputs, asked))  # no answer is lost when the rounds are others
            to_people = items
            number += 1
        if crowd is not None:
            crowd.write(out, asked, verdicts)
        schema = items_schema().append(pa.field("round", pa.int32()))
        write_parquet(out / "asked.parquet", pa.Table.from_pylist(asked, schema))
        write_parquet(out / "labels.parquet", verdicts)
        outcome = Counter(best_of(verdicts, "decision", BEST)["decision"].to_pylist()) if asked else Counter[str]()
        kept = outcome.pop("kept", 0)
        return Counts(kept + outcome.total(), kept, outcome)

    def _wanted(self) -> dict[str, int]:
        """Class → images in each bucket."""
        config = self.context.config
        return {name: config.release.wanted(name) for name in config.retrieve.classes}

    def _next_items(self, inputs: Mapping[str, Path], asked: "Items", verdicts: "pa.Table", number: int) -> "Items":
        """Items of the next round: none if every class is full, no candidates are left, or the rounds are used up."""
        import pyarrow.parquet as pq

        from driftline.curate.validation.asking.crowd import next_candidates, short_cells

        config = self.context.config
        buckets = config.buckets.labelled(read_json(inputs["bucket"] / "buckets.json"))
        empty = Counter(Retrieve(self.context).empty(inputs["bucket"]))
        short = short_cells(verdicts, self._wanted(), [b["index"] for b in buckets], empty)
        if not short:
            return []
        candidates = pq.read_table(inputs["retrieve"] / "candidates.parquet")
        items = next_candidates(candidates, {item["id"] for item in asked}, short)
        outcome = f"; {len(items):,} further candidates are asked" if items else "; no candidates are left"
        if number >= config.validation.rounds:
            items, outcome = [], f"; validation.rounds is {number}"
        (bucket, concept), (missing, rate) = min(short.items())
        self.context.run_log.say(
            f"tally: after round {number} {len(short)} classes of buckets are short, "
            f"e.g. bucket {bucket}, {concept}: {missing} more ({rate:.0%} accepted){outcome}"
        )
        return items

    def _unasked(self, inputs: Mapping[str, Path], asked: "Items") -> "Items":
        """The candidates that no round asked about."""
        import pyarrow.parquet as pq

        ids = {item["id"] for item in asked}
        candidates = pq.read_table(inputs["retrieve"] / "candidates.parquet")
        rows = candidates.select([*items_schema().names, "fate"]).to_pylist()
        return [row for row in rows if row.pop("fate") in ("surplus", "reserve") and row["id"] not in ids]

    def _by_catalogue(self, inputs: Mapping[str, Path], asked: "Items") -> "pa.Table":
        """Verdicts by the labels of the source."""
        import pyarrow.parquet as pq

        from driftline.curate.core.parsing import rows_of
        from driftline.curate.validation.answers.verdicts import verdicts_from_labels
        from driftline.curate.validation.asking.crowd import asked_columns

        labels = dict(rows_of(pq.read_table(parts_of(inputs["filter"]), columns=["id", "label"]), "id", "label"))
        names = {c.name: c.label or c.name for c in self.context.config.retrieve.concepts}
        return verdicts_from_labels([asked_columns(item) for item in asked], labels, names)

    def _crowd(self, inputs: Mapping[str, Path]) -> "Crowd":
        import pyarrow.parquet as pq

        from driftline.curate.validation.answers.answers import ANSWERS, read_lines, worker_key
        from driftline.curate.validation.asking.batches import read_batch
        from driftline.curate.validation.asking.crowd import Crowd
        from driftline.curate.validation.judges import decided_alone

        context = self.context

        def write_batch(items: "Items", folder: Path, earlier: set[str], before: str) -> dict[str, Any]:
            return batch_of(context, items, inputs, folder, earlier, before)

        key = worker_key(context.root)
        lines = read_lines(results_files(context))
        section = context.config.validation
        judged = pq.read_table(inputs["ask"] / JUDGED) if section.judges else ANSWERS.empty_table()
        answers = answers_of(context, inputs["bucket"])
        answers.take_batch(read_batch(inputs["ask"]))
        answers.take_lines(lines)
        return Crowd(
            context.root, inputs["ask"], section, key, lines, write_batch, run_log=context.run_log,
            stored=answers, judged=judged, alone=decided_alone(judged, section, context.config.seed),
            standing=standing_of(context),
        )  # fmt: skip
