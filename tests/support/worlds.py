"""Worlds that vary what must not matter (order, names, sizes of groups), draws over seeds, and people who disagree.

All random numbers follow from fixed seeds that were chosen before any result was seen: a test passes always or never.
For another choice of seeds, the false-alarm rate of `across_seeds` is at most 10⁻⁶ a call.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.stats import chi2

from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.answers.answers import ANSWERS
from driftline.eval.learner import Learner, Task
from driftline.stream_builder.stream import Split, Step, Stream

Numbers = npt.NDArray[np.int64]
Item = TypeVar("Item")
RATE = 1e-6
CLASSES = ("tram", "ant", "zebra", "bus", "mole")  # in no order that a program might prefer


def opaque(n: int, *words: str | int) -> list[str]:
    """n different ids; their alphabetical order is random."""
    return [f"{value:010x}" for value in rng_for(0, "opaque", *words).choice(16**10, n, replace=False).tolist()]


def permuted(items: Sequence[Item], *words: str | int) -> Iterator[list[Item]]:
    """The same items backwards, and in two random orders."""
    yield list(items)[::-1]
    for k in range(2):
        yield [items[i] for i in rng_for(0, "permuted", k, *words).permutation(len(items))]


@dataclass(frozen=True)
class Photos:
    """Samples in random order."""

    ids: list[str]
    """(N,) opaque"""
    bucket: Numbers
    """(N,)"""
    label: Numbers
    """(N,) index into CLASSES"""
    group: Numbers
    """(N,) uploader: 0 has a third of everything, 1 is the only one of the last class"""

    def rows(self) -> list[dict[str, Any]]:
        """As `select` takes them."""
        columns = zip(self.ids, self.bucket.tolist(), self.label.tolist(), self.group.tolist(), strict=True)
        return [
            {"id": id_, "bucket": b, "concept": CLASSES[y], "user": f"u{g}", "uploaded": n, "licence": None,
             "sha256": "x"}
            for n, (id_, b, y, g) in enumerate(columns)
        ]  # fmt: skip


def heavy_groups(n: int = 900, buckets: int = 4, seed: int = 0) -> Photos:
    """Uploaders of Zipf sizes, each with a favourite class; a giant; and a class that one uploader alone has."""
    rng = rng_for(seed, "heavy groups", n)
    giant, only = n // 3, n // 30
    sizes = np.concatenate([[giant, only], np.minimum(rng.zipf(2.0, n), n // 15)])
    group = np.repeat(np.arange(len(sizes)), sizes)[:n]
    favourite = rng.integers(0, len(CLASSES) - 1, n)
    label = np.where(rng.random(n) < 0.5, favourite[group], rng.integers(0, len(CLASSES) - 1, n))
    label[group == 1] = len(CLASSES) - 1
    order = rng.permutation(n)
    return Photos(opaque(n, "photos", seed), rng.integers(0, buckets, n), label[order], group[order])


def across_seeds(
    draw: Callable[[int], Iterable[Item]],
    items: Sequence[Item],
    seeds: int = 20,
    strata: Mapping[Item, Any] | None = None,
    along: Mapping[Item, float] | None = None,
    spread: float = 1.0,
) -> list[set[Item]]:
    """Assert that draws of every seed are alike in their chances, and independent of each other; returns them.

    items: all that may be drawn; of one stratum (default: all of one) each is equally likely. How often an item comes
    in independent draws is binomial, so Pearson's X² over the items is χ². It is too large if seeds repeat each other
    or prefer some items, too small if they take turns: the overlap of two draws is that of chance if X² is in its
    1 − 10⁻⁶ interval. along: a number of each item that must not matter (default: its place in the alphabet); its
    correlation with how often an item comes is within five standard errors. spread: of draws that also balance, which
    ties items to others, X² may be so many times what it is by chance (where all seeds are the same, it is `seeds`).
    """
    drawn = [set(draw(seed)) for seed in range(seeds)]
    assert set().union(*drawn) <= set(items), "something else was drawn"
    often = np.array([sum(item in one for one in drawn) for item in items], float)
    names = [str(strata[item]) if strata else "" for item in items]
    distance, free, residual = 0.0, 0, np.zeros(len(items))
    for name in set(names):
        rows = np.flatnonzero(np.array(names) == name)
        p = often[rows].mean() / seeds
        if 0 < p < 1 and len(rows) > 1:
            residual[rows] = (often[rows] - seeds * p) / np.sqrt(seeds * p * (1 - p))
            distance, free = distance + float((residual[rows] ** 2).sum()), free + len(rows) - 1
    assert free >= 30, f"{free} items are too few to see anything"
    low, high = chi2.ppf([RATE / 3, 1 - RATE / 3], free) * [1, spread]
    assert distance < high, (
        f"draws repeat each other or prefer some items: X² {distance:.0f} of {free}, most {high:.0f}"
    )
    assert distance > low, f"draws take turns: X² {distance:.0f} of {free}, least {low:.0f}"
    place = {item: k for k, item in enumerate(sorted(items, key=str))}
    against = np.array([(along or place)[item] for item in items], float)
    tilt = float(np.corrcoef(residual, against)[0, 1]) * np.sqrt(free)
    assert abs(tilt) < 5 * spread**0.5, f"inclusion depends on what must not matter: {tilt:.1f} standard errors"
    return drawn


THIRD = ("agreed", "tie", "three ways", "none of them", "unclear", "sensitive", "one answer", "no answer")
# answers of up to three people to "is it a bus?", for each kind of image; "!" is the sensitive box
SAID: dict[str, tuple[str, ...]] = {
    "agreed": ("bus", "bus", "car"), "tie": ("bus", "car"), "three ways": ("bus", "car", "none"),
    "none of them": ("none", "none", "none"), "unclear": ("", "", "bus"), "sensitive": ("bus!", "bus!", "bus"),
    "one answer": ("bus",), "no answer": (),
}  # fmt: skip


def third_value(each: int = 3, worker: str = "w{}") -> tuple[list[dict[str, Any]], dict[str, str], pa.Table]:
    """(images that were asked about, id → its kind in THIRD, table of ANSWERS in random order)."""
    ids = opaque(each * len(THIRD), "third value")
    kinds = {id_: THIRD[i % len(THIRD)] for i, id_ in enumerate(ids)}
    items = [{"id": id_, "bucket": i % 2, "concept": "bus"} for i, id_ in enumerate(ids)]
    rows = [
        {"item": id_, "id": id_, "worker": worker.format((i + k) % 5), "labels": [s for s in [text.rstrip("!")] if s],
         "sensitive": text.endswith("!"), "fault": None}
        for i, (id_, kind) in enumerate(kinds.items())
        for k, text in enumerate(SAID[kind])
    ]  # fmt: skip
    order = rng_for(0, "third value").permutation(len(rows))
    return items, kinds, pa.Table.from_pylist([rows[i] for i in order], schema=ANSWERS)


def null_world(seed: int, steps: int = 4, n: int = 80, classes: int = 3) -> Stream:
    """Steps a year apart, random labels, no drift. A sample is (label, step): only `Guess` reads it."""
    rng = rng_for(seed, "null world")
    made = []
    for t in range(steps):
        splits = {}
        for name in ("train", "test"):
            y = rng.integers(0, classes, n)
            x = np.stack([y, np.full(n, t)], 1).astype(np.float32)
            splits[name] = Split(x, y, np.array(opaque(n, seed, t, name)), np.arange(n) + (31 + t) * 31_557_600)
        made.append(Step(t, str(2001 + t), splits))
    return Stream("null", made, list(CLASSES[:classes]), sha256=f"null {seed}")


@dataclass
class Guess(Learner):
    """Right in a share of the cases that its settings say; which ones these are follows from its name and the seed."""

    name: str = "a"
    """of this copy"""
    skill: float = 0.7
    """share of right answers when fresh; the others are random among the wrong ones"""
    loses: float = 0.0
    """of that share, with each step between training and test"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.rng, self.n, self.newest = rng_for(int(rng.integers(2**31)), self.name), task.n_classes, 0

    def learn(self, x: Any, y: Any) -> None:
        self.newest = int(x[:, 1].max())

    def predict(self, x: Any) -> Any:
        right = self.rng.random(len(x)) < self.skill - self.loses * np.maximum(0, x[:, 1] - self.newest)
        return (x[:, 0].astype(np.int64) + np.where(right, 0, self.rng.integers(1, self.n, len(x)))) % self.n
