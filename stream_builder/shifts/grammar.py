"""The grammar of shift sequences.

    sequence = step : step : …          the steps after the source step: C:L:R
    step     = shift , shift , …        several shifts at one step: C,T
    shift    = [~] name [( settings )]  ~: the shift grows from sample to sample over its step
    name     = R or jpeg or …           a registered name (`driftline list shifts`)
             | {package.module:Name}    a class of your own, in braces because `:` separates steps
    settings = value , …                in order: R(45)
             | setting=value , …        by name: R(degrees=45)

A name of the paper stands for its sequence: CLR, RCL, rrr, TTT, sss, rotations-2 … rotations-8. Sequences that mean
the same have one canonical form: `R(degrees=30) : T, R(60)` is `R:R(60),T`.
"""

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from itertools import chain
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from driftline.curate.core.errors import BadConfig, BadPlugin, did_you_mean
from driftline.curate.core.settings import expected
from driftline.stream_builder.shifts import SHIFTS
from driftline.stream_builder.shifts.base import ORDER, Shift

SHIFT = re.compile(r"\s*(~?)(?:\{([^{}]*)\}|([^\s~{}(),:]+))(?:\(([^()]*)\))?\s*([,:]|\Z)")
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
class PlannedStep:
    """The shifts that a sequence names for one step."""

    shifts: tuple[Shift, ...]
    """in the order in which they are applied"""
    grows: tuple[bool, ...] = ()
    """for each of them, whether it grows from sample to sample"""
    text: str = ""
    """canonical form"""


@dataclass(frozen=True)
class Rendering:
    """What is applied to the samples of one step."""

    counts: Mapping[Shift, float]
    """shift → how often it has occurred up to this step"""
    starts: Mapping[Shift, float]
    """those of them that grow over this step → how often they have occurred at its start, fixed parts included"""


def parse(sequence: str) -> list[PlannedStep]:
    """The source step, without shifts, and the steps of the sequence.

    `"C,T:L:R(45):~T(60)"` → nothing; C and T; L; R by 45°; T by 60, growing. Raises BadConfig, UnknownName, BadPlugin.
    """
    steps, shifts = [PlannedStep(())], []
    text, position = NAMES.get(sequence, sequence), 0
    while True:
        match = SHIFT.match(text, position)
        if match is None:
            raise BadConfig(
                f"The sequence {sequence!r} cannot be read from {text[position:]!r} on.",
                "Expected shifts separated by ':' (next step) or ',' (same step), as in 'C,T(60):L:~R(45)'.",
            )
        grows, place, name, settings, end = match.groups()
        shift = shift_of(name or place, settings)
        if grows and not shift.fractional:
            able = [n for n in SHIFTS if not SHIFTS.problem(n) and getattr(SHIFTS[n], "fractional", False)]
            raise BadConfig(f"The shift {name or place} cannot grow.", f"Expected one of {', '.join(able)} after '~'.")
        shifts.append((shift, grows, grows + _written(name, shift, settings is not None)))
        if end != ",":
            shifts.sort(key=lambda planned: ORDER.index(planned[0].acts_on))
            texts = ",".join(text for _, _, text in shifts)
            grow = tuple(bool(grows) for _, grows, _ in shifts)
            steps.append(PlannedStep(tuple(shift for shift, _, _ in shifts), grow, texts))
            shifts = []
        if not end:
            return steps
        position = match.end()


def _written(name: str | None, shift: Shift, has_settings: bool) -> str:
    """The canonical form of one shift: its name, and the settings that differ from the defaults. name: None for a class
    in braces."""
    if name is None:
        kind = type(shift)
        name = f"{{{kind.__module__}:{kind.__qualname__}}}"
        name = shift.code if shift.code in SHIFTS and SHIFTS[shift.code] is kind else name
    if not has_settings:
        return name
    fields = list(inspect.signature(SHIFTS.resolve(name.strip("{}"))).parameters.values())
    changed = [(i, p.name, getattr(shift, p.name)) for i, p in enumerate(fields) if getattr(shift, p.name) != p.default]
    in_order = [i for i, _, _ in changed] == list(range(len(changed)))
    values = [(str(value).removesuffix(".0"), key) for _, key, value in changed]
    return f"{name}({','.join(v if in_order else f'{key}={v}' for v, key in values)})" if values else name


