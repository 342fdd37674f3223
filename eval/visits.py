"""Streams in which nothing can age: visits permuted in time.

A visit is all samples of one group (uploader, near-duplicates) in one step, on one side. Whole uploaders would hide
real ageing where they stay for several steps; single samples would part what belongs together.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.step import SPLITS, Split, Step, join
from driftline.stream_builder.stream import Stream

Numbers = npt.NDArray[np.int64]
Kind = Literal["within", "all"]
FIXED = 0.1  # share of the test samples that may stay where they are
SIZE, SHARE = 0.02, 0.01  # by which samples of a step and side, and shares of its classes, may change
TRIES = 30  # exchanges that are tried for each visit without an equal one in another step
MIXES = 0.02  # difference of class shares between steps from which they are permuted, too


@dataclass(frozen=True)
class Visits:
    """The samples of a stream in its order: step after step, train, val, test."""

    parts: list[Split]
    steps: Numbers
    """(P,) step of each split"""
    sides: Numbers
    """(P,) 0: train, 1: val, 2: test"""
    classes: int
    by_class: bool = False
    """a visit has samples of one class: visits as a whole have too few equals"""

    @cached_property
    def part(self) -> Numbers:
        """(N,) split of each sample."""
        return np.repeat(np.arange(len(self.parts)), [len(split) for split in self.parts])

    @cached_property
    def y(self) -> Numbers:
        """(N,) labels."""
        return np.concatenate([np.asarray(split.y, np.int64) for split in self.parts])

    @cached_property
    def of(self) -> Numbers:
        """(N,) visit of each sample; visits are numbered by split, then by group."""
        groups = [split.group for split in self.parts]
        known = [group for group in groups if group is not None]
        if len(known) < len(groups):
            return np.arange(len(self.y))
        number = np.unique(np.concatenate(known), return_inverse=True)[1]
        number = number * self.classes + self.y if self.by_class else number
        return np.asarray(np.unique(self.part * (int(number.max(initial=0)) + 1) + number, return_inverse=True)[1])

    @cached_property
    def members(self) -> Numbers:
        """(N,) samples, visit after visit."""
        return np.argsort(self.of, kind="stable")

    @cached_property
    def size(self) -> Numbers:
        """(V,) samples of each visit."""
        return np.bincount(self.of)

    @cached_property
    def home(self) -> Numbers:
        """(V,) split of each visit."""
        return self.part[self.members[np.cumsum(self.size) - self.size]]

    @cached_property
    def has(self) -> tuple[Numbers, Numbers, Numbers]:
        """Visit, class and number of samples of each pair of visit and class."""
        pair, n = np.unique(self.of * self.classes + self.y, return_counts=True)
        return pair // self.classes, pair % self.classes, n

    def codes(self, counted: bool) -> Numbers:
        """(V,) a number that is equal for visits with the same classes; counted: with as many samples of each."""
        key = rng_for(0, "classes").integers(0, 2**62, self.classes)
        visit, c, n = self.has
        out = np.zeros(len(self.size), np.int64)
        with np.errstate(over="ignore"):
            np.add.at(out, visit, key[c] * (n if counted else 1))
        return out

    def strata(self, kind: Kind) -> tuple[Numbers, Numbers]:
        """(V,) number of the visits that may take each other's place: on one side, with equally many samples (of each
        class, within classes); and of those that may if sizes and shares still hold. -1: in no other step."""
        side = self.sides[self.home]
        equal = _numbers(side, self.codes(True) if kind == "within" else side, self.size)
        near = np.floor(np.log2(self.size)).astype(np.int64)
        alike = _numbers(side, self.codes(False) if kind == "within" else side, near)
        equal = np.where(self._several(equal), equal, -1)
        return equal, np.where((equal < 0) & self._several(np.where(equal < 0, alike, -1)), alike, -1)

    def _several(self, stratum: Numbers) -> npt.NDArray[np.bool_]:
        """(V,) whether the stratum of a visit has visits in several steps."""
        step = self.steps[self.home]
        low, high = np.full((2, int(stratum.max(initial=0)) + 2), -1)
        low[:] = len(self.steps)
        np.minimum.at(low, stratum, step)
        np.maximum.at(high, stratum, step)
        return np.asarray((stratum >= 0) & (low < high)[stratum])

    def shares(self) -> npt.NDArray[np.float64]:
        """(P, C) shares of the classes in each split."""
        n = np.zeros((len(self.parts), self.classes))
        np.add.at(n, (self.part, self.y), 1)
        return n / np.maximum(n.sum(1, keepdims=True), 1)

    def mixes(self) -> bool:
        """Whether the shares of the classes differ between steps, so that they are permuted, too."""
        shares = self.shares()
        return any(float(np.ptp(shares[self.sides == side], 0).max()) > MIXES for side in np.unique(self.sides))

    def fixed(self, side: int) -> float:
        """Share of the samples of a side that stay where they are when times are permuted within classes."""
        here = self.sides[self.part] == side
        moved = self.drawn("within", rng_for(0, "control", 0))[1]
        return float((~moved)[self.of][here].mean()) if here.any() else 0.0

    def drawn(self, kind: Kind, rng: np.random.Generator) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """(V,) the visit in whose place each visit comes, and (V,) whether it could come into the place of another."""
        equal, alike = self.strata(kind)
        place = np.arange(len(self.size))
        movable = np.flatnonzero(equal >= 0)
        mixed = movable[np.lexsort((rng.random(len(movable)), equal[movable]))]
        place[mixed] = movable[np.argsort(equal[movable], kind="stable")]
        moved = equal >= 0
        self._exchange(np.flatnonzero(alike >= 0), alike, kind, place, moved, rng)
        return place, moved

    def _exchange(
        self, left: Numbers, alike: Numbers, kind: Kind, place: Numbers, moved: npt.NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        """Exchange random pairs of the visits that have no equal one, as long as sizes and shares hold: a random walk
        through the arrangements that do, each as likely as any other. Changes `place` and `moved`."""
        if not len(left):
            return
        row = np.full(len(self.size), -1)
        row[left] = np.arange(len(left))
        visit, c, n = self.has
        counts = np.zeros((len(left), self.classes + 1))
        np.add.at(counts, (row[visit][row[visit] >= 0], c[row[visit] >= 0]), n[row[visit] >= 0])
        counts[:, -1] = self.size[left]
        sizes = np.array([len(split) for split in self.parts], float)
        limit = np.maximum(np.outer(sizes, [SHARE] * self.classes + [SIZE]), 1)
        if kind == "all":
            limit[:, :-1] = np.inf
        off = np.zeros_like(limit)  # what each split has more than it had
        order = np.argsort(alike[left], kind="stable")
        first, last = (np.searchsorted(alike[left][order], alike[left], side=s) for s in ("left", "right"))
        one = rng.permutation(np.tile(np.arange(len(left)), TRIES))
        other = order[(first[one] + rng.random(len(one)) * (last[one] - first[one])).astype(np.int64)]
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            s, t = self.home[place[left[a]]], self.home[place[left[b]]]
            if s == t:
                continue
            change = counts[b] - counts[a]
            if (np.abs(off[s] + change) <= limit[s]).all() and (np.abs(off[t] - change) <= limit[t]).all():
                off[s] += change
                off[t] -= change
                place[left[a]], place[left[b]] = place[left[b]], place[left[a]]
                moved[left[a]] = moved[left[b]] = True


def _numbers(*columns: Numbers) -> Numbers:
    """(N,) a number for each different row of columns (N,)."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        of = np.unique(column, return_inverse=True)[1]
        number = np.unique(number * (int(of.max(initial=0)) + 1) + of, return_inverse=True)[1]
    return number


