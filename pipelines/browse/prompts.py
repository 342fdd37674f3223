"""Trying prompts: the best photos of each time bucket, marks of photos, and prompts saved in the file of the run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import yaml

from driftline.curate.core.atomic_io import read_json, write_json, write_text
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, MissingFile
from driftline.curate.core.settings import resolve_path
from driftline.curate.embedding.vector_store import VectorStore
from driftline.curate.encoders import Encoder
from driftline.curate.retrieval.candidates import query_vectors
from driftline.curate.retrieval.exact_search import SearchResult, search
from driftline.curate.retrieval.retrieve import text_encoder
from driftline.curate.retrieval.settings import Concept
from driftline.eval.scoring.bands import wilson
from driftline.pipelines.browse.collection import Collection
from driftline.pipelines.config.loader import load
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.embed import spec_of
from driftline.pipelines.stages.state import folder_of, is_finished
from driftline.pipelines.web.rendering import labels

MOST_PROMPTS = 200  # of one query


@dataclass(frozen=True)
class Query:
    """What is searched for."""

    prompts: tuple[str, ...]
    """texts that form one query together"""
    negatives: tuple[str, ...] = ()
    """texts that the query is moved away from"""

    @staticmethod
    def parse(text: str) -> "Query":
        """One prompt per line; a line that begins with "-" is a negative.

        >>> Query.parse("a bus\\n- a toy bus")
        Query(prompts=('a bus',), negatives=('a toy bus',))
        """
        lines = [line.strip() for line in text.splitlines()]
        if len(lines) > MOST_PROMPTS:  # each one is computed with every template
            raise BadInput(f"The field has {len(lines):,} lines.", f"Expected at most {MOST_PROMPTS}, one a prompt.")
        return Query(
            tuple(line for line in lines if line and not line.startswith("-")),
            tuple(line[1:].strip() for line in lines if line.startswith("-") and line[1:].strip()),
        )


def share_text(marks: Sequence[bool | None]) -> str:
    """How many of the marked photos are right, with a 95 % confidence interval [Wilson 1927].

    >>> share_text([True] * 8 + [False] * 2 + [None])
    '8 of 10 right: 0.80 (0.49 to 0.94)'
    """
    right, marked = marks.count(True), len(marks) - marks.count(None)
    if not marked:
        return "none marked"
    low, high = wilson(np.array(right / marked), np.array(float(marked)))
    return f"{right} of {marked} right: {right / marked:.2f} ({low:.2f} to {high:.2f})"


class Marks:
    """Marks of images: (concept, id) → right or wrong, in a JSON file; a mark is on disk before it counts."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        stored: dict[str, dict[str, bool]] = read_json(path) if path.is_file() else {}
        self.values = {(concept, id_): right for concept, of in stored.items() for id_, right in of.items()}

    def add(self, concept: str, id_: str, right: bool | None) -> None:
        """Store a mark; right=None deletes it."""
        with self._lock:
            values = self.values | ({} if right is None else {(concept, id_): right})
            if right is None:
                values.pop((concept, id_), None)
            stored: dict[str, dict[str, bool]] = {}
            for (of, name), mark in values.items():
                stored.setdefault(of, {})[name] = mark
            write_json(self.path, stored)
            self.values = values


@dataclass(frozen=True)
class Found:
    """What a query retrieves in one time bucket, best first."""

    name: str
    """of the bucket"""
    photos: list[dict[str, Any]]
    """rows of the collection"""
    scores: list[float]
    """cosines to the query"""
    marks: list[bool | None]
    """True: right, False: wrong, None: not marked"""


