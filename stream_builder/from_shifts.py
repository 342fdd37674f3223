"""A base and a sequence of shifts → a stream: `C:L:R` is three target steps after the source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from curate.ground.errors import BadConfig, Shortage
from curate.ground.rng import rng_for
from stream_builder.bases import Base
from stream_builder.shifts import SHIFTS
from stream_builder.shifts.base import ORDER, Images, Labels, Shift
from stream_builder.stream import Array, Split, Step, Stream

NAMES = {"CLR": "C:L:R", "RCL": "R:C:L", "rrr": "r:r:r", "TTT": "T:T:T"}
NAMES |= {f"rotations-{n}": ":".join("R" * (n - 1)) for n in range(2, 9)}
TRAIN_SHARE = 0.8  # of each class; the rest is validation


def parse(sequence: str) -> list[list[Shift]]:
    """Steps' own shifts: `"C,T:L:R(45)"` → [[], [C, T], [L], [R 45°]]; the source step has none.

    A name of the paper (CLR, RCL, rrr, TTT, rotations-2 …) stands for its sequence. Raises BadConfig naming the part.
    """
    steps: list[list[Shift]] = [[]]
    for part in NAMES.get(sequence, sequence).split(":"):
        shifts = []
        for word in part.split(","):
            found = re.fullmatch(r"\s*([A-Za-z])(?:\(([-0-9.]+)\))?\s*", word)
            if found is None or found[1] not in SHIFTS:
                known = ", ".join(f"{letter} ({SHIFTS.summary(letter)})" for letter in SHIFTS)
                raise BadConfig(f"The sequence {sequence!r} holds {word.strip()!r}.", f"Known letters: {known}.")
            shifts.append(_make(found[1], found[2]))
        steps.append(shifts)
    return steps


def _make(letter: str, parameter: str | None) -> Shift:
    kind = SHIFTS[letter]
    if parameter is None:
        made: Shift = kind()
        return made
    (first, *_) = fields(kind)
    cast: Any = float if first.type in ("float", float) else int
    try:
        made = kind(**{first.name: cast(parameter)})
    except ValueError:
        raise BadConfig(f"{letter}({parameter}): no {first.type}.", f"Expected a value for {first.name}.") from None
    return made


def compose(base: Base, sequence: str, sizes: Sequence[int], test_size: int, seed: int) -> Stream:
    """sizes: samples of each step, train and validation together; test_size: test samples of the last step.

    Draws are class-balanced without replacement within a step, independent across steps, and do not depend on the
    shifts. Where the base has the paper's draws and the sizes are the paper's, those are used.
    Raises BadConfig where sizes and steps disagree, Shortage where a class has too few images.
    """
    steps = parse(sequence)
    if len(sizes) != len(steps):
        raise BadConfig(
            f"--sizes has {len(sizes)} numbers for {len(steps)} steps.", "Expected one a step, the source included."
        )
    made = []
    published = _published(base, sizes, test_size)
    so_far: Counter[Shift] = Counter()
    for t, shifts in enumerate(steps):
        so_far.update(shifts)
        rng = rng_for(seed, "step", t)
        drawn = published[t] if published else _draw(base.train[1], sizes[t], len(base.classes), rng)
        splits = {side: _render(base.train, where, so_far, base, rng) for side, where in drawn.items() if len(where)}
        if t == len(steps) - 1 and test_size:
            rng = rng_for(seed, "test", t)
            where = (
                published[t + 1]["test"] if published else _balanced(base.test[1], test_size, len(base.classes), rng)
            )
            splits["test"] = _render(base.test, where, so_far, base, rng)
        made.append(Step(t, f"{t} " + (",".join(s.letter for s in shifts) or "source"), splits))
    facts = {"from": "shifts", "base": base.name, "sequence": sequence, "sizes": list(sizes), "seed": seed}
    facts["draws"] = "published" if published else "own"
    return Stream(f"{base.name}-{sequence}", made, base.classes, facts=facts)


def _render(side: tuple[Images, Labels, Array], where: Array, so_far: Counter[Shift], base: Base, rng: Any) -> Split:
    """Draw, then every shift so far once, in the order noise → geometry → colour → label."""
    x, y = side[0][where], side[1][where]
    original = y
    for shift in sorted(so_far, key=lambda s: ORDER.index(s.acts_on)):
        if shift.acts_on == "label":
            _, y = shift.apply(x, y, so_far[shift], len(base.classes), rng)
        else:
            x, _ = shift.apply(x, original, so_far[shift], len(base.classes), rng)
    return Split(x, y, side[2][where].astype(np.str_))


def _balanced(y: Labels, size: int, n_classes: int, rng: np.random.Generator) -> Array:
    """Positions, class after class, `size / C` each (the last class takes the remainder), without replacement."""
    counts = [size // n_classes] * n_classes
    counts[-1] += size - sum(counts)
    chosen = []
    for c, n in enumerate(counts):
        here = np.flatnonzero(y == c)
        if len(here) < n:
            raise Shortage(
                f"Class {c} has {len(here)} images, the step asks for {n}.", "", "Lower --sizes or --test-size."
            )
        chosen.append(rng.permutation(here)[:n])
    return np.concatenate(chosen)


def _draw(y: Labels, size: int, n_classes: int, rng: np.random.Generator) -> dict[str, Array]:
    """Train and validation positions of one step: the first 80 % of each class's draw, and the rest; shuffled."""
    where = _balanced(y, size, n_classes, rng)
    train, val = [], []
    for c in range(n_classes):
        mine = where[y[where] == c]
        cut = int(TRAIN_SHARE * len(mine))
        train.append(mine[:cut])
        val.append(mine[cut:])
    return {"train": rng.permutation(np.concatenate(train)), "val": rng.permutation(np.concatenate(val))}


def _published(base: Base, sizes: Sequence[int], test_size: int) -> list[dict[str, Array]] | None:
    """The paper's draws as positions, if the base has them for these sizes."""
    steps = len(sizes)
    if any(f"t{t}_train" not in base.draws for t in range(steps)) or f"t{steps - 1}_test" not in base.draws:
        return None
    n = [len(base.draws[f"t{t}_train"]) + len(base.draws[f"t{t}_valid"]) for t in range(steps)]
    if n != list(sizes) or len(base.draws[f"t{steps - 1}_test"]) != test_size:
        return None
    at = {int(i): p for p, i in enumerate(base.train[2].tolist())}
    test_at = {int(i): p for p, i in enumerate(base.test[2].tolist())}
    found = [
        {
            side: np.array([at[int(i)] for i in base.draws[f"t{t}_{name}"]])
            for side, name in (("train", "train"), ("val", "valid"))
        }
        for t in range(steps)
    ]
    return [*found, {"test": np.array([test_at[int(i)] for i in base.draws[f"t{steps - 1}_test"]])}]
