"""Runs of one learner → right answers by training step, tested step and class, and their bootstrap replicates.

Clusters of test samples are drawn, with Poisson(1) weights [Chamandy et al. 2012]. Samples of one uploader or group of
near copies are one cluster; elsewhere each sample is its own. The same draw serves all learners, seeds and training
steps, so that differences between them are paired. What other seeds would change is not drawn: see `bands.Layout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.outcomes import check_stream, groups_in
from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Answers, Run, new_models
from driftline.eval.scoring.bands import Layout
from driftline.stream_builder.stream import SPLITS, Stream

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
CLUSTERS = 2**16  # drawn separately; more are joined at random, which keeps the variance
BLOCK = 2**10  # clusters drawn at once
CHUNK = 2**13  # samples weighted at once
CELLS = 2**27  # numbers of all replicates of one learner, at most
FEWEST = 200  # replicates
SINGLES = 250  # replicates of single seeds


@dataclass(frozen=True)
class Outcomes:
    """Answers of one learner to the test samples of one step."""

    sample: Array
    """(N,) positions in the stream, rising"""
    label: Array
    """(N,)"""
    right: npt.NDArray[np.uint8]
    """(S, T, N) 1 where seed s, trained up to step i, was right"""
    tested: npt.NDArray[np.uint8]
    """(S, T, N) 1 where it was tested"""


@dataclass(frozen=True)
class Cells:
    """Counts of one learner."""

    right: Floats
    """(S, T, T, C) right answers: seed, trained up to step, tested on step, class"""
    n: Floats
    """(S, T, T, C) test samples"""
    classes: bool
    """False: the rows do not count classes, and C is 1"""
    outcomes: tuple[Outcomes | None, ...] | None
    """(T,) by tested step; None: a run has no records"""
    constant: npt.NDArray[np.int64]
    """(T,) class that most training samples up to each step have, with most of the seeds; -1: not known"""

    @property
    def basis(self) -> Literal["outcomes", "counts"]:
        """What the replicates are drawn from."""
        return "counts" if self.outcomes is None else "outcomes"


@dataclass
class Resampling:
    """Draws of test samples that all learners of a stream share."""

    replicates: int = 1000
    """B"""
    seed: int = 0
    groups: Array | None = None
    """cluster of each sample by position in the stream; None: each sample is its own"""
    blocks: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False)
    """weights that were drawn, by block of clusters"""

    def weights(self, samples: Array) -> npt.NDArray[np.uint8]:
        """(N, B) of samples at these positions (N,) of the stream."""
        clusters = np.asarray(samples if self.groups is None else self.groups[samples]).astype(np.uint64)
        joined = (clusters * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(48)  # 0 … CLUSTERS - 1, as if at random
        clusters = np.where(clusters < CLUSTERS, clusters, joined)
        number, place = (part.astype(np.int64) for part in np.divmod(clusters, np.uint64(BLOCK)))
        out = np.empty((len(clusters), self.replicates), np.uint8)
        for block in np.unique(number).tolist():
            if block not in self.blocks:
                rng, shape = np.random.default_rng([self.seed, 1, block]), (BLOCK, self.replicates)
                drawn = rng.poisson(1.0, shape)
                self.blocks[block] = drawn.astype(np.uint8)
            part = number == block
            out[part] = self.blocks[block][place[part]]
        return out

    def seeds(self, count: int) -> Floats:
        """(B, S) weights of seeds, whose sum is 1: drawn with replacement and spread by √(S / (S − 1)), without which S
        draws have too small a variance. Equal for one seed."""
        if count == 1:
            return np.ones((self.replicates, 1))
        drawn = np.random.default_rng([self.seed, 2]).multinomial(count, np.full(count, 1 / count), self.replicates)
        return 1 / count + np.sqrt(count / (count - 1)) * (drawn / count - 1 / count)


def spread_out(clusters: Array) -> Array:
    """Numbers of clusters → (N,) int64, as if at random."""
    return ((clusters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)).astype(np.int64)


def weighted_sums(resampling: Resampling, samples: Array, values: Array, part: slice = slice(None)) -> Array:
    """samples (N,) positions in the stream, values (K, N) → (B, K) float32 weighted sums. part: of the replicates."""
    sums = np.zeros((len(values), len(range(resampling.replicates)[part])), np.float32)
    for low in range(0, len(samples), CHUNK):
        chunk = slice(low, low + CHUNK)
        sums += values[:, chunk].astype(np.float32) @ resampling.weights(samples[chunk])[:, part].astype(np.float32)
    return sums.T


def groups_of(stream: Stream) -> Array | None:
    """Cluster of each sample by position in the stream: its group of uploader and near copies; None: not known."""
    splits = [step.splits[name] for step in stream.steps for name in SPLITS if name in step.splits]
    groups = [split.group for split in splits if split.group is not None]
    if len(groups) < len(splits):
        return None
    return np.asarray(np.unique(np.concatenate(groups), return_inverse=True)[1], np.int64)


def clusters_of(runs: Sequence[Run], stream: Stream | None) -> Array | None:
    """As `groups_of`; without the stream, as the records of the runs say it."""
    return groups_in(runs) if stream is None else groups_of(stream)


def draws_for(runs: Sequence[Run], stream: Stream | None, resampling: Resampling | None) -> Resampling:
    """The given draws, else new ones by clusters. Raises IncompatibleStream for another stream than that
    of the runs."""
    if stream is not None:
        check_stream(runs, stream)
    return resampling or Resampling(groups=clusters_of(runs, stream))


def cells_of(runs: Sequence[Run]) -> Cells | None:
    """The counts of one learner's runs (seeds), of each model where it last changed; None if its protocol does not test
    models on steps, or it never learned."""
    about = runs[0].about
    kind, steps = stored_protocol(about["protocol"]), about["steps"]
    tests = [new_models(run.rows, kind.roles.step) for run in runs]
    rows = [row for test in tests for row in test.values()]
    if not rows:
        return None
    by_class = all(row.class_n for row in rows)
    width = max(len(row.class_n) for row in rows) if by_class else 1
    right, n = np.zeros((2, len(runs), steps, steps, width))
    for s, test in enumerate(tests):
        for (i, j), row in test.items():
            counted = (row.class_correct, row.class_n) if by_class else ([row.n_correct], [row.n])
            right[s, i, j, : len(counted[0])], n[s, i, j, : len(counted[1])] = counted
    labels = [{i: row.constant for (i, _), row in test.items()} for test in tests]
    constant = np.array([_most([of.get(i, -1) for of in labels]) for i in range(steps)], np.int64)
    if not all(row.answers is not None for row in rows):
        return Cells(right, n, by_class, None, constant)
    answers: list[dict[tuple[int, int], Answers]] = [{} for _ in range(steps)]
    for s, test in enumerate(tests):
        for (i, j), row in test.items():
            if row.answers is not None:
                answers[j][s, i] = row.answers
    of_steps = tuple(_outcomes(of_step, len(runs), steps) for of_step in answers)
    return Cells(right, n, by_class, of_steps, constant)


def _most(classes: Sequence[int]) -> int:
    """The class that comes most often, the lowest of equal ones; -1 of none."""
    counts = np.bincount([c for c in classes if c >= 0])
    return int(counts.argmax()) if len(counts) else -1


def _outcomes(answers: Mapping[tuple[int, int], Answers], seeds: int, steps: int) -> Outcomes | None:
    """The answers to one step, by seed and training step; None if it was not tested."""
    if not answers:
        return None
    first = next(iter(answers.values()))
    same = all(a.sample is first.sample or np.array_equal(a.sample, first.sample) for a in answers.values())
    if same:
        sample, label = np.asarray(first.sample), np.asarray(first.label)
    else:
        sample, where = np.unique(np.concatenate([a.sample for a in answers.values()]), return_index=True)
        label = np.concatenate([a.label for a in answers.values()])[where]
    right, tested = np.zeros((2, seeds, steps, len(sample)), np.uint8)
    for (s, i), a in answers.items():
        places = slice(None) if same else np.searchsorted(sample, a.sample)
        right[s, i, places], tested[s, i, places] = a.label == a.predicted, 1
    order = np.argsort(label, kind="stable")
    return Outcomes(sample[order], label[order], right[..., order], tested[..., order])


def layout_of(seeds: int, size: int, clusters: int = 0) -> Layout:
    """What the first axis of replicates has, of so many seeds, with `size` replicates."""
    return Layout(size, max(2, min(SINGLES, size) // seeds) * seeds if seeds > 1 else 0, seeds, clusters)


def _clusters(cells: Cells, resampling: Resampling) -> int:
    """Clusters of a tested step, on average, times models."""
    tested = cells.n.sum((0, 3)) > 0  # (T, T)
    if cells.outcomes is None:
        counts = [int(n) for n in cells.n.sum(3).max((0, 1)) if n]
    else:
        samples = [outcomes.sample for outcomes in cells.outcomes if outcomes is not None]
        counts = [len(s if resampling.groups is None else np.unique(resampling.groups[s])) for s in samples]
    return int(np.mean(counts) * tested.any(1).sum())


def replicates(learners: Sequence[Cells], resampling: Resampling) -> tuple[Array, Array, Layout]:
    """Right answers and test samples (B + …, L, T, T, C) float32 of every bootstrap replicate, means over seeds, of L
    learners with equally many seeds, steps and classes.

    From counts alone, right answers of each cell are drawn from a normal distribution with the binomial's variance,
    the same for all seeds, since these test the same samples.
    """
    seeds, steps, _, width = learners[0].n.shape
    size = min(resampling.replicates, max(FEWEST, CELLS // (steps * steps * width)))
    layout = layout_of(seeds, size, min(_clusters(cells, resampling) for cells in learners))
    rows = size if seeds == 1 else size + layout.singles + seeds
    right, n = np.zeros((2, rows, len(learners), steps, steps, width), np.float32)
    same: dict[tuple[Any, ...], list[int]] = {}  # learners that were tested on the same samples of a step
    for k, cells in enumerate(learners):
        if cells.outcomes is None:
            right[:, k], n[:, k] = _from_counts(cells, resampling, layout)
            continue
        for j, outcomes in enumerate(cells.outcomes):
            if outcomes is not None:
                content = outcomes.sample.tobytes(), outcomes.label.tobytes()
                same.setdefault((j, cells.classes, outcomes.right.shape, *content), []).append(k)
    for (j, classes, *_), members in same.items():
        of_members = [outcomes for k in members if (outcomes := (learners[k].outcomes or ())[j]) is not None]
        of_step = right[:, :, :, j], n[:, :, :, j]
        for whole, part in zip(
            of_step, _weighted(of_members, resampling, layout, width if classes else 1), strict=True
        ):
            whole[:, members] = part
    return right, n, layout


def laid_out(resampling: Resampling, layout: Layout, samples: Array, values: Array) -> Array:
    """samples (N,) positions in the stream, values (S, K, N) → (B + …, K) float32 weighted sums, means over seeds."""
    seeds, size = layout.seeds, layout.replicates
    if seeds == 1:
        return weighted_sums(resampling, samples, values[0])[:size]
    every = weighted_sums(resampling, samples, values.sum(0, dtype=np.float32))[:size] / np.float32(seeds)
    single = np.empty((layout.singles, values.shape[1]), np.float32)
    for s in range(seeds):
        single[s::seeds] = weighted_sums(resampling, samples, values[s], slice(s, layout.singles, seeds))
    return np.concatenate([every, single, values.sum(-1, dtype=np.float32)])


def arranged(layout: Layout, drawn: Array, exact: Array) -> Array:
    """Replicates of each seed (B, S, ...) and its exact numbers (S, ...) → (B + …, ...)."""
    if layout.seeds == 1:
        return drawn[:, 0]
    place = np.arange(layout.singles)
    return np.concatenate([drawn.mean(1), drawn[place, place % layout.seeds], exact])


def _weighted(outcomes: Sequence[Outcomes], resampling: Resampling, layout: Layout, width: int) -> tuple[Array, Array]:
    """(B + …, L, T, C) right answers and samples of one tested step, of learners that were tested on the same
    samples."""
    sample, label = outcomes[0].sample, outcomes[0].label
    learners, (seeds, steps, n) = len(outcomes), outcomes[0].right.shape
    hits, tested = (np.stack([getattr(one, name) for one in outcomes], 1) for name in ("right", "tested"))  # S, L, T, N
    everywhere = bool((tested.any(-1) == tested.all(-1)).all())  # each cell tests all or nothing
    cell = np.asarray(tested.any(-1), np.float32)
    cells = _over_seeds(layout, cell)
    edges = np.searchsorted(label, np.arange(width + 1)) if width > 1 else np.array([0, n])
    right, count = np.zeros((2, len(cells), learners, steps, width), np.float32)
    for c in range(width):
        part = slice(int(edges[c]), int(edges[c + 1]))

        def summed(what: Array, part: slice = part) -> Array:
            flat = what[..., part].reshape(seeds, learners * steps, part.stop - part.start)
            return laid_out(resampling, layout, sample[part], flat).reshape(-1, learners, steps)

        right[..., c] = summed(hits)
        if everywhere:
            ones = np.ones((seeds, 1, part.stop - part.start), np.uint8)
            count[..., c] = laid_out(resampling, layout, sample[part], ones)[:, :, None] * cells
        else:
            count[..., c] = summed(tested)
    return right, count


def _over_seeds(layout: Layout, values: Array) -> Array:
    """Values (S, ...) that samples do not change → (B + …, ...): their mean, and those of single seeds."""
    seeds = layout.seeds
    every = np.repeat(values.mean(0, keepdims=True), layout.replicates, 0)
    return np.concatenate([every, values[np.arange(layout.singles) % seeds], values]) if seeds > 1 else every


def _from_counts(cells: Cells, resampling: Resampling, layout: Layout) -> tuple[Array, Array]:
    """The same from counts."""
    rng, size = np.random.default_rng([resampling.seed, 3]), layout.replicates
    share = cells.right / np.maximum(cells.n, 1)  # (S, T, T, C)
    n, right, deviation = (
        _over_seeds(layout, values) for values in (cells.n, cells.right, np.sqrt(cells.n * share * (1 - share)))
    )
    drawn = rng.standard_normal((size, *n.shape[1:]))
    right[:size] += drawn * deviation[:size]
    right[size : size + layout.singles] += drawn[: layout.singles] * deviation[size : size + layout.singles]
    return np.clip(right, 0, n).astype(np.float32), n.astype(np.float32)
