"""A stream of CGLM's size on a head, and exact nearest neighbours, against what a user can reach with public tools.

    python benchmarks/near_future.py [--steps 40] [--samples 40000]

The head: 10,788 classes, 2,048 features, batches of 64: predict the next batch, then one update; `steps` of the 7,188
batches of 460,000 samples are run and the rest is extrapolated. Peer: torch.nn.Linear, autograd, torch.optim.SGD with
fused=True. `same_batch`: what was predicted is learned, so that one forward product serves both, on both sides.
`other_batch`: another batch is learned, by two forward products on both sides. float32 without momentum; bfloat16 with
momentum, against the peer under torch.autocast or in float32, whichever is faster.

Neighbours: every sample is looked up among all before it, then added, 384 dimensions, k = 5. Peers: `faiss.knn`, which
needs no index, in blocks of 1,024 whose own pairs are merged; a torch product with topk and a NumPy product with
argpartition, in blocks of 256. Beside them what searches sample by sample: faiss's flat index, and HNSW, whose answers
differ. One thread, all sides warm, medians or the best of interleaved runs, CPU seconds.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial

import faiss
import numpy as np
import torch

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.fused import kind
from driftline.eval.engine.heads import Wide
from driftline.eval.memory.knn_index import Memory, unit

C, D, B, ALL = 10_788, 2048, 64, 460_000
WIDTH, K = 384, 5


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    clock = time.process_time()
    work()
    return time.process_time() - clock


def plain(
    x: torch.Tensor, y: torch.Tensor, learned: Sequence[int], momentum: float, half: bool
) -> Callable[[], list[torch.Tensor]]:
    """Torch at its best public use. learned: batch that is learned at each step."""
    linear = torch.nn.Linear(D, C)
    optimiser = torch.optim.SGD(linear.parameters(), lr=0.005, momentum=momentum, weight_decay=1e-4, fused=True)

    def run() -> list[torch.Tensor]:
        answers = []
        for t, other in enumerate(learned):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                if t != other:
                    with torch.no_grad():
                        answers.append(linear(x[t * B : (t + 1) * B]).argmax(1))
                scores = linear(x[other * B : (other + 1) * B])
                loss = torch.nn.functional.cross_entropy(scores, y[other * B : (other + 1) * B])
            if t == other:
                answers.append(scores.detach().argmax(1))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return answers

    run.head = linear  # type: ignore[attr-defined]
    return run


def ours(
    x: torch.Tensor, y: torch.Tensor, learned: Sequence[int], momentum: float, half: bool, like: torch.nn.Linear
) -> Callable[[], list[torch.Tensor]]:
    """The engine's, from the same weights."""
    head = Wide(like.weight.detach().clone(), like.bias.detach().clone())
    head.velocity = [torch.zeros_like(head.weights), torch.zeros_like(head.bias)] if momentum else None
    head.rounded = head.weights.bfloat16() if half else None

    def run() -> list[torch.Tensor]:
        answers = []
        with torch.no_grad():
            for t, other in enumerate(learned):
                answers.append(head.scores(x[t * B : (t + 1) * B], learned_next=t == other).argmax(1))
                rows = slice(other * B, (other + 1) * B)
                head.update(x[rows], y[rows], 0.005, momentum, 1e-4)
        return answers

    return run


def heads(steps: int) -> dict[str, object]:
    """Both precisions and both kinds of work, medians of three rounds after one that does not count, and how many
    predictions differ from the float32 peer's."""
    rng = rng_for(0, "wide")
    x = torch.from_numpy(np.abs(rng.normal(size=(steps * B, D))).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, C, steps * B))
    told: dict[str, object] = {}
    for name, momentum, half in (("bfloat16", 0.9, True), ("float32", 0.0, False)):
        for work, learned in (
            ("same_batch", range(steps)),
            ("other_batch", [max(0, t - 1 - t % 2) for t in range(steps)]),
        ):
            rounds = []
            for _ in range(4):
                peers = [plain(x, y, learned, momentum, kind) for kind in {False, half}]
                mine = ours(x, y, learned, momentum, half, peers[0].head)  # type: ignore[attr-defined]
                answers: list[list[torch.Tensor]] = [[] for _ in (*peers, mine)]
                ways = zip(answers, (*peers, mine), strict=True)
                rounds.append([seconds(lambda out=out, way=way: out.extend(way())) for out, way in ways])  # type: ignore[misc]
                differing = float((torch.cat(answers[0]) != torch.cat(answers[-1])).float().mean())
            *loops, engine = np.median(rounds[1:], axis=0).tolist()
            told |= {
                f"{work}_loop_ms_a_step_{name}": round(1e3 * min(loops) / steps, 1),
                f"{work}_ms_a_step_{name}": round(1e3 * engine / steps, 1),
                f"{work}_{name}": round(min(loops) / engine, 2),
                f"{work}_differing_{name}": round(differing, 5),
                f"{work}_core_h_of_460k_{name}": round(engine / steps * (ALL / B) / 3600, 3),
            }
    return told


