"""Randomness derived from a seed and names, so that results do not depend on the number of workers or on file order."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


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


def tie_ranks(ids: npt.NDArray[Any] | Sequence[str], seed: int = 0) -> npt.NDArray[np.uint64]:
    """(N,) random numbers, each of which depends only on `seed` and on its own id: a sum of the id's characters times
    random factors [multilinear hashing], mixed as by SplitMix64.

    >>> both, one = tie_ranks(["car/1", "bus/22"]), tie_ranks(["bus/22"])
    >>> bool(both[1] == one[0]), bool(tie_ranks(["bus/22"], seed=1)[0] == one[0])
    (True, False)
    """
    text = np.asarray(ids, np.str_)
    text = np.ascontiguousarray(text, text.dtype.newbyteorder("="))
    codes = text.view(np.uint32).reshape(len(text), -1 if len(text) else 1)
    factors = rng_for(seed, "ties").integers(0, 2**64, codes.shape[1], np.uint64)
    rank = np.zeros(len(text), np.uint64)
    for column, factor in zip(codes.T, factors, strict=True):  # the characters that fill up short ids are zeros
        rank += column.astype(np.uint64) * factor
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        rank = (rank ^ (rank >> np.uint64(shift))) * np.uint64(factor)
    return rank ^ (rank >> np.uint64(31))


def time_order(time: npt.ArrayLike, ids: npt.NDArray[Any] | Sequence[str], seed: int = 0) -> npt.NDArray[np.int64]:
    """(N,) positions in order of time. Equal times are in an order drawn by `seed`: by `tie_ranks`, so that neither the
    order of the input nor that of the ids decides; samples of one time and one id are in random order, too.

    Every place where time orders samples calls this function: ids such as class/number would make label correlation.

    >>> time_order([2012, 2012, 2011], ["a", "b", "c"]).tolist()[0]
    2
    """
    return np.lexsort((rng_for(seed, "equal ids").permutation(len(ids)), tie_ranks(ids, seed), np.asarray(time)))
