"""A base and a sequence of shifts → a stream: `C:L:R` is three target steps after the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig, IncompatibleStream
from curate.core.seeding import rng_for
from stream_builder.builders.sampling import (
    Composition,
    draw,
    oracle_draws,
    overlap_of,
    positions,
    published_draws,
    shares_of,
)
from stream_builder.datasets import Base, Side
from stream_builder.shifts.base import ORDER, Labels, Shift
from stream_builder.shifts.grammar import NAMES, Planned, parse, sizes_of
from stream_builder.stream import Array, Split, Step, Stream

TEST_SIZE = 5000
LEVELS = 64  # amounts that a shift which grows smoothly takes on the way


def compose(
    base: Base,
    sequence: str,
    sizes: Sequence[int] | None = None,
    test_size: int = TEST_SIZE,
    seed: int = 0,
    how: Composition | None = None,
    workers: int = 1,
    oracle: bool = True,
) -> Stream:
    """sizes: samples of each step, train and validation together (None: the paper's); test_size: of the last step.

    Draws are without replacement within a step, and do not depend on shifts of images and labels. workers: steps that
    are rendered at a time; they change no byte. oracle: also draw, where the base is large enough, as many samples of
    the last distribution as all steps have, those of the last step among them.

    Raises BadConfig where sizes and steps disagree, IncompatibleStream for a shift that the base cannot have,
    Shortage where a class has too few images.
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
    published = published_draws(base, sizes, test_size) if how.draws != "own" else None
    if how.draws == "published" and published is None:
        raise BadConfig(f"{base.name} has no published draws for these sizes.", "Expected *draws*.npz beside it.")
    if published is None:
        shares = [shares_of(base, t, counts, total, how) for t, counts in enumerate(so_far)]
        policy, drawn = draw(base, sizes, shares, how, seed)
        of_test = positions(base.test, shares[-1], test_size, rng_for(seed, "test", len(steps) - 1))
        drawn.append({"test": np.concatenate(of_test)})
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

    places: dict[str, Array] | None = None
    if oracle:
        share = shares_of(base, len(steps) - 1, so_far[-1], total, how)
        places = oracle_draws(base, drawn[len(steps) - 1], sum(sizes), share, how, seed, published is not None)

    def upper() -> Step | None:
        last, rng = len(steps) - 1, rng_for(seed, "render oracle")
        if places is None:
            return None
        before = so_far[last - 1] if last else Counter()
        return Step(last + 1, "oracle", {
            side: _render(base.train, where, before, so_far[last], steps[last], base, rng)
            for side, where in places.items()
        })  # fmt: skip

    with ThreadPoolExecutor(workers) as pool:
        rendered = list(pool.map(made, range(len(steps))))
    told = NAMES.get(sequence, sequence)  # a name of the paper and what it stands for are one
    facts: dict[str, Any] = {"from": "shifts", "base": base.name, "sequence": told, "sizes": list(sizes)}
    facts |= {"seed": seed, "fidelity": how.fidelity, "draws": "published" if published else "own"}
    facts |= {"overlap": policy, "loading": how.loading()}
    facts["shared"] = overlap_of(drawn[: len(steps)])
    return Stream(f"{base.name}-{sequence}", rendered, base.classes, facts=facts, oracle=upper())


def _check(base: Base, total: Counter[Shift]) -> None:
    """Raise IncompatibleStream for shifts of images where the base has none."""
    images = base.train.x.dtype == np.uint8
    for shift in total:
        if not images and shift.acts_on not in ("choice", "label"):
            raise IncompatibleStream(
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
