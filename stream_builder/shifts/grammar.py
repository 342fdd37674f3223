"""The grammar of sequences: `C,T:L:R(45)` and the paper's names, to the shifts of each step."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from curate.core.errors import BadConfig
from stream_builder.shifts import SHIFTS
from stream_builder.shifts.base import Shift

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
