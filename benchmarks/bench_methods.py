"""Methods on the linear head against the same of Avalanche 0.6: seconds an epoch of a second bucket.

    python benchmarks/bench_methods.py [--rounds 7]

2,310 vectors of 2,048, 11 classes, batch 256, a memory of one bucket, A-GEM looking at all of it as CLEAR's does; one
thread, same data, same run, medians of CPU seconds. One JSON line a method, with how many times faster ours is. What
Avalanche costs is part of its figure; beside Naive is a tuned loop in plain torch (see bench_linear.py).
"""

import argparse
import json
import logging
import time
import warnings
from typing import Any

import numpy as np
import torch
from peers import tuned_loop

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.fused import has_half
from driftline.eval.integrations import Avalanche
from driftline.eval.learner import Learner, Task
from driftline.eval.learners import LEARNERS

N, D, C, BATCH = 2310, 2048, 11, 256
FEW, MANY = 2, 12  # epochs: what a bucket costs besides training falls out of the difference
PAIRS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "Naive": ("Naive", {}, "finetune", {}),
    "EWC": ("EWC", {"ewc_lambda": 0.4, "mode": "online", "decay_factor": 0.1}, "ewc", {}),
    "SI": ("SynapticIntelligence", {"si_lambda": 1e-4}, "si", {}),
    "LwF": ("LwF", {"alpha": [0.0, 1.0], "temperature": 1.0}, "lwf", {"ramp": 2}),
    "ER": ("Replay", {"mem_size": N}, "er", {}),
    "A-GEM": ("AGEM", {"patterns_per_exp": N, "sample_size": N}, "agem", {"sample": N}),
}


def theirs(kind: str, epochs: int, more: dict[str, Any]) -> Learner:
    """An Avalanche strategy on a linear head, no loggers."""

    def make(task: Task) -> Any:
        import avalanche.training.supervised as strategies
        from avalanche.evaluation.metrics import loss_metrics
        from avalanche.training.plugins import EvaluationPlugin

        model = torch.nn.Linear(D, C)
        return getattr(strategies, kind)(
            model=model, optimizer=torch.optim.SGD(model.parameters(), 1.0, momentum=0.9),
            criterion=torch.nn.CrossEntropyLoss(), train_mb_size=BATCH, train_epochs=epochs,
            evaluator=EvaluationPlugin(loss_metrics(stream=True), loggers=[]), **more,
        )  # fmt: skip

    return Avalanche(kind, make)


def second_bucket(learner: Learner, x: np.ndarray, y: np.ndarray) -> float:
    """CPU seconds of the second of two buckets."""
    learner.begin(Task(C, (D,)), rng_for(0))
    learner.learn(x, y)
    clock = time.process_time()
    learner.learn(x, y)
    return time.process_time() - clock


def loop_seconds(x: np.ndarray, y: np.ndarray, epochs: int, rounds: int) -> float:
    """CPU seconds of the tuned loop in float32, the median after a round that does not count."""
    data = torch.from_numpy(x), torch.from_numpy(y)
    taken = []
    for _ in range(rounds + 1):
        clock = time.process_time()
        tuned_loop(torch.nn.Linear(D, C), *data, 1.0, epochs, half=False)
        taken.append(time.process_time() - clock)
    return float(np.median(taken[1:]))


def main() -> None:
    """One line a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rng = rng_for(0, "methods")
    x = rng.normal(size=(N, D)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = rng.integers(0, C, N)
    # Without the hardware nobody chooses bfloat16, and one epoch of it takes minutes.
    ours = ("float32", "bfloat16") if has_half() else ("float32",)
    for name, (kind, more, mine, settings) in PAIRS.items():
        spent: dict[str, float] = {}
        for which in ("avalanche", *ours):
            taken: dict[int, float] = {}
            for epochs in (FEW, MANY):
                rounds = []
                for _ in range(given.rounds):
                    if which == "avalanche":
                        learner = theirs(kind, epochs, more)
                    else:
                        learner = LEARNERS[mine](epochs=epochs, precision=which, **settings)
                    rounds.append(second_bucket(learner, x, y))
                taken[epochs] = float(np.median(rounds))
            spent[which] = 1e3 * (taken[MANY] - taken[FEW]) / (MANY - FEW)
        if name == "Naive":
            few, many = (loop_seconds(x, y, epochs, given.rounds) for epochs in (FEW, MANY))
            spent["tuned_loop"] = 1e3 * (many - few) / (MANY - FEW)
        line = {"part": name, **{f"{k}_ms": round(v, 2) for k, v in spent.items()}}
        ratios = {which: round(spent["avalanche"] / spent[which], 1) for which in ours}
        if "tuned_loop" in spent:
            ratios["faster_than_tuned_loop"] = round(spent["tuned_loop"] / spent["float32"], 1)
        print(json.dumps(line | ratios), flush=True)


if __name__ == "__main__":
    main()
