"""Test results of one learner as sums over groups of clusters, and the interval of every function of them.

A cluster is what one draw takes as a whole: the samples of one uploader or group of near-duplicates; elsewhere each
sample is its own. Clusters are joined at random into at most `GROUPS` groups, which keeps variances (to 4 %,
simulated). A replicate draws as many groups as there are, with replacement; the same draws serve all learners, seeds
and tests, so that differences between them are paired. What other seeds would change is not drawn, but added: see
`Drawn`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.executor import one_blas_thread
from driftline.curate.core.late import sparse
from driftline.eval.predictions import check_stream, groups_in, groups_of
from driftline.eval.rows import Answers, Run
from driftline.eval.scoring.bands import Array, Band, Floats, Z, deviations, half_of, quantiles, wilson
from driftline.stream_builder.stream import Stream

GROUPS = 512
SINGLES = 250  # replicates of single seeds
SMALL, SPARSE = 2**17, 0.05  # numbers of a matrix: with more, and fewer samples than this share, it is stored sparse
AT_ONCE = 2**21  # numbers of the replicates that are computed at once
FEWEST, MOST = 200, 2**27  # replicates, and numbers of all replicates of one quantity
ENDS = (0.025, 0.975)
LEAST = 0.1  # of what samples of single seeds alone add to the variance over seeds; less is luck
Values = dict[str, Array]
Function = Callable[..., Values]


@dataclass(frozen=True)
class Resampling:
    """How test samples are drawn."""

    replicates: int = 1000
    """B"""
    seed: int = 0
    groups: Array | None = None
    """cluster of each sample by position in the stream; None: each sample is its own"""


@dataclass(frozen=True)
class Draws:
    """Draws of test samples that all learners of some runs share."""

    resampling: Resampling
    place: npt.NDArray[np.int64]
    """group of each cluster by its number; -1: no test has it"""
    groups: int
    """G"""

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """(B, G) how often each group is drawn."""
        return _weights(self.resampling.seed, self.resampling.replicates, self.groups)

    def group_of(self, samples: Array) -> npt.NDArray[np.int64]:
        """(N,) positions in the stream → their groups."""
        clusters = self.resampling.groups
        return self.place[samples if clusters is None else clusters[samples]]


@lru_cache(8)
def _weights(seed: int, replicates: int, groups: int) -> npt.NDArray[np.float32]:
    chosen = np.random.default_rng([seed, 1]).integers(groups, size=(replicates, groups))
    chosen += np.arange(replicates)[:, None] * groups
    return np.bincount(chosen.ravel(), minlength=replicates * groups).reshape(replicates, groups).astype(np.float32)


def clusters_of(runs: Sequence[Run], stream: Stream | None) -> Array | None:
    """As `groups_of`; without the stream, as the records of the runs say it."""
    return groups_in(runs) if stream is None else groups_of(stream)


def draws_of(runs: Sequence[Run], resampling: Resampling | None = None, stream: Stream | None = None) -> Draws:
    """The draws for runs of one stream. stream: gives the clusters if `resampling` is None. Raises IncompatibleStream
    for another stream than that of the runs."""
    if stream is not None:
        check_stream(runs, stream)
    resampling = resampling or Resampling(groups=clusters_of(runs, stream))
    tested = {id(a.sample): a.sample for run in runs for row in run.rows if (a := row.answers) is not None}
    samples = np.concatenate([np.zeros(0, np.int64), *tested.values()]).astype(np.int64)
    clusters = samples if resampling.groups is None else resampling.groups[samples]
    present = np.zeros(int(clusters.max(initial=-1)) + 1, bool)
    present[clusters] = True
    names = np.flatnonzero(present)
    joined = np.arange(len(names))
    if len(names) > GROUPS:
        joined = np.random.default_rng([resampling.seed, 0]).permutation(joined) % GROUPS
    place = np.full(len(present), -1, np.int64)
    place[names] = joined
    return Draws(resampling, place, max(1, min(GROUPS, len(names))))


@dataclass(frozen=True)
class Sums:
    """Of one learner. S seeds, G groups, Q quantities (right answers, samples, …) in cells of any shape."""

    parts: tuple[tuple[Any, ...], ...]
    """(Q, S) matrices (G, cells), arrays or sparse"""
    shape: tuple[int, ...]
    """of the cells"""
    draws: Draws
    clusters: Any
    """groups that an interval is from, one number or for each part of it: with few, percentiles are too narrow"""

    @property
    def seeds(self) -> int:
        """S."""
        return len(self.parts[0])

    @cached_property
    def total(self) -> Floats:
        """(Q, S, *shape) of all groups."""
        whole = [[np.asarray(part.sum(0), np.float64).reshape(self.shape) for part in of] for of in self.parts]
        return np.stack([np.stack(of) for of in whole])

    def weighted(self, weights: Array, seeds: slice | None = None) -> list[Array]:
        """weights (B, G) → Q arrays (B, *shape), of all seeds together, or (k, B, *shape), of each of some seeds."""
        chosen = [part for of in self.parts for part in (of[seeds] if seeds else [sum(of[1:], of[0])])]
        alike = {id(part): part for part in chosen}
        stack = np.hstack if all(isinstance(part, np.ndarray) for part in chosen) else sparse.hstack
        once = dict(zip(alike, np.split(weights @ stack([*alike.values()]), len(alike), 1), strict=True))
        whole = np.stack([once[id(part)] for part in chosen])
        whole = whole.reshape(len(self.parts), -1, len(weights), *self.shape)
        return list(whole if seeds else whole[:, 0])


def summed(
    parts: Sequence[Sequence[tuple[Answers, Array]]], shape: tuple[int, ...], draws: Draws, clusters: Any = None
) -> Sums:
    """Right answers and samples. parts: for each seed, and each part of its tests, the answers (N,) and their cells
    (N,), numbers below the product of `shape`. clusters: as in `Sums`; None: all groups that have a sample."""
    size, there = (draws.groups, int(np.prod(shape))), np.zeros(draws.groups, bool)
    alike: dict[tuple[int, ...], tuple[Array, Array, Any]] = {}  # seeds with the same tests have equally many samples
    matrices = []
    for tests in parts:
        key = tuple(id(one) for answers, cell in tests for one in (answers.sample, cell))
        if key not in alike:
            rows = np.concatenate([draws.group_of(answers.sample) for answers, _ in tests])
            cells = np.concatenate([cell for _, cell in tests])
            alike[key] = rows, cells, _matrix(rows, cells, np.ones(len(rows), bool), size)
            there[rows] = True
        rows, cells, samples = alike[key]
        right = np.concatenate([answers.right for answers, _ in tests])
        matrices.append((_matrix(rows, cells, right, size), samples))
    return Sums(tuple(zip(*matrices, strict=True)), shape, draws, int(there.sum()) if clusters is None else clusters)


def _matrix(rows: Array, cells: Array, values: Array, shape: tuple[int, int]) -> Any:
    """(G, cells) sums of values (N,), float32; sparse where it is large and most are 0."""
    size = shape[0] * shape[1]
    if size <= SMALL or len(values) > SPARSE * size:
        return np.bincount(rows * shape[1] + cells, values, size).reshape(shape).astype(np.float32)
    some = values != 0
    return sparse.coo_matrix((values[some].astype(np.float32), (rows[some], cells[some])), shape).tocsr()


@dataclass(frozen=True)
class Drawn:
    """A value (...) and what it is with other test samples and other seeds.

    Its variance has two parts: that over samples, drawn, and that over seeds, s² / S. The latter has in it what samples
    of single seeds add, v / S, which the former has, too; it is counted once. Of two seeds it is counted twice: one
    degree of freedom cannot separate them. Intervals hold what `bands.p_of` does not reject.
    """

    value: Array
    samples: Array
    """(B, ...) with other samples and all seeds"""
    seeds: Array
    """(S, ...) of each seed alone"""
    single: Array
    """(k, S, ...) of each seed alone with other samples; of one seed k = 0"""
    clusters: Any
    """as in `Sums`"""

    def variances(self, squares: Callable[[Array], Array] = lambda d: (d**2).sum(0)) -> tuple[Array, Array, Array]:
        """The variance over samples, and of the mean over seeds s² / S and v / S. squares: (K, ...) deviations → sums
        of their squares, or of those of their differences (`of_pairs`)."""
        scale = self.clusters / np.maximum(self.clusters - 1, 1)
        of_samples, count = squares(deviations(self.samples)) * scale, len(self.seeds)
        if count == 1:
            return of_samples, np.zeros_like(of_samples), np.zeros_like(of_samples)
        apart = deviations(self.single)  # of each seed, over replicates
        apart = (apart - apart.mean(1, keepdims=True)).reshape(-1, *apart.shape[2:])
        return of_samples, squares(deviations(self.seeds)) / count, squares(apart) / ((count - 1) * count) * scale

    def half(self) -> Array:
        """Half the widths of symmetric 95 % intervals."""
        return half_of(*combined(*self.variances(), len(self.seeds)), self.clusters, len(self.seeds))

    def band(self) -> Band:
        """95 % intervals: percentiles over samples, and what seeds add to each side; NaN where a value is not known."""
        value, (of_samples, of_seeds, of_single) = np.asarray(self.value, np.float64), self.variances()
        scale, ends = self.clusters / np.maximum(self.clusters - 1, 1), quantiles(self.samples, ENDS)
        parts = np.stack([of_samples, *(scale * ((end - value) / Z) ** 2 for end in ends)])
        total, by_seeds = combined(parts, of_seeds, of_single, len(self.seeds))
        half = half_of(total[1:], by_seeds[0], self.clusters, len(self.seeds))
        return Band(value, *np.where(np.isnan(value), np.nan, value + np.stack([-half[0], half[1]])))

    def of_share(self) -> Band:
        """95 % intervals of shares, as Wilson's of as many samples as give this variance; symmetric where it is 0. Not
        known from a single cluster, which says nothing of others."""
        value, half = np.asarray(self.value), np.where(np.asarray(self.clusters) > 1, self.half(), np.nan)
        spread = value * (1 - value)
        n = Z**2 * spread / np.where((half > 0) & (spread > 0), half, np.nan) ** 2
        ends = zip((-half, half), wilson(value, n), strict=True)
        return Band(value, *(np.where(np.isnan(n), value + far, end) for far, end in ends))

    def widened(self) -> Array:
        """(B, ...) replicates, as far from the value as few clusters and other seeds take them."""
        plain = (deviations(self.samples) ** 2).sum(0)
        factor = self.half() / (Z * np.sqrt(np.where(plain > 0, plain, np.inf)))
        return np.asarray(self.value + (self.samples - self.value) * factor)


def combined(of_samples: Array, of_seeds: Array, of_single: Array, seeds: int) -> tuple[Array, Array]:
    """The variance of a mean over seeds from its parts (see `Drawn.variances`), and the share of it that seeds make; of
    two seeds, the share of the error."""
    rest = of_samples  # what s² has not
    if seeds > 2:
        rest = np.maximum(0.0, of_samples - of_single) + np.maximum(0.0, of_single - of_seeds)
    total, least = rest + of_seeds, np.maximum(of_seeds, LEAST * of_single)  # seeds that agree by luck
    return total, np.minimum(1, least / np.where(total > 0, total, 1)) ** (0.5 if seeds == 2 else 1)


def of_pairs(values: Array) -> Array:
    """(K, L) → (L, L) sums of squared differences."""
    products = values.T @ values
    squares = np.diag(products)
    return np.maximum(0.0, squares[:, None] + squares[None, :] - 2 * products)


def drawn(f: Function, of: Sums, each: bool = False) -> dict[str, Drawn]:
    """What a function of the sums is, with other samples and seeds. f: Q arrays (..., *shape) → arrays (..., …) by
    name; NaN where a draw has no sample of a test. each: the value is the mean of the function over seeds; else the
    function of all seeds together."""
    seeds, total = of.seeds, of.total
    weights = of.draws.weights[: max(FEWEST, MOST // max(1, total[0, 0].size))]
    few = weights if each else weights[: max(2, min(SINGLES, len(weights)) // seeds)]
    with np.errstate(divide="ignore", invalid="ignore"), one_blas_thread():
        exact = f(*np.concatenate([total.sum(1, keepdims=True), total], 1))
        single = _evaluated(f, of, few, each=True) if each or seeds > 1 else {}
        whole = {} if each else _evaluated(f, of, weights, each=False)
    numbers = {}
    for name, value in exact.items():
        of_seeds = np.moveaxis(single[name], 0, 1) if single else np.zeros((0, *value[1:].shape))
        samples = of_seeds.mean(1) if each else whole[name]
        numbers[name] = Drawn(value[1:].mean(0) if each else value[0], samples, value[1:], of_seeds, of.clusters)
    return numbers


def _evaluated(f: Function, of: Sums, weights: Array, each: bool) -> Mapping[str, Array]:
    """f of all replicates, (B, …), or of those of each seed, (S, B, …), computed in blocks that fit into a cache."""
    at_once = max(1, AT_ONCE // max(1, int(np.prod(of.shape))))
    step = max(1, at_once // max(1, len(weights)))
    blocks = [weights[low : low + at_once] for low in range(0, len(weights), at_once)]
    if not each:
        return _joined([f(*of.weighted(block)) for block in blocks], 0)
    groups = [slice(low, low + step) for low in range(0, of.seeds, step)]
    return _joined([_joined([f(*of.weighted(block, of_seeds)) for block in blocks], 1) for of_seeds in groups], 0)


def _joined(blocks: Sequence[Mapping[str, Array]], axis: int) -> Mapping[str, Array]:
    return {name: np.concatenate([block[name] for block in blocks], axis) for name in blocks[0]}
