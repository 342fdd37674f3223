"""retrieve: prompts → candidates per bucket and concept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import read_json, write_array, write_json, writing
from curate.core.errors import BadConfig, BadInput
from curate.encoders import Encoder, Vectors
from curate.retrieval.approximate import approximate_search
from curate.retrieval.candidates import (
    BACKGROUND,
    Chosen,
    Concept,
    Lookup,
    RetrieveRules,
    check_enough,
    choose,
    query_vectors,
)
from curate.retrieval.exact_search import Ranked, cosines, search
from curate.retrieval.vector_store import Ints, Store
from pipelines.config.schema import Config
from pipelines.stage import Context, Counts, Records, Stage, parts_of
from pipelines.stages.embed import spec_of

CANDIDATES = pa.schema(
    [
        ("id", pa.string()),
        ("bucket", pa.int32()),
        ("concept", pa.string()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
        ("fate", pa.string()),
    ]
)
# An image stands in several lists; its own fate is the best of them, in this order.
FATES = ("kept", "background", "surplus", "ambiguous", "user_cap", "near_copy", "small_margin", "reserve")
SIDES = ("top", "bottom")
RESERVE = 4  # further background images, as a multiple of those asked


def concepts_of(config: Config) -> list[Concept]:
    """The configured concepts."""
    section = config.retrieve
    return [
        Concept(
            c.name,
            tuple(c.prompts),
            c.option or c.name,
            c.label or c.name,
            tuple(section.templates if c.templates is None else c.templates),
            tuple(c.subcategories),
            tuple(c.negatives),
            section.negative_weight,
            tuple(c.examples),
        )
        for c in section.concepts
    ]


def rules_of(config: Config) -> RetrieveRules:
    """The configured rules."""
    s = config.retrieve
    return RetrieveRules(
        s.per_class, s.depth, s.overlap, s.background, s.negative_ratio, s.short, s.per_user, s.near_copies, s.margin,
        s.strata, RESERVE * int(s.per_class * s.negative_ratio) if config.release.short == "reopen" else 0,
    )  # fmt: skip


def labelled_buckets(config: Config, buckets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The buckets that get labels. Raises BadConfig when `buckets.unlabelled` names one that does not exist."""
    known = {b["index"] for b in buckets}
    if strange := sorted(set(config.buckets.unlabelled) - known):
        raise BadConfig(f"buckets.unlabelled names {strange}.", f"The buckets are {sorted(known)}.")
    return [b for b in buckets if b["index"] not in config.buckets.unlabelled]


def text_encoder(context: Context, vectors: Path) -> Encoder:
    """The encoder of the prompts, if it is the one that made the vectors of an embed stage."""
    encoder = spec_of(context).load()
    made_by = read_json(vectors / "encoder.json")
    if made_by["fingerprint"] not in (None, encoder.fingerprint):
        raise BadInput(
            f"The vectors were made by {made_by['model']} with other weights than {context.config.embed.model} has "
            "now.",
            "Expected one model for images and texts.",
            "Run again from embed: driftline run DIR --from embed.",
        )
    if made_by["fingerprint"] is None:
        context.run_log.say(
            f"retrieve: nothing tells which model made the vectors of {made_by.get('from')}; their width is checked"
        )
    return encoder


def warn_of_cuts(context: Context, encoder: Encoder, concepts: Sequence[Concept]) -> None:
    """Say which prompts are longer than the model can read."""
    for concept in concepts:
        for text in dict.fromkeys([t for group in concept.texts() for t in group] + list(concept.negatives)):
            if tail := encoder.truncated(text):
                context.run_log.say(f"retrieve: {concept.name}: the model does not read the end of a prompt: {tail!r}")


