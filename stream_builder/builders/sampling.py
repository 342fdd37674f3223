"""Which samples each step draws: shares of classes and sub-classes, overlap between steps, published draws."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, Shortage
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.shifts.base import Shares, Shift
from driftline.stream_builder.stream import Array

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Composition:
    """How the samples of a composed stream are drawn and loaded."""

    val_share: float = 0.2
    """share of validation samples in each class's draw; the number of training samples is rounded down"""
    balanced: Literal["balanced", "natural"] = "balanced"
    """equal numbers of each class, as in the paper, or the class frequencies of the dataset"""
    overlap: Literal["auto", "independent", "validation", "disjoint"] = "auto"
    """independent: steps may share images, and a validation image of one step may be a training image of another (the
    paper's code: 207 of 800); validation: no validation image is a training image of any step; disjoint: no image is in
    two steps; auto: the strictest of them that the dataset is large enough for, with paper-code independent"""
    draws: Literal["auto", "published", "own"] = "auto"
    """published draws of the dataset, own draws, or auto: with paper-code published ones if the dataset has them for
    these sizes, else own"""
    augment: Literal["auto", "none", "paper"] = "auto"
    """augmentation of training images, recorded in the stream for loaders; auto: the paper's if fidelity is clean"""
    fidelity: Literal["clean", "paper-code"] = "clean"
    """paper-code: what the reference executed [spec, section 1]: independent draws, only two sub-classes of each class
    unless `s` is in the sequence, images from 0 to 255 without augmentation and normalisation"""
    priors: npt.NDArray[np.float64] | None = None
    """(steps, classes) shares of the classes at each step, instead of equal ones"""

    def policies(self) -> tuple[str, ...]:
        """Overlaps to try, the strictest first."""
        if self.overlap != "auto":
            return (self.overlap,)
        return ("independent",) if self.fidelity == "paper-code" else ("disjoint", "validation", "independent")

    def loading(self) -> dict[str, Any]:
        """For loaders: augmentations of training images, and whether images are normalised."""
        paper = self.augment == "paper" or (self.augment == "auto" and self.fidelity == "clean")
        return {"augment": ["flip", "crop", "rotate"] if paper else [], "normalise": self.fidelity == "clean"}


def class_shares(
    dataset: Dataset, t: int, counts: Mapping[Shift, float], total: Mapping[Shift, float], composition: Composition
) -> Shares:
    """(classes, sub-classes or 1) shares of the draw of step `t`; they add up to 1.

    counts: how often each shift has occurred up to this step; total: in the whole sequence. Raises BadConfig for priors
    of the wrong shape, and what the shifts raise.
    """
    n, subclasses = len(dataset.classes), dataset.subclasses
    shares, priors = np.ones((n, max(1, subclasses))), composition.priors
    if priors is not None:
        if priors.shape[1:] != (n,) or t >= len(priors) or (priors < 0).any() or not priors[t].any():
            raise BadConfig(
                f"--priors has shape {priors.shape}.",
                f"Expected a row for each step and {n} columns, no negative value, and no row of zeros only.",
            )
        shares *= priors[t][:, None]
    elif composition.balanced == "natural":
        shares *= np.bincount(dataset.train.y, minlength=n)[:, None]
    for shift in total:
        if shift.acts_on == "sampling":
            by_shift = shift.shares(counts.get(shift, 0), total[shift], n, subclasses)
            shares = shares if by_shift is None else shares * by_shift
    if subclasses and composition.fidelity == "paper-code" and not any(shift.code == "s" for shift in total):
        shares = shares * np.tile(np.array([0.5, 0.5] + [0.0] * (subclasses - 2)), (n, 1))  # as the reference does
    if not shares.any():
        codes = ", ".join(shift.code for shift in total if shift.acts_on == "sampling")
        raise IncompatibleStream(
            f"Step {t} has no class left: {codes}, and priors if given, together exclude all {n} classes.",
            "Expected at least one class in every step.",
            "Shorten the sequence, lower the numbers, or use a dataset with more classes.",
        )
    return np.asarray(shares / shares.sum())


def quotas(size: int, shares: Shares, rng: np.random.Generator, as_paper: bool = False) -> Counts:
    """(classes, sub-classes) integers that add up to `size`: each class gets size × share, rounded down or up.

    Which classes are rounded up is drawn, so that the expected number of every class is exactly size × share
    (systematic sampling in random order). Sub-classes likewise within their class. as_paper: the remainder goes to the
    last class with a share, as in the paper's code.
    """
    of_class = _rounded(size, shares.sum(1), rng, as_paper)
    return np.array([_rounded(n, row, rng, as_paper) for n, row in zip(of_class.tolist(), shares, strict=True)])


