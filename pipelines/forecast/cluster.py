"""What a planned run needs on several equal machines, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.pipelines.run.plan import duration

SHARED = ("fetch", "embed")  # stages whose shards several machines share; the others run on one


def cluster(needs: Mapping[str, Any], nodes: int, price: float | None) -> dict[str, Any]:
    """Seconds of each stage, node-hours and dollars on `nodes` machines like this one, as plain data.

    needs: what `forecast` says. price: USD of one machine for an hour; None: unknown. All machines are paid for until
    the last stage ends. Servers and shared storage are taken to be fast enough. A stage of unknown time has None.
    """
    shared = {stage: needs["seconds"].get(stage) for stage in SHARED}
    seconds = needs["seconds"] | {stage: round(s / nodes, 1) for stage, s in shared.items() if s is not None}
    hours = nodes * sum(filter(None, seconds.values())) / 3600
    usd = None if price is None else round(hours * price, 2)
    return {"nodes": nodes, "seconds": seconds, "node_hours": round(hours, 2), "price": price, "usd": usd}


def text(needs: Mapping[str, Any]) -> str:
    """One line for people."""
    shared = {stage: s for stage, s in needs["seconds"].items() if stage in SHARED and s}
    parts = [f"{stage} {duration(seconds)}" for stage, seconds in shared.items()]
    alone = sum(s for stage, s in needs["seconds"].items() if stage not in SHARED and s)
    parts.append(f"the other stages {duration(alone)} on one of them")
    cost = "" if needs["usd"] is None else f", ${needs['usd']:,.2f} at ${needs['price']:,.2f} an hour"
    unknown = [stage for stage, seconds in needs["seconds"].items() if seconds is None]
    missing = f", without {', '.join(unknown)}" if unknown else ""
    return f"cluster    {needs['nodes']} nodes: {', '.join(parts)}{missing}; {needs['node_hours']:,} node-hours{cost}"
