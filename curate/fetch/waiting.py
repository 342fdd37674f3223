"""A slow host delays nobody else: what servers answered so far stays beside the shard, the rest is asked for later."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.atomic_io import NO_ROOM, no_link, no_room, sha256_bytes
from driftline.curate.fetch.outcome import Download

if TYPE_CHECKING:
    from driftline.curate.fetch.shard import Shard

# A host that needs more seconds an answer than others is left to the next turn: all rows get the first turn, then
# those of slow hosts, then those of very slow ones.
PATIENCE = (5.0, 30.0, math.inf)
WAITS = "waits"  # key of `Counter`, in place of reasons: rows for which a shard waits

Address = tuple[int, str]  # row, address: its own, a mirror's or a smaller size's


class Answers:
    """Answers for a shard that waits, in the file NNNNN.waiting: the shard's key, then for each answer a line of JSON
    and its bytes, or a line for an address that waits. Each beginning of the file is one, so a kill costs nothing."""

    def __init__(self, path: Path, key: bytes | None) -> None:
        """Read what an earlier turn left, unless it has another key. None: whatever the key is."""
        self.path = path
        self.waits: dict[Address, None] = {}
        """addresses without an answer"""
        self._end = 0
        self._answers: dict[Address, tuple[int, int, dict[str, Any]]] = {}  # start, bytes, line
        with suppress(FileNotFoundError), open(path, "rb", opener=no_link) as file:
            size = path.stat().st_size
            first = file.readline()
            if key is not None and first != key.hex().encode() + b"\n":
                return
            self._end = len(first)
            for line in iter(file.readline, b""):
                try:
                    entry = json.loads(line)
                    address, length = (entry.pop("row"), entry.pop("url")), entry.pop("bytes")
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    return
                if file.seek(length or 0, 1) > size:
                    return
                self._note(address, file.tell(), length, entry)

    def _note(self, address: Address, end: int, length: int | None, entry: dict[str, Any]) -> None:
        self._end = end
        if length is None:
            self.waits[address] = None
        else:
            self._answers[address] = (end - length, length, entry)
            self.waits.pop(address, None)

    def get(self, row: int, url: str) -> Download | None:
        """The answer, None if the address waits or was not asked for, or if its bytes are damaged."""
        if (row, url) not in self._answers:
            return None
        start, length, entry = self._answers[row, url]
        digest = entry["sha256"]
        if digest is None:
            return Download(None, *(entry[name] for name in ("fault", "detail", "retry_after", "validator")))
        with open(self.path, "rb", opener=no_link) as file:
            file.seek(start)
            data = file.read(length)
        return Download(data, validator=entry["validator"]) if sha256_bytes(data) == digest else None

    def begin(self, key: bytes) -> None:
        """Create the file, unless an earlier turn did."""
        if not self._end:
            self._write(key.hex().encode() + b"\n")

    def add(self, address: Address, outcome: Download | None) -> None:
        """Append an answer; None: the address waits."""
        entry: dict[str, Any] = {} if outcome is None else asdict(replace(outcome, data=None))
        data = b"" if outcome is None or outcome.data is None else outcome.data
        entry["sha256"] = sha256_bytes(data) if outcome is not None and outcome.data is not None else None
        length = None if outcome is None else len(data)
        line = json.dumps(entry | {"row": address[0], "url": address[1], "bytes": length}).encode() + b"\n"
        self._write(line + data)
        self._note(address, self._end, length, entry)

    def _write(self, data: bytes) -> None:
        try:
            self.path.touch()
            with open(self.path, "r+b", opener=no_link) as file:
                file.truncate(self._end)
                file.seek(self._end)
                file.write(data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise no_room(error, self.path, self._end) from None
        self._end += len(data)


def answers_path(folder: Path, shard: int) -> Path:
    """The path of the answers of a shard that waits."""
    return folder / f"{shard:05d}.waiting"


def _hosts_path(folder: Path, patience: float) -> Path:
    return folder / f"slow-{patience:g}.waiting"


def slow_hosts(folder: Path, patience: float) -> set[str]:
    """The hosts that any worker saw to be slow in this turn."""
    try:
        return set(_hosts_path(folder, patience).read_text("utf-8").split("\n"))
    except (FileNotFoundError, UnicodeDecodeError):
        return set()


def add_slow(folder: Path, patience: float, hosts: Iterable[str]) -> None:
    """Say to all workers that these hosts are slow."""
    for host in sorted(hosts):
        with open(_hosts_path(folder, patience), "a", encoding="utf-8", opener=no_link) as file:
            file.write(f"\n{host}\n")


def remove_answers(folder: Path) -> None:
    """Delete what waited, after all shards are finished."""
    for path in folder.glob("*.waiting"):
        path.unlink()


def groups(shards: Sequence[Shard], waits: dict[int, int]) -> list[tuple[Shard, ...]]:
    """Shards whose waiting rows are asked for together: as many rows as a shard has, so that an outage is seen soon.
    waits: number of a shard → rows."""
    parts: list[list[Shard]] = []
    rows = 0
    for shard in shards:
        if not parts or rows + waits[shard.number] > shard.settings.shard_size:
            parts.append([])
            rows = 0
        parts[-1].append(shard)
        rows += waits[shard.number]
    return [tuple(part) for part in parts]
