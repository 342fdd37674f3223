"""retrieve: prompts → candidates per bucket and concept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.atomic_io import fingerprint, read_json
from driftline.pipelines.stages.base import Counts, Records, Stage, parts_of
from driftline.pipelines.stages.embed import own_encoder, spec_of


class Retrieve(Stage):
    """Exact search per bucket, CLEAR's overlap and background rules, and the additional rules that are on."""

    name: ClassVar[str] = "retrieve"
    records: ClassVar[Records] = (("candidates.parquet", "fate"),)
    needs: ClassVar[tuple[str, ...]] = ("filter", "bucket", "embed")
    hint: ClassVar[str] = (
        "No image is a candidate: see stages/06_retrieve/candidates.parquet, and the rules of retrieve."
    )

    def settings(self) -> Any:
        """Concepts, rules, and which buckets stay unlabelled; the seed where equal shares have a remainder."""
        config = self.context.config
        return [
            None if config.retrieve.strata is None else config.seed,
            config.retrieve.identity(self.name),
            config.release.short == "reopen",
            config.buckets.unlabelled,
            config.embed.model,
            config.embed.weights,
        ]

    def asked(self) -> Path:
        """Where the run keeps the images that were asked about with these settings, see `pipelines/run/leaving.py`."""
        return self.context.root / "kept" / f"asked-{fingerprint(self.settings())[:16]}.parquet"

    def outside(self) -> list[Path]:
        """The images that were asked about before photos were withdrawn or came."""
        return [path for path in (self.asked(),) if path.is_file()]

    def empty(self, bucketed: Path) -> list[tuple[int, str]]:
        """Bucket and concept of each place that stays empty: its image was asked about and has left the run."""
        import pyarrow.parquet as pq

        from driftline.curate.core.parsing import rows_of

        if not self.outside():
            return []
        there = set(pq.read_table(bucketed / "members.parquet", columns=["id"])["id"].to_pylist())
        rows = rows_of(pq.read_table(self.asked()), "id", "bucket", "concept")
        return [(bucket, concept) for id_, bucket, concept in rows if id_ not in there]

    def plugins(self) -> list[type]:
        """Also the encoder, which reads the prompts."""
        return [*super().plugins(), *own_encoder(self.context)]

    def check(self) -> None:
        """The model that reads the prompts can be loaded."""
        spec_of(self.context).load()

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """vectors → candidates.parquet, queries.npy."""
        from driftline.curate.retrieval.retrieve import RetrieveInputs, retrieve, text_encoder

        context, config = self.context, self.context.config
        buckets = config.buckets.labelled(read_json(inputs["bucket"] / "buckets.json"))
        read, fates = retrieve(
            RetrieveInputs(inputs["embed"], inputs["bucket"] / "members.parquet", parts_of(inputs["filter"]), buckets),
            config.retrieve,
            text_encoder(spec_of(context), inputs["embed"], context.run_log),
            out,
            context.run_log,
            context.executor,
            reserve=config.release.short == "reopen",
            seed=config.seed,
            kept=next(iter(self.outside()), None),
        )
        kept = fates.pop("kept", 0) + fates.pop("background", 0)
        return Counts(read, kept, fates)
