"""The Hugging Face Hub's own client, with an end to its patience: it sleeps for as long as a server asks."""

from __future__ import annotations

import re
from typing import Any

from driftline.curate.core.errors import Unfinished
from driftline.curate.core.outside.http import YEAR, Policy, seconds_after

PATIENCE = Policy().patience


def patient() -> None:
    """Let `huggingface_hub` raise Unfinished where the Hub asks to wait for longer than PATIENCE, from now on."""
    from huggingface_hub import get_session

    session = get_session()
    hooks = session.event_hooks
    if _not_longer not in hooks["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _not_longer]}


def _not_longer(response: Any) -> None:
    """Look at Retry-After, and at `t` of the header RateLimit [draft-ietf-httpapi-ratelimit-headers]."""
    limits = re.findall(r"\bt=(\d+)", response.headers.get("RateLimit", ""))
    wait = max(seconds_after(value, YEAR) for value in (response.headers.get("Retry-After"), *limits))
    if response.status_code >= 400 and wait > PATIENCE:
        problem = f"The Hub asks to wait for {wait:,.0f} seconds (status {response.status_code})."
        raise Unfinished(problem, "", "Run the same command again later: it continues.")