def visits_of(stream: Stream) -> Visits:
    """The visits of a stream: as a whole or, where more than a tenth of the samples of a side would stay, class by
    class."""
    parts = [(t, SPLITS.index(name), split) for t, step in enumerate(stream.steps)
             for name in SPLITS if (split := step.splits.get(name)) is not None]  # fmt: skip
    steps, sides = (np.array([part[k] for part in parts], np.int64) for k in (0, 1))
    whole = Visits([split for *_, split in parts], steps, sides, len(stream.classes))
    return replace(whole, by_class=True) if max(map(whole.fixed, (0, 2))) > FIXED else whole


def invalid(stream: Stream, visits: Visits) -> str:
    """Why times cannot be permuted on a stream; "" if they can."""
    least, side = 2 * len(stream.steps), visits.sides[visits.home]
    visit, c, _ = visits.has
    for number in (0, 2):
        n = np.bincount(c[side[visit] == number], minlength=len(stream.classes))
        if (few := (n > 0) & (n < least)).any():
            what = f"The class {stream.classes[int(few.argmax())]!r} has {n[few][0]} {SPLITS[number]} visits"
            return f"{what} (an uploader in a step); to permute times, {least} are needed."
    if (fixed := visits.fixed(2)) > FIXED:
        most = np.bincount(visits.y[~visits.drawn("within", rng_for(0, "control", 0))[1][visits.of]]).argmax()
        what = f"{fixed:.0%} of the test samples, most of the class {stream.classes[int(most)]!r},"
        return f"{what} have no equal visit (an uploader) in another step."
    return ""


