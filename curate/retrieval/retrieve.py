"""Vectors of a run, and its concepts → candidates of every labelled bucket."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import read_json, write_array, writing
from driftline.curate.core.errors import BadInput, Shortage
from driftline.curate.core.executor import Executor
from driftline.curate.core.parsing import best_of, rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.embedding.vector_store import Ints, VectorStore
from driftline.curate.encoders import Encoder, EncoderSpec, Vectors
from driftline.curate.retrieval.candidates import Chosen, Lookup, check_enough, choose, query_vectors
from driftline.curate.retrieval.exact_search import Ranked, search
from driftline.curate.retrieval.scan import Side
from driftline.curate.retrieval.settings import BACKGROUND, Concept, RetrieveSettings

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
# An image may be in several lists; its own fate is the best of them, in this order.
FATES = ("kept", "background", "surplus", "ambiguous", "user_cap", "near_copy", "small_margin", "reserve", "unchecked")
SIDES: tuple[Side, ...] = ("top", "bottom")


@dataclass(frozen=True)
class RetrieveInputs:
    """What earlier stages know of the images."""

    embedded: Path
    """folder of the vectors"""
    members: Path
    """Parquet table with id, bucket and uploaded of every image"""
    table: Sequence[Path]
    """Parquet parts with id and user of every photo"""
    buckets: Sequence[Mapping[str, Any]]
    """those that get labels, as in buckets.json"""


def text_encoder(spec: EncoderSpec, embedded: Path, run_log: RunLog) -> Encoder:
    """The encoder of the prompts. Raises BadInput if the vectors in `embedded` were made by another."""
    encoder = spec.load()
    maker = read_json(embedded / "encoder.json")
    if maker["fingerprint"] not in (None, encoder.fingerprint):
        raise BadInput(
            f"The vectors were made by {maker['model']} with other weights than {spec.model} has now.",
            "Expected one model for images and texts.",
            "Run again from embed: driftline run DIR --from embed.",
        )
    if maker["fingerprint"] is None:
        run_log.say(f"retrieve: {maker.get('from')} does not say which model made its vectors; their width is checked")
    return encoder


def retrieve(
    collection: RetrieveInputs,
    settings: RetrieveSettings,
    encoder: Encoder,
    out: Path,
    run_log: RunLog,
    executor: Executor,
    reserve: bool = False,
    seed: int = 0,
    kept: Path | None = None,
) -> tuple[int, Counter[str]]:
    """Write candidates.parquet and queries.npy into `out`; returns the number of images, also by fate.

    reserve: list further images, too, to be asked if too few are accepted. seed: draws the shares that get one image
    more. kept: table of id, bucket, concept and score of images that stay candidates, before others. Unless `short` is
    "fewer", raises Shortage with a table if a concept retrieves too few images, and BadInput for a labelled bucket
    without images.
    """
    concepts = settings.complete_concepts()
    _warn_of_cuts(encoder, concepts, run_log)
    texts, groups = query_vectors(encoder, concepts, settings.negative_weight)
    write_array(out / "queries.npy", texts)
    store = VectorStore.open(collection.embedded)
    sizes = Counter(store.buckets.tolist())
    for bucket in collection.buckets:
        if settings.short == "fail" and not sizes[bucket["index"]]:
            raise BadInput(
                f"The bucket {bucket['name']!r} is empty.",
                "Expected photos in every labelled bucket.",
                "Change buckets, name it in buckets.unlabelled, or set retrieve.short: fewer.",
            )
    numbers = [bucket["index"] for bucket in collection.buckets]
    memory = settings.memory << 20
    result = search(store, texts, settings.depth, numbers, groups, executor=executor, memory=memory, folder=out)
    size = sum(file.rows * file.width * np.dtype(file.dtype).itemsize for file in store.files)
    run_log.say(
        f"retrieve: read {result.bytes_read / 1e6:,.0f} MB, the vectors {result.bytes_read / max(1, size):.2f} times"
    )
    counts: Counter[str] = Counter(unlabelled_bucket=sum(n for b, n in sizes.items() if b not in set(numbers)))
    per_cell: dict[tuple[str, str], int] = {}
    lookup = _lookups(collection, store, texts, groups, settings, seed)
    with (
        run_log.progress("retrieve", len(numbers), "buckets") as tick,
        writing(out / "candidates.parquet") as file,
        pq.ParquetWriter(file, CANDIDATES, compression="zstd") as writer,
    ):
        for bucket in collection.buckets:
            tops, bottoms = (result.ranked[side][bucket["index"]] for side in SIDES)
            chosen = choose(tops, bottoms, settings, lookup(bucket), reserve)
            rows = _table(store, bucket["index"], [c.name for c in concepts], tops, chosen)
            gone: Counter[str] = Counter()
            if kept is not None:
                there = store.names(np.flatnonzero(store.buckets == bucket["index"]))
                rows, gone = with_kept(rows, pq.read_table(kept), bucket["index"], set(there))
            writer.write_table(rows)
            fates = Counter(best_of(rows, "fate", FATES)["fate"].to_pylist())
            counts += fates
            counts["not_retrieved"] += sizes[bucket["index"]] - fates.total()
            asked = rows.filter(pc.is_in(rows["fate"], value_set=pa.array(["kept", "background"])))
            of_class = Counter(asked["concept"].to_pylist()) + gone
            per_cell |= {(bucket["name"], name): of_class[name] for name in settings.classes}
            tick(1)
    if lacking := without_candidates(out / "candidates.parquet", concepts):
        run_log.say(f"retrieve: {lacking}")
    if settings.short == "fail":
        wanted = dict.fromkeys(settings.classes, settings.per_class)
        wanted[BACKGROUND] = settings.negatives_each * len(concepts)
        try:
            check_enough(per_cell, wanted, "Some concepts retrieve too few images", WAY_OUT)
        except Shortage:
            (out / "candidates.parquet").unlink()
            raise
    return len(store), counts


WAY_OUT = "Lower retrieve.per_class, give the concept better prompts or drop it, or set retrieve.short: fewer."


def without_candidates(file: Path, concepts: Sequence[Concept]) -> str:
    """A sentence that names the concepts that have none in candidates.parquet; "" if all have some."""
    rows = pq.ParquetFile(file).read(["concept", "fate"])  # filters of Arrow load pandas
    named = zip(rows["concept"].to_pylist(), rows["fate"].to_pylist(), strict=True)
    found = {concept for concept, fate in named if fate == "kept"}
    lacking = ", ".join(concept.name for concept in concepts if concept.name not in found)
    return f"no candidates for {lacking}: change their prompts, or set another embed.model" if lacking else ""


def _warn_of_cuts(encoder: Encoder, concepts: Sequence[Concept], run_log: RunLog) -> None:
    """Report prompts that are longer than the model can read."""
    for concept in concepts:
        for text in dict.fromkeys([t for group in concept.texts() for t in group] + list(concept.negatives)):
            if tail := encoder.truncated(text):
                run_log.say(f"retrieve: {concept.name}: the model does not read the end of a prompt: {tail!r}")


def _lookups(
    collection: RetrieveInputs,
    store: VectorStore,
    texts: Vectors,
    groups: list[int],
    settings: RetrieveSettings,
    seed: int,
) -> Callable[[Mapping[str, Any]], Lookup]:
    """bucket → what the additional rules need; reads only the data of rules that are on."""
    users: dict[str, str | None] | None = None
    times: dict[str, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    if settings.per_user is not None:
        table = pq.read_table(list(collection.table), columns=["id", "user"])
        users = dict(rows_of(table, "id", "user"))
    if settings.strata is not None:
        table = pq.read_table(collection.members, columns=["id", "bucket", "uploaded"])
        times = dict(rows_of(table, "id", "uploaded"))
        limits = table.group_by("bucket").aggregate([("uploaded", "min"), ("uploaded", "max")])
        spans = {r["bucket"]: (r["uploaded_min"], r["uploaded_max"]) for r in limits.to_pylist()}

    def scores(rows: Ints) -> Vectors:
        """Sums in float64, rounded once: equal vectors have equal scores on every machine."""
        x = store.take(rows).astype(np.float64)
        each = np.stack([np.einsum("nd,d->n", x, query) for query in texts.astype(np.float64)])
        return np.asarray(np.maximum.reduceat(each, groups, axis=0).T, np.float32)

    def lookup(bucket: Mapping[str, Any]) -> Lookup:
        def strata(rows: Ints) -> Ints:
            uploaded = np.array([times[i] for i in store.names(rows)], np.int64)
            first, last = spans[bucket["index"]]
            return np.asarray((uploaded - first) * (settings.strata or 1) // (last - first + 1))

        return Lookup(
            None if users is None else lambda rows: [users[i] for i in store.names(rows)],
            strata if times else None,
            lambda rows: store.take(rows).astype(np.float32),
            scores,
            seed,
            bucket["index"],
        )

    return lookup


def _table(store: VectorStore, bucket: int, names: Sequence[str], tops: Sequence[Ranked], chosen: Chosen) -> pa.Table:
    """One bucket's candidates, in order of concept and rank, background last."""
    background = chosen.background + chosen.reserve
    rows = np.concatenate([*(t.rows for t in tops), np.array([row for _, _, row, _ in background], np.int64)])
    sizes = [len(t.rows) for t in tops]
    concept = [n for n, size in zip(names, sizes, strict=True) for _ in range(size)] + [BACKGROUND] * len(background)
    lowest = np.array([score for *_, score in background], np.float32)
    ranks = [r for size in sizes for r in range(size)] + [rank for _, rank, _, _ in background]
    fates = [fate for fates in chosen.fates for fate in fates]
    fates += ["background"] * len(chosen.background) + ["reserve"] * len(chosen.reserve)
    scores = np.concatenate([*(t.scores for t in tops), lowest]).astype(np.float32)
    columns = [store.names(rows.astype(np.int64)), np.full(len(rows), bucket, np.int32), concept, scores, ranks, fates]
    return pa.table(columns, schema=CANDIDATES)


