"""Random generators derived from a seed and names, so that results do not depend on the number of workers."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def rng_for(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that depends only on `seed` and `names`.

    It uses neither `hash()` (salted per process) nor a global generator: the same names give the same numbers in every
    process and on every platform.

    >>> int(rng_for(0, "split", 3).integers(1000)) == int(rng_for(0, "split", 3).integers(1000))
    True
    >>> int(rng_for(0, "a").integers(10**9)) != int(rng_for(1, "a").integers(10**9))
    True
    """
    text = json.dumps([int(seed), *names], ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest[:16], "big"))))


def name_for(seed: int, *names: str | int, length: int = 16) -> str:
    """An opaque name (hexadecimal) that depends only on `seed` and `names`.

    >>> name_for(0, "item", "123") == name_for(0, "item", "123"), len(name_for(0, "x"))
    (True, 16)
    """
    text = json.dumps([int(seed), *names], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(b"name:" + text.encode()).hexdigest()[:length]
