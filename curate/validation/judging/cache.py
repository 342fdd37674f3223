"""The answers of judges on disk: append-only, so that no image is asked, and paid for, twice.

An entry is keyed by (SHA-256 of the image, fingerprint of the question, name of the judge, model).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from driftline.curate.core.journal import Journal
from driftline.curate.core.outside.documents import Schema

Key = tuple[str, str, str, str]  # image's SHA-256, question's fingerprint, judge, requested model


class _Entry(Schema):
    image: str
    question: str
    judge: str
    requested: str
    reported: str
    model: str
    labels: list[str]
    sensitive: bool
    confidence: float | None = Field(ge=0, le=1)
    fault: str | None
    usd: float = Field(ge=0, allow_inf_nan=False)


class AnswerCache(Journal):
    """All answers of the endpoint judges of a run; the last one of a key counts."""

    entry = "the answer of a judge"
    way_out = "Remove the line: its image is asked again."

    def __init__(self, path: Path, write: bool = True) -> None:
        self.entries: dict[Key, dict[str, Any]] = {}
        self.spent: dict[str, float] = {}
        super().__init__(path, write)

    def take(self, entry: dict[str, Any]) -> None:
        """Remember an answer, and what it cost."""
        entry = _Entry.model_validate(entry).model_dump()
        self.entries[entry["image"], entry["question"], entry["judge"], entry["requested"]] = entry
        self.spent[entry["judge"]] = self.spent.get(entry["judge"], 0.0) + entry["usd"]
