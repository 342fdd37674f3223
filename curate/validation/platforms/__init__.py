"""Venues: one batch → what a marketplace takes. A new venue is one file here and one line in `VENUES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from curate.core.registry import Registry

if TYPE_CHECKING:
    from curate.retrieval.settings import Concept


class Venue(Protocol):
    """A function batch, addresses, concepts, folder → counts."""

    def __call__(
        self, batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
    ) -> dict[str, int]:
        """batch: `batch.json`. addresses: item → where its image is, in the order in which they are asked. Writes files
        into `out`; returns counts. Nothing that is written tells an item's expected class or that it is gold."""
        ...


VENUES = Registry(
    "venue",
    {
        "mturk": "curate.validation.platforms.mturk:write",
        "turkle": "curate.validation.platforms.turkle:write",
        "prolific": "curate.validation.platforms.prolific:write",
    },
    group="platforms",
)
