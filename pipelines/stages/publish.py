"""publish: verdicts + shards → release."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import read_json
from curate.core.errors import BadConfig
from curate.embedding.embed import parts, vectors_of
from curate.embedding.features import features
from curate.encoders import EncoderSpec
from curate.images.near_duplicates import group_pairs, pairs_by_cosine, pairs_by_hash
from curate.images.strip_exif import strip_metadata
from curate.metadata.filters import withdrawn_ids
from curate.release import Release
from curate.release.card_sections import unwritten
from curate.release.changelog import check_version, compare, tombstones
from curate.release.packing import Fetched, Packed, pack, pictures
from curate.release.selection import PublishRules, select, splits_of
from curate.release.unlabelled import rows_of, write_remainder
from curate.release.writer import publish
from curate.retrieval.candidates import BACKGROUND
from pipelines import VERSION
from pipelines.config.schema import FeatureEntry
from pipelines.reporting.audit import drift
from pipelines.stage import Counts, Records, Stage, parts_of
from pipelines.stages.retrieve import concepts_of, labelled_buckets

FROM_TABLE = ("user", "title", "licence", "licence_url", "page_url", "url")
NOT_FOR_TRAINING = ("sensitive", "held_for_review")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Publish(Stage):
    """Choose n images per class and bucket, split, and write the release."""

    name: ClassVar[str] = "publish"
    records: ClassVar[Records] = (("release/metadata.parquet", ""),)
    version: ClassVar[int] = 2
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
        texts = [self._text(config.release.judgement), self._text(config.release.card)]
        return [config.model_dump(mode="json", exclude={"collection": {"path", "root"}}), texts]

    def outside(self) -> list[Path]:
        """Checkpoints of the release's features, the release before, what was taken back."""
        section = self.context.config.release
        named = [entry.weights for entry in section.features] + [section.withdrawn, section.previous]
        paths = [self.context.path(name) for name in named if name is not None]
        return [path for path in paths if path.exists()]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """verdicts → release/."""
        config, section = self.context.config, self.context.config.release
        if section.strict and (lacking := unwritten(self._text(section.judgement))):
            raise BadConfig(
                f"The card lacks the parts {', '.join(lacking)}.",
                "Expected each as a paragraph that begins with its name in bold.",
                "Write them into the file that release.judgement names, or set release.strict: false.",
            )
        verdicts = pq.read_table(inputs["tally"] / "verdicts.parquet")
        accepted: Rows = verdicts.filter(pc.equal(verdicts["verdict"], "kept")).to_pylist()
        buckets = labelled_buckets(config, read_json(inputs["bucket"] / "buckets.json"))
        classes = sorted([c.name for c in concepts_of(config)] + ([BACKGROUND] if config.retrieve.background else []))
        rules = PublishRules(
            section.name, section.version, section.per_class, section.background,
            "fail" if section.short == "fail" else "fewer", section.test_share, section.splits,
        )  # fmt: skip
        dropped: Counter[str] = Counter()
        group = self._copies(accepted, inputs)
        taken_back = self._withdrawn()
        fit = self._fit(accepted, group, inputs, taken_back, dropped)
        chosen = self._with_facts(select(fit, [b["index"] for b in buckets], classes, rules, config.seed), inputs)
        dropped["surplus"] = len(fit) - len(chosen)
        splits = splits_of(chosen, _numbered(chosen, group), rules, config.seed)
        copies = _numbered(chosen, self._copies(chosen, inputs))  # what the card counts: copies of published images
        for i, row in enumerate(chosen):
            row |= {"class": row["concept"], "label": classes.index(row["concept"])}
            row["split"] = splits["split_0"][i]
        release = out / "release"
        wanted = {row["id"] for row in chosen}
        images = Fetched.open(inputs["fetch"], inputs["bucket"] / "members.parquet", wanted)
        packed = self._pack(chosen, images, release / "shards", out / "records")
        before = Release.open(self.context.path(section.previous)) if section.previous is not None else None
        changes = None
        if before is not None:
            changes = compare(before, packed.rows, classes, splits, taken_back)
            check_version(section.version, changes)
        vectors = self._vectors(packed, release / "shards", inputs)
        provenance = self._provenance(inputs) | {
            "stripped": section.strip,
            "drift": _drift(packed.rows, splits, vectors),
        }
        unlabelled = self._remainder(inputs, wanted, verdicts, set(taken_back), release, out / "records")
        publish(
            packed,
            vectors,
            buckets,
            classes,
            splits,
            provenance,
            release,
            rules,
            copies,
            changes,
            tombstones(before, taken_back, {row["id"] for row in accepted}),
            self._text(section.card),
            unlabelled,
        )
        shutil.rmtree(out / "records")
        return Counts(len(accepted), len(chosen), dropped)

    def _text(self, name: str | None) -> str | None:
        """A text file that the configuration names."""
        if name is None:
            return None
        path = self.context.path(name)
        if not path.is_file():
            raise BadConfig(f"There is no file {path}.", "Expected what release.judgement or release.card names.")
        return path.read_text(encoding="utf-8")

    def _fit(
        self,
        accepted: Rows,
        group: Mapping[str, str],
        inputs: Mapping[str, Path],
        taken_back: Mapping[str, str],
        dropped: Counter[str],
    ) -> Rows:
        """The accepted images that may be published; the others are counted by reason."""
        section = self.context.config.release
        times = Counter(row["id"] for row in accepted)
        left = [row for row in accepted if times[row["id"]] == 1]
        dropped["several_concepts"] = len(accepted) - len(left)
        left, dropped["withdrawn"] = _without(left, (row["id"] for row in left if row["id"] in taken_back))
        licences = self._licences(left, inputs) if section.licences or section.strip else {}
        if section.licences:
            strange = (i for i, licence in licences.items() if not _begins(licence, section.licences))
            left, dropped["licence"] = _without(left, strange)
        if section.strip:
            left, dropped["no_derivatives"] = _without(left, self._untouchable(left, licences, inputs))
        if section.near_copies == "drop":
            kept = self._earliest(left, group, inputs)
            dropped["near_copy"] = len(left) - len(kept)
            left = kept
        return left

    def _withdrawn(self) -> dict[str, str]:
        """id → the version that takes it out, of everything that its owners took back."""
        section = self.context.config.release
        if section.withdrawn is None:
            return {}
        return dict.fromkeys(withdrawn_ids(self.context.path(section.withdrawn)), section.version)

    def _licences(self, rows: Rows, inputs: Mapping[str, Path]) -> dict[str, tuple[str, ...]]:
        """id → name and address of its licence, as far as they are known."""
        ids = pa.array([row["id"] for row in rows], pa.string())
        table = pq.read_table(parts_of(inputs["filter"]), columns=["id", "licence", "licence_url"])
        return {
            row["id"]: tuple(v for v in (row["licence"], row["licence_url"]) if v)
            for row in table.filter(pc.is_in(table["id"], value_set=ids)).to_pylist()
        }

    def _untouchable(self, rows: Rows, licences: Mapping[str, tuple[str, ...]], inputs: Mapping[str, Path]) -> set[str]:
        """Images that may not be altered, and whose damaged files would have to be compressed again."""
        fixed = [row["id"] for row in rows if _no_derivatives(licences.get(row["id"], ()))]
        images = Fetched.open(inputs["fetch"], inputs["bucket"] / "members.parquet", fixed)
        return {id_ for id_ in fixed if strip_metadata(images.get(id_)[0])[1]}

    def _pack(self, rows: Rows, images: Fetched, folder: Path, records: Path) -> Packed:
        strip = self.context.config.release.strip
        shard_images = PublishRules().shard_images
        return pack(rows, images, folder, records, shard_images, strip, self.context.executor, self.context.run_log)

    def _vectors(self, packed: Packed, folder: Path, inputs: Mapping[str, Path]) -> dict[str, npt.NDArray[np.float16]]:
        config = self.context.config
        found = {"clip": vectors_of(inputs["embed"], [row["id"] for row in packed.rows])}
        for entry in config.release.features:
            images = list(pictures(folder, packed))
            found[entry.name] = features(
                images, self._backbone(entry), self.context.run_log, config.embed.batch, self.context.executor
            )
        return found

    def _remainder(
        self, inputs: Mapping[str, Path], published: set[str], verdicts: pa.Table, taken_back: set[str], out: Path,
        records: Path,
    ) -> tuple[int, dict[str, str]] | None:  # fmt: skip
        """What was not labelled: (images, checksums of their tars); None where it is not kept."""
        section = self.context.config.release
        if section.unlabelled == "none":
            return None
        bad = verdicts.filter(pc.is_in(verdicts["verdict"], value_set=pa.array(NOT_FOR_TRAINING)))
        without = published | taken_back | set(bad["id"].to_pylist())
        members = inputs["bucket"] / "members.parquet"
        n = write_remainder(members, parts_of(inputs["filter"]), without, out / "unlabelled.parquet", section.licences)
        if section.unlabelled == "index":
            return n, {}
        rows = list(rows_of(out / "unlabelled.parquet"))
        images = Fetched.open(inputs["fetch"], members, {row["id"] for row in rows})
        packed = self._pack(rows, images, out / "unlabelled", records / "unlabelled")
        return n, {f"unlabelled/{name}": digest for name, digest in packed.sums.items()}

    def _copies(self, rows: Rows, inputs: Mapping[str, Path]) -> dict[str, str]:
        """id → id that stands for its group of near copies, over all accepted images."""
        section = self.context.config.release
        ids = sorted({row["id"] for row in rows})
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
            near = pairs_by_cosine(vectors_of(inputs["embed"], order).astype(np.float32), section.copy_cosine)
            links = np.concatenate([links, near])
        return {i: order[g] for i, g in zip(order, group_pairs(links, len(order)).tolist(), strict=True)}

    @staticmethod
    def _earliest(rows: Rows, group: Mapping[str, str], inputs: Mapping[str, Path]) -> Rows:
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
            entry.model, str(weights) if weights.exists() else entry.weights, section.device, "backbone",
            section.precision,
        )  # fmt: skip

    def _with_facts(self, chosen: Sequence[Mapping[str, Any]], inputs: Mapping[str, Path]) -> Rows:
        """Add to each row what earlier stages know of the photo."""
        ids = pa.array([row["id"] for row in chosen], pa.string())

        def lookup(path: list[Path] | Path, columns: tuple[str, ...]) -> dict[str, dict[str, Any]]:
            table = pq.read_table(path, columns=["id", *columns])
            return {row["id"]: row for row in table.filter(pc.is_in(table["id"], value_set=ids)).to_pylist()}

        table = lookup(parts_of(inputs["filter"]), (*FROM_TABLE, "nickname"))
        members = lookup(inputs["bucket"] / "members.parquet", ("uploaded", "width", "height"))
        items = pq.read_table(inputs["tally"] / "asked.parquet")
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
                include={
                    "method", "workers", "agree", "rule", "aggregate", "confidence", "sensitive_drop", "sensitive_hold"
                }
            ),
            "agreement": _agreement(inputs["tally"] / "agreement.json"),
            "counts": {name: read_json(inputs[name] / "done.json")["counts"] for name in self.needs},
            "judgement": self._text(config.release.judgement),
        }  # fmt: skip


