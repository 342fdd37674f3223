"""A stream of CGLM's size on a head, and exact nearest neighbours, against the loops that a user would write.

    python benchmarks/near_future.py [--steps 40] [--samples 40000]

The head: 10,788 classes, 2,048 features, batches of 64: predict the next batch, then one update; `steps` of the 7,188
batches of 460,000 samples are run and the rest is extrapolated. Peer: torch.nn.Linear with torch.optim.SGD, with
momentum for bfloat16 and without for exact float32. Neighbours: every sample is looked up among all before it, exactly,
then added, 384 dimensions, k = 5: a NumPy loop, faiss sample by sample, HNSW. One thread, same run, CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import faiss
import numpy as np
import torch
from peers import product_rate

from curate.core.seeding import rng_for
from eval.engine.wide import Wide
from eval.memory.knn_index import Memory, unit

C, D, B, ALL = 10_788, 2048, 64, 460_000
WIDTH, K = 384, 5


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    clock = time.process_time()
    work()
    return time.process_time() - clock


def plain(x: torch.Tensor, y: torch.Tensor, steps: int, momentum: float) -> Callable[[], list[torch.Tensor]]:
    """The user's loop."""
    linear = torch.nn.Linear(D, C)
    optimiser = torch.optim.SGD(linear.parameters(), lr=0.005, momentum=momentum, weight_decay=1e-4)

    def run() -> list[torch.Tensor]:
        answers = []
        for t in range(steps):
            bx, by = x[t * B : (t + 1) * B], y[t * B : (t + 1) * B]
            with torch.no_grad():
                answers.append(linear(bx).argmax(1))
            loss = torch.nn.functional.cross_entropy(linear(bx), by)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return answers

    run.head = linear  # type: ignore[attr-defined]
    return run


def ours(
    x: torch.Tensor, y: torch.Tensor, steps: int, momentum: float, half: bool, like: torch.nn.Linear
) -> Callable[[], list[torch.Tensor]]:
    """The engine's, from the same weights."""
    head = Wide(like.weight.detach().clone(), like.bias.detach().clone())
    head.velocity = [torch.zeros_like(head.weights), torch.zeros_like(head.bias)] if momentum else None
    head.rounded = head.weights.bfloat16() if half else None

    def run() -> list[torch.Tensor]:
        answers = []
        with torch.no_grad():
            for t in range(steps):
                bx, by = x[t * B : (t + 1) * B], y[t * B : (t + 1) * B]
                answers.append(head.scores(bx).argmax(1))
                head.update(bx, by, 0.005, momentum, 1e-4)
        return answers

    return run


def heads(steps: int) -> dict[str, object]:
    """Both precisions, medians of three rounds, and how many predictions differ."""
    rng = rng_for(0, "wide")
    x = torch.from_numpy(np.abs(rng.normal(size=(steps * B, D))).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, C, steps * B))
    told: dict[str, object] = {}
    for name, momentum, half in (("bfloat16", 0.9, True), ("float32", 0.0, False)):
        rounds = []
        for _ in range(3):
            theirs = plain(x, y, steps, momentum)
            mine = ours(x, y, steps, momentum, half, theirs.head)  # type: ignore[attr-defined]
            a: list[torch.Tensor] = []
            b: list[torch.Tensor] = []
            rounds.append((seconds(lambda: a.extend(theirs())), seconds(lambda: b.extend(mine()))))  # noqa: B023
            differing = float((torch.cat(a) != torch.cat(b)).float().mean())
        loop, engine = (float(np.median([r[i] for r in rounds])) for i in (0, 1))
        told |= {
            f"loop_ms_a_step_{name}": round(1e3 * loop / steps, 1),
            f"ms_a_step_{name}": round(1e3 * engine / steps, 1),
            f"head_{name}": round(loop / engine, 2),
            f"differing_{name}": round(differing, 5),
            f"core_h_of_460k_{name}": round(engine / steps * (ALL / B) / 3600, 3),
        }
    rate = product_rate(torch.float32)
    told["float32_share_of_products"] = round(6 * B * C * D / rate / (float(str(told["ms_a_step_float32"])) / 1e3), 2)
    return told


def neighbours(n: int) -> dict[str, object]:
    """The same answers four ways."""
    x = unit(rng_for(0, "neighbours").normal(size=(n, WIDTH)))
    found: dict[str, np.ndarray] = {}

    def by_numpy() -> None:
        out = np.full((n, K), -1)
        for i in range(1, n):
            order = np.argsort(-(x[:i] @ x[i]), kind="stable")[:K]
            out[i, : len(order)] = order
        found["numpy"] = out

    def by_index(name: str, index: faiss.Index) -> Callable[[], None]:
        def run() -> None:
            out = np.full((n, K), -1)
            for i in range(n):
                out[i] = index.search(x[i : i + 1], K)[1][0]
                index.add(x[i : i + 1])
            found[name] = out

        return run

    def blocked() -> None:
        found["ours"] = Memory(WIDTH).stream(x, K)[1]

    hnsw = faiss.IndexHNSWFlat(WIDTH, 16, faiss.METRIC_INNER_PRODUCT)
    hnsw.hnsw.efConstruction, hnsw.hnsw.efSearch = 200, 128
    mine = seconds(blocked)
    taken = {
        "numpy": seconds(by_numpy),
        "faiss": seconds(by_index("faiss", faiss.IndexFlatIP(WIDTH))),
        "hnsw": seconds(by_index("hnsw", hnsw)),
    }
    same = {f"same_as_{k}": round(float((found["ours"] == found[k]).mean()), 5) for k in taken}
    return (
        {"samples": n, "us_a_step": round(1e6 * mine / n, 1)}
        | {f"neighbours_{k}": round(v / mine, 1) for k, v in taken.items()}
        | same
    )


def large(n: int) -> dict[str, object]:
    """Microseconds of an exact query among n vectors, 256 at a time."""
    rng = rng_for(1, "large")
    memory = Memory(WIDTH)
    for _ in range(n // 50_000):
        memory.add(rng.normal(size=(50_000, WIDTH)).astype(np.float32))
    q = rng.normal(size=(256, WIDTH)).astype(np.float32)
    memory.search(q, K)
    return {"vectors": memory.n, "us_a_query": round(1e6 * seconds(lambda: memory.search(q, K)) / 256, 1)}


def main() -> None:
    """Three lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    for name, work in (
        ("head", lambda: heads(given.steps)),
        ("neighbours", lambda: neighbours(given.samples)),
        ("large", lambda: large(given.large)),
    ):
        print(json.dumps({"part": name, **work()}), flush=True)


if __name__ == "__main__":
    main()
