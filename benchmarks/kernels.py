"""The linear head's C kernel against torch, for the kinds of products of this processor: python benchmarks/kernels.py

Shapes that `fused.suits` gives to the kernel, a grid of them and a sample drawn by a fixed seed, of whole trainings and
of single gradients; one thread, CPU seconds, the two interleaved.
For AVX2, torch is held to AVX2 as well, so that a processor with AVX-512 measures both. Prints one JSON object for each
of AVX2, AVX-512, and bfloat16 where the processor multiplies it: the worst and the median time of the kernel divided by
torch's (in bfloat16, too), the share of the rate of matrix products that the head of CLEAR-10 reaches, and its share of
the limit: an epoch reads 19 MB (9 in bfloat16) that no cache of a core holds, and with 11 classes it has only 11
products for each byte, so that reading them once takes more than half as long as the products.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from peers import AS_AVX2

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused
from driftline.eval.engine.linear import Head, LinearSettings, fit

WIDTHS, CLASSES, BATCHES = (16, 50, 256, 768, 2048, 4096), (2, 11, 24, 60, 100, 1000), (1, 16, 64, 256, 1024)
LEAST = 0.004
SAMPLED = 60  # shapes of each kind, widths 16 … 4,096, classes 2 … 1,000, batches 1 … 1,024
N, D, C = 2310, 2048, 11  # one bucket of CLEAR-10, ResNet-50 features


def seconds(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Name → CPU seconds of each round, interleaved. A round repeats each for about LEAST seconds; the first two, which
    say how often that is, do not count."""
    times: dict[str, list[float]] = {name: [] for name in work}
    calls = dict.fromkeys(work, 1)
    for number in range(rounds + 2):
        for name, function in work.items():
            begun = time.process_time()
            for _ in range(calls[name]):
                function()
            spent = (time.process_time() - begun) / calls[name]
            if number == 1:
                calls[name] = max(1, round(LEAST / max(spent, 1e-6)))
            elif number:
                times[name].append(spent)
    return times


def over_torch(kind: str, make: Callable[[str], Callable[[], object]], rounds: int) -> float:
    """CPU seconds of a kind over torch's: the median over rounds, whose two halves see the same state of the machine.
    A result above 1 is measured again in four times the rounds: the worst of 200 shapes would be the noisiest one."""
    work = {name: make(name) for name in (kind, "off")}
    ratio = 0.0
    for times in (1, 4):
        found = seconds(work, times * rounds)
        ratio = statistics.median(ours / torchs for ours, torchs in zip(found[kind], found["off"], strict=True))
        if ratio <= 1:
            break
    return ratio


def training(
    kind: str, n: int, shape: tuple[int, int, int], epochs: int = 1, half: bool = False
) -> Callable[[], object]:
    """A function that trains a head with a kind of kernel. shape: width, classes, batch."""
    width, classes, batch = shape
    rng = rng_for(0, "kernels")
    x, y = fused.aligned((n, width)), rng.integers(classes, size=n)  # as learners give it
    x[:] = rng.normal(size=(n, width)) / width**0.5

    def work() -> None:
        os.environ[fused.VARIABLE] = kind
        head = Head.new(classes, width, rng_for(0), half=half)
        fit(head, x, y, LinearSettings(batch=batch, epochs=epochs), rng_for(1))

    return work


def gradient(kind: str, shape: tuple[int, int, int], half: bool = False) -> Callable[[], object]:
    """A function that computes a gradient with a kind of kernel. shape: width, classes, batch."""
    width, classes, batch = shape
    rng = rng_for(0, "kernels")
    x = torch.from_numpy(rng.normal(size=(batch, width)).astype(np.float32) / width**0.5)
    y, head = torch.from_numpy(rng.integers(classes, size=batch)), Head.new(classes, width, rng_for(0), half=half)
    x = x.bfloat16() if half else x

    def work() -> None:
        os.environ[fused.VARIABLE] = kind
        with torch.no_grad():
            head.data_gradient(x, y)

    return work


