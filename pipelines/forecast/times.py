"""How long the stages of a run take: estimates, each with its basis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.pipelines.run.plan import make
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import done_of

# Records a second of one process on this project's test machine, for stages that have not run here yet.
SPEED = {"ingest": 5_000, "filter": 200_000, "bucket": 500_000, "retrieve": 200_000, "ask": 500, "tally": 50_000,
         "publish": 200}  # fmt: skip
FROM_STORE = 2_000  # photos a second that come from the store
COPIED, ASKED = 300, 2  # photos a second: from this machine's disk; over one connection
LAST_RUN, MEASURED = "last run here", "speed of the model, measured now"
STORED = "speed of the project's test machine"
BY_NETWORK, UNKNOWN = f"{ASKED} photos a second for each connection", "not known"


def records(
    context: Context,
    todo: set[str],
    rows: int | None,
    images: int | None,
    wanted: Mapping[str, Any] | None,
) -> dict[str, int | None]:
    """How many records each planned stage reads; None: not known. rows: what fetch reads; images: what it keeps;
    wanted: `candidates` of a forecast, if they are still to be retrieved."""
    done = {name: mark["counts"] for name in ("retrieve", "tally", "publish") if (mark := done_of(context.root, name))}
    candidates = done["retrieve"]["kept"] if "retrieve" in done else None
    if "retrieve" in todo:
        candidates = None if wanted is None else wanted["images"]
    accepted = None
    if candidates is not None:
        share = done["publish"]["read"] / done["tally"]["read"] if done.keys() >= {"tally", "publish"} else 1.0
        accepted = round(candidates * share)
    early = dict.fromkeys(("ingest", "filter", "fetch"), rows)
    late = dict.fromkeys(("bucket", "embed", "retrieve"), images) | dict.fromkeys(("ask", "tally"), candidates)
    return {name: n for name, n in (early | late | {"publish": accepted}).items() if name in todo}


def times(
    context: Context,
    counts: Mapping[str, int | None],
    by_network: bool,
    rate: float | None,
    needed: Mapping[str, Any],
) -> dict[str, tuple[float | None, str]]:
    """Stage → (seconds, basis): by its last run here, else by stored speeds; None if not known.

    counts: `records`. rate: images a second of one process. needed: requests and vectors that the store does not have.
    """
    settings, workers = context.config.fetch, context.executor.workers or 1
    connections = settings.threads * workers * ASKED
    speeds: dict[str, float] = dict(SPEED)
    speeds["fetch"] = min(connections, settings.rate or connections) if by_network else COPIED * workers
    if rate is not None:
        speeds["embed"] = rate * workers
    estimates: dict[str, tuple[float | None, str]] = {}
    for stage in make(context):
        name = stage.name
        if name not in counts:
            continue
        done, n = done_of(context.root, name), counts[name]
        left = needed.get({"fetch": "requests", "embed": "embeddings"}.get(name, ""))
        seconds, basis = None, {"embed": MEASURED, "fetch": BY_NETWORK if by_network else STORED}.get(name, STORED)
        if n is None or (name not in speeds and not done):
            basis = UNKNOWN
        elif left is not None and name in speeds:
            seconds = left / speeds[name] + (n - left) / FROM_STORE
        elif done and done["counts"]["read"] and not (name == "embed" and rate is not None):
            seconds, basis = done["seconds"] * n / done["counts"]["read"], LAST_RUN
        elif name in speeds:
            seconds = n / speeds[name]
        else:
            basis = UNKNOWN
        estimates[name] = (None if seconds is None else round(seconds, 1)), basis
    return estimates
