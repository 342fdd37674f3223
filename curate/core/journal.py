"""An append-only journal of what must not be done twice: no entry is lost by a kill, none is guessed."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.atomic_io import check_format, check_plain, json_value, no_link, private
from driftline.curate.core.errors import BadInput

FORMAT = 1
FIRST = json.dumps({"format": FORMAT}).encode()  # the first line


class Journal(ABC):
    """One JSON object a line, after one with the format. A last line that a kill cut is removed: it was not added."""

    entry: ClassVar[str]
    """what a line holds, for messages"""
    way_out: ClassVar[str]
    """what to do about a damaged line"""

    def __init__(self, path: Path, write: bool = True) -> None:
        """Raises BadInput for a line that is no entry, and for a journal of another format. write: False only reads."""
        check_plain(path)
        self.path = path
        data = path.read_bytes() if path.is_file() else b""
        complete = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:complete].splitlines(), 1):
            try:
                value = json_value(line)
                if not isinstance(value, dict):
                    raise TypeError
                if number > 1:
                    self.take(value)
            except (ValueError, KeyError, TypeError, RecursionError):
                problem = f"{path}, line {number}: {line[:80]!r}."
                raise BadInput(problem, f"Expected {self.entry}.", self.way_out) from None
            if number == 1:
                check_format(path, value.get("format"), FORMAT, "Finish with the version that wrote it.")
        self._empty = not complete
        if write and complete < len(data):  # a kill cut it; what does not begin as ours is somebody else's
            if self._empty and not FIRST.startswith(data):
                raise BadInput(f"{path} holds {data[:80]!r}.", f"Expected {self.entry}.", self.way_out)
            os.truncate(path, complete)

    @abstractmethod
    def take(self, entry: dict[str, Any]) -> None:
        """Remember an entry. Raises ValueError, KeyError or TypeError for what is none."""

    def add(self, **entry: Any) -> None:
        """Append an entry; it is on disk when this returns."""
        lines = [{"format": FORMAT}, entry] if self._empty else [entry]
        private(self.path.parent)
        self.path.touch(0o600)
        with open(self.path, "a", encoding="utf-8", opener=no_link) as file:
            file.write("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        self._empty = False
        self.take(entry)