def blocked(x: np.ndarray, size: int, among: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Positions of the K nearest among the rows before each, a block at a time; −1: there are fewer. among: queries,
    how many rows are before their block → cosines and positions of K of these."""
    out = np.full((len(x), K), -1)
    for low in range(0, len(x), size):
        q = x[low : low + size]
        own = q @ q.T
        own[np.triu_indices(len(q))] = -np.inf
        place = np.argpartition(-own, K, axis=1)[:, :K]
        cosines = np.take_along_axis(own, place, 1)
        place = np.where(np.isinf(cosines), -1, place + low)
        if low:
            others = among(q, low)
            cosines, place = np.concatenate([others[0], cosines], 1), np.concatenate([others[1], place], 1)
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :K]
        out[low : low + size] = np.take_along_axis(place, best, 1)
    return out


def neighbours(n: int) -> dict[str, object]:
    """The same answers by each way; the best of three interleaved runs, of the slow ones the only run."""
    x = unit(rng_for(0, "neighbours").normal(size=(n, WIDTH)))
    rows = torch.from_numpy(x)

    def by_faiss(q: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
        cosines, place = faiss.knn(q, x[:before], K, metric=faiss.METRIC_INNER_PRODUCT)
        return cosines, place

    def by_torch(q: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
        cosines, place = (torch.from_numpy(q) @ rows[:before].T).topk(K)
        return cosines.numpy(), place.numpy()

    def by_numpy(q: np.ndarray, before: int) -> tuple[np.ndarray, np.ndarray]:
        cosines = q @ x[:before].T
        place = np.argpartition(-cosines, K, axis=1)[:, :K]
        return np.take_along_axis(cosines, place, 1), place

    def by_memory(q: np.ndarray, before: int, memory: Memory) -> tuple[np.ndarray, np.ndarray]:
        memory.add(x[memory.n : before])
        return memory.search(q, K)

    def by_index(index: faiss.Index) -> np.ndarray:
        out = np.full((n, K), -1)
        for i in range(n):
            out[i] = index.search(x[i : i + 1], K)[1][0]
            index.add(x[i : i + 1])
        return out

    def hnsw() -> faiss.Index:
        index = faiss.IndexHNSWFlat(WIDTH, 16, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128
        return index

    ways: dict[str, Callable[[], np.ndarray]] = {
        "ours": lambda: blocked(x, 256, partial(by_memory, memory=Memory(WIDTH))),
        "faiss": lambda: blocked(x, 1024, by_faiss),
        "torch": lambda: blocked(x, 256, by_torch),
        "numpy": lambda: blocked(x, 256, by_numpy),
        "faiss_one_by_one": lambda: by_index(faiss.IndexFlatIP(WIDTH)),
        "hnsw": lambda: by_index(hnsw()),
    }
    found: dict[str, np.ndarray] = {}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(3):
        for name, way in ways.items():
            if not number or name in ("ours", "faiss", "torch", "numpy"):
                taken[name].append(seconds(lambda name=name, way=way: found.update({name: way()})))  # type: ignore[misc]
    best = {name: min(times) for name, times in taken.items()}
    mine = best.pop("ours")
    peer = min(best[name] for name in ("faiss", "torch", "numpy"))
    products = {"neighbours_amx": round(peer / mine, 2)} if kind() == "amx" else {}
    return (
        {"samples": n, "us_a_step": round(1e6 * mine / n, 1), "neighbours": round(peer / mine, 2)}
        | products
        | {f"over_{name}": round(value / mine, 2) for name, value in best.items()}
        | {f"same_as_{name}": round(float((found["ours"] == found[name]).mean()), 5) for name in best}
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
