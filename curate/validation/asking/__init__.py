"""Candidates → questions: batches, rounds, who judges, the platforms that take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from driftline.curate.core.registry import Registry

if TYPE_CHECKING:
    from driftline.curate.retrieval.settings import Concept


class Platform(Protocol):
    """A function that writes a batch in the form of one platform."""

    def __call__(
        self, batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
    ) -> dict[str, int]:
        """Write files into `out`; return the number of images and of expected answers.

        batch: content of `batch.json`. addresses: item → address of its image, in the order of the questions. No file
        may show the expected class of an item or that it is a gold question.
        """
        ...


PLATFORMS = Registry(
    "platform",
    {
        "mturk": "driftline.curate.validation.asking.platforms:mturk",
        "turkle": "driftline.curate.validation.asking.platforms:requester_files",
        "prolific": "driftline.curate.validation.asking.platforms:prolific",
        "label-studio": "driftline.curate.validation.asking.platforms:label_studio",
    },
    group="platforms",
)
