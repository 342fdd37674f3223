"""Time estimate of a grid before it starts: samples that training processes, times their arithmetic, divided by this
machine's rate of matrix products."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from eval.learner import Learner
from eval.training.sgd_learner import NetLearner
from stream_builder.stream import Stream

SHARE = 0.75  # share of that rate that training reaches (benchmarks/clear_grid.py, bench_mlp.py)
HALF = 1.6  # speed-up of bfloat16 (same benchmarks)


def product_rate(size: int = 768) -> float:
    """Operations per second of float32 matrix products on one thread, best of three."""
    import torch

    from curate.core.torch_threads import one_thread

    a = torch.ones(size, size)
    with one_thread():
        a @ a
        times = []
        for _ in range(3):
            clock = time.perf_counter()
            a @ a
            times.append(time.perf_counter() - clock)
    return 2.0 * size**3 / min(times)


def core_seconds(stream: Stream, learners: Sequence[Learner], sizes: Sequence[int]) -> float | None:
    """Training time of one run of each learner; None if the arithmetic of a network is not known.

    sizes: training samples of each step.
    """
    width, rate, seconds = int(np.prod(stream.x_shape)), product_rate(), 0.0
    for learner in learners:
        if isinstance(learner, NetLearner):
            operations = learner.operations(width, len(stream.classes))
            if np.isnan(operations):
                return None
            faster = HALF if learner.precision == "bfloat16" else 1.0
            seconds += learner.samples_trained(sizes) * operations / (rate * SHARE * faster)
    return seconds
