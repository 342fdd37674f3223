"""The linear head's C kernel against torch, for every kind of register of this processor: python benchmarks/kernels.py

Every shape that `fused.suits` gives to the kernel, one thread, CPU seconds, the two interleaved, the median of rounds.
For AVX2, torch is held to AVX2 as well, so that a processor with AVX-512 measures both. Prints one JSON object for each
kind: the worst and the median time of the kernel divided by torch's, the share of the rate of matrix products that the
head of CLEAR-10 reaches, and its share of the limit: an epoch reads 19 MB that no cache of a core holds, and with 11
classes it has only 11 products for each byte, so that reading them once takes more than half as long as the products.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from curate.core.seeding import rng_for
from eval.engine import fused
from eval.engine.linear import Head, LinearSettings, fit

AS_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}
WIDTHS, CLASSES, BATCHES = (16, 50, 256, 768, 2048, 4096), (2, 11, 24, 60, 100, 1000), (1, 16, 64, 256, 1024)
N, D, C = 2310, 2048, 11  # one bucket of CLEAR-10, ResNet-50 features


def seconds(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Name → median CPU seconds, interleaved, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, function in work.items():
            begun = time.process_time()
            function()
            if number:
                times[name].append(time.process_time() - begun)
    return {name: statistics.median(each) for name, each in times.items()}


def training(kind: str, n: int, width: int, classes: int, batch: int, epochs: int = 1) -> Callable[[], object]:
    """A function that trains a head with a kind of kernel."""
    rng = rng_for(0, "kernels")
    x, y = fused.aligned((n, width)), rng.integers(classes, size=n)  # as learners give it
    x[:] = rng.normal(size=(n, width)) / width**0.5

    def work() -> None:
        os.environ[fused.VARIABLE] = kind
        fit(Head.new(classes, width, rng_for(0)), x, y, LinearSettings(batch=batch, epochs=epochs), rng_for(1))

    return work


def measure(kind: str) -> dict[str, float | str]:
    """The figures of one kind."""
    torch.set_num_threads(1)
    ratios = {}
    for width, classes, batch in ((w, c, b) for w in WIDTHS for c in CLASSES for b in BATCHES):
        if fused.suits(width, classes):
            n = max(batch, min(1024, 64 * batch))
            found = seconds({name: training(name, n, width, classes, batch) for name in (kind, "off")}, 5)
            ratios[width, classes, batch] = found[kind] / found["off"]
    a, x = torch.ones(2048, 2048), torch.ones(N, D)
    work: dict[str, Callable[[], object]] = {"gemm": lambda: a @ a, "read": lambda: [x.sum() for _ in range(10)]}
    found = seconds({"head": training(kind, N, D, C, 256, epochs=10)} | work, 5)
    epoch, products = found["head"] / 10, 4 * N * D * C * found["gemm"] / (2 * 2048**3)
    worst = max(ratios, key=lambda shape: ratios[shape])
    return {
        "worst_over_torch": round(ratios[worst], 2),
        "worst_shape": "width {}, classes {}, batch {}".format(*worst),
        "median_over_torch": round(statistics.median(ratios.values()), 2),
        "share_of_sgemm": round(products / epoch, 3),
        "share_of_limit": round((products + found["read"] / 10) / epoch, 3),
    }


def main() -> None:
    """One process for each kind, because torch chooses its instructions when it starts."""
    if len(sys.argv) > 1:
        print(json.dumps({"part": sys.argv[1], **measure(sys.argv[1])}))
        return
    best = fused.library().driftline_best_kind() if fused.library() else 0
    for kind in fused.KINDS[1 : best + 1]:
        env = os.environ | (AS_AVX2 if kind == "avx2" else {})
        subprocess.run([sys.executable, __file__, kind], env=env, check=True)


if __name__ == "__main__":
    main()
