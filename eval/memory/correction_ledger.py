"""A tamper-evident record of every correction: append-only, chained by SHA-256, with a Merkle root.

    b"driftline ledger 1\\n"
    kind (1 byte) · length of the payload (4) · SHA-256 of the payload (32) · chain (32) · payload        … and so on

chain = SHA-256(previous chain ‖ kind ‖ digest); the first follows the SHA-256 of the head line. A payload is a JSON
head (preceded by its length, 4 bytes) and the vector's bytes. It contains no time: the same corrections give the same
head.

Erasure removes a payload but keeps its digest, so that the chain stays valid, and appends a tombstone that names it; an
empty payload without a tombstone is tampering. Truncation at the end can only be detected by a head stored elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from curate.core.atomic_io import writing
from curate.core.errors import BadInput, Busy, IntegrityError, MissingFile

HEAD = b"driftline ledger 1\n"
RECORD = struct.Struct("<cI32s32s")
LENGTH = struct.Struct("<I")
CORRECTION, TOMBSTONE, ERASED = b"C", b"T", b"X"
LARGEST = 64 * 2**20  # bytes of a payload, at most
BUFFER = 1 << 20  # bytes, if entries need not be on disk immediately


@dataclass(frozen=True)
class Entry:
    """One record of a ledger."""

    number: int
    """position, from 0"""
    kind: bytes
    """CORRECTION, TOMBSTONE or ERASED"""
    digest: bytes
    """SHA-256 of the payload"""
    chain: bytes
    """SHA-256 of everything up to here"""
    at: int
    """offset of the record in the file"""
    facts: dict[str, Any] | None
    """JSON head of the payload; None once erased"""
    vector: npt.NDArray[Any] | None
    """vector of the payload, if it has one"""


@dataclass(frozen=True)
class Verdict:
    """Result of a verification."""

    entries: int
    """number of records"""
    head: str
    """the last chain, hexadecimal"""
    root: str
    """Merkle root of the digests, hexadecimal"""
    erased: tuple[int, ...]
    """numbers of erased entries"""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"entries": self.entries, "head": self.head, "root": self.root, "erased": list(self.erased)}


def sha(*parts: bytes) -> bytes:
    """SHA-256 of the concatenated parts."""
    return hashlib.sha256(parts[0] if len(parts) == 1 else b"".join(parts)).digest()


def packed(facts: Mapping[str, Any], vector: npt.NDArray[Any] | None) -> bytes:
    """The bytes of a payload. Raises BadInput if it is too large."""
    head = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    raw = b""
    if vector is not None:
        raw = vector.tobytes()
        head = head[:-1] + _form(vector.dtype, vector.shape, len(head) > 2)
    if len(head) + len(raw) > LARGEST:
        raise BadInput(f"A correction of {len(head) + len(raw):,} bytes.", f"Expected at most {LARGEST:,}.")
    return LENGTH.pack(len(head)) + head + raw


@cache
def _form(dtype: np.dtype[Any], shape: tuple[int, ...], more: bool) -> bytes:
    """The end of a JSON head: dtype and shape of the vector."""
    return (b"," if more else b"") + orjson.dumps({"dtype": dtype.str, "shape": shape})[1:]


def unpacked(payload: bytes) -> tuple[dict[str, Any], npt.NDArray[Any] | None]:
    """Facts and vector of a payload made by `packed`."""
    (size,) = LENGTH.unpack_from(payload)
    about = json.loads(payload[4 : 4 + size])
    if "dtype" not in about:
        return about, None
    dtype, shape = about.pop("dtype"), about.pop("shape")
    return about, np.frombuffer(payload, np.dtype(dtype), offset=4 + size).reshape(shape)


class Ledger:
    """A ledger open for writing, by one process at a time. Once `append` has returned, the entry is on disk."""

    def __init__(self, path: Path, sync: bool = True) -> None:
        """Open or create a ledger. sync: if False, entries are on disk once the ledger is closed.

        The incomplete last entry of a crash is moved to PATH.cut. Raises Busy if another process writes, IntegrityError
        if the file does not verify.
        """
        self.path, self.sync = path, sync
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = open(path.with_name(path.name + ".lock"), "w")  # noqa: SIM115  held until close
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.lock.close()
            raise Busy(f"Another process writes {path}.", "", "Wait until it has finished.") from None
        try:
            if not path.is_file() or path.stat().st_size < len(HEAD):
                with writing(path) as file:
                    file.write(HEAD)
            data = path.read_bytes()
            entries, end = _read(data, path, cut=True)
            if end < len(data):
                with writing(path.with_name(path.name + ".cut")) as file:
                    file.write(data[end:])
            self.n = len(entries)
            self.chain = entries[-1].chain if entries else sha(HEAD)
            self.file = open(path, "r+b", buffering=0 if sync else BUFFER)  # noqa: SIM115  held until close
            self.file.truncate(end)
            self.file.seek(end)
        except BaseException:
            self.lock.close()
            raise

    def append(self, facts: Mapping[str, Any], vector: npt.NDArray[Any] | None = None, kind: bytes = CORRECTION) -> int:
        """Write one entry and return its number."""
        payload = packed(facts, vector)
        digest = hashlib.sha256(payload).digest()
        self.chain = hashlib.sha256(self.chain + kind + digest).digest()
        self.file.write(RECORD.pack(kind, len(payload), digest, self.chain) + payload)
        if self.sync:
            os.fsync(self.file.fileno())
        self.n += 1
        return self.n - 1

    def close(self) -> None:
        """Write everything to disk and release the lock."""
        self.file.close()
        self.lock.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _read(data: bytes, path: Path, cut: bool = False) -> tuple[list[Entry], int]:
    """All entries, verified, and the offset of their end. cut: a truncated last record is ignored instead of an error.

    Raises IntegrityError naming the first entry that was changed.
    """
    if data[: len(HEAD)] != HEAD:
        raise IntegrityError(f"{path} does not start like a ledger.", f"Expected {HEAD!r}.")
    entries: list[Entry] = []
    chain, at = sha(HEAD), len(HEAD)
    while at < len(data):
        which = f"Entry {len(entries)} of {path}"
        whole = at + RECORD.size <= len(data)
        kind, size, digest, stored = RECORD.unpack_from(data, at) if whole else (b"", 0, b"", b"")
        if not whole or at + RECORD.size + size > len(data):
            if cut:
                return entries, at
            raise IntegrityError(f"{which} is cut off, or its length was changed.", f"{len(data) - at} bytes are left.")
        payload = data[at + RECORD.size : at + RECORD.size + size]
        if kind not in (CORRECTION, TOMBSTONE, ERASED) or (kind == ERASED and size):
            raise IntegrityError(f"{which} is of an unknown kind.")
        if kind != ERASED and sha(payload) != digest:
            raise IntegrityError(f"{which} was changed: its payload does not match its digest.")
        chain = sha(chain, CORRECTION if kind == ERASED else kind, digest)
        if chain != stored:
            raise IntegrityError(f"{which} or an entry before it was changed or moved: the chain does not match.")
        try:
            facts, vector = (None, None) if kind == ERASED else unpacked(payload)
        except (struct.error, ValueError, TypeError, KeyError):
            raise IntegrityError(f"{which} has an invalid payload.") from None
        entries.append(Entry(len(entries), kind, digest, chain, at, facts, vector))
        at += RECORD.size + size
    return entries, at


def entries_of(path: Path) -> list[Entry]:
    """All entries of a ledger that verifies. Raises MissingFile, IntegrityError."""
    if not path.is_file():
        raise MissingFile(f"There is no ledger {path}.")
    entries, _ = _read(path.read_bytes(), path)
    gone = {e.facts["erases"] for e in entries if e.kind == TOMBSTONE and e.facts is not None}
    erased = {e.number for e in entries if e.kind == ERASED}
    if unnamed := sorted(erased - gone):
        raise IntegrityError(f"Entry {unnamed[0]} of {path} is empty, and no tombstone names it.")
    if kept := sorted(gone - erased):
        raise IntegrityError(f"Entry {kept[0]} of {path} should be empty: a tombstone names it.")
    return entries


def verify(path: Path, head: str | None = None) -> Verdict:
    """Verify every byte. head: the chain's head as stored elsewhere, which shows whether entries were cut off at the
    end.

    Raises MissingFile, and IntegrityError naming the first wrong entry.
    """
    entries = entries_of(path)
    chains = [e.chain.hex() for e in entries]
    last = chains[-1] if chains else sha(HEAD).hex()
    if head is not None and head not in (*chains, sha(HEAD).hex()):
        raise IntegrityError(f"{path} never had the head {head}.", "Entries were cut off, or it is another ledger.")
    erased = tuple(e.number for e in entries if e.kind == ERASED)
    return Verdict(len(entries), last, merkle([e.digest for e in entries]).hex(), erased)


def erase(path: Path, number: int) -> Verdict:
    """Remove the payload of an entry and append a tombstone. Raises BadInput for an entry that is no correction."""
    with Ledger(path) as ledger:
        entries = entries_of(path)
        if not 0 <= number < len(entries) or entries[number].kind != CORRECTION:
            raise BadInput(f"Entry {number} of {path} cannot be erased.", f"It has {len(entries)} entries.")
        data, entry = path.read_bytes(), entries[number]
        end = entries[number + 1].at if number + 1 < len(entries) else len(data)
        tomb = packed({"erases": number}, None)
        chain = sha(ledger.chain, TOMBSTONE, sha(tomb))
        with writing(path) as file:  # one rename: both records, or neither
            file.write(data[: entry.at] + RECORD.pack(ERASED, 0, entry.digest, entry.chain) + data[end:])
            file.write(RECORD.pack(TOMBSTONE, len(tomb), sha(tomb), chain) + tomb)
    return verify(path)


def lines(path: Path) -> Iterator[str]:
    """The entries as JSON lines: number, kind, digest, chain, facts and vector."""
    names = {CORRECTION: "correction", TOMBSTONE: "tombstone", ERASED: "erased"}
    for e in entries_of(path):
        vector = None if e.vector is None else e.vector.ravel().tolist()
        about = {"number": e.number, "kind": names[e.kind], "digest": e.digest.hex(), "chain": e.chain.hex()}
        yield json.dumps(about | {"facts": e.facts, "vector": vector}, sort_keys=True)


def merkle(digests: Sequence[bytes]) -> bytes:
    """Root of the tree over digests [RFC 6962, section 2.1]."""
    if len(digests) < 2:
        return sha(b"\0", digests[0]) if digests else sha(b"")
    cut = 1 << (len(digests) - 1).bit_length() - 1
    return sha(b"\1", merkle(digests[:cut]), merkle(digests[cut:]))


def proof(digests: Sequence[bytes], number: int) -> list[tuple[str, bytes]]:
    """Proof that a digest is in the tree, to be checked against the root only: sides and hashes from the leaf up."""
    if len(digests) < 2:
        return []
    cut = 1 << (len(digests) - 1).bit_length() - 1
    if number < cut:
        return [*proof(digests[:cut], number), ("right", merkle(digests[cut:]))]
    return [*proof(digests[cut:], number - cut), ("left", merkle(digests[:cut]))]


def included(digest: bytes, path: Sequence[tuple[str, bytes]], root: bytes) -> bool:
    """Whether the path of `proof` leads from a digest to the root."""
    node = sha(b"\0", digest)
    for side, other in path:
        node = sha(b"\1", other, node) if side == "left" else sha(b"\1", node, other)
    return node == root