def permuted(stream: Stream, visits: Visits, kind: Kind, draw: int, seed: int) -> Stream:
    """The stream with its visits permuted; steps keep their dates, sizes and, within classes, shares of classes.

    Each sample takes position and time of one that was in its place. Unlabelled samples, and those before the first
    step, stay. seed: of the runs on it."""
    place, _ = visits.drawn(kind, rng_for(seed, "control", draw, kind))
    start = np.cumsum(visits.size) - visits.size
    of = visits.of[visits.members]
    rank = np.arange(len(of)) - start[of]
    slot = visits.members[start[place[of]] + np.minimum(rank, visits.size[place[of]] - 1)]
    order = np.lexsort((rank, slot))
    source, slot = visits.members[order], slot[order]
    first = np.cumsum([0, *(len(split) for split in visits.parts)])
    whole = join(visits.parts)
    splits: list[dict[str, Split]] = [{} for _ in stream.steps]
    for p, old in enumerate(visits.parts):
        here = slice(*np.searchsorted(slot, [first[p], first[p + 1]]))
        new = whole.take(source[here])
        if old.time is not None:
            new = replace(new, time=old.time[slot[here] - first[p]])
        splits[visits.steps[p]][SPLITS[visits.sides[p]]] = new
    steps = [replace(step, splits=of_step) for step, of_step in zip(stream.steps, splits, strict=True)]
    facts = {key: value for key, value in stream.facts.items() if key not in ("family", "seed")}
    control = {"kind": kind, "draw": draw, "of": stream.sha256}
    sha256 = fingerprint([stream.sha256, kind, draw, seed])
    return replace(stream, steps=steps, sha256=sha256, facts=facts | {"control": control})


def newest(step: Step, most: int) -> Step:
    """The step with the newest of its training visits, as many as have `most` samples together, at least one."""
    train, group = step["train"], _group(step)
    time = np.arange(len(train)) if train.time is None else train.time
    last = np.full(int(group.max()) + 1, int(time.min()))
    np.maximum.at(last, group, time)
    order = np.argsort(-last, kind="stable")
    return _with(step, order[: max(1, int((np.cumsum(np.bincount(group)[order]) <= most).sum()))])


def halved(step: Step, rng: np.random.Generator) -> Step:
    """The step with one of every two of its training visits, of one class as far as it goes."""
    first = np.unique(_group(step), return_index=True)[1]
    order = np.lexsort((rng.random(len(first)), step["train"].y[first]))
    one = np.arange(0, len(order), 2) + rng.integers(2, size=(len(order) + 1) // 2)
    return _with(step, order[np.minimum(one, len(order) - 1)])


def _group(step: Step) -> Numbers:
    """(N,) number of each training sample's visit."""
    group = step["train"].group
    return np.arange(len(step["train"])) if group is None else np.unique(group, return_inverse=True)[1]


def _with(step: Step, visits: Numbers) -> Step:
    train = step["train"].take(np.flatnonzero(np.isin(_group(step), visits)))
    return replace(step, splits={**step.splits, "train": train})
