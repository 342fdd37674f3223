"""The answers of judges on disk: append-only, so that no image is asked, and paid for, twice.

One JSON object a line, keyed by (SHA-256 of the image, fingerprint of the question, name of the judge, model).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import Field

from curate.core.atomic_io import json_value
from curate.core.errors import BadInput
from curate.core.outside.documents import Schema

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


class AnswerCache:
    """All answers of the endpoint judges of a run; the last one of a key counts."""

    def __init__(self, path: Path, write: bool = True) -> None:
        """Raises BadInput for a line that is no answer; a last line that a kill cut is removed. write: False only
        reads."""
        self.path = path
        self.entries: dict[Key, dict[str, Any]] = {}
        self.spent: dict[str, float] = {}
        if path.is_file():
            data = path.read_bytes()
            complete = data.rfind(b"\n") + 1
            if write and complete < len(data):
                os.truncate(path, complete)
            for number, line in enumerate(data[:complete].splitlines(), 1):
                self._remember(self._entry(line, number))
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            return _Entry.model_validate(json_value(line)).model_dump()
        except (ValueError, RecursionError):
            raise BadInput(
                f"{self.path}, line {number}: {line[:80]!r}.",
                "Expected the answer of a judge.",
                "Remove the line: its image is asked again.",
            ) from None

    def _remember(self, entry: dict[str, Any]) -> None:
        self.entries[entry["image"], entry["question"], entry["judge"], entry["requested"]] = entry
        self.spent[entry["judge"]] = self.spent.get(entry["judge"], 0.0) + entry["usd"]

    def add(self, entry: dict[str, Any]) -> None:
        """Append one answer; it survives a kill of this process when this returns."""
        self._file.write(json.dumps(entry, sort_keys=True, ensure_ascii=True) + "\n")
        self._file.flush()
        self._remember(entry)

    def close(self) -> None:
        """Sync and close the file."""
        os.fsync(self._file.fileno())
        self._file.close()
