"""Attacks on a ledger of 100 entries: what each does to the file, and the sentence that names it."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from driftline.curate.core.errors import DriftlineError
from driftline.eval.memory.correction_ledger import HEAD, LEAF, RECORD, Ledger, entries, sha, verify

N = 100
Bytes = list[bytes]  # the head line, then one record each


def written(path: Path, label: str = "card") -> Path:
    with Ledger(path, sync=False) as ledger:
        for i in range(N):
            ledger.append({"id": f"p{i}", "label": label}, np.full(4, i, np.float32))
    return path


def parts_of(path: Path) -> Bytes:
    return [HEAD, *(entry.leaf + entry.chain + entry.payload for entry in entries(path))]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return written(tmp_path / "b.ledger")


def rehashed(own: Bytes, first: int, payload: bytes | None = None) -> Bytes:
    """The records with their chain computed again from one on, with another payload for the first."""
    chain = own[first - 1][LEAF.size : RECORD.size] if first > 1 else sha(HEAD)
    forged = own[:first]
    for i, record in enumerate(own[first:]):
        content = payload if payload is not None and i == 0 else record[RECORD.size :]
        leaf = LEAF.pack(len(content), sha(content))
        chain = sha(chain, leaf)
        forged.append(leaf + chain + content)
    return forged


UNCHAINED = "Entry {} of .* was changed or moved, or an entry before it was removed"
NEVER = "never had the head"
EDITED = "Entry 3 of .* was changed: its payload does not match its digest"
# name → (what it does to the own records, given another ledger's; the message), found by the file alone
ALONE: dict[str, tuple[Callable[[Bytes, Bytes], Bytes], str]] = {
    "a payload edited": (lambda own, _: [*own[:4], own[4][:-1] + b"x", *own[5:]], EDITED),
    "two entries exchanged": (lambda own, _: [*own[:2], own[3], own[2], *own[4:]], UNCHAINED.format(1)),
    "an entry removed": (lambda own, _: [*own[:5], *own[6:]], UNCHAINED.format(4)),
    "an entry replayed": (lambda own, _: [*own, own[7]], UNCHAINED.format(N)),
    "an entry of another ledger": (lambda own, other: [*own[:4], other[4], *own[5:]], UNCHAINED.format(3)),
    "an edit with its own digest": (
        lambda own, _: [*own[:4], rehashed(own, 4, own[5][RECORD.size :])[4], *own[5:]],
        UNCHAINED.format(4),
    ),
    "zeros appended": (lambda own, _: [*own, bytes(500)], UNCHAINED.format(N)),
    "another format": (lambda own, _: [b"driftline ledger 1\n", *own[1:]], "does not start like a ledger of this"),
}
# those that need the head that was noted elsewhere
WITH_HEAD: dict[str, Callable[[Bytes, Bytes], Bytes]] = {
    "cut off behind an entry": lambda own, _: own[:60],
    "cut off behind the head line": lambda own, _: own[:1],
    "an edit with all hashes computed again": lambda own, _: rehashed(own, 4, own[5][RECORD.size :]),
    "an older copy": lambda own, _: own[:-1],
    "another ledger": lambda _, other: other,
}


@pytest.mark.parametrize("name", ALONE)
def test_an_attack_is_named(book: Path, tmp_path: Path, name: str) -> None:
    attack, message = ALONE[name]
    forged = b"".join(attack(parts_of(book), parts_of(written(tmp_path / "other", "bus"))))
    book.write_bytes(forged)
    with pytest.raises(DriftlineError, match=message) as found:
        verify(book)
    assert str(book) in str(found.value)


@pytest.mark.parametrize("name", WITH_HEAD)
def test_what_is_consistent_in_itself_fails_against_the_head(book: Path, tmp_path: Path, name: str) -> None:
    head = verify(book).head
    book.write_bytes(b"".join(WITH_HEAD[name](parts_of(book), parts_of(written(tmp_path / "other", "bus")))))
    verify(book)
    with pytest.raises(DriftlineError, match=f"{re.escape(str(book))} never had the head {head}"):
        verify(book, head)