def sampled(single: bool, tiles: bool) -> list[tuple[int, int, int]]:
    """Width, classes and batch of shapes that the kernel takes, spread evenly over their logarithms. single: of single
    gradients; half of all widths drawn are multiples of the kernel's lanes, as most encoders' are. tiles: by AMX."""
    rng, shapes = rng_for(0, "shapes"), []
    while len(shapes) < SAMPLED:
        width, classes, batch = np.exp(rng.uniform(np.log([16, 2, 1]), np.log([4096, 1000, 1024]))).round().astype(int)
        width = width if rng.random() < 0.5 else -(-width // fused.LANES) * fused.LANES
        if fused.suits(int(width), int(classes), int(batch) if single else None, tiles):
            shapes.append((int(width), int(classes), int(batch)))
    return shapes


def measure(kind: str) -> dict[str, float | str]:
    """The figures of one kind."""
    torch.set_num_threads(1)
    half, tiles = kind in fused.KINDS[fused.HALF :], kind == "amx"
    grid = [(w, c, b) for w in WIDTHS for c in CLASSES for b in BATCHES]
    ratios, single = {}, {}
    for shape in [*(shape for shape in grid if fused.suits(*shape[:2])), *sampled(False, tiles)]:
        n = max(4 * shape[2], min(1024, 64 * shape[2]))  # four steps or more: what begins a training is not its speed
        epochs = 1 if shape[0] % fused.LANES == 0 else 8  # fewer are torch's, because X would be copied
        ratios[shape] = over_torch(kind, partial(training, n=n, shape=shape, epochs=epochs, half=half), 5)
    for shape in [*(shape for shape in grid if fused.suits(*shape, tiles)), *sampled(True, tiles)]:
        single[shape] = over_torch(kind, partial(gradient, shape=shape, half=half), 9)
    dtype = torch.bfloat16 if half else torch.float32
    a, x = torch.ones(2048, 2048, dtype=dtype), torch.ones(N, D // 2 if half else D)  # the bytes of an epoch
    work: dict[str, Callable[[], object]] = {"gemm": lambda: a @ a, "read": lambda: [x.sum() for _ in range(10)]}
    head = training(kind, N, (D, C, 256), epochs=10, half=half)
    found = {name: statistics.median(each) for name, each in seconds({"head": head} | work, 5).items()}
    epoch, products = found["head"] / 10, 4 * N * D * C * found["gemm"] / (2 * 2048**3)
    worst, slowest = (max(each, key=lambda shape: each[shape]) for each in (ratios, single))
    return {
        "worst_over_torch": round(ratios[worst], 2),
        "worst_shape": "width {}, classes {}, batch {}".format(*worst),
        "median_over_torch": round(statistics.median(ratios.values()), 2),
        "worst_gradient_over_torch": round(single[slowest], 2),
        "worst_gradient": "width {}, classes {}, batch {}".format(*slowest),
        "median_gradient_over_torch": round(statistics.median(single.values()), 2),
        ("share_of_gemm" if half else "share_of_sgemm"): round(products / epoch, 3),
        "share_of_limit": round((products + found["read"] / 10) / epoch, 3),
    }


def main() -> None:
    """One process for each kind, because torch chooses its instructions when it starts."""
    if len(sys.argv) > 1:
        part = "bfloat16" if sys.argv[1] in fused.KINDS[fused.HALF :] else sys.argv[1]
        print(json.dumps({"part": part, "kind": sys.argv[1], **measure(sys.argv[1])}))
        return
    best = fused.KINDS.index(fused.kind()) if fused.kind() in fused.KINDS else 0
    for kind in [*fused.KINDS[1 : min(best + 1, fused.HALF)], *fused.KINDS[fused.HALF : best + 1][-1:]]:
        env = os.environ | (AS_AVX2 if kind == "avx2" else {})
        subprocess.run([sys.executable, __file__, kind], env=env, check=True)


if __name__ == "__main__":
    main()