@dataclass(frozen=True)
class Retrieve(Stage):
    """Exact search per bucket, CLEAR's overlap and background rules, and the rules of our own that are switched on."""

    name: ClassVar[str] = "retrieve"
    records: ClassVar[Records] = (("candidates.parquet", "fate"),)
    needs: ClassVar[tuple[str, ...]] = ("filter", "bucket", "embed")

    def settings(self) -> Any:
        """Concepts, rules, and which buckets stay unlabelled."""
        config = self.context.config
        return [
            config.retrieve.model_dump(exclude={"memory"}),
            config.release.short == "reopen",
            config.buckets.unlabelled,
            config.embed.model,
            config.embed.weights,
        ]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """vectors → candidates.parquet, queries.npy, search.json."""
        context, config = self.context, self.context.config
        concepts, rules = concepts_of(config), rules_of(config)
        encoder = text_encoder(context, inputs["embed"])
        warn_of_cuts(context, encoder, concepts)
        texts, groups = query_vectors(encoder, concepts)
        write_array(out / "queries.npy", texts)
        store = Store.open(inputs["embed"])
        asked = labelled_buckets(config, read_json(inputs["bucket"] / "buckets.json"))
        sizes = Counter(store.buckets.tolist())
        for bucket in asked:
            if not sizes[bucket["index"]]:
                raise BadInput(
                    f"The bucket {bucket['name']!r} is empty.",
                    "Expected photos in every labelled bucket.",
                    "Change buckets, or name it in buckets.unlabelled.",
                )
        numbers = [b["index"] for b in asked]
        ranked = self._ranked(store, texts, groups, rules, numbers, out)
        counts: Counter[str] = Counter(unlabelled_bucket=sum(n for b, n in sizes.items() if b not in set(numbers)))
        found: dict[tuple[str, str], int] = {}
        lookup = self._lookup(inputs, store, texts, groups, rules)
        with (
            context.run_log.progress("retrieve", len(asked), "buckets") as tick,
            writing(out / "candidates.parquet") as file,
            pq.ParquetWriter(file, CANDIDATES, compression="zstd") as writer,
        ):
            for bucket in asked:
                tops, bottoms = (ranked[side][bucket["index"]] for side in SIDES)
                chosen = choose(tops, bottoms, rules, lookup(bucket))
                rows = _table(store, bucket["index"], [c.name for c in concepts], tops, chosen)
                writer.write_table(rows)
                fates = _best_fates(rows)
                counts += fates
                counts["not_retrieved"] += sizes[bucket["index"]] - fates.total()
                kept = rows.filter(pc.is_in(rows["fate"], value_set=pa.array(["kept", "background"])))
                tally = Counter(kept["concept"].to_pylist())
                found |= {(bucket["name"], c.name): tally[c.name] for c in concepts}
                if rules.background:
                    found[bucket["name"], BACKGROUND] = tally[BACKGROUND]
                tick(1)
        wanted = {c.name: rules.per_class for c in concepts}
        wanted[BACKGROUND] = int(rules.per_class * rules.negative_ratio) * len(concepts)
        floor = wanted if rules.short == "fail" else dict.fromkeys(wanted, 1)
        try:
            check_enough(
                found, floor, "Some concepts retrieve too few images",
                "Lower retrieve.per_class, give the concept better prompts or drop it, or set retrieve.short: fewer.",
            )  # fmt: skip
        except Exception:
            (out / "candidates.parquet").unlink()
            raise
        kept_images = counts.pop("kept", 0) + counts.pop("background", 0)
        return Counts(len(store), kept_images, counts)

    def _ranked(
        self, store: Store, texts: Vectors, groups: list[int], rules: RetrieveRules, asked: list[int], out: Path
    ) -> dict[str, dict[int, list[Ranked]]]:
        """The lists of all buckets; `search.json` tells how they were found, and the recall of an approximate way."""
        section, engine = self.context.config.retrieve, self.context.executor
        if section.search == "exact":
            write_json(out / "search.json", {"search": "exact", "recall": 1.0})
            return search(store, texts, rules.depth, asked, groups, executor=engine, memory=section.memory << 20).ranked
        ranked: dict[str, dict[int, list[Ranked]]] = {side: {} for side in SIDES}
        recalls = {}
        for bucket in asked:
            lists, recalls[str(bucket)] = approximate_search(
                store, texts, rules.depth, bucket, groups, section.search, ("top", "bottom")
            )
            for side in SIDES:
                ranked[side][bucket] = lists[side]
        lowest = min(recalls.values())
        write_json(out / "search.json", {"search": section.search, "recall": lowest, "recall_of_bucket": recalls})
        self.context.run_log.say(f"retrieve: {section.search} finds at least {lowest:.1%} of the exact lists")
        return ranked

    def _lookup(
        self, inputs: Mapping[str, Path], store: Store, texts: Vectors, groups: list[int], rules: RetrieveRules
    ) -> Any:
        """bucket → what the rules of our own ask; reads only what a switched-on rule needs."""
        users: dict[str, str | None] | None = None
        times: dict[str, int] = {}
        spans: dict[int, tuple[int, int]] = {}
        if rules.per_user is not None:
            table = pq.read_table(parts_of(inputs["filter"]), columns=["id", "user"])
            users = dict(zip(table["id"].to_pylist(), table["user"].to_pylist(), strict=True))
        if rules.strata is not None:
            table = pq.read_table(inputs["bucket"] / "members.parquet", columns=["id", "bucket", "uploaded"])
            times = dict(zip(table["id"].to_pylist(), table["uploaded"].to_pylist(), strict=True))
            ends_of = table.group_by("bucket").aggregate([("uploaded", "min"), ("uploaded", "max")])
            spans = {r["bucket"]: (r["uploaded_min"], r["uploaded_max"]) for r in ends_of.to_pylist()}
        ends = [*groups[1:], len(texts)]

        def scores(rows: Ints) -> Vectors:
            return np.stack([cosines(store, rows, texts[a:b]) for a, b in zip(groups, ends, strict=True)], axis=1)

        def lookup(bucket: Mapping[str, Any]) -> Lookup:
            def strata(rows: Ints) -> Ints:
                when = np.array([times[i] for i in store.names(rows)], np.int64)
                first, last = spans[bucket["index"]]
                return np.asarray((when - first) * (rules.strata or 1) // (last - first + 1))

            return Lookup(
                None if users is None else lambda rows: [users[i] for i in store.names(rows)],
                strata if times else None,
                lambda rows: store.take(rows).astype(np.float32),
                scores,
            )

        return lookup


def _table(
    store: Store,
    bucket: int,
    names: Sequence[str],
    tops: Sequence[Ranked],
    chosen: Chosen,
) -> pa.Table:
    """One bucket's candidates, in order of concept and rank, background last."""
    background = chosen.background + chosen.reserve
    rows = np.concatenate([*(t.rows for t in tops), np.array([row for _, _, row, _ in background], np.int64)])
    sizes = [len(t.rows) for t in tops]
    concept = [n for n, size in zip(names, sizes, strict=True) for _ in range(size)] + [BACKGROUND] * len(background)
    lowest = np.array([score for *_, score in background], np.float32)
    ranks = [r for size in sizes for r in range(size)] + [rank for _, rank, _, _ in background]
    return pa.Table.from_arrays(
        [
            pa.array(store.names(rows.astype(np.int64)), pa.string()),
            pa.array(np.full(len(rows), bucket, np.int32)),
            pa.array(concept, pa.string()),
            pa.array(np.concatenate([*(t.scores for t in tops), lowest]).astype(np.float32)),
            pa.array(ranks, pa.int32()),
            pa.array(
                [f for one in chosen.fates for f in one]
                + ["background"] * len(chosen.background)
                + ["reserve"] * len(chosen.reserve),
                pa.string(),
            ),
        ],
        schema=CANDIDATES,
    )


def _best_fates(rows: pa.Table) -> Counter[str]:
    """Images by the best fate that any list gave them."""
    order = pa.array(FATES)
    codes = pc.index_in(rows["fate"], value_set=order)
    best = pa.table({"id": rows["id"], "code": codes}).group_by("id").aggregate([("code", "min")])
    return Counter({FATES[c]: n for c, n in Counter(best["code_min"].to_pylist()).items()})
