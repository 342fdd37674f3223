"""Where the next hour is spent best: prompts that retrieve badly, and images whose answer would tell most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from driftline.curate.core.parsing import rows_of
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.judging.guarantee import classical
from driftline.curate.validation.judging.routing import Rules, information_first, route
from driftline.curate.validation.judging.trust import Pair

UNANSWERED = {"pending", "unlabelled"}  # verdicts that say nothing of the prompts


def weakest(verdicts: pa.Table) -> list[dict[str, Any]]:
    """One row per concept and bucket, the lowest precision first: images with a verdict, share accepted, 95 % interval.

    verdicts: table of VERDICTS. The background has no prompts, and is left out.
    """
    accepted: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for concept, bucket, verdict in rows_of(verdicts, "concept", "bucket", "verdict"):
        if concept != BACKGROUND and verdict not in UNANSWERED:
            accepted[concept, bucket].append(verdict == "kept")
    rows = []
    for (concept, bucket), right in accepted.items():
        share = classical(sum(right), len(right))
        rows.append({"concept": concept, "bucket": bucket, "images": len(right), "precision": share.value,
                     "low": share.low, "high": share.high})  # fmt: skip
    return sorted(rows, key=lambda row: (row["precision"], row["high"], row["concept"], row["bucket"]))


def most_helpful(
    items: Sequence[Mapping[str, Any]],
    opinions: pa.Table,
    answered: Collection[str],
    n: int,
    distrusted: Collection[Pair] = (),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The `n` images without an answer of a person whose answer would tell most: id, bucket, concept, bits.

    items: id, bucket, concept. opinions: table of OPINIONS. distrusted: (judge, bucket) pairs that do not count.
    seed: orders images that tell equally much.
    """
    left = [item for item in items if item["id"] not in answered]
    routes = route(left, opinions, Rules(skip=False, confidence=1.0, audit_share=0.0), distrusted)
    unique = {item["id"]: item for item in left}
    order = [unique[i] for i in sorted(unique, key=lambda i: information_first(routes[i].bits, seed, i))]
    return [
        {"id": i["id"], "bucket": i["bucket"], "concept": i["concept"], "bits": round(routes[i["id"]].bits, 3)}
        for i in order[:n]
    ]
