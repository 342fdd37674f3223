"""A tamper-evident record of every correction: append-only, chained by SHA-256, with a Merkle root.

    b"driftline ledger 2\\n"
    length of the payload (4 bytes) · SHA-256 of the payload (32) · chain (32) · payload        … and so on

chain = SHA-256(previous chain ‖ length ‖ digest); the first follows the SHA-256 of the head line. So the chain
proves a record's first 68 bytes before its payload is read: a wrong length is found where it is, and a record that is
shorter than its own proven length was torn by a crash. The Merkle tree is over length ‖ digest.

A payload is a JSON head (preceded by its length, 4 bytes) and the vector's bytes. Records that were cut off at the end
are found only with a head that is stored elsewhere.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import orjson

from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile, NotWritten
from driftline.curate.core.system import sync_folder

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

    which: str
    """its number and the ledger's path, for a sentence"""
    leaf: bytes
    """length and digest: what the chain and the Merkle tree are over"""
    chain: bytes
    """SHA-256 of everything up to here"""
    payload: bytes

    @property
    def content(self) -> tuple[dict[str, Any], npt.NDArray[Any] | None]:
        """Facts, and the vector if the payload has one. Raises IntegrityError for what `packed` has not made."""
        try:
            (size,) = LENGTH.unpack_from(self.payload)
            start = LENGTH.size
            about = json.loads(self.payload[start : start + size])
            if "dtype" not in about:
                return dict(about), None
            dtype, shape = about.pop("dtype"), about.pop("shape")
            return about, np.frombuffer(self.payload, np.dtype(dtype), offset=start + size).reshape(shape)
        except DAMAGED:
            raise IntegrityError(f"{self.which} has an invalid payload.", "Expected facts and a vector.") from None


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


class Ledger:
    """A new ledger, open for writing. Once `append` has returned, the entry is on disk."""

    def __init__(self, path: Path, sync: bool = True) -> None:
        """sync: if False, entries are on disk once the ledger is closed. Raises BadInput for a file that exists,
        NotWritten if it cannot be written."""
        self.path, self.sync = path, sync
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            no = "No ledger is replaced."
            raise BadInput(f"The ledger {path} exists.", no, "Move it, or name a new folder.") from None
        self.n = self.stored = self.end = 0  # entries, entries on disk, bytes on disk
        self.chain, self.waiting = sha(HEAD), BytesIO()
        self.failed: NotWritten | None = None
        self.waiting.write(HEAD)
        try:
            self._flush()
            sync_folder(path.parent)
        except BaseException:
            os.close(self.file)
            raise

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
                written = os.write(self.file, rest)
                if not written:
                    raise OSError("no byte was written")
                rest = rest[written:]
            if self.sync:
                os.fsync(self.file)
        except OSError as error:
            why = f"{self.path}: entry {self.stored} was not recorded ({error.strerror or error})."
            self.failed = NotWritten(why, "Nothing is recorded after it.", "Make room, then evaluate again.")
            with suppress(OSError):  # what stays of it is a torn record
                os.ftruncate(self.file, self.end)
            raise self.failed from None
        self.end, self.stored = self.end + size, self.n
        self.waiting.seek(0)

    def close(self) -> None:
        """Write everything to disk. Raises NotWritten."""
        try:
            if not self.sync and self.failed is None:
                self.sync = True
                self._flush()
        finally:
            os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def entries(path: Path) -> Iterator[Entry]:
    """The records of a ledger one by one, each verified before it is given; memory for one record. Raises MissingFile,
    and IntegrityError for what is no ledger, and naming the first entry that was changed or torn."""
    if not path.is_file():
        raise MissingFile(f"There is no ledger {path}.")
    with path.open("rb") as file:
        if file.read(len(HEAD)) != HEAD:
            raise IntegrityError(f"{path} does not start like a ledger of this version.", f"Expected {HEAD!r}.")
        chain = sha(HEAD)
        for number in count():
            which, record = f"Entry {number} of {path}", file.read(RECORD.size)
            if not record:
                return
            if len(record) < RECORD.size:
                raise IntegrityError(f"{which} is cut off after {len(record)} bytes.", f"Expected {RECORD.size}.")
            length, digest, stored = RECORD.unpack(record)
            leaf = record[: LEAF.size]
            chain = sha(chain, leaf)
            if chain != stored:
                problem = f"{which} was changed or moved, or an entry before it was removed."
                raise IntegrityError(problem, "Its length and digest do not continue the chain.")
            if length > LARGEST:
                raise IntegrityError(f"{which} is larger than {LARGEST:,} bytes.")
            payload = file.read(length)
            if len(payload) < length:
                raise IntegrityError(f"{which} is cut off: {len(payload)} of its {length} bytes are there.")
            if sha256(payload).digest() != digest:
                raise IntegrityError(f"{which} was changed: its payload does not match its digest.")
            yield Entry(which, leaf, chain, payload)


def verify(path: Path, head: str | None = None) -> Verdict:
    """Verify every byte, with memory for one record. head: as stored elsewhere,
    which shows whether entries were cut off at the end.

    Raises MissingFile, and IntegrityError naming the first wrong entry.
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
