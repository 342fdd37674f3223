"""A tamper-evident record of every correction: append-only, chained by SHA-256, with a Merkle root.

    b"driftline ledger 2\\n"
    length of the payload (4 bytes) · SHA-256 of the payload (32) · chain (32) · payload        … and so on

chain = SHA-256(previous chain ‖ length ‖ digest); the first follows the SHA-256 of the head line. So the chain
proves a record's first 68 bytes before its payload is read: a wrong length is found where it is, and only a last record
that is shorter than its own proven length was torn by a crash. The Merkle tree is over length ‖ digest.

A payload is a JSON head (preceded by its length, 4 bytes) and the vector's bytes. Records that were cut off at the end
are found only with a head that is stored elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from driftline.curate.core.atomic_io import write_bytes, writing
from driftline.curate.core.errors import BadInput, Busy, IntegrityError, MissingFile, NotWritten
from driftline.curate.core.system import lock, write_at

HEAD = b"driftline ledger 2\n"
LEAF = struct.Struct("<I32s")  # what the chain and the tree are over: length, digest
RECORD = struct.Struct("<I32s32s")
LENGTH = struct.Struct("<I")
LARGEST = 64 * 2**20  # bytes of a payload, at most
BUFFER = 1 << 20  # bytes, if entries need not be on disk immediately
DAMAGED = (
    struct.error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One record of a ledger."""

    path: Path
    """of the ledger"""
    number: int
    """position, from 0"""
    leaf: bytes
    """length and digest: what the chain and the Merkle tree are over"""
    chain: bytes
    """SHA-256 of everything up to here"""
    at: int
    """offset of the record in the file"""
    end: int
    """offset of the next record"""
    payload: bytes

    @property
    def content(self) -> tuple[dict[str, Any], npt.NDArray[Any] | None]:
        """Facts, and the vector if the payload has one. Raises IntegrityError."""
        return unpacked(self.payload, f"Entry {self.number} of {self.path}")


@dataclass(frozen=True)
class Verdict:
    """Result of a verification."""

    entries: int
    """number of records"""
    head: str
    """the last chain, hexadecimal"""
    root: str
    """Merkle root of the records, hexadecimal"""
    noted: int | None = None
    """number of records when it had the head that was given; None: none was given"""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def packed(facts: Mapping[str, Any], vector: npt.NDArray[Any] | None) -> bytes:
    """The bytes of a payload. Raises BadInput if it is too large."""
    head = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    raw = b""
    if vector is not None:
        raw = vector.tobytes()
        head = head[:-1] + _form(vector.dtype, vector.shape, len(head) > 2)
    if len(head) + len(raw) > LARGEST:
        raise BadInput(f"A correction of {len(head) + len(raw):,} bytes.", f"Expected at most {LARGEST:,}.")
    return b"".join((LENGTH.pack(len(head)), head, raw))


@cache
def _form(dtype: np.dtype[Any], shape: tuple[int, ...], more: bool) -> bytes:
    """The end of a JSON head: dtype and shape of the vector."""
    return (b"," if more else b"") + orjson.dumps({"dtype": dtype.str, "shape": shape})[1:]


def unpacked(payload: bytes, which: str) -> tuple[dict[str, Any], npt.NDArray[Any] | None]:
    """Facts and vector of a payload made by `packed`. Raises IntegrityError for other bytes. which: its entry."""
    try:
        (size,) = LENGTH.unpack_from(payload)
        start = LENGTH.size
        about = json.loads(payload[start : start + size])
        if "dtype" not in about:
            return dict(about), None
        dtype, shape = about.pop("dtype"), about.pop("shape")
        return about, np.frombuffer(payload, np.dtype(dtype), offset=start + size).reshape(shape)
    except DAMAGED:
        raise IntegrityError(f"{which} has an invalid payload.", "Expected facts and a vector.") from None


