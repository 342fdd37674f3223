"""What was asked of Prolific and what became of it, on disk: no step is forgotten, and none is paid twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from curate.core.atomic_io import json_value
from curate.core.errors import BadInput


class Journal:
    """Steps that were begun and finished, one JSON object per line; `begin` and `end` return when it is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, Any] = {}
        self.begun: set[str] = set()
        if path.is_file():
            data = path.read_bytes()
            if (complete := data.rfind(b"\n") + 1) < len(
                data
            ):  # a crash in the middle of a line: its call was not made
                os.truncate(path, complete)
            for number, line in enumerate(data[:complete].splitlines(), 1):
                try:
                    entry = json_value(line)
                    self.begun.add(entry["step"])
                    if "result" in entry:
                        self.done[entry["step"]] = entry["result"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    raise BadInput(
                        f"{path}, line {number}: {line[:80]!r}.",
                        "Expected a step of a study.",
                        "Restore the line from a copy: a step that is forgotten could be paid twice.",
                    ) from None

    def _add(self, **entry: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def begin(self, step: str) -> bool:
        """Record that a step begins; whether it was begun before."""
        before = step in self.begun
        self._add(step=step)
        self.begun.add(step)
        return before

    def end(self, step: str, result: Any) -> Any:
        """Record the result of a step, and return it."""
        self._add(step=step, result=result)
        self.done[step] = result
        return result
