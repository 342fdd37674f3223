"""The linear head against a tuned loop and a tutorial's: python benchmarks/bench_linear.py

Tuned: tensors in memory, batches by index, autograd, fused SGD; for bfloat16 the faster of it in float32 and under
autocast. The tutorial's has a DataLoader. Same data, epochs, batches and updates, one thread, CPU seconds, variants
interleaved, median of three after two rounds that do not count: a loop's first calls in a process cost two to eight
times as much (its batches are fresh pages until the allocator keeps them), which would flatter ours. One JSON line.
"""

import json
import statistics
import time

import numpy as np
import torch
from peers import tuned_loop, users_loop

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused
from driftline.eval.engine.linear import Head, LinearSettings, fit

N, D, C, EPOCHS = 2310, 2048, 11, 10  # one bucket of CLEAR-10, ResNet-50 features
WARM, ROUNDS = 2, 3


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    rng = rng_for(0, "bench linear")
    x = fused.aligned((N, D))  # as learners give it
    x[:] = rng.normal(size=(N, D)) / np.sqrt(D)
    y = rng.integers(C, size=N)
    a = torch.ones(2048, 2048)
    halves = a.bfloat16()
    names = ("loop", "tuned", "tuned_half", "ours", "half", "gemm", "half_gemm")
    times: dict[str, list[float]] = {name: [] for name in names}
    data = torch.from_numpy(x), torch.from_numpy(y)
    for number in range(WARM + ROUNDS):
        for name, work in {
            "loop": lambda: users_loop(torch.nn.Linear(D, C), *data, 1.0, EPOCHS),
            "tuned": lambda: tuned_loop(torch.nn.Linear(D, C), *data, 1.0, EPOCHS, False),
            "tuned_half": lambda: tuned_loop(torch.nn.Linear(D, C), *data, 1.0, EPOCHS, True),
            "ours": lambda: fit(Head.new(C, D, rng_for(0)), x, y, LinearSettings(epochs=EPOCHS), rng_for(1)),
            "half": lambda: fit(Head.new(C, D, rng_for(0), half=True), x, y, LinearSettings(epochs=EPOCHS), rng_for(1)),
            "gemm": lambda: a @ a,
            "half_gemm": lambda: halves @ halves,
        }.items():
            begun = time.process_time()
            work()
            if number >= WARM:
                times[name].append(time.process_time() - begun)
    loop, tuned, tuned_half, ours, half, gemm, half_gemm = (statistics.median(times[name]) for name in names)
    flops = 4 * N * D * C * EPOCHS
    share = (flops / ours) / (2 * 2048**3 / gemm)
    found = {
        "times_faster_than_tuned": round(tuned / ours, 2),
        "times_faster_than_tutorial": round(loop / ours, 2),
        "share_of_sgemm": round(share, 3),
        "bfloat16_times_faster_than_tuned": round(min(tuned, tuned_half) / half, 2),
        "bfloat16_times_faster_than_tutorial": round(loop / half, 2),
        "bfloat16_share_of_its_gemm": round((flops / half) / (2 * 2048**3 / half_gemm), 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