def with_kept(rows: pa.Table, kept: pa.Table, bucket: int, there: Names[str]) -> tuple[pa.Table, Counter[str]]:
    """One bucket's candidates, where those of `kept` stay: others take only the places that these leave.

    there: ids of the bucket. Also returns concept → images of `kept` that are gone, whose places stay empty.
    """
    own = {(row["id"], row["concept"]): row for row in kept.to_pylist() if row["bucket"] == bucket}
    places = Counter(row["concept"] for row in rows.to_pylist() if row["fate"] in ("kept", "background"))
    free = places - Counter(concept for _, concept in own)
    table = []
    for row in rows.to_pylist():
        known = own.pop((row["id"], row["concept"]), None)
        if known is not None:
            row["fate"] = "background" if row["concept"] == BACKGROUND else "kept"
        elif row["fate"] in ("kept", "background"):
            free[row["concept"]] -= 1
            if free[row["concept"]] < 0:
                row["fate"] = "reserve" if row["concept"] == BACKGROUND else "surplus"
        table.append(row)
    lists = {row["concept"] for row in table}
    for (id_, concept), row in own.items():
        if id_ in there and concept in lists:
            fate = "background" if concept == BACKGROUND else "kept"
            table.append({**row, "rank": sum(other["concept"] == concept for other in table), "fate": fate})
    gone = Counter(concept for id_, concept in own if id_ not in there)
    return pa.Table.from_pylist(table, CANDIDATES), gone
