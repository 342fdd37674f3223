"""The Merkle tree of records that arrive one by one [RFC 6962, section 2.1].

Memory is one hash for each level of the tree.
"""

from __future__ import annotations

import hashlib


def sha(*parts: bytes) -> bytes:
    """SHA-256 of the concatenated parts."""
    return hashlib.sha256(b"".join(parts)).digest()


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