def _rounded(size: int, shares: npt.NDArray[np.float64], rng: np.random.Generator, as_paper: bool) -> Counts:
    """Integers that add up to `size`, in proportion to `shares`.

    >>> _rounded(10, np.array([1.0, 1.0, 1.0, 0.0]), rng_for(0), as_paper=True)
    array([3, 3, 4, 0])
    """
    if size == 0:
        return np.zeros(len(shares), np.int64)
    exact = size * shares / shares.sum()
    counts = np.floor(exact + 1e-9).astype(np.int64)
    rest = size - int(counts.sum())
    if as_paper:
        counts[int(np.flatnonzero(shares)[-1])] += rest
    elif rest:
        order = rng.permutation(len(shares))
        reached = np.cumsum(np.maximum(exact - counts, 0)[order])
        reached *= rest / reached[-1]
        reached[-1] = rest  # in floating point it is a little more or less
        counts[order] += np.diff(np.floor(reached + rng.random()), prepend=0).astype(np.int64)
    return counts


def draw_positions(samples: Samples, counts: Counts, rng: np.random.Generator, used: Any = None) -> list[Array]:
    """Positions of each class's draw, shuffled. counts: from `quotas`. used: (N,) bool, samples that must not be drawn.

    Raises Shortage if a class or sub-class has too few.
    """
    free = np.ones(len(samples), bool) if used is None else ~used
    drawn = []
    for c, of_class in enumerate(counts.tolist()):
        parts = [np.zeros(0, int)]
        for s, n in enumerate(of_class if sum(of_class) else []):
            in_subclass = samples.subclass == s if samples.subclass is not None else True
            available = np.flatnonzero(free & (samples.y == c) & in_subclass)
            if len(available) < n:
                which = f"Class {c}" + (f", sub-class {s}," if samples.subclass is not None else "")
                raise Shortage(
                    f"{which} has {len(available)} images, the step needs {n}.", "",
                    "Lower --sizes or --test-size, or let steps share images: --overlap independent.",
                )  # fmt: skip
            parts.append(rng.permutation(available)[:n])
        drawn.append(rng.permutation(np.concatenate(parts)) if len(parts) > 2 else np.concatenate(parts))
    return [np.asarray(positions, np.int64) for positions in drawn]


def draw_steps(
    dataset: Dataset, sizes: Sequence[int], shares: Sequence[Shares], composition: Composition, seed: int
) -> tuple[str, list[dict[str, Array]]]:
    """The overlap that was used, and the train and val positions of each step.

    Overlap "auto" relaxes as far as a small dataset needs. Raises Shortage.
    """
    *strict, loosest = composition.policies()
    for policy in strict:
        with suppress(Shortage):
            return policy, _draw_steps(dataset, sizes, shares, composition, policy, seed)
    return loosest, _draw_steps(dataset, sizes, shares, composition, loosest, seed)


def _draw_steps(
    dataset: Dataset, sizes: Sequence[int], shares: Sequence[Shares], composition: Composition, policy: str, seed: int
) -> list[dict[str, Array]]:
    """Shuffled train and val positions of each step: of each class's draw the first part is train, the rest val."""
    used = np.zeros(len(dataset.train), bool)
    drawn: list[dict[str, Array]] = []
    wanted = [
        quotas(n, share, rng_for(seed, "quotas", t), composition.fidelity == "paper-code")
        for t, (n, share) in enumerate(zip(sizes, shares, strict=True))
    ]
    if policy == "validation":  # draw the validation images of all steps first: no step may train on them

        def val_of(t: int, c: int, row: Array) -> Counts:
            n = int(row.sum())
            return _rounded(n - _train_size(n, composition.val_share), row, rng_for(seed, "val quotas", t, c), False)

        of_val = [np.array([val_of(t, c, row) for c, row in enumerate(counts)]) for t, counts in enumerate(wanted)]
        val: list[Array] = []
        for t, counts in enumerate(of_val):
            val.append(np.concatenate(draw_positions(dataset.train, counts, rng_for(seed, "val", t), used)))
            used[val[-1]] = True
        for t, counts in enumerate(wanted):
            rng = rng_for(seed, "train", t)
            train = np.concatenate(draw_positions(dataset.train, counts - of_val[t], rng, used))
            drawn.append({"train": rng.permutation(train), "val": rng.permutation(val[t])})
        return drawn
    for t, counts in enumerate(wanted):
        rng = rng_for(seed, "step", t)
        by_class = draw_positions(dataset.train, counts, rng, used if policy == "disjoint" else None)
        train, rest = _divided(by_class, composition.val_share)
        drawn.append({"train": rng.permutation(train), "val": rng.permutation(rest)})
        used[np.concatenate(by_class)] = True
    return drawn