class Ledger:
    """A ledger open for writing, by one process at a time. Once `append` has returned, the entry is on disk."""

    def __init__(self, path: Path, sync: bool = True, new: bool = False) -> None:
        """Open or create a ledger. sync: if False, entries are on disk once the ledger is closed. new: refuse a file
        that exists.

        The incomplete last record of a crash is moved to PATH.cut, or .cut2, … Raises Busy if another process writes,
        IntegrityError if the file does not verify, BadInput for one that must not exist.
        """
        self.path, self.sync = path, sync
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = open(path.with_name(path.name + ".lock"), "w")  # noqa: SIM115  held until close
        try:
            if not lock(self.lock, wait=False):
                raise Busy(f"Another process writes {path}.", "", "Wait until it has finished.")
            if new and path.exists():
                raise BadInput(f"The ledger {path} exists.", "No ledger is replaced.", "Move it, or name a new folder.")
            if not path.exists():
                write_bytes(path, HEAD)
            self.n, self.chain, self.end = 0, sha(HEAD), len(HEAD)
            for entry in entries(path, torn=True):
                self.n, self.chain, self.end = entry.number + 1, entry.chain, entry.end
            self.file = os.open(path, os.O_RDWR)
        except BaseException:
            self.lock.close()
            raise
        try:
            self._set_torn_aside()
        except BaseException:
            self._release()
            raise
        self.stored = self.n  # entries on disk
        self.waiting = BytesIO()
        self.failed: NotWritten | None = None

    def _set_torn_aside(self) -> None:
        """Move the bytes after the last whole record to a file of their own, and only then cut them off."""
        if os.fstat(self.file).st_size == self.end:
            return
        names = (self.path.with_name(f"{self.path.name}.cut{'' if i == 1 else i}") for i in count(1))
        aside = next(name for name in names if not name.exists())
        with self.path.open("rb") as file, writing(aside) as cut:
            file.seek(self.end)
            shutil.copyfileobj(file, cut)
        os.ftruncate(self.file, self.end)
        os.fsync(self.file)

    def append(self, facts: Mapping[str, Any], vector: npt.NDArray[Any] | None = None) -> int:
        """Write one entry and return its number.

        Raises NotWritten if it cannot be written whole (the disk is full); from then on every entry is refused.
        """
        if self.failed is not None:
            raise self.failed
        payload = packed(facts, vector)
        leaf = LEAF.pack(len(payload), sha256(payload).digest())
        self.chain = sha256(self.chain + leaf).digest()
        self.waiting.write(leaf + self.chain)
        self.waiting.write(payload)  # not joined to the above, which would copy it
        self.n += 1
        if self.sync or self.waiting.tell() >= BUFFER:
            self._flush()
        return self.n - 1

    def _flush(self) -> None:
        """Write and sync what waits, or cut the file back to its last whole record and refuse from then on."""
        rest = self.waiting.getbuffer()[: self.waiting.tell()]
        size = len(rest)
        try:
            while rest:
                written = write_at(self.file, rest, self.end + size - len(rest))
                if not written:
                    raise OSError("no byte was written")
                rest = rest[written:]
            if self.sync:
                os.fsync(self.file)
        except OSError as error:
            why = f"{self.path}: entry {self.stored} was not recorded ({error.strerror or error})."
            self.failed = NotWritten(why, "Nothing is recorded after it.", "Make room, then evaluate again.")
            with suppress(OSError):  # what stays of it is a torn record, which the next opening sets aside
                os.ftruncate(self.file, self.end)
            raise self.failed from None
        self.end, self.stored = self.end + size, self.n
        self.waiting.seek(0)

    def close(self) -> None:
        """Write everything to disk and release the lock. Raises NotWritten."""
        try:
            if not self.sync and self.failed is None:
                self.sync = True
                self._flush()
        finally:
            self._release()

    def _release(self) -> None:
        os.close(self.file)
        self.lock.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def entries(path: Path, torn: bool = False) -> Iterator[Entry]:
    """The records of a ledger one by one, each verified before it is given; memory for one record.

    torn: a last record that is shorter than its own proven length ends the ledger instead of raising, as it does while
    a process writes. Raises MissingFile, BadInput for a ledger of another version, and IntegrityError naming the first
    entry that was changed.
    """
    if not path.is_file():
        raise MissingFile(f"There is no ledger {path}.")
    with path.open("rb") as file:
        _check_head(path, file.read(len(HEAD)))
        size = os.fstat(file.fileno()).st_size
        chain, at = sha(HEAD), len(HEAD)
        for number in count():
            which, left = f"Entry {number} of {path}", size - at
            if not left:
                return
            record = file.read(min(RECORD.size, left))
            if len(record) < RECORD.size:
                if torn or _is_being_written(path):
                    return
                raise IntegrityError(f"{which} is cut off after {left} bytes.", f"Expected at least {RECORD.size}.")
            length, digest, stored = RECORD.unpack(record)
            leaf = record[: LEAF.size]
            chain = sha(chain, leaf)
            if chain != stored:
                problem = f"{which} was changed or moved, or an entry before it was removed."
                raise IntegrityError(problem, "Its length and digest do not continue the chain.")
            if length > LARGEST:
                raise IntegrityError(f"{which} is larger than {LARGEST:,} bytes.")
            end = at + RECORD.size + length
            if end > size:
                if torn or _is_being_written(path):
                    return
                raise IntegrityError(f"{which} is cut off after {left} bytes.", f"Expected {end - at}.")
            payload = file.read(length)
            if sha256(payload).digest() != digest:
                raise IntegrityError(f"{which} was changed: its payload does not match its digest.")
            yield Entry(path, number, leaf, chain, at, end=end, payload=payload)
            at = end


