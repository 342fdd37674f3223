"""How much shift: distances from each step's training data to the last step's test data, and label statistics.

[Seq-to-Final, sec. 2.3, table 5]: PCA on the training data of all steps, with as many components as explain 95 % of the
variance, at most 100; exact optimal transport with squared Euclidean cost; square root. The covariate distance uses all
samples; the conditional distance is the mean over labels, weighted by their frequency in the test data. Both are
divided by the last step's own distance from training to test data. Other distances are not divided.

Two random samples of one distribution have a distance, too: `driftline.stream_builder.measures.floors`.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.measures import DISTANCES
from driftline.stream_builder.measures.distances import ITERATIONS, check_points, class_priors, wasserstein2
from driftline.stream_builder.measures.label_correlation import correlation_of_stream
from driftline.stream_builder.splitting import shared_with_training
from driftline.stream_builder.stream import Split, Stream

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Fidelity = Literal["clean", "paper-code"]
Distance = Callable[..., float]  # (n, d) and (m, d) points
COMPONENTS, VARIANCE = 100, 0.95  # of the PCA, at most
THREADS = 4  # each needs the memory of one transport
MOST, FEWEST = 10_000, 500  # samples of a split: exact transport takes minutes beyond; fewer say little
VALUES = 200_000_000  # of all splits together: 0.8 GB as float32
LARGEST = 4_096  # edge of a matrix that is decomposed: seconds
RANK = 1e-6  # of the largest eigenvalue, what float32 cannot tell from 0
DEFAULT_ITERATIONS = 100_000  # the solver's default, which gave the paper's covariate values


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
    stopped = (fidelity or stream.facts.get("fidelity", "clean")) == "paper-code"
    return partial(wasserstein2, iterations=DEFAULT_ITERATIONS if stopped else ITERATIONS)


def by_class(distance: Distance, a: Floats, y: Labels, b: Floats, z: Labels) -> float:
    """Mean distance of the classes that both sides have, by their frequency on the second. a (n, d), y (n,)."""
    labels, counts = np.unique(z[np.isin(z, y)], return_counts=True)
    total, n = 0.0, int(counts.sum())
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        total += count / n * distance(a[y == label], b[z == label])
    return total


def distances(stream: Stream, names: Sequence[str], seed: int = 0) -> dict[str, list[float]]:
    """Name of a distance → its values from each step's training data to the last step's test data, after PCA.

    names: registered, or package.module:Name. Raises UnknownName, BadPlugin, IncompatibleStream, BadArray.
    """
    functions = {name: DISTANCES.resolve(name) for name in names}
    trains, test = train_and_test(stream)
    points, target = project(trains, test, 1.0)
    for p in points:
        check_points(p, target)
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
        f"{shared:.1%} of the last step's test samples share an uploader, or are near copies of, a training sample: "
        "distances to them, above all the last step's own, are too small."
    )


def thinned(stream: Stream, most: int, edge: int = 16) -> Stream:
    """At most `most` evenly spaced samples of each split, as vectors; of images, about `edge` × `edge` pixels."""

    def thin(split: Split) -> Split:
        part = _evenly(split, most)
        x = np.asarray(part.x)
        if x.ndim == 4:
            x = x[:, :: -(-x.shape[1] // edge), :: -(-x.shape[2] // edge)]
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
