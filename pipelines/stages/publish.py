"""publish: verdicts + shards → release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.concepts import BACKGROUND
from curate.duplicates import groups, pairs_by_cosine, pairs_by_hash
from curate.embed import parts
from curate.encoders import EncoderSpec
from curate.features import features
from curate.ground.files import read_json, sha256_bytes
from curate.publish import PublishRules, publish, select
from curate.strip import cleaned
from pipelines import VERSION
from pipelines.config import FeatureEntry
from pipelines.stage import Counts, Stage
from pipelines.stages.ask import images_of
from pipelines.stages.retrieve import concepts_of, labelled_buckets

FROM_TABLE = ("user", "title", "licence", "licence_url", "page_url", "url")


@dataclass(frozen=True)
class Publish(Stage):
    """Choose n images per class and bucket, split, and write the release."""

    name: ClassVar[str] = "publish"
    needs: ClassVar[tuple[str, ...]] = (
        "ingest",
        "filter",
        "fetch",
        "bucket",
        "embed",
        "retrieve",
        "ask",
        "tally",
    )

    def settings(self) -> Any:
        """The release section and all that its card tells."""
        config = self.context.config
        judgement = None
        if config.release.judgement is not None:
            judgement = self.context.path(config.release.judgement).read_text(encoding="utf-8")
        return [config.model_dump(mode="json", exclude={"collection": {"path", "root"}}), judgement]

    def outside(self) -> list[Path]:
        """Checkpoints of the release's features."""
        files = [self.context.path(entry.weights) for entry in self.context.config.release.features]
        return [file for file in files if file.is_file()]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """verdicts → release/."""
        config = self.context.config
        section = config.release
        verdicts = pq.read_table(inputs["tally"] / "verdicts.parquet")
        accepted = verdicts.filter(pc.equal(verdicts["verdict"], "kept")).to_pylist()
        times = Counter(row["id"] for row in accepted)
        single = [row for row in accepted if times[row["id"]] == 1]
        buckets = labelled_buckets(config, read_json(inputs["bucket"] / "buckets.json"))
        names = [c.name for c in concepts_of(config)] + ([BACKGROUND] if config.retrieve.background else [])
        classes = sorted(names)
        rules = PublishRules(
            section.name,
            section.version,
            section.per_class,
            section.background,
            section.short,
            section.test_share,
            section.splits,
        )
        group = self._copies(single, inputs)
        earliest = self._earliest(single, group, inputs) if section.near_copies == "drop" else single
        chosen = self._with_facts(select(earliest, [b["index"] for b in buckets], classes, rules, config.seed), inputs)
        wanted = {row["id"] for row in chosen}
        images, again = _stripped(images_of(inputs["fetch"], inputs["bucket"], wanted), section.strip)
        chosen = [
            {**row, "source_sha256": row["sha256"], "sha256": sha256_bytes(images[row["id"]][0])} for row in chosen
        ]
        vectors = {"clip": _vectors(inputs["embed"], [row["id"] for row in chosen])}
        pictures = [images[row["id"]][0] for row in chosen]
        for entry in section.features:
            spec = self._backbone(entry)
            vectors[entry.name] = features(
                pictures, spec, self.context.journal, config.embed.batch, self.context.engine
            )
        numbers = {g: i for i, g in enumerate(sorted({group[row["id"]] for row in chosen}))}
        publish(
            chosen,
            images,
            vectors,
            buckets,
            classes,
            self._provenance(inputs) | {"stripped": section.strip, "compressed_again": again},
            out / "release",
            rules,
            config.seed,
            np.array([numbers[group[row["id"]]] for row in chosen], np.int64),
        )
        dropped = {
            "several_concepts": len(accepted) - len(single),
            "near_copy": len(single) - len(earliest),
            "surplus": len(earliest) - len(chosen),
        }
        return Counts(len(accepted), len(chosen), dropped)

    def _copies(self, rows: list[dict[str, Any]], inputs: Mapping[str, Path]) -> dict[str, str]:
        """id → id that stands for its group of near copies, over all accepted images."""
        section = self.context.config.release
        ids = sorted(row["id"] for row in rows)
        known: dict[str, int] = {}
        for table, _ in parts(inputs["embed"]):
            known |= {
                i: h for i, h in zip(table["id"].to_pylist(), table["phash"].to_pylist(), strict=True) if h is not None
            }
        hashed = [i for i in ids if i in known]
        of = np.array([known[i] for i in hashed], np.uint64)
        unhashed = [i for i in ids if i not in known]  # of adopted vectors: their cosines are looked at
        order = hashed + unhashed
        links = pairs_by_hash(of, section.copy_bits)
        if section.copy_cosine is not None:
            near = pairs_by_cosine(_vectors(inputs["embed"], order).astype(np.float32), section.copy_cosine)
            links = np.concatenate([links, near])
        return {i: order[g] for i, g in zip(order, groups(links, len(order)).tolist(), strict=True)}

    @staticmethod
    def _earliest(
        rows: list[dict[str, Any]], group: Mapping[str, str], inputs: Mapping[str, Path]
    ) -> list[dict[str, Any]]:
        """Of every group the image that was uploaded first; equal times by id."""
        members = pq.read_table(inputs["bucket"] / "members.parquet", columns=["id", "uploaded"])
        when = dict(zip(members["id"].to_pylist(), members["uploaded"].to_pylist(), strict=True))
        first: dict[str, tuple[int, str]] = {}
        for row in rows:
            mine = (when[row["id"]], row["id"])
            first[group[row["id"]]] = min(mine, first.get(group[row["id"]], mine))
        stays = {id_ for _, id_ in first.values()}
        return [row for row in rows if row["id"] in stays]

    def _backbone(self, entry: FeatureEntry) -> EncoderSpec:
        weights = self.context.path(entry.weights)
        section = self.context.config.embed
        return EncoderSpec(
            entry.model, str(weights) if weights.is_file() else entry.weights, section.device, "backbone",
            section.precision,
        )  # fmt: skip

    def _with_facts(self, chosen: list[Mapping[str, Any]], inputs: Mapping[str, Path]) -> list[dict[str, Any]]:
        """Add to each row what earlier stages know of the photo."""
        ids = pa.array([row["id"] for row in chosen], pa.string())

        def lookup(path: list[Path] | Path, columns: tuple[str, ...]) -> dict[str, dict[str, Any]]:
            table = pq.read_table(path, columns=["id", *columns])
            return {row["id"]: row for row in table.filter(pc.is_in(table["id"], value_set=ids)).to_pylist()}

        table = lookup(sorted((inputs["filter"] / "table").glob("*.parquet")), (*FROM_TABLE, "nickname"))
        members = lookup(inputs["bucket"] / "members.parquet", ("uploaded", "sha256", "width", "height"))
        items = pq.read_table(inputs["ask"] / "items.parquet")
        scores = {
            (i, c): s for i, c, s in zip(*(items[k].to_pylist() for k in ("id", "concept", "score")), strict=True)
        }
        return [
            {
                **row,
                **members[row["id"]],
                **{k: table[row["id"]][k] for k in FROM_TABLE},
                "creator": table[row["id"]]["nickname"],
                "score": scores[row["id"], row["concept"]],
            }
            for row in chosen
        ]

    def _provenance(self, inputs: Mapping[str, Path]) -> dict[str, Any]:
        config = self.context.config
        judgement = config.release.judgement
        return {
            "driftline": VERSION,
            "notice": config.release.notice,
            "url": config.release.url,
            "published": config.release.published,
            "source": config.collection.source,
            "seed": config.seed,
            "encoder": read_json(inputs["embed"] / "encoder.json"),
            "prompts": {c.name: list(c.prompts) for c in concepts_of(config)},
            "near_copies": config.release.model_dump(include={"near_copies", "copy_bits", "copy_cosine"}),
            "validation": config.validation.model_dump(
                include={"method", "workers", "agree", "rule", "aggregate", "confidence"}
            ),
            "agreement": _agreement(inputs["tally"] / "agreement.json"),
            "counts": {name: read_json(inputs[name] / "done.json")["counts"] for name in self.needs},
            "judgement": None if judgement is None else self.context.path(judgement).read_text(encoding="utf-8"),
        }