class Prompts:
    """A run folder whose embed stage is done."""

    def __init__(self, context: Context, collection: Collection) -> None:
        """collection: of the same run. Raises MissingFile for a run that is not embedded."""
        if not is_finished(context.root, "embed"):
            raise MissingFile(
                f"The stage embed of {context.root} is not done.",
                "Expected embedded images.",
                f"Run: driftline run {context.root} --until embed.",
            )
        self.context, self.collection = context, collection
        buckets = read_json(folder_of(context.root, "bucket") / "buckets.json")
        self.buckets = labels(context.config.buckets.labelled(buckets))
        self.marks = Marks(context.root / "browse" / "marks.json")
        self._lock = Lock()
        self._searches: dict[tuple[Query, int], tuple[SearchResult, list[str]]] = {}

    @cached_property
    def store(self) -> VectorStore:
        """The vectors of the run."""
        return VectorStore.open(folder_of(self.context.root, "embed"))

    @cached_property
    def encoder(self) -> Encoder:
        """The model that reads prompts; it is loaded when the first one comes, so that the page opens at once."""
        return text_encoder(spec_of(self.context), folder_of(self.context.root, "embed"), self.context.run_log)

    @cached_property
    def _photos(self) -> dict[int, int]:
        """Row of a vector → number of its photo."""
        photos, rows = self.collection.vector_rows()
        return dict(zip(rows.tolist(), photos.tolist(), strict=True))

    def texts(self) -> dict[str, str]:
        """The concepts of the configuration file, with saved changes: name → its prompts, one a line."""
        concepts = self.context.config.retrieve.complete_concepts()
        return {c.name: "\n".join([*c.prompts, *(f"- {n}" for n in c.negatives)]) for c in concepts}

    def _concept(self, query: Query, name: str) -> Concept:
        """The query as a concept with the configured templates."""
        section = self.context.config.retrieve
        same_name = next((c for c in section.complete_concepts() if c.name == name), None)
        templates = same_name.templates if same_name else section.templates
        # not checked: a query may have no name yet
        return Concept.model_construct(name=name, prompts=query.prompts, templates=templates, negatives=query.negatives)

    def view(self, query: Query, concept: str, k: int) -> tuple[list[Found], list[str]]:
        """The best `k` photos of every labelled bucket, and the ends of prompts that the model does not read. Raises
        BadConfig if there is no prompt."""
        if not query.prompts:
            raise BadConfig("There is no prompt.", "Expected at least one line that does not begin with '-'.")
        result, unread = self._search(query, concept)
        found = []
        for bucket, name in self.buckets.items():
            ranked = result.ranked["top"][bucket][0]
            photos = map(self._photos.__getitem__, ranked.rows.tolist())
            scores = dict(zip(photos, ranked.scores.tolist(), strict=True))
            shown = (row for row in self.collection.photos(list(scores)) if not self.collection.source.withdrawn(row))
            best = list(islice(shown, k))
            marks = [self.marks.values.get((concept, row["id"])) for row in best]
            found.append(Found(name, best, [scores[row["n"]] for row in best], marks))
        return found, unread

    def _search(self, query: Query, concept: str) -> tuple[SearchResult, list[str]]:
        wanted, section = self._concept(query, concept), self.context.config.retrieve
        key = (Query((*(wanted.templates or ()), "|", *query.prompts), query.negatives), section.per_class)
        with self._lock:
            if key not in self._searches:
                texts, groups = query_vectors(self.encoder, [wanted], section.negative_weight)
                result = search(
                    self.store, texts, section.per_class, list(self.buckets), groups, ("top",),
                    executor=self.context.executor,
                )  # fmt: skip
                read = [t for group in wanted.texts() for t in group] + list(query.negatives)
                if len(self._searches) > 200:
                    self._searches.clear()
                self._searches[key] = result, [tail for t in dict.fromkeys(read) if (tail := self.encoder.truncated(t))]
            return self._searches[key]

    def save(self, name: str, query: Query) -> None:
        """Write the prompts of a concept into the file that lists the concepts; the rest of the file stays as it is.

        A new name is appended. Raises BadConfig, and changes nothing, if the file would become invalid.
        """
        path = self.context.root / "driftline.yaml"
        file, keys = concepts_place(path)
        before = file.read_text(encoding="utf-8")
        names = [c.name for c in load(path).retrieve.concepts]  # as they are now: the file may have been edited by hand
        entries = yaml.safe_load(before)
        for key in keys:
            entries = entries[key]
        number = names.index(name) if name in names else len(names)
        old = entries[number] if name in names and isinstance(entries[number], dict) else {"name": name}
        entry = old | {"prompts": list(query.prompts)}
        if query.negatives or "negatives" in old:
            entry["negatives"] = list(query.negatives)
        text = with_entry(before, keys, number, entry)
        with self._lock:
            write_text(file, text)
            try:
                config = load(path)
            except DriftlineError:
                write_text(file, before)
                raise
            self.context = replace(self.context, config=config)


def concepts_place(path: Path) -> tuple[Path, Sequence[str]]:
    """The file that holds the list of concepts, and the keys that lead to the list in it."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    concepts = values["retrieve"]["concepts"]
    return (resolve_path(concepts, path.parent), []) if isinstance(concepts, str) else (path, ["retrieve", "concepts"])


def with_entry(text: str, keys: Sequence[str], number: int, entry: Any) -> str:
    """A YAML text with another entry, written as JSON, in the list to which the keys lead; comments, order and spacing
    of the rest stay. number: of the entry that is replaced; one past the last: it is appended.

    >>> with_entry("a: [b, c]  # kept\\n", ["a"], 0, {"d": 1})
    'a: [{"d": 1}, c]  # kept\\n'
    """
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        node = next(value for name, value in node.value if name.value == key)
    plain, last = json.dumps(entry, ensure_ascii=False), node.value[-1]
    if number < len(node.value):
        old = node.value[number]
        return text[: old.start_mark.index] + plain + text[_end(old) :]
    if node.flow_style:
        return f"{text[: _end(last)]}, {plain}{text[_end(last) :]}"
    line_end = text.find("\n", _end(last))
    line_end = len(text) if line_end < 0 else line_end
    return f"{text[:line_end]}\n{' ' * node.start_mark.column}- {plain}{text[line_end:]}"


def _end(node: Any) -> int:
    """End of the node's own text: a block ends with its last leaf, not at the next key."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