def _numbered(rows: Rows, group: Mapping[str, str]) -> npt.NDArray[np.int64]:
    """(N,) number of the group of each row."""
    numbers = {g: i for i, g in enumerate(sorted({group[row["id"]] for row in rows}))}
    return np.array([numbers[group[row["id"]]] for row in rows], np.int64)


def _without(rows: Rows, ids: Iterable[str]) -> tuple[Rows, int]:
    """The rows but those of `ids`, and how many went."""
    gone = set(ids)
    left = [row for row in rows if row["id"] not in gone]
    return left, len(rows) - len(left)


def _begins(licence: Sequence[str], allowed: Sequence[str]) -> bool:
    return any(told.startswith(tuple(allowed)) for told in licence)


def _no_derivatives(licence: Sequence[str]) -> bool:
    """Whether a Creative Commons licence forbids altered copies, by its name or address."""
    return any("noderiv" in told.lower().replace("-", "").replace(" ", "") or "-nd" in told.lower() for told in licence)


def _agreement(path: Path) -> dict[str, Any] | None:
    """κ, α, pairs and gold questions, without a word of single workers; None where nobody was asked."""
    if not path.is_file():
        return None
    told = read_json(path)
    workers = told.pop("workers", [])
    gold = [(w["gold_answers"], w["gold_right"]) for w in workers if w.get("gold_answers")]
    given = sum(n for n, _ in gold)
    right = sum(n * share for n, share in gold) / given if given else None
    return {**told, "workers": len(workers), "gold_answers": given, "gold_right": right}


def _drift(
    rows: Rows, splits: Mapping[str, Sequence[str]], vectors: Mapping[str, npt.NDArray[np.float16]]
) -> dict[str, Any]:
    """How far nearest class means of one bucket fall on later ones, on the first features and the first split."""
    name = next(iter(vectors))
    y = np.array([row["label"] for row in rows], np.int64)
    bucket = np.array([row["bucket"] for row in rows])
    found = drift(np.asarray(vectors[name], np.float32), y, bucket, np.array(splits["split_0"]))
    return {"features": name, "by_distance": {d: round(v, 4) for d, v in found["by_distance"].items() if int(d) >= 0}}
