"""A slow host delays nobody else: what servers answered so far stays beside the shard, the rest is asked for later."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from driftline.curate.core.atomic_io import NO_ROOM, no_link, no_room, sha256_bytes
from driftline.curate.fetch.job import Shard
from driftline.curate.fetch.outcome import Download

# A host that needs more seconds an answer than others is left to the next turn: all rows get the first turn, then
# those of slow hosts, then those of very slow ones.
PATIENCE = (5.0, 30.0, math.inf)
WAITS = "waits"  # key of `Counter`, in place of reasons: rows for which a shard waits

Address = tuple[int, str]  # row, address: its own, a mirror's or a smaller size's


@dataclass(frozen=True)
class _Line:
    """What precedes the bytes of an answer."""

    row: int
    url: str
    bytes: Annotated[int, Field(ge=0, lt=1 << 40)] = 0
    sha256: str | None = None
    """of the bytes; None for a failure"""
    fault: str | None = None
    detail: str | None = None
    retry_after: float = 0.0
    validator: str | None = None
    waits: bool = False


_LINE = TypeAdapter(_Line)


class Answers:
    """Answers for a shard that waits, in the file NNNNN.waiting: the shard's key, then for each answer a line of JSON
    and its bytes, or a line for an address that waits. Each beginning of the file is one, so a kill costs nothing."""

    def __init__(self, path: Path, key: bytes | None) -> None:
        """Read what an earlier turn left, unless it has another key. None: whatever the key is."""
        self.path = path
        self.waits: dict[Address, None] = {}
        """addresses without an answer"""
        self._end = 0
        self._answers: dict[Address, tuple[int, _Line]] = {}  # with the end of its bytes
        with suppress(FileNotFoundError), open(path, "rb", opener=no_link) as file:
            size = path.stat().st_size
            first = file.readline()
            if key is not None and first != key.hex().encode() + b"\n":
                return
            self._end = len(first)
            for text in iter(file.readline, b""):
                try:
                    line = _LINE.validate_json(text)
                except ValidationError:
                    return
                if file.seek(line.bytes, 1) > size:
                    return
                self._note(line, file.tell())

    def _note(self, line: _Line, end: int) -> None:
        self._end = end
        if line.waits:
            self.waits[line.row, line.url] = None
        else:
            self._answers[line.row, line.url] = end, line
            self.waits.pop((line.row, line.url), None)

    def get(self, row: int, url: str) -> Download | None:
        """The answer, None if the address waits or was not asked for, or if its bytes are damaged."""
        if (row, url) not in self._answers:
            return None
        end, line = self._answers[row, url]
        if line.sha256 is None:
            return Download(None, line.fault, line.detail, line.retry_after, line.validator)
        with open(self.path, "rb", opener=no_link) as file:
            file.seek(end - line.bytes)
            data = file.read(line.bytes)
        return Download(data, validator=line.validator) if sha256_bytes(data) == line.sha256 else None

    def begin(self, key: bytes) -> None:
        """Create the file, unless an earlier turn did."""
        if not self._end:
            self._write(key.hex().encode() + b"\n")

    def add(self, address: Address, outcome: Download | None) -> None:
        """Append an answer; None: the address waits."""
        row, url = address
        if outcome is None:
            line, data = _Line(row, url, waits=True), b""
        else:
            data = outcome.data or b""
            digest = None if outcome.data is None else sha256_bytes(data)
            line = _Line(row, url, len(data), digest, *astuple(outcome)[1:])
        self._write(_LINE.dump_json(line, ensure_ascii=True) + b"\n" + data)
        self._note(line, self._end)

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