def _is_being_written(path: Path) -> bool:
    """Whether a process has the ledger open for writing."""
    try:
        with path.with_name(f"{path.name}.lock").open() as file:
            return not lock(file, wait=False)
    except FileNotFoundError:
        return False


def _check_head(path: Path, head: bytes) -> None:
    """Raise IntegrityError for what is no ledger, BadInput for a ledger of another version."""
    if head == HEAD:
        return
    version = re.match(rb"driftline ledger (\d+)\n", head)
    if version is None:
        raise IntegrityError(f"{path} does not start like a ledger.", f"Expected {HEAD!r}.")
    text = f"{path} is a ledger of format {version[1].decode()}; this version of driftline reads and writes format 2."
    raise BadInput(text, "", "Read it with the version that wrote it.")


def verify(path: Path, head: str | None = None) -> Verdict:
    """Verify every byte, with memory for one record. head: as stored elsewhere,
    which shows whether entries were cut off at the end.

    Raises MissingFile, BadInput, and IntegrityError naming the first wrong entry.
    """
    tree, chain = Tree(), sha(HEAD)
    noted = 0 if chain.hex() == head else None
    for entry in entries(path):
        tree.add(entry.leaf)
        chain = entry.chain
        if chain.hex() == head:
            noted = tree.n
    if head is not None and noted is None:
        raise IntegrityError(f"{path} never had the head {head}.", "Entries were cut off, or it is another ledger.")
    return Verdict(tree.n, chain.hex(), tree.root().hex(), noted)


def sha(*parts: bytes) -> bytes:
    """SHA-256 of the concatenated parts."""
    return sha256(b"".join(parts)).digest()


class Tree:
    """A tree that grows leaf by leaf."""

    def __init__(self) -> None:
        self.n = 0
        self.roots: list[bytes] = []  # of complete subtrees, from large to small

    def add(self, leaf: bytes) -> None:
        """Append a leaf."""
        self.n += 1
        node, complete = sha(b"\0", leaf), self.n
        while complete % 2 == 0:
            node = sha(b"\1", self.roots.pop(), node)
            complete //= 2
        self.roots.append(node)

    def root(self) -> bytes:
        """Root of all leaves so far."""
        if not self.roots:
            return sha(b"")
        node = self.roots[-1]
        for left in reversed(self.roots[:-1]):
            node = sha(b"\1", left, node)
        return node
