"""The two-layer head against a tuned loop and a tutorial's, and against products: python benchmarks/bench_mlp.py

The loops are bench_linear's. One thread, CPU seconds, variants interleaved, median of three after a round that does not
count. One JSON line.
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np
import torch
from peers import tuned_loop, users_loop

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.linear import LinearSettings, fit
from driftline.eval.engine.mlp import Mlp

N, D, H, C = 2310, 2048, 2048, 11  # one bucket of CLEAR-10, ResNet-50 features


def net() -> torch.nn.Module:
    """Two nn.Linear."""
    return torch.nn.Sequential(torch.nn.Linear(D, H), torch.nn.ReLU(), torch.nn.Linear(H, C))


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    rng = rng_for(0, "bench mlp")
    x = rng.normal(size=(N, D)).astype(np.float32) / np.float32(np.sqrt(D))
    y = rng.integers(C, size=N)
    a = torch.ones(2048, 2048)
    once = LinearSettings(lr=0.1, epochs=1)
    names = ("loop", "tuned", "tuned_half", "ours", "half", "gemm")
    times: dict[str, list[float]] = {name: [] for name in names}
    data = torch.from_numpy(x), torch.from_numpy(y)
    for number in range(4):
        for name, work in {
            "loop": lambda: users_loop(net(), *data, 0.1, 1),
            "tuned": lambda: tuned_loop(net(), *data, 0.1, 1, False),
            "tuned_half": lambda: tuned_loop(net(), *data, 0.1, 1, True),
            "ours": lambda: fit(Mlp.new(C, D, H, rng_for(0)), x, y, once, rng_for(1)),
            "half": lambda: fit(Mlp.new(C, D, H, rng_for(0), half=True), x, y, once, rng_for(1)),
            "gemm": lambda: a @ a,
        }.items():
            begun = time.process_time()
            work()
            if number:
                times[name].append(time.process_time() - begun)
    loop, tuned, tuned_half, ours, half, gemm = (statistics.median(times[name]) for name in names)
    flops = 2 * N * (2 * D * H + 3 * H * C)  # the inputs need no gradient
    found = {
        "share_of_sgemm": round((flops / ours) / (2 * 2048**3 / gemm), 3),
        "times_faster_than_tuned": round(tuned / ours, 2),
        "bfloat16_times_faster_than_tuned": round(min(tuned, tuned_half) / half, 2),
        "times_faster_than_tutorial": round(loop / ours, 2),
        "bfloat16_times_faster_than_tutorial": round(loop / half, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
