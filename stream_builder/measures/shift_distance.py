"""How much shift: distances from each step's training data to the last step's test data, and label statistics.

[Seq-to-Final, sec. 2.3, table 5]: PCA on the training data of all steps, with as many components as explain 95 % of the
variance, at most 100; exact optimal transport with squared Euclidean cost; square root. The covariate distance uses all
samples; the conditional distance is the mean over labels, weighted by their frequency in the test data. Both are
divided by the last step's own distance from training to test data. Other distances are not divided.

Two random samples of one distribution have a distance, too: the floor that chance alone gives is the distance between
two random parts of the samples.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures import DISTANCES
from driftline.stream_builder.measures.label_correlation import correlation_of_stream
from driftline.stream_builder.splitting import shared_with_training
from driftline.stream_builder.stream import Split, Stream

Floats = npt.NDArray[np.float64]
DIRECTIONS = 500  # of sliced distances
ITERATIONS = 20_000_000  # at most
STOPPED = 100_000  # the solver's default, before the optimum at the paper's sizes: it gave the paper's covariate values


def wasserstein2(a: Floats, b: Floats, seed: int = 0, exact: bool = True) -> float:
    """Exact optimal transport: n m memory, minutes beyond 10,000 × 10,000.

    √(min Σ γ ‖a − b‖²) with uniform weights; time is about (n + m)³ at worst. exact: False stops the solver where the
    reference did, before its optimum [spec, section 5]. Raises IncompatibleStream where ITERATIONS do not reach it.
    """
    import ot

    warnings.filterwarnings("ignore", "numItermax", module="ot")  # the solver stops: asked for, or said below
    cost, most = ot.dist(np.asarray(a, np.float64), np.asarray(b, np.float64)), ITERATIONS if exact else STOPPED
    weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
    value, facts = ot.emd2(weights[0], weights[1], cost, numItermax=most, log=True)
    if exact and facts["warning"]:
        problem = f"The exact distance of {len(a):,} and {len(b):,} samples was not found in {most:,} iterations."
        raise IncompatibleStream(problem, "", "Use driftline stream measure --distance sliced.")
    return float(np.sqrt(value))


def sliced(a: Floats, b: Floats, seed: int = 0, directions: int = DIRECTIONS) -> float:
    """Transport along 500 random directions: seconds for millions of samples.

    √ of the mean W2² over the directions [Bonneel et al. 2015]. Cost: (n + m)(d + log n) per direction.
    """
    axes = _axes(a.shape[1], seed, directions)
    return _of_columns(a @ axes, b @ axes)


def _of_columns(a: Floats, b: Floats) -> float:
    """√ of the mean W2² of (n, k) and (m, k), one column at a time."""
    quantiles = (np.arange(max(len(a), len(b))) + 0.5) / max(len(a), len(b))
    places = (np.maximum(np.ceil(len(points) * quantiles - 1), 0).astype(np.int64) for points in (a, b))
    left, right = (np.sort(points, axis=0)[at] for points, at in zip((a, b), places, strict=True))
    return float(np.sqrt(((left - right) ** 2).mean()))


@lru_cache(maxsize=1)  # a floor asks for the same ones at each step
def _axes(dimensions: int, seed: int, directions: int) -> Floats:
    """(d, directions) random unit vectors."""
    axes = rng_for(seed, "sliced").normal(size=(dimensions, directions))
    return axes / np.linalg.norm(axes, axis=0, keepdims=True)


def class_priors(y: npt.NDArray[np.int64], z: npt.NDArray[np.int64], classes: int) -> float:
    """Total variation distance between the class frequencies of two sets of labels: 0 equal, 1 disjoint."""
    p, q = (np.bincount(v, minlength=classes) / max(1, len(v)) for v in (y, z))
    return float(np.abs(p - q).sum() / 2)


Labels = npt.NDArray[np.int64]
Fidelity = Literal["clean", "paper-code"]
Distance = Callable[..., float]  # (n, d) and (m, d) points
COMPONENTS, VARIANCE = 100, 0.95  # of the PCA, at most
THREADS = 4  # each needs the memory of one transport
MOST, FEWEST = 10_000, 500  # samples of a split: exact transport takes minutes beyond; fewer say little
VALUES = 200_000_000  # of all splits together: 0.8 GB as float32
LARGEST = 4_096  # edge of a matrix that is decomposed: seconds
RANK = 1e-6  # of the largest eigenvalue, what float32 cannot tell from 0


def measure(stream: Stream, fidelity: Fidelity | None = None) -> dict[str, Any]:
    """{"covariate": [d(0, T) … d(T-1, T)], "conditional": […]}, each divided by d(T, T), from training to test data.

    fidelity: "paper-code" stops the solver where the reference did, before its optimum [spec, section 5]; None: the
    stream's own. Cost: O(n m) memory, and minutes beyond about 10,000 × 10,000 samples. Raises IncompatibleStream.
    """
    distance = transport(stream, fidelity)
    trains, test = train_and_test(stream)
    points, target = project(trains, test, VARIANCE)
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:  # the solver runs without Python's lock
        covariate = list(pool.map(lambda p: distance(p, target), points))
    for train in trains:
        if len(lacking := np.setdiff1d(test.y, train.y)):
            raise IncompatibleStream(
                f"A step of {stream.name!r} has no training sample of class {lacking[0]}.",
                "Expected all classes in all steps.",
                "Use driftline stream measure --distance w2.",
            )
    conditional = [by_class(distance, p, train.y, target, test.y) for p, train in zip(points, trains, strict=True)]
    return {
        "covariate": [c / covariate[-1] for c in covariate[:-1]],
        "conditional": [c / conditional[-1] for c in conditional[:-1]],
    }


def transport(stream: Stream, fidelity: Fidelity | None) -> Distance:
    """Exact, or stopped where the reference stopped."""
    return partial(wasserstein2, exact=(fidelity or stream.facts.get("fidelity", "clean")) != "paper-code")


def by_class(distance: Distance, a: Floats, y: Labels, b: Floats, z: Labels) -> float:
    """Mean distance of the classes that both sides have, by their frequency on the second. a (n, d), y (n,)."""
    labels, counts = np.unique(z[np.isin(z, y)], return_counts=True)
    total, n = 0.0, int(counts.sum())
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        total += count / n * distance(a[y == label], b[z == label])
    return total


def distances(stream: Stream, names: Sequence[str], seed: int = 0) -> dict[str, list[float]]:
    """Name of a distance → its values from each step's training data to the last step's test data, after PCA.

    names: registered, or package.module:Name. Raises UnknownName, BadPlugin, IncompatibleStream.
    """
    functions = {name: DISTANCES.resolve(name) for name in names}
    trains, test = train_and_test(stream)
    points, target = project(trains, test, 1.0)
    return {name: [float(distance(p, target, seed)) for p in points] for name, distance in functions.items()}


def sharing(stream: Stream) -> str:
    """A warning where test samples of the last step share groups with training samples, so that distances to them are
    too small, above all the last step's own, which the others are divided by or compared with; "" where groups are not
    shared or not known."""
    *earlier, last = stream.steps
    trained = [replace(step, splits={"train": step["train"]}) for step in earlier if "train" in step.splits]
    shared = shared_with_training([*trained, last])
    if not shared:
        return ""
    return (
        f"{shared:.1%} of the last step's test samples share an uploader, or are near-duplicates of, a training "
        "sample: distances to them, above all the last step's own, are too small."
    )


def thinned(stream: Stream, most: int) -> Stream:
    """At most `most` evenly spaced samples of each split, as vectors; of images, about EDGE × EDGE pixels."""

    def thin(split: Split) -> Split:
        part = _evenly(split, most)
        x = np.asarray(part.x)
        if x.ndim == 4:
            x = x[:, :: -(-x.shape[1] // EDGE), :: -(-x.shape[2] // EDGE)]
        return Split(x.astype(np.float32).reshape(len(part), -1), part.y, part.ids, group=part.group)

    steps = [replace(s, splits={name: thin(split) for name, split in s.splits.items()}) for s in stream.steps]
    return replace(stream, steps=steps, oracle=None)


def _evenly(split: Split, most: int) -> Split:
    """At most `most` samples of a split, evenly spaced."""
    return split.take(np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).astype(np.int64)))


def label_statistics(stream: Stream) -> dict[str, Any]:
    """Distance of class frequencies from each step to the last, and `correlation_of_stream`."""
    labels = [step["train"].y for step in stream.steps]
    priors = [class_priors(y, labels[-1], len(stream.classes)) for y in labels[:-1]]
    return {"priors": priors, **correlation_of_stream(stream)}


def train_and_test(stream: Stream) -> tuple[list[Split], Split]:
    """Training splits of all steps and the last step's test split. Raises IncompatibleStream."""
    trains = [step["train"] for step in stream.steps]
    if len(trains) < 2:
        raise IncompatibleStream(f"The stream {stream.name!r} has one step.", "Expected at least two.")
    test = stream.steps[-1]["test"]
    if not len(test) or not all(len(t) for t in trains):
        raise IncompatibleStream(f"The stream {stream.name!r} has an empty split.", "Expected samples in every step.")
    return trains, test