def _agreement(path: Path) -> dict[str, Any] | None:
    """κ, α and pairs, without a word of single workers; None where nobody was asked."""
    if not path.is_file():
        return None
    told = read_json(path)
    return {k: v for k, v in told.items() if k != "workers"} | {"workers": len(told.get("workers", []))}


def _stripped(images: dict[str, tuple[bytes, str]], wanted: bool) -> tuple[dict[str, tuple[bytes, str]], list[str]]:
    """The images without personal metadata, and the ids of those that had to be compressed again."""
    if not wanted:
        return images, []
    found, again = {}, []
    for id_, (data, extension) in images.items():
        bare, compressed = cleaned(data)
        found[id_] = (bare, extension)
        if compressed:
            again.append(id_)
    return found, sorted(again)


def _vectors(folder: Path, ids: list[str]) -> np.ndarray[Any, np.dtype[np.float16]]:
    """(N, D) float16 in the order of `ids`."""
    where = {id_: i for i, id_ in enumerate(ids)}
    out: np.ndarray[Any, np.dtype[np.float16]] | None = None
    for table, vectors in parts(folder):
        if out is None:
            out = np.zeros((len(ids), vectors.shape[1]), np.float16)
        for position, id_ in enumerate(table["id"].to_pylist()):
            if id_ in where:
                out[where[id_]] = vectors[position]
    assert out is not None  # publish runs after embed
    return out
