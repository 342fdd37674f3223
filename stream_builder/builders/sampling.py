"""Which samples each step draws: shares of classes and sub-classes, overlap of steps, the paper's published draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig, Shortage
from curate.core.seeding import rng_for
from stream_builder.datasets import Base, Side
from stream_builder.shifts.base import Shares, Shift
from stream_builder.stream import Array


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


def shares_of(base: Base, t: int, times: Mapping[Shift, int], total: Mapping[Shift, int], how: Composition) -> Shares:
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


def positions(side: Side, shares: Shares, size: int, rng: np.random.Generator, used: Any = None) -> list[Array]:
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


def draw(
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
            places = positions(base.train, shares[t], n, rng_for(seed, "val", t), used) if n else []
            val.append(np.concatenate([*places, np.zeros(0, np.int64)]))
            used[val[-1]] = True
        for t, size in enumerate(sizes):
            rng = rng_for(seed, "train", t)
            train = np.concatenate(positions(base.train, shares[t], size - len(val[t]), rng, used))
            drawn.append({"train": rng.permutation(train), "val": rng.permutation(val[t])})
        return drawn
    for t, size in enumerate(sizes):
        rng = rng_for(seed, "step", t)
        places = positions(base.train, shares[t], size, rng, used if policy == "disjoint" else None)
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


def overlap_of(drawn: Sequence[Mapping[str, Array]]) -> dict[str, int]:
    """Validation images of the last step that train an earlier one; images that are in several steps."""
    earlier = set().union(*(step["train"].tolist() for step in drawn[:-1])) if len(drawn) > 1 else set()
    seen = Counter(i for step in drawn for i in {j for part in step.values() for j in part.tolist()})
    return {
        "final_validation_in_earlier_training": len(earlier & set(drawn[-1]["val"].tolist())),
        "images_in_several_steps": sum(n > 1 for n in seen.values()),
    }


def oracle_draws(
    base: Base, last: Mapping[str, Array], total: int, shares: Shares, how: Composition, seed: int, published: bool
) -> dict[str, Array] | None:
    """`total` samples of the last step's shares, train and val, that hold the last step's own; None where the base has
    too few. published: the paper's, where the base has them for this size."""
    at = {int(i): p for p, i in enumerate(base.train.index.tolist())}
    told = [base.draws[name] for name in ("oracle_train", "oracle_valid") if name in base.draws]
    if published and len(told) == 2 and sum(map(len, told)) == total:
        return {side: np.array([at[int(i)] for i in one]) for side, one in zip(("train", "val"), told, strict=True)}
    own = {side: last.get(side, np.zeros(0, np.int64)) for side in ("train", "val")}
    used = np.zeros(len(base.train), bool)
    used[np.concatenate(list(own.values()))] = True
    rng = rng_for(seed, "oracle")
    try:
        places = positions(base.train, shares, total - int(used.sum()), rng, used)
    except Shortage:
        return None
    halves = [np.split(p, [int((1 - how.val_share) * len(p) + 1e-9)]) for p in places]
    return {
        side: rng.permutation(np.concatenate([own[side], *(pair[k] for pair in halves)]))
        for k, side in enumerate(("train", "val"))
    }


def published_draws(base: Base, sizes: Sequence[int], test_size: int) -> list[dict[str, Array]] | None:
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
