"""What is known, what is new: a stream cut into seed data, a stream of the novel distribution, and two test sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig, IncompatibleStream
from eval.memory.knn_index import unit
from stream_builder.stream import Split, Stream

SCENARIOS = ("auto", "categorical", "within-class", "paraphrase", "temporal")
NEIGHBOURS = 5  # of its own class that a sample is compared with
UNLIKE = 0.25  # share of every class that counts as said in other words


@dataclass(frozen=True)
class Scenario:
    """seed: what is learned first. stream: the novel distribution, in order. novel, original: test sets."""

    seed: Split
    stream: Split
    novel: Split
    original: Split


def cut(stream: Stream, kind: str, held_out: int, tests: int, shuffled: bool, mix: float, seed: int) -> Scenario:
    """kind: "categorical" holds classes out [OCRR's reference: the same draws for the same seed]; "within-class" the
    half of every class that lies furthest along its first principal direction; "paraphrase" the quarter of every class
    that is least like the rest of it (by mean cosine to the nearest 5); "temporal" the last step; "auto" the
    last step where there are several, else classes. tests: samples of each test set at most. shuffled: seed rows in
    random order, else as they lie. mix: rows of the original distribution in the stream, for each of the novel one.

    Raises IncompatibleStream where a part would be empty, BadConfig for another kind.
    """
    if kind not in SCENARIOS:
        raise BadConfig(f"scenario is {kind!r}.", f"Expected {', '.join(SCENARIOS)}.")
    several = len(stream.steps) > 1
    kind = ("temporal" if several else "categorical") if kind == "auto" else kind
    train, test = stream.flat("train"), stream.flat("test")
    if kind == "temporal":
        if not several:
            raise IncompatibleStream(f"{stream.name!r} has one step.", "The scenario temporal needs at least two.")
        new, new_test = (_of_last(stream, side) for side in ("train", "test"))
    elif kind == "categorical":
        classes = _held_out(stream, held_out, seed)
        new, new_test = np.isin(train.y, classes), np.isin(test.y, classes)
    else:
        new, new_test = (_far_half if kind == "within-class" else _reworded)(train, test)
    rng = np.random.default_rng(seed)  # the reference's own generator and order of draws
    original, novel = (_at_most(np.flatnonzero(where), tests, rng) for where in (~new_test, new_test))
    order = rng.permutation(np.flatnonzero(new))
    if kind == "temporal":
        order = np.flatnonzero(new)  # in its own order
    rows = np.flatnonzero(~new)
    if mix:
        again = rng.choice(rows, min(len(rows), round(mix * len(order))), replace=False)
        order = rng.permutation(np.concatenate([order, again])) if kind != "temporal" else _spread(order, again, rng)
    if shuffled:
        rows = rng.permutation(rows)
    found = Scenario(train.take(rows), train.take(order), test.take(novel), test.take(original))
    for name in ("seed", "stream", "novel", "original"):
        if not len(getattr(found, name)):
            raise IncompatibleStream(f"The {name} part of {stream.name!r} would be empty.", f"The scenario is {kind}.")
    return found


def _held_out(stream: Stream, n: int, seed: int) -> npt.NDArray[np.int64]:
    """Labels of n classes, drawn over their sorted names."""
    if not 0 < n < len(stream.classes):
        raise IncompatibleStream(
            f"held_out is {n}; {stream.name!r} has {len(stream.classes)} classes.", "Expected fewer, at least 1."
        )
    ordered = np.argsort(np.array(stream.classes), kind="stable")
    return np.asarray(ordered[np.random.default_rng(seed).choice(len(ordered), n, replace=False)], np.int64)


def _of_last(stream: Stream, side: str) -> npt.NDArray[np.bool_]:
    last = len(stream.steps) - 1
    return np.concatenate([np.full(len(step[side]), i == last) for i, step in enumerate(stream.steps)])


def _far_half(train: Split, test: Split) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of every class the half beyond the median along its first principal direction, as training data have it."""
    masks = np.zeros(len(train), bool), np.zeros(len(test), bool)
    for label in np.unique(train.y).tolist():
        rows = [np.flatnonzero(split.y == label) for split in (train, test)]
        x = np.asarray(train.x[rows[0]], np.float64).reshape(len(rows[0]), -1)
        centre = x.mean(0)
        direction = np.linalg.svd(x - centre, full_matrices=False)[2][0]
        direction *= np.sign(direction[np.abs(direction).argmax()])
        middle = np.median((x - centre) @ direction)
        for mask, where, split in zip(masks, rows, (train, test), strict=True):
            flat = np.asarray(split.x[where], np.float64).reshape(len(where), -1)
            mask[where] = (flat - centre) @ direction > middle
    return masks


def _reworded(train: Split, test: Split) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of every class the quarter with the lowest mean cosine to its nearest training samples of the class; what counts
    as low in the test data, the training data say."""
    masks = np.zeros(len(train), bool), np.zeros(len(test), bool)
    for label in np.unique(train.y).tolist():
        rows = [np.flatnonzero(split.y == label) for split in (train, test)]
        known, asked = unit(train.x[rows[0]]), unit(test.x[rows[1]])
        among = known @ known.T
        np.fill_diagonal(among, -np.inf)
        k = min(NEIGHBOURS, max(1, len(known) - 1))
        alike = [np.sort(cosines, 1)[:, -k:].mean(1) for cosines in (among, asked @ known.T)]
        edge = np.quantile(alike[0], UNLIKE)
        for mask, where, how in zip(masks, rows, alike, strict=True):
            mask[where] = how < edge
    return masks


def _at_most(pool: npt.NDArray[np.int64], n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return pool if len(pool) <= n else np.asarray(rng.choice(pool, n, replace=False), np.int64)


def _spread(
    order: npt.NDArray[np.int64], again: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """`again` at random places of `order`, which keeps its own order."""
    out = np.empty(len(order) + len(again), np.int64)
    places = np.zeros(len(out), bool)
    places[rng.permutation(len(out))[: len(again)]] = True
    out[places], out[~places] = again, order
    return out
