"""Closed-form learners on a whole CLEAR matrix: seconds against those of its products alone and against the
formulations of SLDA's and RanPAC's authors, zero-shot answers against one product, and peak memory.

    python benchmarks/closed_form.py                     small
    python benchmarks/closed_form.py 10 10000 1024 100   the size that the limits are for: steps, samples, D, classes;
                                                         a fifth number: random features M of RanPAC, else 4 D

The products: x xᵀ of every training sample, W of every class times every test sample of every cell. The limits: 3 times
their time, and the data plus 2 D² float64. The authors' formulations, in torch float32 on the CPU: a covariance that is
updated sample by sample and a pseudo-inverse (tyler-hayes/Deep_SLDA); one product a step and 17 solutions of a penalty
grid (RanPAC/RanPAC), against our 4 to 10 with penalty=held-out, in float64. Each of their steps costs the same, so that
theirs are timed on the first one, times the steps. All are CPU seconds.

At the full size RanPAC cannot be 5 times as fast as its authors' code on a CPU, where float32 is twice as fast as
float64. "floor" is the time of its products alone, at this machine's rates and in the precisions that exact sums
need: float64 to learn, float32 to lift test samples, which both codes do after every step. Of the floor, 32 % are
sums of squares, 15 % lifts of training samples, 8 % solutions, 37 % lifts of test samples and 9 % their scores. With
float32 sums one sample after the other would not give what all at once give. With the paper's M = 10,000 the authors'
17 solutions weigh more.

Seen on 23 November 2026, CPU seconds of one thread of a busy AMD EPYC (family 25, model 17), at the full size: SLDA
1.18 and ridge 1.13 times the products, 1.9 D² of memory beside the data, zero-shot 1.17 times one product. SLDA is 42
times as fast as its authors' formulation. RanPAC with M = 4,096 is 4.3 times as fast, 3.0 with the penalty chosen. It
takes 80 seconds, the floor 75 to 82: about 4.5 is all there is. On small matrices: SLDA 108 times (3 steps of 4,000
samples, D = 1,024), RanPAC with M = 2,048 (3 steps of 3,000, D = 512) 5.7 times, with the penalty chosen 3.0 times.
From single products, M = 10,000 at the full size: floor 396 seconds, the authors' products 2,457, 6.2 times as long.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from driftline.eval.learner import Learner, Task
from driftline.eval.learners.ridge import Ranpac, Ridge
from driftline.eval.learners.slda import Slda
from driftline.eval.learners.zero_shot import ZeroShot
from driftline.eval.protocols.clear.loop import iid
from driftline.eval.training.closed_form import BLOCK, add_squares, solve
from driftline.stream_builder.stream import Split, Step, Stream


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
    clock = time.process_time()
    for step in steps:
        for _ in range(0, len(step["train"]), BLOCK):
            total = add_squares(total, rows)
    for _ in range(len(steps) + 1):
        for step in steps:
            for _ in range(0, len(step["test"]), BLOCK):
                np.matmul(rows, weights)
    return time.process_time() - clock


def authors_slda(stream: Stream, classes: int) -> float:
    """Seconds of the matrix, sample by sample: those of the first step, times the steps."""
    import torch

    width = stream.x_shape[0]
    means, counts, covariance = torch.zeros(classes, width), torch.zeros(classes), torch.ones(width, width)
    seen, clock = 0, time.process_time()
    for step in stream.steps[:1]:
        for x, k in zip(torch.from_numpy(step["train"].x), step["train"].y.tolist(), strict=True):
            off = x - means[k]
            covariance = (seen * covariance + torch.outer(off, off) * seen / (seen + 1)) / (seen + 1)
            means[k] += off / (counts[k] + 1)
            counts[k] += 1
            seen += 1
        weights = torch.linalg.pinv((1 - 1e-4) * covariance + 1e-4 * torch.eye(width)) @ means.T
        for other in stream.steps:
            (torch.from_numpy(other["test"].x) @ weights - 0.5 * (means.T * weights).sum(0)).argmax(1)
    return (time.process_time() - clock) * len(stream.steps)


def authors_ranpac(stream: Stream, classes: int, width: int) -> float:
    """Seconds of the matrix, with the penalty chosen on the last fifth of each step: as `authors_slda`."""
    import torch

    projection = torch.randn(stream.x_shape[0], width)
    right, square, ones = torch.zeros(width, classes), torch.zeros(width, width), torch.eye(width)
    clock = time.process_time()
    for step in stream.steps[:1]:
        h = torch.relu(torch.from_numpy(step["train"].x) @ projection)
        y = torch.nn.functional.one_hot(torch.from_numpy(step["train"].y), classes).float()
        right += h.T @ y
        square += h.T @ h
        part = len(h) * 4 // 5
        some, losses = h[:part].T @ h[:part], []
        for power in range(-8, 9):
            fitted = torch.linalg.solve(some + 10.0**power * ones, h[:part].T @ y[:part])
            losses.append(float(((h[part:] @ fitted - y[part:]) ** 2).mean()))
        weights = torch.linalg.solve(square + 10.0 ** (int(np.argmin(losses)) - 8) * ones, right)
        for other in stream.steps:
            (torch.relu(torch.from_numpy(other["test"].x) @ projection) @ weights).argmax(1)
    return (time.process_time() - clock) * len(stream.steps)


def floor_ranpac(stream: Stream, classes: int, width: int) -> float:
    """Seconds of RanPAC's products alone, in the precisions that exact sums need, at this machine's rates: one of each,
    times how often the matrix has it. No penalty is chosen."""
    rng, (n, d) = np.random.default_rng(0), (BLOCK, stream.x_shape[0])
    x, projection = rng.standard_normal((n, d)), rng.standard_normal((d, width))
    h, weights, square = rng.standard_normal((n, width)), np.ones((width, classes)), np.eye(width, order="F")
    short = x.astype(np.float32), projection.astype(np.float32)

    def seconds(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(3):
            clock = time.process_time()
            work()
            times.append(time.process_time() - clock)
        return min(times)

    blocks = [sum(-(-len(step[name]) // n) for step in stream.steps) for name in ("train", "test")]
    learned = seconds(lambda: np.matmul(x, projection)) + seconds(lambda: add_squares(square, h))
    answered = seconds(lambda: np.matmul(*short)) + seconds(lambda: np.matmul(h, weights))
    solved = seconds(lambda: solve(np.eye(width, order="F"), weights))
    return blocks[0] * learned + len(stream.steps) * (solved + blocks[1] * answered)


def zero_shot(stream: Stream, classes: int) -> float:
    """CPU time of zero-shot answers over that of one float32 product of the same test samples; the best of five."""
    learner = ZeroShot()
    learner.texts = np.random.default_rng(0).normal(size=(classes, stream.x_shape[0])).astype(np.float32)
    learner.silent = np.zeros(classes, bool)
    times = []
    for _ in range(5):
        clock = time.process_time()
        for step in stream.steps:
            learner.predict(step["test"].x)
        middle = time.process_time()
        for step in stream.steps:
            np.matmul(step["test"].x, learner.texts.T)
        times.append(((middle - clock), (time.process_time() - middle)))
    return min(a for a, _ in times) / max(min(b for _, b in times), 1e-9)


def ours(stream: Stream, learner: Learner, classes: int) -> float:
    """Seconds of the matrix."""
    clock = time.process_time()
    learner.begin(Task(classes, stream.x_shape), np.random.default_rng(0))
    for _ in iid(stream, learner):
        pass
    return time.process_time() - clock


def peak(stream: Stream, classes: int) -> int:
    """Most bytes beside the data, while SLDA learns and predicts; modules are imported before."""
    ours(made(1, 50, 4, 2), Slda(), 2)
    tracemalloc.start()
    learner = Slda()
    learner.begin(Task(classes, stream.x_shape), np.random.default_rng(0))
    for step in stream.steps:
        learner.learn_step(step.visible())
        learner.predict(step["test"].x)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def measured(steps: int, n: int, width: int, classes: int, features: int = 0) -> dict[str, Any]:
    """Seconds of each learner and of the products; bytes of the data, of the peak, and of what is small beside D²:
    sums, means and weights of C × D, blocks of samples. features: M of RanPAC; 0: 4 D."""
    features = features or 4 * width
    stream = made(steps, n, width, classes)
    data = sum(split.x.nbytes for step in stream.steps for split in step.splits.values())
    found: dict[str, Any] = {"products": products(stream, classes), "data": data}
    for name, learner in (("slda", Slda()), ("ridge", Ridge())):
        found[name] = ours(stream, learner, classes)
    found["authors"] = {"slda": authors_slda(stream, classes), "ranpac": authors_ranpac(stream, classes, features)}
    chosen = ours(stream, Ranpac(width=features, penalty="held-out"), classes)
    default = ours(stream, Ranpac(width=features), classes)
    found["faster"] = {
        "slda": found["authors"]["slda"] / found["slda"],
        "ranpac": found["authors"]["ranpac"] / default,
        "ranpac, penalty chosen": found["authors"]["ranpac"] / chosen,
    }
    found["floor"] = {"seconds": (least := floor_ranpac(stream, classes, features)), "ranpac": default / least,
                      "faster": found["authors"]["ranpac"] / least}  # fmt: skip
    found["zero_shot"] = zero_shot(stream, classes)
    found["memory"] = data + peak(stream, classes)
    found["small"] = 8 * (8 * classes * width + 6 * BLOCK * width + 4 * n * 8)
    return found


if __name__ == "__main__":
    size = [int(word) for word in sys.argv[1:]] or [5, 2000, 256, 20]
    result = measured(*size)
    result["ratio"] = {name: round(result[name] / result["products"], 2) for name in ("slda", "ridge")}
    width = max(size[2], 1024)  # in a narrow matrix the blocks of samples are as large as D²
    result["squares"] = round(peak(made(2, 1500, width, size[3]), size[3]) / (width**2 * 8), 2)
    print(json.dumps(result, indent=1))
