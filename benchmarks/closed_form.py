"""Closed-form learners on a whole CLEAR matrix: seconds against those of its products alone, and peak memory.

    python benchmarks/closed_form.py                     small
    python benchmarks/closed_form.py 10 10000 1024 100   the size that the limits are for: steps, samples, D, classes

The products: x xᵀ of every training sample, W of every class times every test sample of every cell. The limits: 3 times
their time, and the data plus 2 D² float64.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from typing import Any

import numpy as np

from eval.learner import Task
from eval.learners.ridge import Ridge
from eval.learners.slda import Slda
from eval.protocols.clear.loop import iid
from eval.training.closed_form import BLOCK, add_squares
from stream_builder.stream import Split, Step, Stream


def made(steps: int, n: int, width: int, classes: int) -> Stream:
    """Gaussian classes; 7 of 10 samples of a step are training data."""
    rng = np.random.default_rng(0)
    means = rng.normal(0, 0.3, (classes, width)).astype(np.float32)
    stream = []
    for t in range(steps):
        y = rng.integers(0, classes, n)
        x = means[y] + rng.standard_normal((n, width), np.float32)
        edge = n * 7 // 10
        splits = {"train": Split(x[:edge], y[:edge]), "test": Split(x[edge:], y[edge:])}
        stream.append(Step(t, str(t), splits))
    return Stream("gaussian", stream, [str(c) for c in range(classes)])


def products(stream: Stream, classes: int) -> float:
    """Seconds of the products alone, in float64."""
    steps = stream.steps
    rows = np.asarray(steps[0]["train"].x[:BLOCK], np.float64)
    weights = np.ones((rows.shape[1], classes))
    total = np.zeros((rows.shape[1],) * 2, order="F")
    clock = time.perf_counter()
    for step in steps:
        for _ in range(0, len(step["train"]), BLOCK):
            total = add_squares(total, rows)
    for _ in range(len(steps) + 1):
        for step in steps:
            for _ in range(0, len(step["test"]), BLOCK):
                np.matmul(rows, weights)
    return time.perf_counter() - clock


def measured(steps: int, n: int, width: int, classes: int) -> dict[str, Any]:
    """Seconds of each learner and of the products; bytes of the data, of the peak, and of what is small beside D²:
    sums, means and weights of C × D, blocks of samples."""
    stream = made(steps, n, width, classes)
    data = sum(split.x.nbytes for step in stream.steps for split in step.splits.values())
    found: dict[str, Any] = {"products": products(stream, classes), "data": data}
    for name, learner in (("slda", Slda()), ("ridge", Ridge())):
        clock = time.perf_counter()
        learner.begin(Task(classes, (width,)), np.random.default_rng(0))
        for _ in iid(stream, learner):
            pass
        found[name] = time.perf_counter() - clock
    tracemalloc.start()
    learner = Slda()
    learner.begin(Task(classes, (width,)), np.random.default_rng(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
        learner.predict(step["test"].x)
    found["memory"] = data + tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found["small"] = 8 * (8 * classes * width + 6 * BLOCK * width + 4 * n * 8)
    return found


if __name__ == "__main__":
    size = [int(word) for word in sys.argv[1:]] or [5, 2000, 256, 20]
    result = measured(*size)
    result["ratio"] = {name: round(result[name] / result["products"], 2) for name in ("slda", "ridge")}
    result["squares"] = round((result["memory"] - result["data"]) / (size[2] ** 2 * 8), 2)
    print(json.dumps(result, indent=1))