def canonical(steps: Sequence[PlannedStep]) -> str:
    """The sequence of some steps, the same for all that mean the same."""
    return ":".join(step.text for step in steps[1:])


def accumulated(steps: Sequence[PlannedStep], reference: bool = False) -> list[Rendering]:
    """What each step applies: shifts accumulate, and those of one letter are counted together. If their settings
    differ, a shift whose setting adds up becomes one by 1 with fractions or multiples of it: `R(30):R(60)` is one
    rotation by 90 × 1°. reference: shifts as the paper's code does them."""
    plans = [
        [(s.reference() if reference else s, grows) for s, grows in zip(step.shifts, step.grows, strict=True)]
        for step in steps
    ]
    settings: dict[tuple[type, str], set[Shift]] = {}
    for shift, _ in chain(*plans):
        settings.setdefault((type(shift), shift.code), set()).add(shift)
    counts: dict[Shift, float] = {}
    seen: Counter[tuple[type, str]] = Counter()
    renderings = []
    for plan in plans:
        grown: Counter[Shift] = Counter()
        for shift, grows in plan:
            letter, times = (type(shift), shift.code), 1
            if len(settings[letter]) > 1 and shift.adds:
                times = getattr(shift, shift.adds)
                shift = replace(shift, **{shift.adds: 1})  # type: ignore[type-var]
            elif len(settings[letter]) > 1:
                shift = shift.after(seen[letter])
            seen[letter] += 1
            counts[shift] = counts.get(shift, 0) + times
            if grows:
                grown[shift] += times
        renderings.append(Rendering(dict(counts), {shift: counts[shift] - amount for shift, amount in grown.items()}))
    return renderings


def shift_of(name: str, settings: str | None = None) -> Shift:
    """name: registered, or package.module:Name. settings: as in the parentheses of a sequence, or None.

    Raises BadConfig for an unknown setting or a bad value, UnknownName, and BadPlugin for what is not a shift.
    """
    kind = SHIFTS.resolve(name)
    written = name if settings is None else f"{name}({settings})"
    try:
        shift = kind(**_checked(kind, written, settings))
    except (TypeError, ValueError) as error:  # a missing setting, or the shift's own check
        raise BadConfig(f"{written}: {error}.", f"Settings: {', '.join(inspect.signature(kind).parameters)}.") from None
    frozen = is_dataclass(shift) and type(shift).__hash__ is not None
    if not frozen or getattr(shift, "acts_on", "") not in ORDER or not hasattr(shift, "code"):
        wanted = f"a frozen dataclass that declares code, and acts_on as one of {', '.join(ORDER)}"
        raise BadPlugin(f"The shift {name!r} is {kind!r}.", f"Expected {wanted}.")
    return shift


def _checked(kind: Any, written: str, settings: str | None) -> dict[str, Any]:
    """Setting → value. Raises BadConfig."""
    names = list(inspect.signature(kind).parameters)
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for i, part in enumerate([] if settings is None else settings.split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            key, value = names[i] if i < len(names) else part.strip(), key
        if key not in names:
            available = f"Available: {', '.join(names) or 'none'}."
            raise BadConfig(f"{written}: Unknown setting {key!r}.", did_you_mean(key, names), available)
        try:
            adapter = TypeAdapter(hints.get(key, Any), config=ConfigDict(allow_inf_nan=False))
            values[key] = adapter.validate_strings(value)
        except ValidationError:
            raise BadConfig(f"{written}: {key} is {value!r}.", f"Expected {expected(hints[key])}.") from None
    return values


def sizes_of(sequence: str) -> tuple[int, ...]:
    """The paper's sizes of a sequence, by its name or canonical form. Raises BadConfig for any other sequence."""
    sizes = {NAMES[name]: numbers for name, numbers in SIZES.items()}
    if NAMES.get(sequence, sequence) not in sizes:
        raise BadConfig(
            f"The sequence {sequence!r} has no published sizes.", "Expected --sizes, one number per step.",
            f"These have published sizes: {', '.join(SIZES)}.",
        )  # fmt: skip
    return sizes[NAMES.get(sequence, sequence)]
