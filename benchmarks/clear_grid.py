"""The linear grid of CLEAR's table 4 against its arithmetic, a tuned loop, a tutorial's, and Avalanche's own.

    python benchmarks/clear_grid.py [--epochs 100] [--seeds 1]

19 configurations on ten buckets of 2,310 + 990 vectors of 2,048 (rotating Gaussian classes), as `driftline eval` runs
them: buffers, permutations and the 10 × 10 evaluation included. Training is linear in epochs and seeds; the default
runs one of five seeds. CPU seconds of this process: those of further workers, which a fork server starts, could not be
counted. The loops (bench_linear's) and Avalanche's Naive do less, as they only train: their time for an epoch of a
bucket, warm, times the visits of the grid. The limit is the arithmetic, and then reading each sample once a visit. One
JSON line for float32 and one for bfloat16.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import product_rate, reading_rate, tuned_loop, users_loop

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.fused import has_half
from driftline.eval.experiment.learner_sets import TABLE_4
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

STEPS, N, TEST, D, C = 10, 2310, 990, 2048, 11
VISITS = 313e6  # sample visits of 19 configurations × 5 seeds × 100 epochs [specification of performance, section 1]


def stream(steps: int = STEPS, train: int = N, test: int = TEST, width: int = D) -> Stream:
    """Class means that turn 0.07 rad a bucket in a space of falling variance; unit length, as features are."""
    rng = rng_for(0, "grid")
    basis = rng.normal(size=(256, width)).astype(np.float32) * (np.arange(1, 257) ** -0.5)[:, None].astype(np.float32)
    means, way = rng.normal(size=(C, 256)), rng.normal(size=(C, 256))
    made = []
    for t in range(steps):
        now = np.cos(0.07 * t) * means + np.sin(0.07 * t) * way
        splits = {}
        for name, n in (("train", train), ("test", test)):
            y = rng.permutation(np.arange(n, dtype=np.int64) % C)
            x = np.maximum((now[y] + 2.2 * rng.normal(size=(n, 256))).astype(np.float32) @ basis, 0)
            splits[name] = Split(x / np.linalg.norm(x, axis=1, keepdims=True), y, np.arange(n).astype(np.str_))
        made.append(Step(t, str(t), splits))
    return Stream("grid", made, [str(c) for c in range(C)])


def loop(split: Split, epochs: int, way: Callable[..., None]) -> float:
    """CPU seconds an epoch of a bucket by one of the loops."""
    x, y = torch.from_numpy(np.array(split.x)), torch.from_numpy(np.array(split.y))
    way(torch.nn.Linear(D, C), x, y, 1.0, epochs)  # warm: torch imports its compiler with the first optimiser
    clock = time.process_time()
    way(torch.nn.Linear(D, C), x, y, 1.0, epochs)
    return (time.process_time() - clock) / epochs


def avalanche(split: Split, epochs: int, memory: int = 0) -> float:
    """CPU seconds an epoch of Avalanche's Naive on one bucket, tensors in memory, no loggers."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.utils import make_avalanche_dataset
    from avalanche.benchmarks.utils.data_attribute import DataAttribute
    from avalanche.evaluation.metrics import loss_metrics
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    labels = np.asarray(split.y).tolist()
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(np.array(split.x)), torch.tensor(labels))
    attributes = [DataAttribute(labels, "targets"), DataAttribute([0] * len(labels), "targets_task_labels", True)]
    (experience,) = benchmark_from_datasets(
        train=[make_avalanche_dataset(tensors, data_attributes=attributes)]
    ).train_stream
    model = torch.nn.Linear(D, C)
    quiet = EvaluationPlugin(loss_metrics(stream=True), loggers=[])
    strategy = Naive(model=model, optimizer=torch.optim.SGD(model.parameters(), 1.0, momentum=0.9), train_mb_size=256,
                     train_epochs=epochs, evaluator=quiet)  # fmt: skip
    clock = time.process_time()
    strategy.train(experience, num_workers=0)
    return (time.process_time() - clock) / epochs


def grid(data: Stream, where: Path, given: argparse.Namespace, precision: str, out: Path) -> dict[str, Any]:
    """The grid at a share of its epochs and seeds."""
    settings = {"epochs": given.epochs, "decay_after": round(0.6 * given.epochs), "precision": precision}
    clock, wall = time.process_time(), time.monotonic()
    found = evaluate(data, "clear-iid", list(TABLE_4), range(given.seeds), settings, out, stream_folder=where)
    spent, wall = time.process_time() - clock, time.monotonic() - wall
    visits = VISITS * given.epochs / 100 * given.seeds / 5
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    arithmetic = 4 * D * C * visits / product_rate(dtype)
    limit = arithmetic + D * dtype.itemsize * visits / reading_rate()
    first = data.steps[0]["train"]
    tuned = min(loop(first, 5, partial(tuned_loop, half=half)) for half in {False, precision == "bfloat16"})
    tutorial, _, peer = loop(first, 5, users_loop), avalanche(first, 1), avalanche(first, 5)  # the first one is warming
    by = {r["learner"]: round(100 * r["scores"]["in_domain"]["mean"], 1) for r in found["results"]}
    return {
        "part": precision,
        "share_of_the_grid": round(given.epochs / 100 * given.seeds / 5, 4),
        "core_s": round(spent, 1),
        "wall_s": round(wall, 1),
        "times_its_arithmetic": round(spent / arithmetic, 2),
        "times_its_limit": round(spent / limit, 2),
        "times_faster_than_tuned": round(tuned * visits / N / spent, 2),
        "times_faster_than_tutorial": round(tutorial * visits / N / spent, 2),
        "times_faster_than_avalanche_naive": round(peer * visits / N / spent, 2),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "in_domain": {name: by[name] for name in ("nap", "reservoir(alpha=1.0)", "cumulative")},
    }


def main() -> None:
    """Both precisions, or float32 alone where bfloat16 is not multiplied: that would take an hour."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        where = Path(name) / "stream"
        data = stream().save(where)
        for precision in ("float32", "bfloat16") if has_half() else ("float32",):
            print(json.dumps(grid(data, where, given, precision, Path(name) / precision)), flush=True)


if __name__ == "__main__":
    main()
