"""Merkle trees over records that arrive one by one, and proofs that one record is in them [RFC 6962, section 2.1].

Memory is one hash for each level of the tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence


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


def siblings(number: int, n: int) -> list[tuple[int, int]]:
    """The subtrees (first leaf, end) beside the path from leaf `number` up to the root of n leaves.

    >>> siblings(2, 5)
    [(3, 4), (0, 2), (4, 5)]
    """
    low, high, digests = 0, n, []
    while high - low > 1:
        cut = low + (1 << (high - low - 1).bit_length() - 1)
        digests.append((cut, high) if number < cut else (low, cut))
        low, high = (low, cut) if number < cut else (cut, high)
    return digests[::-1]


def proof(leaves: Iterable[bytes], number: int, n: int) -> list[bytes]:
    """Roots of the subtrees of `siblings`; leaves: the first n."""
    places = siblings(number, n)
    trees = {place: Tree() for place in places}
    ordered, at = sorted(places), 0
    for i, leaf in enumerate(leaves):
        if i == number:
            continue
        while i >= ordered[at][1]:
            at += 1
        trees[ordered[at]].add(leaf)
    return [trees[place].root() for place in places]


def included(leaf: bytes, number: int, n: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether the path of `proof` leads from leaf `number` of n to the root."""
    places = siblings(number, n)
    if not 0 <= number < n or len(places) != len(path):
        return False
    node = sha(b"\0", leaf)
    for (low, _), other in zip(places, path, strict=True):
        node = sha(b"\1", other, node) if low < number else sha(b"\1", node, other)
    return node == root