def _train_size(n: int, val_share: float) -> int:
    return int((1 - val_share) * n + 1e-9)


def _divided(by_class: Sequence[Array], val_share: float) -> tuple[Array, Array]:
    """Train and val positions: of each class's draw the first part and the rest."""
    parts = [np.split(rows, [_train_size(len(rows), val_share)]) for rows in by_class]
    return np.concatenate([train for train, _ in parts]), np.concatenate([val for _, val in parts])


def overlap_counts(drawn: Sequence[Mapping[str, Array]]) -> dict[str, int]:
    """Number of validation images of the last step that an earlier step trains on; of images in several steps."""
    size = 1 + max(int(rows.max(initial=-1)) for step in drawn for rows in step.values())
    earlier, steps_with = np.zeros(size, bool), np.zeros(size, np.int64)
    for step in drawn:
        steps_with += np.bincount(np.concatenate(list(step.values())), minlength=size) > 0
    for step in drawn[:-1]:
        earlier[step["train"]] = True
    final = np.unique(drawn[-1]["val"])
    return {
        "final_validation_in_earlier_training": int(earlier[final].sum()),
        "images_in_several_steps": int((steps_with > 1).sum()),
    }


def draw_oracle(
    dataset: Dataset, last: Mapping[str, Array], total: int, shares: Shares, composition: Composition, seed: int,
    published: bool,
) -> dict[str, Array] | None:  # fmt: skip
    """Train and val positions of `total` samples with the last step's shares, including the last step's own samples;
    None if the dataset has too few. published: use the paper's draws if the dataset has them for this size."""
    paper = [dataset.draws[name] for name in ("oracle_train", "oracle_valid") if name in dataset.draws]
    if published and len(paper) == 2 and sum(map(len, paper)) == total:
        return {name: _positions_of(dataset.train, draws) for name, draws in zip(("train", "val"), paper, strict=True)}
    own = {name: last.get(name, np.zeros(0, np.int64)) for name in ("train", "val")}
    used = np.zeros(len(dataset.train), bool)
    used[np.concatenate(list(own.values()))] = True
    rng = rng_for(seed, "oracle")
    as_paper = composition.fidelity == "paper-code"
    counts = quotas(total - int(used.sum()), shares, rng_for(seed, "oracle quotas"), as_paper)
    try:
        by_class = draw_positions(dataset.train, counts, rng, used)
    except Shortage:
        return None
    further = zip(("train", "val"), _divided(by_class, composition.val_share), strict=True)
    return {name: rng.permutation(np.concatenate([own[name], rows])) for name, rows in further}


def published_draws(dataset: Dataset, sizes: Sequence[int], test_size: int) -> list[dict[str, Array]] | None:
    """The paper's draws as positions: train and val of each step, then test; None without draws for these sizes.

    Raises BadInput if a step has training draws and no validation draws.
    """
    draws, last = dataset.draws, len(sizes) - 1
    for name in (f"t{t}_valid" for t in range(len(sizes))):
        if name not in draws and name.replace("valid", "train") in draws:
            expected = "Expected both of each step, as in the published file."
            raise BadInput(f"The published samples of {dataset.name} have no {name}.", expected)
    if any(f"t{t}_train" not in draws for t in range(len(sizes))) or f"t{last}_test" not in draws:
        return None
    published_sizes = [len(draws[f"t{t}_train"]) + len(draws[f"t{t}_valid"]) for t in range(len(sizes))]
    if published_sizes != list(sizes) or len(draws[f"t{last}_test"]) != test_size:
        return None
    steps = [
        {"train": _positions_of(dataset.train, draws[f"t{t}_train"]),
         "val": _positions_of(dataset.train, draws[f"t{t}_valid"])}
        for t in range(len(sizes))
    ]  # fmt: skip
    return [*steps, {"test": _positions_of(dataset.test, draws[f"t{last}_test"])}]


def _positions_of(samples: Samples, numbers: Array) -> Array:
    """Positions of samples by their `index`."""
    position = {number: i for i, number in enumerate(samples.index.tolist())}
    return np.array([position[int(number)] for number in numbers])
