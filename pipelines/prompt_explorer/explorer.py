"""The data of the explore page: prompts → images per bucket, scores, overlap, marks, precision, cost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from driftline.curate.core.atomic_io import no_link, read_json, write_text
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, MissingFile
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.settings import resolve_path
from driftline.curate.encoders import Encoder
from driftline.curate.images.shards import Reader
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.retrieval.candidates import query_vectors
from driftline.curate.retrieval.exact_search import Ranked, SearchResult, search
from driftline.curate.retrieval.retrieve import text_encoder
from driftline.curate.retrieval.settings import Concept
from driftline.curate.retrieval.vector_store import Store
from driftline.curate.validation.asking.batches import estimate
from driftline.pipelines.browse.run_table import withdrawn_of
from driftline.pipelines.config.loader import load
from driftline.pipelines.config.yaml_edit import set_value
from driftline.pipelines.prompt_explorer.query import Query
from driftline.pipelines.prompt_explorer.views import BINS, BucketView, Share, Shot, View
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of, is_finished
from driftline.pipelines.stages.embed import spec_of
from driftline.pipelines.web.dates import labels
from driftline.pipelines.web.thumbnails import Thumbnails, cache_folder


class Marks:
    """Marks of images: (concept, id) → right or wrong, in a JSONL file; a mark is on disk before it counts."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        self.values: dict[tuple[str, str], bool] = {}
        if path.is_file():
            data = path.read_bytes()
            complete = data.rfind(b"\n") + 1  # a killed server may leave half a line
            if complete < len(data):
                os.truncate(path, complete)
            for line in data[:complete].decode("utf-8", "replace").splitlines():
                self._apply(json.loads(line))

    def _apply(self, entry: Mapping[str, Any]) -> None:
        key = (entry["concept"], entry["id"])
        if entry["right"] is None:
            self.values.pop(key, None)
        else:
            self.values[key] = bool(entry["right"])

    def add(self, concept: str, id_: str, right: bool | None) -> None:
        """Store a mark; right=None deletes it."""
        entry = {"concept": concept, "id": id_, "right": right}
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8", opener=no_link) as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._apply(entry)


class _Photo(dict[str, Any]):
    """A row of which a list of withdrawn photos asks the id, and the address if it has addresses."""

    def __init__(self, address: Callable[[str], str | None], **known: str) -> None:
        super().__init__(known)
        self._address = address

    def __missing__(self, key: str) -> str | None:
        return self._address(self["id"])


