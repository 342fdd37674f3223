"""A base and a sequence of shifts → a stream: `C:L:R` is three target steps after the source."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.ground.errors import BadConfig, Shortage, Unfit
from curate.ground.rng import rng_for
from stream_builder.bases import Base, Side
from stream_builder.shifts import SHIFTS
from stream_builder.shifts.base import ORDER, Labels, Shares, Shift
from stream_builder.stream import Array, Split, Step, Stream

NAMES = {"CLR": "C:L:R", "RCL": "R:C:L", "rrr": "r:r:r", "TTT": "T:T:T", "sss": "s:s:s"}
NAMES |= {f"rotations-{n}": ":".join("R" * (n - 1)) for n in range(2, 9)}
PAPER = (6000, 4000, 6000, 4000)  # [Seq-to-Final, sec. 5.1]
SIZES: dict[str, tuple[int, ...]] = dict.fromkeys(("CLR", "RCL", "rrr", "TTT", "sss"), PAPER)
SIZES |= {  # [Seq-to-Final, table 14; code]
    f"rotations-{len(sizes)}": tuple(1000 * n for n in sizes)
    for sizes in (
        (16, 4), (10, 6, 4), (6, 4, 6, 4), (4, 4, 4, 4, 4), (4, 3, 3, 3, 3, 4), (4, 2, 3, 2, 3, 2, 4),
        (4, 2, 2, 2, 2, 2, 2, 4),
    )
}  # fmt: skip
TEST_SIZE = 5000
LEVELS = 64  # amounts that a shift which grows smoothly takes on the way


@dataclass(frozen=True)
class Composition:
    """How samples are drawn.

    val_share: of each class's draw, training samples rounded down. balanced: equal counts of each class, as the paper,
    or "natural": as the base has them. overlap: "independent": steps may share images, and a validation image of one
    step may train another (the paper's code: 207 of 800); "validation": validation images train no step; "disjoint":
    no image is in two steps. "auto": validation where the base is large enough. draws: "published" ones of the base,
    "own", or "auto": published where the base has them for these sizes. augment: what loaders do with training images,
    recorded in the stream. fidelity: "clean", or "paper-code": what the reference executed [spec, section 1]:
    independent draws, halves of two sub-classes where none is asked, images as they are (0 to 255, neither augmented
    nor normalised). priors: (steps, classes) shares of the classes at each step, in place of equal ones.
    """

    val_share: float = 0.2
    balanced: Literal["balanced", "natural"] = "balanced"
    overlap: Literal["auto", "independent", "validation", "disjoint"] = "auto"
    draws: Literal["auto", "published", "own"] = "auto"
    augment: Literal["auto", "none", "paper"] = "auto"
    fidelity: Literal["clean", "paper-code"] = "clean"
    priors: npt.NDArray[np.float64] | None = None

    def policy(self) -> str:
        """The overlap that is meant."""
        if self.overlap != "auto":
            return self.overlap
        return "independent" if self.fidelity == "paper-code" else "validation"

    def loading(self) -> dict[str, Any]:
        """What loaders do: augmentations of training images, and whether they are normalised."""
        paper = self.augment == "paper" or (self.augment == "auto" and self.fidelity == "clean")
        return {
            "augment": ["flip", "crop", "rotate"] if paper else [],
            "normalise": self.fidelity == "clean",
        }


@dataclass(frozen=True)
class Planned:
    """The shifts of one step; growing: those of them that grow from sample to sample."""

    shifts: tuple[Shift, ...]
    growing: frozenset[Shift] = frozenset()


def parse(sequence: str) -> list[Planned]:
    """Steps' own shifts: `"C,T:L:R(45):~T(60)"` → nothing, C and T, L, R by 45°, T by 60 growing over its step.

    A name of the paper (CLR, RCL, rrr, TTT, sss, rotations-2 …) stands for its sequence. Raises BadConfig.
    """
    steps = [Planned(())]
    for part in NAMES.get(sequence, sequence).split(":"):
        shifts, growing = [], set()
        for word in part.split(","):
            found = re.fullmatch(r"\s*(~?)([A-Za-z][a-z_]*)(?:\(([-0-9.]+)\))?\s*", word)
            if found is None or found[2] not in SHIFTS:
                known = ", ".join(f"{letter} ({SHIFTS.summary(letter)})" for letter in SHIFTS)
                raise BadConfig(f"The sequence {sequence!r} holds {word.strip()!r}.", f"Known letters: {known}.")
            shift = _make(found[2], found[3])
            if found[1]:
                if not shift.smooth:
                    able = ", ".join(name for name in SHIFTS if SHIFTS[name]().smooth)
                    raise BadConfig(f"{word.strip()}: {found[2]} cannot grow smoothly.", f"These can: {able}.")
                growing.add(shift)
            shifts.append(shift)
        steps.append(Planned(tuple(shifts), frozenset(growing)))
    return steps


def _make(letter: str, parameter: str | None) -> Shift:
    kind = SHIFTS[letter]
    if parameter is None:
        made: Shift = kind()
        return made
    taken = list(inspect.signature(kind).parameters.values())
    if not taken:
        raise BadConfig(f"{letter}({parameter}): {letter} takes no number.", f"Write {letter}.")
    cast: Any = float if taken[0].annotation in ("float", float) else int
    try:
        made = kind(cast(parameter))
    except ValueError as error:
        raise BadConfig(
            f"{letter}({parameter}): no {taken[0].annotation} ({error}).", f"Expected a value for {taken[0].name}."
        ) from None
    return made


def sizes_of(sequence: str) -> tuple[int, ...]:
    """The paper's sizes of a named sequence. Raises BadConfig for another."""
    if sequence not in SIZES:
        raise BadConfig(
            f"The sequence {sequence!r} has no sizes of its own.", "Expected --sizes, one number a step.",
            f"Named sequences have: {', '.join(SIZES)}.",
        )  # fmt: skip
    return SIZES[sequence]


def compose(
    base: Base,
    sequence: str,
    sizes: Sequence[int] | None = None,
    test_size: int = TEST_SIZE,
    seed: int = 0,
    how: Composition | None = None,
    workers: int = 1,
) -> Stream:
    """sizes: samples of each step, train and validation together (None: the paper's); test_size: of the last step.

    Draws are without replacement within a step, and do not depend on shifts of images and labels. workers: steps that
    are rendered at a time; they change no byte. Raises BadConfig where sizes and steps disagree, Unfit for a shift that
    the base cannot have, Shortage where a class has too few images.
    """
    how = how or Composition()
    steps = parse(sequence)
    sizes = sizes_of(sequence) if sizes is None else sizes
    if len(sizes) != len(steps):
        raise BadConfig(
            f"--sizes has {len(sizes)} numbers for {len(steps)} steps.", "Expected one a step, the source included."
        )
    total: Counter[Shift] = Counter(shift for planned in steps for shift in planned.shifts)
    _check(base, total)
    so_far: list[Counter[Shift]] = []
    for planned in steps:
        so_far.append((so_far[-1] if so_far else Counter()) + Counter(planned.shifts))
    published = _published(base, sizes, test_size) if how.draws != "own" else None
    if how.draws == "published" and published is None:
        raise BadConfig(f"{base.name} has no published draws for these sizes.", "Expected *draws*.npz beside it.")
    if published is None:
        shares = [_shares(base, t, counts, total, how) for t, counts in enumerate(so_far)]
        policy, drawn = _drawn(base, sizes, shares, how, seed)
        places = _places(base.test, shares[-1], test_size, how.balanced, rng_for(seed, "test", len(steps) - 1))
        drawn.append({"test": np.concatenate(places)})
    else:
        policy, drawn = "as published", published

    def made(t: int) -> Step:
        rng = rng_for(seed, "render", t)
        before = so_far[t - 1] if t else Counter()
        splits = {
            side: _render(base.train, where, before, so_far[t], steps[t], base, rng)
            for side, where in drawn[t].items()
            if len(where)
        }
        if t == len(steps) - 1 and test_size:
            rng = rng_for(seed, "render test", t)
            splits["test"] = _render(base.test, drawn[t + 1]["test"], before, so_far[t], steps[t], base, rng)
        name = ",".join(("~" if s in steps[t].growing else "") + s.letter for s in steps[t].shifts)
        return Step(t, f"{t} {name or 'source'}", splits)

    with ThreadPoolExecutor(workers) as pool:
        rendered = list(pool.map(made, range(len(steps))))
    facts: dict[str, Any] = {"from": "shifts", "base": base.name, "sequence": sequence, "sizes": list(sizes)}
    facts |= {"seed": seed, "fidelity": how.fidelity, "draws": "published" if published else "own"}
    facts |= {"overlap": policy, "loading": how.loading()}
    facts["shared"] = _shared(drawn[: len(steps)])
    return Stream(f"{base.name}-{sequence}", rendered, base.classes, facts=facts)


def _check(base: Base, total: Counter[Shift]) -> None:
    """Raise Unfit for shifts of images where the base has none."""
    images = base.train.x.dtype == np.uint8
    for shift in total:
        if not images and shift.acts_on not in ("choice", "label"):
            raise Unfit(
                f"{shift.letter} changes images; {base.name} has features of dtype {base.train.x.dtype}.",
                "Expected uint8 images, or shifts of labels and choice only.",
            )


def _render(
    side: Side, where: Array, before: Mapping[Shift, int], so_far: Mapping[Shift, int], planned: Planned, base: Base,
    rng: np.random.Generator,
) -> Split:  # fmt: skip
    """Take, then every shift so far once, in the order noise → geometry → colour → quality → label."""
    x, y = side.x[where], side.y[where]
    original = y
    for shift in sorted(so_far, key=lambda s: ORDER.index(s.acts_on)):
        if shift.acts_on == "label":
            _, y = shift.apply(x, y, so_far[shift], len(base.classes), rng)
        elif shift in planned.growing:
            x = _grown(shift, x, original, before.get(shift, 0), so_far[shift], len(base.classes), rng)
        elif shift.acts_on != "choice":
            x, _ = shift.apply(x, original, so_far[shift], len(base.classes), rng)
    return Split(np.ascontiguousarray(x), y, side.index[where].astype(np.str_))


def _grown(
    shift: Shift, x: Any, y: Labels, before: int, after: int, n_classes: int, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """The i-th of n samples has had the shift `before` times and (i + 1)/n of the way to `after`, in LEVELS amounts."""
    n = len(x)
    out = np.array(x)
    level = np.ceil((np.arange(n) + 1) / n * LEVELS) / LEVELS
    for value in np.unique(level).tolist():
        here = level == value
        out[here] = shift.apply(out[here], y[here], before + value * (after - before), n_classes, rng)[0]
    return out


def _shares(base: Base, t: int, times: Mapping[Shift, int], total: Mapping[Shift, int], how: Composition) -> Shares:
    """(classes, sub-classes or 1) of the step's draw, in relation to each other."""
    n, subs = len(base.classes), base.subclasses
    found = np.ones((n, max(1, subs)))
    if how.balanced == "natural":
        found *= np.bincount(base.train.y, minlength=n)[:, None]
    chosen = [s.shares(times.get(s, 0), total[s], n, subs) for s in total if s.acts_on == "choice"]
    for shares in chosen:
        if shares is not None:
            found = found * shares
    if subs and how.fidelity == "paper-code" and not any(s.letter == "s" for s in total):
        found = found * np.tile(np.array([0.5, 0.5] + [0.0] * (subs - 2)), (n, 1))  # what the reference does
    if how.priors is not None:
        if how.priors.shape[1:] != (n,) or t >= len(how.priors) or (how.priors < 0).any() or not how.priors[t].any():
            raise BadConfig(
                f"--priors has shape {how.priors.shape}.",
                f"Expected a row for each step and {n} columns, none negative, and in each row more than zeros.",
            )
        found = found / found.sum(1, keepdims=True) * how.priors[t][:, None]
    return np.asarray(found / found.sum())


def _places(
    side: Side, shares: Shares, size: int, balanced: str, rng: np.random.Generator, used: Any = None
) -> list[Array]:
    """Positions of each class's draw, shuffled: int(size × share), the remainder to the last class that has any; within
    a class the same over its sub-classes. used: (N,) bool of what may not be drawn."""
    free = np.ones(len(side), bool) if used is None else ~used
    found = []
    for c, of_class in enumerate(_parts(size, shares.sum(1))):
        mine = []
        for s, n in enumerate(_parts(of_class, shares[c]) if of_class else []):
            here = np.flatnonzero(free & (side.y == c) & (side.sub == s if side.sub is not None else True))
            if len(here) < n:
                which = f"Class {c}" + (f", sub-class {s}," if side.sub is not None else "")
                raise Shortage(
                    f"{which} has {len(here)} images, the step asks for {n}.", "",
                    "Lower --sizes or --test-size, or let steps share images: --overlap independent.",
                )  # fmt: skip
            mine.append(rng.permutation(here)[:n])
        found.append(
            rng.permutation(np.concatenate(mine)) if len(mine) > 1 else np.concatenate([*mine, np.zeros(0, int)])
        )
    return [np.asarray(f, np.int64) for f in found]


def _parts(size: int, shares: npt.NDArray[np.float64]) -> list[int]:
    """Whole numbers that add up to `size`: rounded down, the remainder to the last share that is not 0.

    >>> _parts(10, np.array([1.0, 1.0, 1.0, 0.0]))
    [3, 3, 4, 0]
    """
    share = shares / shares.sum()
    counts = [int(size * s + 1e-9) for s in share]
    counts[int(np.flatnonzero(share)[-1])] += size - sum(counts)
    return counts


def _drawn(
    base: Base, sizes: Sequence[int], shares: Sequence[Shares], how: Composition, seed: int
) -> tuple[str, list[dict[str, Array]]]:
    """The policy of overlap that was followed, and the draws: where nobody named one and the base has too few images
    for validation images of their own, steps share images."""
    policy = how.policy()
    try:
        return policy, _draw_all(base, sizes, shares, how, policy, seed)
    except Shortage:
        if how.overlap != "auto" or policy == "independent":
            raise
    return "independent", _draw_all(base, sizes, shares, how, "independent", seed)


def _draw_all(
    base: Base, sizes: Sequence[int], shares: Sequence[Shares], how: Composition, policy: str, seed: int
) -> list[dict[str, Array]]:
    """Train and validation positions of every step, by the policy of overlap: of each class's draw the first part
    trains, the rest validates; both shuffled."""
    used = np.zeros(len(base.train), bool)
    drawn: list[dict[str, Array]] = []
    if policy == "validation":  # validation images of all steps first: nothing may train on them
        val: list[Array] = []
        for t, size in enumerate(sizes):
            n = _val_size(size, shares[t], how.val_share)
            places = _places(base.train, shares[t], n, how.balanced, rng_for(seed, "val", t), used) if n else []
            val.append(np.concatenate([*places, np.zeros(0, np.int64)]))
            used[val[-1]] = True
        for t, size in enumerate(sizes):
            rng = rng_for(seed, "train", t)
            train = np.concatenate(_places(base.train, shares[t], size - len(val[t]), how.balanced, rng, used))
            drawn.append({"train": rng.permutation(train), "val": rng.permutation(val[t])})
        return drawn
    for t, size in enumerate(sizes):
        rng = rng_for(seed, "step", t)
        places = _places(base.train, shares[t], size, how.balanced, rng, used if policy == "disjoint" else None)
        cuts = [int((1 - how.val_share) * len(p) + 1e-9) for p in places]
        train, rest = (
            np.concatenate([p[:cut] for p, cut in zip(places, cuts, strict=True)]),
            np.concatenate([p[cut:] for p, cut in zip(places, cuts, strict=True)]),
        )
        drawn.append({"train": rng.permutation(train), "val": rng.permutation(rest)})
        used[np.concatenate(places)] = True
    return drawn


def _val_size(size: int, shares: Shares, share: float) -> int:
    return sum(n - int((1 - share) * n + 1e-9) for n in _parts(size, shares.sum(1)))


def _shared(drawn: Sequence[Mapping[str, Array]]) -> dict[str, int]:
    """Validation images of the last step that train an earlier one; images that are in several steps."""
    earlier = set().union(*(step["train"].tolist() for step in drawn[:-1])) if len(drawn) > 1 else set()
    seen = Counter(i for step in drawn for i in {j for part in step.values() for j in part.tolist()})
    return {
        "final_validation_in_earlier_training": len(earlier & set(drawn[-1]["val"].tolist())),
        "images_in_several_steps": sum(n > 1 for n in seen.values()),
    }


def _published(base: Base, sizes: Sequence[int], test_size: int) -> list[dict[str, Array]] | None:
    """The paper's draws as positions, if the base has them for these sizes."""
    steps = len(sizes)
    if any(f"t{t}_train" not in base.draws for t in range(steps)) or f"t{steps - 1}_test" not in base.draws:
        return None
    n = [len(base.draws[f"t{t}_train"]) + len(base.draws[f"t{t}_valid"]) for t in range(steps)]
    if n != list(sizes) or len(base.draws[f"t{steps - 1}_test"]) != test_size:
        return None
    at = {int(i): p for p, i in enumerate(base.train.index.tolist())}
    test_at = {int(i): p for p, i in enumerate(base.test.index.tolist())}
    found = [
        {
            side: np.array([at[int(i)] for i in base.draws[f"t{t}_{name}"]])
            for side, name in (("train", "train"), ("val", "valid"))
        }
        for t in range(steps)
    ]
    return [*found, {"test": np.array([test_at[int(i)] for i in base.draws[f"t{steps - 1}_test"]])}]
