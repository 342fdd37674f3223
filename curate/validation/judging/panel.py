"""The panel: all judges of a run, their opinions, and what they mean for the batch, the verdicts and the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.run_log import RunLog
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.answers.verdicts import people_say, tally
from driftline.curate.validation.asking.batches import NONE, affordable
from driftline.curate.validation.judging.cache import AnswerCache
from driftline.curate.validation.judging.guarantee import classical, images_for
from driftline.curate.validation.judging.opinions import of_endpoint, opinion, table_of
from driftline.curate.validation.judging.question import question_of
from driftline.curate.validation.judging.report import Verdicts, accepts, guarantee, people_would, verdicts_of
from driftline.curate.validation.judging.routing import Route, Rules, audit_name, route
from driftline.curate.validation.judging.settings import JudgeSettings
from driftline.curate.validation.judging.student import answers_of, cross_fitted
from driftline.curate.validation.judging.trust import distrusted, judge_table, without
from driftline.curate.validation.judging.zero_shot import zero_shot
from driftline.curate.validation.settings import ValidationSettings

NOT_ASKED = "not_asked"  # fault of an opinion that a plan does not have
Items = list[dict[str, Any]]  # id, bucket, concept, …
ERROR = 0.05  # chance that a bucket is doubted although people confirm enough decisions in it
VectorsOf = Callable[[list[str]], npt.NDArray[Any]]
Final = tuple[pa.Table, list[dict[str, Any]], dict[str, Route]]  # opinions, table of judges, routes
GroupsOf = Callable[[list[str]], Sequence[str]]


def first_opinions(
    settings: ValidationSettings,
    concepts: Sequence[Concept],
    items: Items,
    load: Callable[[str], tuple[bytes, str]],
    vectors_of: VectorsOf,
    queries: npt.NDArray[Any],
    cache_file: Path,
    run_log: RunLog,
    ask: bool = True,
) -> pa.Table:
    """Opinions of all judges that need no answers of people: endpoints and the margin.

    queries: of all concepts, in their order. cache_file: the answers of endpoints, which are never asked twice. ask:
    False asks nothing and writes nothing; an image without an answer has the fault `not_asked`.
    """
    buckets = {item["id"]: item["bucket"] for item in items}
    ids = sorted(buckets)
    rows: list[dict[str, Any]] = []
    digests: dict[str, str] = {}
    for judge in settings.judges:
        if judge.kind == "endpoint":
            digests = digests or {id_: sha256_bytes(load(id_)[0]) for id_ in ids}
            question = question_of(concepts, judge.instructions)
            cache = AnswerCache(cache_file, ask)
            if not ask:
                for id_, digest in digests.items():
                    key = digest, question.fingerprint, judge.name, judge.model or ""
                    rows += of_endpoint({id_: cache.entries[key]} if key in cache.entries else {}, buckets)
                    if key not in cache.entries:
                        rows.append(opinion(id_, buckets[id_], judge.name, [], fault=NOT_ASKED))
                continue
            with run_log.progress(judge.name, len(ids), "images") as tick:
                rows += of_endpoint(ask_endpoint(judge, question, digests, load, cache, tick), buckets)
            if len(models := sorted({row["worker"] for row in rows if row["judge"] == judge.name})) > 1:
                run_log.say(
                    f"ask: the endpoint of {judge.name} changed its model; each is a judge: {', '.join(models)}"
                )
        elif judge.kind == "margin":
            rows += _margin(judge, concepts, ids, buckets, vectors_of(ids), queries)
    return table_of(rows)


def ask_endpoint(*values: Any) -> dict[str, dict[str, Any]]:
    """See `endpoint.ask_endpoint`; aiohttp is imported only where an endpoint is asked."""
    from driftline.curate.validation.judging.endpoint import ask_endpoint as ask

    return ask(*values)


def _margin(
    judge: JudgeSettings,
    concepts: Sequence[Concept],
    ids: Sequence[str],
    buckets: Mapping[str, int],
    vectors: npt.NDArray[Any],
    queries: npt.NDArray[Any],
) -> list[dict[str, Any]]:
    counts = [len(concept.texts()) for concept in concepts]
    first = np.cumsum([0, *counts[:-1]]).tolist()
    best, sure = zero_shot(vectors, queries, first, judge.margin)
    return [
        opinion(id_, buckets[id_], judge.name, [concepts[b].name], confidence=float(p))
        for id_, b, p in zip(ids, best.tolist(), sure.tolist(), strict=True)
        if b >= 0
    ]


@dataclass(frozen=True)
class Panel:
    """The judges of a run at one moment."""

    settings: ValidationSettings
    concepts: tuple[str, ...]
    """names, without the background"""
    opinions: pa.Table
    """of the judges that need no answers of people"""
    vectors_of: VectorsOf
    """ids → (N, D) vectors, for students"""
    seed: int
    groups_of: GroupsOf | None = None
    """ids → name of the group, near copies and photos of one uploader, that students see or do not see together; None:
    each image by itself"""

    def rules(self, first: bool = True) -> Rules:
        """The rules of routing. first: for the first batch, whose cost is limited."""
        s = self.settings
        most = affordable(s) if first else None
        return Rules(s.skip_people == "confident", s.skip_confidence, s.audit_share, most, self.seed)

    def routes(self, items: Items) -> dict[str, Route]:
        """The routes of the first batch."""
        return route(items, self.opinions, self.rules())

    def with_students(self, items: Items, answers: pa.Table) -> pa.Table:
        """Opinions of all judges: students are trained on the labels that people agree on."""
        students = [judge for judge in self.settings.judges if judge.kind == "student"]
        agreed = people_say(answers, self.settings)
        if not students or not agreed:
            return self.opinions
        buckets = {item["id"]: item["bucket"] for item in items}
        ids = sorted(buckets)
        names = [*self.concepts, NONE]
        number = {frozenset({name}): i for i, name in enumerate(names)}
        labels = np.array([number.get(agreed.get(id_, frozenset()), -1) for id_ in ids])
        vectors, where = self.vectors_of(ids), np.array([buckets[id_] for id_ in ids])
        groups = None if self.groups_of is None else np.unique(self.groups_of(ids), return_inverse=True)[1]
        rows = []
        for judge in students:
            probabilities = cross_fitted(
                vectors, where, labels, len(names), folds=judge.folds, each=judge.each, seed=self.seed, groups=groups
            )
            rows += [
                opinion(id_, buckets[id_], judge.name, one, confidence=sure)
                for id_, (one, sure) in zip(ids, answers_of(probabilities, names), strict=True)
                if one
            ]
        return pa.concat_tables([self.opinions, table_of(rows)])

    def final_routes(self, items: Items, answers: pa.Table, seen: set[str], audited: set[str]) -> Final:
        """(opinions of all judges, their table, routes).

        The opinions of a judge that proved worse in a bucket do not count there. Where people certainly confirm less
        than `skip_confidence` of the audited decisions of a bucket, judges decide nothing in it. seen, audited: as for
        `again`.
        """
        opinions = self.with_students(items, answers)
        rules = self.rules(first=False)
        agreed, people = people_say(answers, self.settings), people_would(items, answers, self.settings)
        weights = self._weights(items, route(items, opinions, rules), seen, audited)
        table = judge_table(opinions, agreed, weights)
        bad = distrusted(table)
        routes = route(items, opinions, rules, bad)
        right = _confirmed(items, routes, agreed, people, audited)
        level = 1 - ERROR / max(1, len(right))  # of all buckets together (Bonferroni)
        failing = {b for b, r in right.items() if classical(sum(r), len(r), level).high < self.settings.skip_confidence}
        if failing:
            bad |= {(worker, b) for worker in pc.unique(opinions["worker"]).to_pylist() for b in failing}
            routes = route(items, opinions, rules, bad)
        return opinions, table, routes

    def verdicts(self, items: Items, answers: pa.Table, seen: set[str], final: Final) -> pa.Table:
        """Verdicts of everything asked. Nobody's label is decided by models alone unless routing was asked for."""
        opinions, table, routes = final
        decided = {i: one.label for i, one in routes.items() if one.to in ("skip", "audit") and i not in seen}
        return tally(items, answers, self.settings, without(opinions, distrusted(table)), decided)

    def guarantee(
        self, items: Items, answers: pa.Table, seen: set[str], audited: set[str], final: Final
    ) -> list[dict[str, Any]]:
        """See `report.guarantee`."""
        verdicts = verdicts_of(self.verdicts(items, answers, seen, final))
        people = people_would(items, answers, self.settings)
        return guarantee(items, final[2], verdicts, people, seen=seen, audited=audited, settings=self.settings)

    def _weights(
        self, items: Items, routes: Mapping[str, Route], seen: set[str], audited: set[str]
    ) -> dict[str, float]:
        """id → how many images each one that people answered stands for: the inverse of its chance to be asked.

        Images that judges agreed on stand for those of their class, bucket and decision that were not drawn; a doubtful
        one only for doubtful ones. Hard images stand for those that the budget left out.
        """
        before = self.routes(items)
        cells: dict[tuple[Any, ...], set[str]] = {}
        for item in items:
            first, now = before[item["id"]], routes[item["id"]]
            sure = first.to in ("skip", "audit")
            kind = (accepts(first, item["concept"]), now.to in ("skip", "audit")) if sure else ()
            cells.setdefault((item["bucket"], item["concept"], *kind), set()).add(item["id"])
        weights = dict.fromkeys(seen, 1.0)
        for cell, ids in cells.items():
            drawn = ids & (audited if len(cell) > 2 else seen)
            weights |= dict.fromkeys(drawn, 1 + len(ids - seen) / max(1, len(drawn)))
        return weights

    def again(self, items: Items, answers: pa.Table, seen: set[str], audited: set[str]) -> tuple[Items, Items]:
        """(doubtful items, further audits) among those that no person saw, to be asked in the next round.

        Doubtful: a judge that they relied on proved worse in their bucket, people confirm too few decisions there, or a
        student disagrees. Further audits, drawn at random: as many again in a bucket where people seem to confirm too
        few decisions; and where the interval of a class and bucket is wider than `half_width`. seen: ids that people
        were asked. audited: those of them that were drawn at random.
        """
        final = self.final_routes(items, answers, seen, audited)
        routes = final[2]
        before = self.routes(items)
        unseen = [i for i in items if i["id"] not in seen and before[i["id"]].to in ("skip", "audit")]
        doubtful = [i for i in unseen if routes[i["id"]].to == "people"]
        rest = sorted(
            (i for i in unseen if routes[i["id"]].to != "people"), key=lambda i: audit_name(self.seed, i["id"])
        )
        more: Items = []
        agreed, people = people_say(answers, self.settings), people_would(items, answers, self.settings)
        for bucket, right in _confirmed(items, routes, agreed, people, audited).items():
            if classical(sum(right), len(right), 1 - ERROR).high < self.settings.skip_confidence:
                more += [i for i in rest if i["bucket"] == bucket][: len(right)]
        if self.settings.half_width is not None:
            for row in self.guarantee(items, answers, seen, audited, final):
                wanted = images_for(row["half_width"], self.settings.half_width, row["audited"])
                more += [i for i in rest if (i["bucket"], i["concept"]) == (row["bucket"], row["concept"])][:wanted]
        return doubtful, list({(i["id"], i["concept"]): i for i in more}.values())


def _confirmed(
    items: Items,
    routes: Mapping[str, Route],
    answers: Mapping[str, frozenset[str]],
    people: Verdicts,
    audited: set[str],
) -> dict[int, list[bool]]:
    """bucket → whether people agree on the judges' answer, and would keep what judges accept, for each audited
    decision; False where too few answered. answers: see `people_say`; people: see `people_would`."""
    right: dict[int, list[bool]] = {}
    for item in items:
        one, keeps = routes[item["id"]], people[item["id"], item["concept"]] == "kept"
        if item["id"] in audited and one.to in ("skip", "audit"):
            agreed = answers.get(item["id"]) == one.label and keeps == accepts(one, item["concept"])
            right.setdefault(item["bucket"], []).append(agreed)
    return right
