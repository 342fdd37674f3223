"""publish: verdicts + shards → release."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from driftline.curate.core.atomic_io import fingerprint, read_json
from driftline.curate.core.errors import BadConfig
from driftline.curate.encoders import EncoderSpec
from driftline.curate.encoders.weights import seen
from driftline.curate.metadata.released_ids import assign_ids, released_ids
from driftline.curate.metadata.withdrawals import NAME, withdrawals, withdrawn_ids
from driftline.pipelines import VERSION
from driftline.pipelines.stages.base import Counts, Records, Stage, parts_of
from driftline.pipelines.stages.bucket import Bucket
from driftline.pipelines.stages.embed import built_in

if TYPE_CHECKING:
    from driftline.curate.release.choice import ReleaseInputs


class Publish(Stage):
    """Choose n images per class and bucket, split, and write the release."""

    name: ClassVar[str] = "publish"
    records: ClassVar[Records] = (("release/metadata.parquet", ""), ("dropped.parquet", "reason"))
    version: ClassVar[int] = 6
    needs: ClassVar[tuple[str, ...]] = ("ingest", "filter", "fetch", "bucket", "embed", "retrieve", "ask", "tally")

    def settings(self) -> Any:
        """All settings, because the card describes the whole run, the text that the card contains, and whether the run
        has grown."""
        config = self.context.config
        return [config.identity(self.name), self._judgement(), self._grows()]

    def check(self) -> None:
        """The text, lists and releases that the settings name can be read."""
        from driftline.curate.release import Release

        section = self.context.config.release
        self._judgement()
        self._withdrawn()
        if section.previous is not None:
            place = Release.open(self.context.path(section.previous)).path.resolve()
            if place.is_relative_to((self.context.root / "stages").resolve()):
                raise BadConfig(
                    f"release.previous is {place}, which this run writes.",
                    "Expected a copy of the release in another place.",
                    f"First: cp -r {place} PLACE",
                )

    def outside(self) -> list[Path]:
        """Checkpoints of the release's features, the previous release, withdrawn ids."""
        section = self.context.config.release
        named = [entry.weights for entry in section.features] + [section.withdrawn, section.previous]
        paths = [self.context.path(name) for name in named if name is not None]
        paths += [self.context.root / NAME, self.sides()]
        return [path for path in paths if path.exists()]

    def sides(self) -> Path:
        """Where the run keeps groups and sides of images that were published with these settings, see
        `pipelines/run/leaving.py`."""
        config = self.context.config
        drawn = config.release.model_dump(include={"splits", "test_share", "ids"})
        mark = fingerprint([config.seed, list(config.retrieve.classes), drawn])[:16]
        return self.context.root / "kept" / f"sides-{mark}.parquet"

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """verdicts → release/."""
        from driftline.curate.release.compose import compose

        return Counts(*compose(self.collection(inputs), self.context.config.seed, self._provenance(inputs), out))

    def collection(self, inputs: Mapping[str, Path]) -> "ReleaseInputs":
        """What the release is made from."""
        import pyarrow.parquet as pq

        from driftline.curate.release import Release
        from driftline.curate.release.choice import ReleaseInputs

        context, config, section = self.context, self.context.config, self.context.config.release
        return ReleaseInputs(
            table=parts_of(inputs["filter"]),
            fetched=inputs["fetch"],
            members=inputs["bucket"] / "members.parquet",
            embedded=inputs["embed"],
            verdicts=pq.read_table(inputs["tally"] / "labels.parquet"),
            asked=inputs["tally"] / "asked.parquet",
            buckets=config.buckets.labelled(read_json(inputs["bucket"] / "buckets.json")),
            classes=sorted(config.retrieve.classes),
            settings=section,
            run_log=context.run_log,
            executor=context.executor,
            withdrawn=self._withdrawn(),
            previous=None if section.previous is None else Release.open(context.path(section.previous)),
            kept=pq.read_table(self.sides()) if self.sides().is_file() else None,
            judgement=self._judgement(),
            backbones=self._backbones(),
            batch=config.embed.batch,
            store=context.store(),
            requested=config.collection.requested,
            names=self._names(inputs),
            people=_people(inputs["tally"]),
        )

    def _withdrawn(self) -> dict[str, bool]:
        """Id of each withdrawn photo, of the setting and of the run → whether a release of the run held it."""
        asked = self.context.config.release.withdrawn
        by_setting = [] if asked is None else withdrawn_ids(self.context.path(asked))
        of_run = {one.id: bool(one.release) for one in withdrawals(self.context.root / NAME)}
        own = {released: id_ for id_, released in released_ids(self.context.root).items()}
        return {own.get(id_, id_): held for id_, held in (dict.fromkeys(by_setting, False) | of_run).items()}

    def _names(self, inputs: Mapping[str, Path]) -> dict[str, str]:
        """Id → id in the release, of those that are replaced."""
        if self.context.config.release.ids == "path":
            return {}
        members, own = inputs["bucket"] / "members.parquet", self.context.config.collection.own_ids()
        return assign_ids(self.context.root, members, parts_of(inputs["filter"]), own)

    def _judgement(self) -> str | None:
        """The sections of the card that a person wrote."""
        if (name := self.context.config.release.judgement) is None:
            return None
        path = self.context.path(name)
        if not path.is_file():
            raise BadConfig(f"There is no file {path}.", "Expected what release.judgement names.")
        return path.read_text(encoding="utf-8")

    def _backbones(self) -> dict[str, EncoderSpec]:
        """Name → encoder of the release's further features."""
        embed, specs = self.context.config.embed, {}
        for entry in self.context.config.release.features:
            file = self.context.path(entry.weights)
            weights = built_in(entry.weights) or (str(file) if file.exists() else entry.weights)
            common = embed.model_dump(include={"device", "precision"})
            specs[entry.name] = EncoderSpec(encoder="backbone", model=entry.model, weights=weights, **common)
        return specs

    def _provenance(self, inputs: Mapping[str, Path]) -> dict[str, Any]:
        """What the release says of its run."""
        from driftline.pipelines.stages.photos import counts_of

        config, cut = self.context.config, self.context.config.buckets
        joined = {"joined": {"unit": cut.unit, "min_photos": cut.min_photos}} if cut.joins else {}
        rules = {"method", "workers", "agree", "rule", "aggregate", "confidence", "sensitive_drop", "sensitive_hold",
                 "skip_people", "audit_share"}  # fmt: skip
        return {
            "driftline": VERSION,
            "notice": config.release.notice,
            "author": config.release.author,
            "live": self._grows(),
            "url": config.release.url,
            "published": config.release.date,
            "source": config.collection.source,
            "seed": config.seed,
            "encoder": read_json(inputs["embed"] / "encoder.json"),
            "seen": {
                name: asdict(seen(spec.encoder, spec.model, spec.weights)) for name, spec in self._backbones().items()
            },
            "prompts": {c.name: list(c.prompts) for c in config.retrieve.concepts},
            "near_copies": config.release.model_dump(include={"near_copies", "copy_bits", "copy_cosine"}),
            "validation": config.validation.model_dump(include=rules),
            "agreement": agreement_of(inputs["tally"]),
            "contradicted_dates": self._contradicted(inputs["filter"]),
            "undecided": read_json(inputs["bucket"] / "undecided.json"),
            **joined,
            "counts": {name: counts_of(self.context.root, name) for name in self.needs},
            "judgement": self._judgement(),
        }

    def _grows(self) -> bool:
        """Whether driftline grow has gone on with finished buckets, whose borders it keeps."""
        return Bucket(self.context).borders().is_file()

    def _contradicted(self, filtered: Path) -> dict[str, int]:
        """`contradicted` of the photos of a folder that passed the filters."""
        import pyarrow.parquet as pq

        from driftline.curate.metadata.clocks import contradicted
        from driftline.curate.sources.folder import Folder

        if not isinstance(self.context.config.collection, Folder):
            return {}
        tables = (pq.read_table(part, columns=["extra"]) for part in parts_of(filtered))
        return contradicted(extra for table in tables for extra in table["extra"].to_pylist())


def _people(tallied: Path) -> dict[str, int] | None:
    """id → answers that count, also deleted ones; None if no workers were asked."""
    if not (tallied / "answers.parquet").is_file():
        return None
    import pyarrow.parquet as pq

    from driftline.curate.core.parsing import rows_of
    from driftline.curate.validation.answers.answers import people_of

    counts = people_of(pq.read_table(tallied / "answers.parquet", columns=["id", "worker", "fault"]))
    if (stood := tallied / "standing.parquet").is_file():
        counts |= dict(rows_of(pq.read_table(stood), "id", "people"))
    return counts


def agreement_of(tallied: Path) -> dict[str, Any] | None:
    """κ, α, pairs and gold questions, without data of single workers; None if no workers were asked. tallied: folder of
    the stage tally."""
    if not (tallied / "agreement.json").is_file():
        return None
    summary = read_json(tallied / "agreement.json")
    workers = summary.pop("workers", [])
    gold = [(w["gold_answers"], w["gold_right"]) for w in workers if w.get("gold_answers")]
    answers = sum(n for n, _ in gold)
    right = math.fsum(n * share for n, share in gold) / answers if answers else None
    return {**summary, "workers": len(workers), "gold_answers": answers, "gold_right": right}
