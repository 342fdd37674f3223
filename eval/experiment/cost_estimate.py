"""Time estimate of a grid before it starts: samples that training processes, times their arithmetic, divided by this
machine's rate of matrix products; and what runs in the same folder took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import numpy as np

from driftline.eval import rows as row_files
from driftline.eval.experiment.learner_spec import spec_of
from driftline.eval.learner import Learner
from driftline.eval.training.sgd_learner import NetworkLearner
from driftline.stream_builder.stream import Stream

SHARE = 0.75  # share of that rate that training reaches (benchmarks/clear_grid.py, bench_mlp.py)
HALF = 1.6  # speed-up of bfloat16 (same benchmarks)
ENOUGH = 10  # finished runs that say more than SHARE and HALF
OF_ONE = 3  # of one learner; the first run of a process has its libraries to load

Past = Sequence[tuple[Learner, float]]  # finished runs: the learner with its settings, and its CPU seconds


def product_rate(size: int = 768) -> float:
    """Operations per second of float32 matrix products on one thread, best of three."""
    import torch

    from driftline.curate.core.executor.torch_threads import one_thread

    a = torch.ones(size, size)
    with one_thread():
        a @ a
        times = []
        for _ in range(3):
            clock = time.perf_counter()
            a @ a
            times.append(time.perf_counter() - clock)
    return 2.0 * size**3 / min(times)


def finished_runs(folder: Path, stream: Stream) -> Past:
    """Of a folder of runs of one protocol, those on this stream whose settings nothing chose."""
    past = []
    for path in sorted(folder.glob("*/run.json")):
        with suppress(Exception):  # a damaged record, a learner that is gone: `evaluate` says so
            about = row_files.record(path.parent)
            if (about["stream"]["name"], about["steps"]) == (stream.name, len(stream.steps)):
                past.append((spec_of(about["learner"])(**about["settings"]), float(about["seconds"])))
    return past


def core_seconds(
    stream: Stream, learners: Sequence[Learner], sizes: Sequence[int] | None, past: Past = ()
) -> list[float | None]:
    """Time of one run of each learner; None where nothing says how long it takes.

    sizes: training samples of each step; None: not known. past: finished runs. A learner that ran with the same
    settings takes the median of those runs. From ENOUGH runs on, the others take a fixed time and a multiple of their
    arithmetic, as the finished ones did, and as much more or less as OF_ONE or more runs of the same learner with other
    settings did; before, the arithmetic of training alone. A learner without a network says nothing of its arithmetic.
    """
    alike: dict[str, list[float]] = {}
    for learner, seconds in past:
        alike.setdefault(_key(learner), []).append(seconds)
    rate = product_rate() if sizes is not None else 1.0
    fixed, factor = 0.0, 1.0
    off: dict[type[Learner], list[float]] = {}  # what runs took, of what the line through all runs says
    if sizes is not None and len(past) >= ENOUGH:
        work = [_work(stream, learner, sizes, rate) for learner, _ in past]
        fixed, factor = fitted_line(work, [seconds for _, seconds in past])
        for (learner, seconds), amount in zip(past, work, strict=True):
            if (expected := fixed + factor * amount) > 0:
                off.setdefault(type(learner), []).append(seconds / expected)
    estimates: list[float | None] = []
    for learner in learners:
        own = off.get(type(learner), [])
        if (key := _key(learner)) in alike:
            estimates.append(median(alike[key]))
        elif sizes is None or not (isinstance(learner, NetworkLearner) or len(own) >= OF_ONE):
            estimates.append(None)
        else:
            expected = fixed + factor * _work(stream, learner, sizes, rate)
            estimates.append(None if np.isnan(expected) else expected * (median(own) if len(own) >= OF_ONE else 1.0))
    return estimates


def _key(learner: Learner) -> str:
    return f"{type(learner).__module__}:{type(learner).__qualname__} {sorted(learner.settings().items())}"


def _work(stream: Stream, learner: Learner, sizes: Sequence[int], rate: float) -> float:
    """Seconds of a learner's training by its arithmetic; 0 if it trains no network, NaN if not known."""
    if not isinstance(learner, NetworkLearner):
        return 0.0
    operations = learner.operations(int(np.prod(stream.x_shape)), len(stream.classes))
    return (
        learner.samples_trained(sizes) * operations / (rate * SHARE * (HALF if learner.precision == "bfloat16" else 1))
    )


def fitted_line(work: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """(fixed, factor), neither negative: fixed + factor · work has the least squares of errors relative to `seconds`.

    Work that is NaN is left out. Work that is all about the same cannot tell one from the other: all of `seconds` is
    due to it. Seconds that do not follow work of different amounts say nothing of the factor: it is 1.
    """
    x, y = np.asarray(work, float), np.maximum(np.asarray(seconds, float), 1e-3)  # records have milliseconds
    x, y = x[~np.isnan(x)], y[~np.isnan(x)]
    if not len(x):
        return 0.0, 1.0
    if x.min() > x.max() / 2:
        return 0.0, float(np.median(y / x))
    each = 1 / y
    flat = len(x) - each.sum() ** 2 / (each**2).sum()  # squares of errors of the best time that is always the same
    columns = np.stack([x / max(x.max(), 1e-9) * each, each], axis=1)
    best = np.linalg.lstsq(columns, np.ones(len(x)))[0]
    if (best < 0).any():  # the better of those with one of both
        ones = columns.sum(axis=0) / np.maximum((columns**2).sum(axis=0), 1e-300)
        best = min(np.diag(ones), key=lambda pair: float(np.linalg.norm(columns @ pair - 1)))
    (factor, fixed), error = best, float(np.linalg.norm(columns @ best - 1))
    if error**2 > flat / 2:
        return float(np.median(np.maximum(y - x, 0))), 1.0
    return float(fixed), float(factor / x.max())