def project(trains: Sequence[Split], test: Split, variance: float) -> tuple[list[Floats], Floats]:
    """Training points of each step and the test points, on the principal axes of the training data. Where neither side
    of the training matrix is at most LARGEST, the axes are those of evenly spaced LARGEST samples."""
    flat = [np.asarray(s.x, np.float32).reshape(len(s), -1) for s in (*trains, test)]
    every = np.concatenate(flat[:-1])
    if min(every.shape) > LARGEST:
        every = every[np.linspace(0, len(every) - 1, LARGEST).astype(np.int64)]
    mean, axes = principal(every, COMPONENTS, variance)
    *points, target = ((f - mean) @ axes for f in flat)
    return points, target


def affordable(stream: Stream) -> tuple[Stream, int | None]:
    """A stream whose distances take minutes and a gigabyte at most, and how many evenly spaced samples it keeps of each
    split; None: the stream is small enough, and is returned itself."""
    trains, test = train_and_test(stream)
    width = int(np.prod(stream.x_shape))
    most = min(MOST, max(FEWEST, VALUES // (width * (len(trains) + 1))))
    if max(map(len, [*trains, test])) <= most:
        return stream, None

    last = len(stream.steps) - 1
    steps = [
        replace(s, splits={name: _evenly(s[name], most) for name in (("train", "test") if i == last else ("train",))})
        for i, s in enumerate(stream.steps)
    ]
    return replace(stream, steps=steps, oracle=None), most


def principal(x: npt.NDArray[np.float32], components: int, variance: float) -> tuple[Any, Any]:
    """Mean (D,) and principal axes (D, k) of x (N, D): as few as explain `variance`, at most `components`.

    The smaller one of the matrices of products is decomposed: D × D, or N × N, whose axes are combinations of samples.
    """
    from scipy.linalg import blas, eigh

    mean = x.mean(0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    of_samples = len(x) < x.shape[1]
    upper = blas.ssyrk(1.0, centred if of_samples else centred.T).astype(np.float64)  # half of a full matrix
    d = len(upper)
    values, vectors = eigh(upper, lower=False, subset_by_index=[max(0, d - components), d - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    enough = int(np.searchsorted(np.cumsum(values) / np.trace(upper), variance)) + 1
    if not of_samples:
        return mean, vectors[:, :enough]
    enough = min(enough, max(1, int((values > RANK * values[0]).sum())))  # beyond the rank, directions are noise
    lengths = np.sqrt(np.maximum(values[:enough], np.finfo(np.float64).tiny))
    return mean, (centred.T @ (vectors[:, :enough] / lengths).astype(np.float32)).astype(np.float64)


DIVISIONS, FEWEST_DIVISIONS = 200, 20  # random ones; of fewer, none is so rare as one in twenty
PAIRS, PAIRS_OF_PAGE = 20_000_000, 4_000_000  # of points, of all divisions: about ten and two seconds
SLICED = 20  # pairs that take as long as a point along random directions
FEWEST_GROUPS = 10  # on both sides together
THINNED, EDGE = 200, 16  # samples of a step that a page measures, and pixels of an image's edge


def floors(
    stream: Stream, names: Sequence[str], fidelity: Fidelity | None = None, seed: int = 0, pairs: int = PAIRS
) -> dict[str, Any]:
    """{"floor": name of a measure → a value for each of its steps that 95 % of random divisions stay below, None if it
    is not known; "floor_because": name → how many divisions, or why it is not known}.

    A division mixes the step's training samples with the last step's test samples and deals them out again: as many
    tests as there were, groups together. Without drift, one distance in twenty is above its floor, whatever the
    distance, the distribution and the sizes. Divisions of the last step alone would not do: in 20 dimensions or with
    heavy tails, exact transport passed them in 24 and 28 % of worlds without drift (80 each, 28 November 2026).

    names, fidelity: as of `measured`. pairs: of points that are looked at. Raises IncompatibleStream.
    """
    trains, test = train_and_test(stream)
    document: dict[str, Any] = {"floor": {}, "floor_because": {}}
    for name in names:
        parts = ["covariate", "conditional"] if name == "paper" else [name]
        steps = trains[:-1] if name == "paper" else trains
        work = sum(SLICED * (len(t) + len(test)) if name == "sliced" else len(t) * len(test) for t in steps)
        divisions = min(DIVISIONS, pairs // work)
        groups = [_groups(train, test) for train in steps]
        why = "" if divisions >= FEWEST_DIVISIONS else "it would take too long"
        why = why if min(len(np.unique(of)) for of in groups) >= FEWEST_GROUPS else "a step has too few groups"
        if why:
            document["floor"] |= dict.fromkeys(parts)
            document["floor_because"] |= dict.fromkeys(parts, f"not known, {why}")
            continue
        points, target = project(trains, test, VARIANCE if name == "paper" else 1.0)
        of = _measures(name, stream, fidelity, seed)
        own = of(points[-1], trains[-1].y, target, test.y) if name == "paper" else [1.0]
        rank = int(np.ceil(0.95 * (divisions + 1))) - 1
        ends = []
        for t, group in zip(range(len(steps)), groups, strict=True):
            pool, y = np.concatenate([points[t], target]), np.concatenate([trains[t].y, test.y])
            if name == "sliced":  # once for all divisions
                pool = pool @ _axes(pool.shape[1], seed, DIRECTIONS)
            drawn = [of(pool[a], y[a], pool[b], y[b]) for a, b in _divisions(group, len(test), divisions, seed)]
            ends.append(np.sort(drawn, axis=0)[rank] / own)
        document["floor"] |= {part: [float(end[k]) for end in ends] for k, part in enumerate(parts)}
        document["floor_because"] |= dict.fromkeys(parts, f"95 % of {divisions} random divisions are below")
    return document


def _groups(train: Split, test: Split) -> Labels:
    """(n + m,) numbers of what stays together."""
    if train.group is None or test.group is None:
        return np.arange(len(train) + len(test))
    return np.asarray(np.unique(np.concatenate([train.group, test.group]), return_inverse=True)[1], np.int64)


def _divisions(group: Labels, tests: int, divisions: int, seed: int) -> Iterator[tuple[Labels, Labels]]:
    """Positions of the others and of `tests` samples, or a few more: a group is on one side."""
    rng = rng_for(seed, "floor", len(group), tests)
    for _ in range(divisions):
        of_group = rng.permutation(int(group.max()) + 1)[group]
        order = np.argsort(of_group, kind="stable")
        end = int(np.searchsorted(of_group[order], of_group[order[tests - 1]], side="right"))
        end = end if end < len(order) else int(np.searchsorted(of_group[order], of_group[order[-1]]))
        yield order[end:], order[:end]


def _measures(name: str, stream: Stream, fidelity: Fidelity | None, seed: int) -> Callable[..., list[float]]:
    """Function of points and labels of two sides → the values of a name's measures; "sliced": of points that were
    projected onto its directions."""
    if name == "paper":
        distance = transport(stream, fidelity)
        return lambda a, y, b, z: [distance(a, b), by_class(distance, a, y, b, z)]
    registered = (lambda a, b, _: _of_columns(a, b)) if name == "sliced" else DISTANCES.resolve(name)
    return lambda a, y, b, z: [float(registered(a, b, seed))]


class Drift(NamedTuple):
    """How far each step's training data are from the last step's test data."""

    values: list[float]
    """sliced Wasserstein distances"""
    floor: list[float] | None
    """of each, see `floors`"""
    because: str
    """how many divisions it has, or why there is none"""


def drift(stream: Stream) -> Drift:
    """Estimated on a few hundred samples of each step and, for images, a grid of pixels. Raises IncompatibleStream."""
    thin = thinned(stream, THINNED)
    found = floors(thin, ["sliced"], pairs=PAIRS_OF_PAGE)
    return Drift(distances(thin, ["sliced"])["sliced"], found["floor"]["sliced"], found["floor_because"]["sliced"])


def measured(
    stream: Stream, names: Sequence[str], labels: bool, fidelity: Fidelity | None, exact: bool,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Distances by name, "paper" among them; `labels`: their statistics; `warning`, and how many samples of each split
    of a large stream were used, unless exact."""
    # The transport library imports torch, JAX and others if it may: 400 MB; only arrays are given to it.
    for backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    used, sampled = (stream, None) if exact else affordable(stream)
    document: dict[str, Any] = measure(used, fidelity=fidelity) if "paper" in names else {}
    if others := [name for name in names if name != "paper"]:
        document |= distances(used, others, seed=seed)
    document |= floors(used, names, fidelity, seed) if names else {}
    document |= {"labels": label_statistics(stream)} if labels else {}
    document |= {"warning": note} if (note := sharing(stream)) else {}
    return document | ({} if sampled is None else {"samples_of_each_split": sampled})