class Explorer:
    """A run folder whose embed stage is done."""

    def __init__(self, context: Context) -> None:
        self.context = context
        for stage in ("fetch", "bucket", "embed"):
            if not is_finished(context.root, stage):
                raise MissingFile(
                    f"The stage {stage} of {context.root} is not done.",
                    "Expected embedded images.",
                    f"Run: driftline run {context.root} --until embed.",
                )
        vectors = folder_of(context.root, "embed")
        self.store = Store.open(vectors)
        all_buckets = read_json(folder_of(context.root, "bucket") / "buckets.json")
        self.buckets = labels(context.config.buckets.labelled(all_buckets))
        self.marks = Marks(context.root / "explore" / "marks.jsonl")
        members = pq.read_table(
            folder_of(context.root, "bucket") / "members.parquet", columns=["id", "shard"]
        ).to_pydict()
        self._shard = dict(zip(members["id"], members["shard"], strict=True))
        self._withdrawn = withdrawn_of(context, released_ids(context.root))
        self._lock = Lock()
        self._readers: dict[int, Reader] = {}
        self._searches: dict[tuple[Query, int], tuple[SearchResult, list[str]]] = {}
        self._listed: dict[str, dict[int, set[int]]] | None = None
        self._verdicts = _verdicts(context)
        self._thumbnails = Thumbnails(cache_folder("explore", sorted(vectors.glob("metadata/*.parquet"))))

    @cached_property
    def _addresses(self) -> dict[str, str | None]:
        """Id → address; read when a list of withdrawn photos has addresses."""
        files = sorted(folder_of(self.context.root, "ingest").glob("table/*.parquet"))
        read = (pq.read_table(file, columns=["id", "url"]).to_pydict() for file in files)
        return {id_: url for part in read for id_, url in zip(part["id"], part["url"], strict=True)}

    def shown(self) -> Callable[[str], bool]:
        """Whether the owner of a photo, named by its id, has not withdrawn it by now, also while the page is open."""
        is_listed = self._withdrawn()
        return lambda id_: not is_listed(_Photo(lambda of: self._addresses.get(of), id=id_))

    @cached_property
    def encoder(self) -> Encoder:
        """The model that reads prompts; it is loaded when the first one comes, so that the page opens at once."""
        return text_encoder(spec_of(self.context), folder_of(self.context.root, "embed"), self.context.run_log)

    @property
    def concepts(self) -> list[Concept]:
        """The concepts of the configuration file, with saved changes."""
        return self.context.config.retrieve.complete_concepts()

    def concept(self, query: Query, name: str = "") -> Concept:
        """The query as a concept with the configured templates."""
        same_name = next((c for c in self.concepts if c.name == name), None)
        templates = same_name.templates if same_name else self.context.config.retrieve.templates
        # not checked: a query may have no name yet
        return Concept.model_construct(name=name, prompts=query.prompts, templates=templates, negatives=query.negatives)

    def samples(self, k: int) -> list[tuple[str, list[str]]]:
        """(label, ids of `k` images drawn with the run's seed) of every labelled bucket: what a page without a prompt
        shows."""
        of_buckets = []
        for bucket, label in self.buckets.items():
            rows = np.flatnonzero(self.store.buckets == bucket)
            drawn = rng_for(self.context.config.seed, "explore", bucket).permutation(len(rows))[:k]
            names = self.store.names(rows[np.sort(drawn)])
            of_buckets.append((label, list(filter(self.shown(), names))))
        return of_buckets

    def view(self, query: Query, concept: str, k: int) -> View:
        """The best `k` images of every labelled bucket. Raises BadConfig if there is no prompt."""
        if not query.prompts:
            raise BadConfig("There is no prompt.", "Expected at least one line that does not begin with '-'.")
        result, unread = self._search(query, concept)
        listed = self._candidates()
        views, share = [], Share(0, 0)
        total, shared = 0, dict.fromkeys(listed, 0)
        for bucket, name in self.buckets.items():
            ranked = result.ranked["top"][bucket][0]
            rows = set(ranked.rows.tolist())
            total += len(rows)
            for other, lists in listed.items():
                shared[other] += len(rows & lists[bucket])
            view = self._bucket(name, ranked, result.histogram[bucket][0].tolist(), concept, bucket, k)
            share = Share(share.right + view.share.right, share.marked + view.share.marked)
            views.append(view)
        overlap = {c: n / max(1, total) for c, n in shared.items() if c != concept and n}
        return View(query, views, share, dict(sorted(overlap.items(), key=lambda x: -x[1])), unread)

    def _bucket(self, name: str, ranked: Ranked, histogram: list[int], concept: str, bucket: int, k: int) -> BucketView:
        listed = self._candidates()
        shots = []
        is_shown = self.shown()
        ranks = zip(self.store.names(ranked.rows), ranked.rows.tolist(), ranked.scores.tolist(), strict=True)
        for id_, row, score in islice((rank for rank in ranks if is_shown(rank[0])), k):
            also = tuple(c for c, lists in listed.items() if c != concept and row in lists[bucket])
            verdict = self._verdicts.get((concept, id_), "")
            shots.append(Shot(id_, score, self.marks.values.get((concept, id_)), also, verdict))
        marks = [s.mark for s in shots if s.mark is not None]
        cut = float(ranked.scores[-1]) if len(ranked.scores) else -1.0
        return BucketView(name, shots, cut, histogram, Share(sum(marks), len(marks)))

    def _search(self, query: Query, concept: str) -> tuple[SearchResult, list[str]]:
        wanted = self.concept(query, concept)
        per_class = self.context.config.retrieve.per_class
        key = (Query((*(wanted.templates or ()), "|", *query.prompts), query.negatives), per_class)
        with self._lock:
            if key not in self._searches:
                texts, groups = query_vectors(self.encoder, [wanted], self.context.config.retrieve.negative_weight)
                result = search(
                    self.store,
                    texts,
                    per_class,
                    list(self.buckets),
                    groups,
                    ("top",),
                    executor=self.context.executor,
                    bins=BINS,
                )
                read = [t for group in wanted.texts() for t in group] + list(query.negatives)
                if len(self._searches) > 200:
                    self._searches.clear()
                self._searches[key] = result, [tail for t in dict.fromkeys(read) if (tail := self.encoder.truncated(t))]
            return self._searches[key]

    def _candidates(self) -> dict[str, dict[int, set[int]]]:
        """Saved concept → bucket → rows of its candidates; computed once."""
        if self._listed is None:
            concepts = self.concepts
            texts, groups = query_vectors(self.encoder, concepts, self.context.config.retrieve.negative_weight)
            result = search(
                self.store, texts, self.context.config.retrieve.per_class, list(self.buckets), groups, ("top",),
                executor=self.context.executor,
            ).ranked["top"]  # fmt: skip
            self._listed = {
                c.name: {b: set(result[b][i].rows.tolist()) for b in self.buckets} for i, c in enumerate(concepts)
            }
        return self._listed

    def image(self, id_: str) -> bytes:
        """The bytes of an image. Raises BadInput for an id that is in no bucket."""
        if id_ not in self._shard:
            raise BadInput(f"No image has the id {id_!r}.")
        shard = self._shard[id_]
        with self._lock:
            if shard not in self._readers:
                self._readers[shard] = Reader(folder_of(self.context.root, "fetch"), shard)
        return self._readers[shard].get(id_)

    def thumbnail(self, id_: str) -> bytes:
        """A small JPEG of an image. Raises BadInput for an id that is in no bucket, or withdrawn."""
        if not self.shown()(id_):
            raise BadInput(f"The photo {id_} was withdrawn.")
        return self._thumbnails.get(id_, lambda: self.image(id_))

    def mark(self, concept: str, id_: str, right: bool | None) -> None:
        """Store a mark. Raises BadInput for an id that is in no bucket."""
        if id_ not in self._shard:
            raise BadInput(f"No image has the id {id_!r}.")
        self.marks.add(concept, id_, right)

    def save(self, name: str, query: Query) -> None:
        """Write the prompts of a concept into the file that lists the concepts; the rest of the file stays as it is.

        A new name is appended. Raises BadConfig, and changes nothing, if the file would become invalid.
        """
        path = self.context.root / "driftline.yaml"
        file, keys = concepts_place(path)
        before = text = file.read_text(encoding="utf-8")
        concepts = load(path).retrieve.concepts  # as they are now: the file may have been edited by hand
        names = [c.name for c in concepts]
        if name in names:
            at: list[str | int] = [*keys, names.index(name)]
            text = set_value(text, [*at, "prompts"], list(query.prompts))
            if query.negatives or concepts[names.index(name)].negatives:
                text = set_value(text, [*at, "negatives"], list(query.negatives))
        else:
            entry: dict[str, Any] = {"name": name, "prompts": list(query.prompts)}
            if query.negatives:
                entry["negatives"] = list(query.negatives)
            text = set_value(text, [*keys, len(names)], entry)
        with self._lock:
            write_text(file, text)
            try:
                config = load(path)
            except DriftlineError:
                write_text(file, before)
                raise
            self.context = replace(self.context, config=config)
            self._listed = None

    def cost(self) -> dict[str, Any]:
        """The cost of asking crowd workers about all candidates."""
        config = self.context.config
        section, validation = config.retrieve, config.validation
        background = section.negatives_each
        images = len(section.concepts) * (section.per_class + background) * len(self.buckets)
        return {
            "images": images,
            "workers": validation.workers,
            "usd": estimate(images, validation),
            "per_class": section.per_class,
            "wanted": config.release.per_class,
        }


def concepts_place(path: Path) -> tuple[Path, Sequence[str]]:
    """The file that holds the list of concepts, and the keys that lead to the list in it."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    concepts = values["retrieve"]["concepts"]
    return (resolve_path(concepts, path.parent), []) if isinstance(concepts, str) else (path, ["retrieve", "concepts"])


def _verdicts(context: Context) -> dict[tuple[str, str], str]:
    """(concept, id) → what the stage tally decided."""
    path = folder_of(context.root, "tally") / "verdicts.parquet"
    if not path.is_file():
        return {}
    rows = rows_of(pq.read_table(path), "concept", "id", "verdict")
    return {(concept, id_): verdict.replace("_", " ") for concept, id_, verdict in rows}
