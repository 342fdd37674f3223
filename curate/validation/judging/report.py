"""The guarantee of a run: for every class and bucket, how good the labels are that no person saw."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.parsing import rows_of
from driftline.curate.validation.answers.verdicts import people_alone, tally
from driftline.curate.validation.asking.batches import estimate, expected_of
from driftline.curate.validation.judging.guarantee import Estimate, Sample, images_for, precision, recall
from driftline.curate.validation.judging.routing import Route
from driftline.curate.validation.settings import ValidationSettings

POINT = 0.01  # a percentage point


Verdicts = Mapping[tuple[str, str], str]  # (id, concept) → verdict


def verdicts_of(table: pa.Table) -> Verdicts:
    """(id, concept) → verdict. table: of VERDICTS."""
    return {(id_, concept): verdict for id_, concept, verdict in rows_of(table, "id", "concept", "verdict")}


def people_would(items: Sequence[Mapping[str, Any]], answers: pa.Table, settings: ValidationSettings) -> Verdicts:
    """The verdicts of people's answers alone, by the rules of the run: what audits measure judges by."""
    return verdicts_of(tally([dict(item) for item in items], answers, people_alone(settings)))


def accepts(one: Route, concept: str) -> bool:
    """Whether judges alone accept an image for a concept."""
    return one.label == expected_of(concept)


def guarantee(
    items: Sequence[Mapping[str, Any]],
    routes: Mapping[str, Route],
    verdicts: Verdicts,
    people: Verdicts,
    seen: set[str],
    audited: set[str],
    settings: ValidationSettings,
) -> list[dict[str, Any]]:
    """One row per bucket and class: labels, precision and recall with their intervals, and what a narrower one costs.

    items: id, bucket, concept of everything asked. routes: the final ones. verdicts: those of the run. people:
    what people would keep, see `people_would`: an audited label is right if and only if they would. An audited image
    without enough answers counts against the judges. seen: ids that people were asked. audited: those drawn at random
    among the images on which judges agree.
    """
    cells: dict[tuple[int, str], list[str]] = defaultdict(list)
    for item in items:
        cells[item["bucket"], item["concept"]].append(item["id"])
    rows: list[dict[str, Any]] = []
    for (bucket, concept), ids in sorted(cells.items()):
        samples = {}
        for accepted in (True, False):
            decided = [i for i in ids if routes[i].to in ("skip", "audit") and accepts(routes[i], concept) == accepted]
            drawn = [i for i in decided if i in audited]
            rest = [i for i in decided if i not in seen]
            f, f_rest = ([_probability(routes[i], accepted) for i in part] for part in (drawn, rest))
            counted = {"kept"} if accepted else {"kept", "pending"}
            y = [float(people[i, concept] in counted) for i in drawn]
            samples[accepted] = Sample(np.array(y), np.array(f), np.array(f_rest))
        confirmed = sum(verdicts[i, concept] == "kept" for i in ids if i in seen)
        hard = [i for i in ids if routes[i].to not in ("skip", "audit")]
        asked = [people[i, concept] == "kept" for i in hard if i in seen]
        share = sum(asked) / len(asked) if asked else math.nan
        undecided = len(hard) - len(asked)
        right, plain = (precision(confirmed, samples[True], plain=p) for p in (False, True))
        n, unseen = len(samples[True].y), len(samples[True].f_rest)
        more = 0
        if unseen and right.half_width > POINT:
            more = min(unseen, images_for(right.half_width, right.half_width - POINT, n))
        rows.append({
            "bucket": bucket,
            "concept": concept,
            "labels": confirmed + unseen,
            "unseen": unseen,
            "audited": n,
            **_named("precision", right),
            **_named("classical", plain),
            "undecided": undecided,
            **_named("recall", recall(confirmed, samples[True], samples[False], undecided=undecided, share=share)),
            "half_width": right.half_width,
            "usd_a_point": estimate(more, settings),
            "minutes_a_point": round(more * settings.workers * settings.seconds / 60, 1),
        })  # fmt: skip
    return rows


def _probability(one: Route, accepted: bool) -> float:
    """Of the class, by the judges. What they reject has the rest of their probability at most."""
    return one.probability if accepted else 1 - one.probability


def _named(name: str, estimate_: Estimate) -> dict[str, float | None]:
    value = None if math.isnan(estimate_.value) else round(estimate_.value, 6)
    return {name: value, f"{name}_low": round(estimate_.low, 6), f"{name}_high": round(estimate_.high, 6)}
