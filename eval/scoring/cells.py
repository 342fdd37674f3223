"""Runs of one learner → right answers by training step, tested step and class, and their bootstrap replicates.

The bootstrap is hierarchical: seeds are drawn, and clusters of test samples. Samples of one uploader or group of near
copies are one cluster; elsewhere each sample is its own. The same draw of samples serves all learners, seeds and
training steps, so that differences between them are paired. Clusters have Poisson(1) weights [Chamandy et al. 2012].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.outcomes import check_stream
from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Answers, Row, Run
from driftline.stream_builder.stream import SPLITS, Stream

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
CLUSTERS = 2**16  # drawn separately; more are joined at random, which keeps the variance
BLOCK = 2**10  # clusters drawn at once
CHUNK = 2**13  # samples weighted at once
CELLS = 2**27  # numbers of all replicates of one learner, at most
FEWEST = 200  # replicates


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
    half: bool = False
    """weights are 1 in a random half of the clusters and 0 in the other, instead of Poisson(1)"""
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
                drawn = rng.random(shape) < 0.5 if self.half else rng.poisson(1.0, shape)
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


def weighted_sums(resampling: Resampling, samples: Array, values: Array) -> Array:
    """samples (N,) positions in the stream, values (K, N) → (B, K) float32 weighted sums."""
    sums = np.zeros((len(values), resampling.replicates), np.float32)
    for low in range(0, len(samples), CHUNK):
        part = slice(low, low + CHUNK)
        sums += values[:, part].astype(np.float32) @ resampling.weights(samples[part]).astype(np.float32)
    return sums.T


def groups_of(stream: Stream) -> Array | None:
    """Cluster of each sample by position in the stream: its group of uploader and near copies; None: not known."""
    splits = [step.splits[name] for step in stream.steps for name in SPLITS if name in step.splits]
    groups = [split.group for split in splits if split.group is not None]
    if len(groups) < len(splits):
        return None
    return np.asarray(np.unique(np.concatenate(groups), return_inverse=True)[1], np.int64)


def draws_for(runs: Sequence[Run], stream: Stream | None, resampling: Resampling | None) -> Resampling:
    """The given draws, else new ones by the stream's clusters. Raises IncompatibleStream for another stream than that
    of the runs."""
    if stream is not None:
        check_stream(runs, stream)
    return resampling or Resampling(groups=None if stream is None else groups_of(stream))


def cells_of(runs: Sequence[Run]) -> Cells | None:
    """The counts of one learner's runs (seeds); None if its protocol does not test models on steps."""
    about = runs[0].about
    kind, steps = stored_protocol(about["protocol"]), about["steps"]
    tests: list[dict[tuple[int, int], Row]] = []
    for run in runs:
        placed = {(row.learned_to, kind.roles.step(row)): row for row in run.rows}
        tests.append({(i, j): row for (i, j), row in placed.items() if i >= 0 and j is not None and row.n})
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
    if not all(row.answers is not None for row in rows):
        return Cells(right, n, by_class, None)
    answers: list[dict[tuple[int, int], Answers]] = [{} for _ in range(steps)]
    for s, test in enumerate(tests):
        for (i, j), row in test.items():
            if row.answers is not None:
                answers[j][s, i] = row.answers
    return Cells(right, n, by_class, tuple(_outcomes(of_step, len(runs), steps) for of_step in answers))


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


def replicates(learners: Sequence[Cells], resampling: Resampling) -> tuple[Array, Array]:
    """Right answers and test samples (B, L, T, T, C) float32 of every bootstrap replicate, weighted sums over seeds, of
    L learners with equally many steps and classes.

    From counts alone, right answers of each cell are drawn from a normal distribution with the binomial's variance,
    the same for all seeds, since these test the same samples.
    """
    steps, width = learners[0].n.shape[2:]
    size = min(resampling.replicates, max(FEWEST, CELLS // (steps * steps * width)))
    right, n = np.zeros((2, size, len(learners), steps, steps, width), np.float32)
    same: dict[tuple[Any, ...], list[int]] = {}  # learners that were tested on the same samples of a step
    for k, cells in enumerate(learners):
        if cells.outcomes is None:
            right[:, k], n[:, k] = _from_counts(cells, resampling, resampling.seeds(len(cells.n))[:size])
            continue
        for j, outcomes in enumerate(cells.outcomes):
            if outcomes is not None:
                content = outcomes.sample.tobytes(), outcomes.label.tobytes()
                same.setdefault((j, cells.classes, outcomes.right.shape, *content), []).append(k)
    for (j, classes, *_), members in same.items():
        of_members = [outcomes for k in members if (outcomes := (learners[k].outcomes or ())[j]) is not None]
        of_step = right[:, :, :, j], n[:, :, :, j]
        for whole, part in zip(of_step, _weighted(of_members, resampling, size, width if classes else 1), strict=True):
            whole[:, members] = part
    return right, n


def _weighted(outcomes: Sequence[Outcomes], resampling: Resampling, size: int, width: int) -> tuple[Array, Array]:
    """(B, L, T, C) right answers and samples of one tested step, of learners that were tested on the same samples."""
    sample, label = outcomes[0].sample, outcomes[0].label
    learners, (seeds, steps, n) = len(outcomes), outcomes[0].right.shape
    of_seeds = resampling.seeds(seeds)[:size].astype(np.float32)
    hits, tested = (np.stack([getattr(one, name) for one in outcomes]) for name in ("right", "tested"))  # (L, S, T, N)
    everywhere = bool((tested.any(-1) == tested.all(-1)).all())  # each cell tests all or nothing
    right, count = np.zeros((2, size, learners, steps, width), np.float32)
    cell = np.einsum("bs,lst->blt", of_seeds, tested.any(-1).astype(np.float32))
    edges = np.searchsorted(label, np.arange(width + 1)) if width > 1 else np.array([0, n])
    for c in range(width):
        part = slice(int(edges[c]), int(edges[c + 1]))

        def summed(what: Array, part: slice = part) -> Array:
            sums = weighted_sums(resampling, sample[part], what.reshape(-1, n)[:, part])
            return np.einsum("blst,bs->blt", sums[:size].reshape(size, learners, seeds, steps), of_seeds)

        right[..., c] = summed(hits)
        if everywhere:
            ones = np.ones((1, part.stop - part.start), np.uint8)
            count[..., c] = weighted_sums(resampling, sample[part], ones)[:size, :, None] * cell
        else:
            count[..., c] = summed(tested)
    return right, count


def _from_counts(cells: Cells, resampling: Resampling, of_seeds: Array) -> tuple[Array, Array]:
    """The same from counts."""
    rng, of_seeds = np.random.default_rng([resampling.seed, 3]), of_seeds.astype(np.float32)
    share = cells.right / np.maximum(cells.n, 1)  # (S, T, T, C)
    deviation = np.sqrt(cells.n * share * (1 - share))
    n = np.einsum("bs,sijc->bijc", of_seeds, cells.n)
    right = np.einsum("bs,sijc->bijc", of_seeds, cells.right) + rng.standard_normal(n.shape) * np.einsum(
        "bs,sijc->bijc", of_seeds, deviation
    )
    return np.clip(right, 0, n).astype(np.float32), n.astype(np.float32)
