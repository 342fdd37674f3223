"""What a GPU gives, by the product's own `device: cuda`: every part in one command and one file of results.

    python benchmarks/run.py gpu --full       all parts: results.json and the record
    python benchmarks/gpu.py networks moco    some parts, printed
    python benchmarks/gpu.py --device cpu --tiny    that all parts work, on any machine

embedding   images a second from shards, of the bare model's
linear, mlp the grid of CLEAR's table 4, wall time on two CPU cores by that on the device; `together`: what the device
            would reach if all heads, each with its own batches, were one product a step, which the product does not do
networks    an epoch of each of Seq-to-Final's networks: as it is, by torch.compile, and with CUDA graphs
moco, clip  training, of the barest loop on the same network with inputs that lie ready
neighbours  exact search among a million vectors, against one CPU core; the answers must be the same

Wall seconds. What is constant (imports, start of CUDA, evaluation) is left out: each run is done with few and with many
epochs, and their difference counts. One JSON line a part.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.stream import Split, Step, Stream

CLASSES = 11
NETWORKS = [f"{kind}-{size}" for kind in ("conv", "dense", "res") for size in (1, 2, 3, 4)]


def wall(work: Callable[[], object], device: str, times: int = 3) -> float:
    """The least seconds of some calls, after one that does not count."""
    taken = []
    for _ in range(times + 1):
        begun = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return min(taken[1:])


def slope(work: Callable[[int], object], few: int, many: int) -> float:
    """Seconds that one more takes, from the calls with few and with many."""
    begun = time.perf_counter()
    work(few)
    between = time.perf_counter()
    work(many)
    return max((time.perf_counter() - between) - (between - begun), 1e-9) / (many - few)


def embedding(device: str, tiny: bool) -> dict[str, Any]:
    """RN50, as CLEAR has it."""
    from embedding import measured

    return measured("demo", 16, 8, device) if tiny else measured("RN50", 4096, 256, device)


def grid_stream(steps: int, train: int, test: int, width: int) -> Stream:
    """Eleven class means that turn 0.07 rad a bucket in a space of falling variance; unit length, as features are."""
    rng = rng_for(0, "grid")
    basis = rng.normal(size=(256, width)).astype(np.float32) * (np.arange(1, 257) ** -0.5)[:, None].astype(np.float32)
    means, way = rng.normal(size=(11, 256)), rng.normal(size=(11, 256))

    def split(t: int, n: int) -> Split:
        y = rng.permutation(np.arange(n, dtype=np.int64) % 11)
        now = np.cos(0.07 * t) * means + np.sin(0.07 * t) * way
        x = np.maximum((now[y] + 2.2 * rng.normal(size=(n, 256))).astype(np.float32) @ basis, 0)
        return Split(x / np.linalg.norm(x, axis=1, keepdims=True), y, np.arange(n).astype(np.str_))

    parts = [Step(t, str(t), {"train": split(t, train), "test": split(t, test)}) for t in range(steps)]
    return Stream("grid", parts, [str(c) for c in range(11)])


def grid(net: str, device: str, tiny: bool) -> dict[str, Any]:
    """Seconds that an epoch of the whole grid takes for one seed."""
    from driftline.curate.core.executor import Executor
    from driftline.eval.experiment.presets import TABLE_4
    from driftline.eval.run import evaluate

    data = grid_stream(2, 66, 22, 64) if tiny else grid_stream(10, 2310, 990, 2048)
    learners = list(TABLE_4)[:3] if tiny else list(TABLE_4)
    most = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch) / "stream"
        data = data.save(where)

        def run(place: str, workers: int) -> Callable[[int], object]:
            def evaluated(epochs: int) -> object:
                settings = {"epochs": epochs, "decay_after": epochs, "net": net, "device": place}
                out = Path(tempfile.mkdtemp(dir=scratch))  # nothing is found finished
                executor = Executor(workers=workers)
                return evaluate(data, "clear-iid", learners, [0], settings, out, stream_folder=where, executor=executor)

            return evaluated

        few, many = (1, 3) if tiny else (1, 4) if net == "mlp" else (2, 22)
        two_cores = slope(run("cpu", 1 if tiny else 2), few, many)
        on_device = slope(run(device, 1 if tiny else most), few, many)
    visits = sum(len(step["train"]) for step in data.steps)
    alone = together(net, device, 2 if tiny else 95, len(data.steps[0]["train"]), data.steps[0]["train"].x.shape[1])
    return {
        "two_cores_s_an_epoch": round(two_cores, 4),
        "device_s_an_epoch": round(on_device, 4),
        "times_two_cores": round(two_cores / on_device, 2),
        "together_ns_a_sample": round(1e9 * alone, 1),
        "samples_an_epoch_of_finetune": visits,
    }


def together(net: str, device: str, heads: int, n: int, width: int, batch: int = 256) -> float:
    """Seconds a sample of training `heads` networks at once: the product's own gradient, mapped over them, then SGD
    with momentum on all. Every network has its own order of the data, which lie once on the device."""
    from driftline.eval.engine import fused
    from driftline.eval.engine.heads import Mlp
    from driftline.eval.engine.linear import Head

    rngs = [rng_for(i, "together") for i in range(heads)]
    nets = [
        Mlp.new(CLASSES, width, 2048, rng, device) if net == "mlp" else Head.new(CLASSES, width, rng, device)
        for rng in rngs
    ]
    params = [torch.stack(each) for each in zip(*(one.params for one in nets), strict=True)]
    velocity = [torch.zeros_like(p) for p in params]
    x = torch.randn(n, width, device=device)
    y = torch.arange(n, device=device) % CLASSES
    gradient = torch.vmap(lambda bx, by, *p: tuple(replace(nets[0], params=list(p)).data_gradient(bx, by)))

    def epoch() -> None:
        orders = torch.from_numpy(np.stack([rng.permutation(n) for rng in rngs])).to(device)
        for low in range(0, n, batch):
            rows = orders[:, low : low + batch]
            for p, v, g in zip(params, velocity, gradient(x[rows], y[rows], *params), strict=True):
                p.sub_(v.mul_(0.9).add_(g))

    before = os.environ.get(fused.VARIABLE)
    os.environ[fused.VARIABLE] = "off"  # a kernel for one network cannot be mapped
    try:
        with torch.no_grad():
            return wall(epoch, device) / (n * heads)
    finally:
        os.environ.pop(fused.VARIABLE)
        if before is not None:
            os.environ[fused.VARIABLE] = before


def networks(device: str, tiny: bool) -> dict[str, Any]:
    """Seconds of an epoch of 4,000 images, and times faster than plain."""
    from seq_to_final import ours, resident

    names = NETWORKS[:1] if tiny else NETWORKS
    images = 100 if tiny else 4000
    train, val = resident(images, 0, device), resident(100, 1, device)
    ways = {"plain": (False, False)}
    if device != "cpu":  # where compiling takes minutes and gains nothing
        ways |= {"compiled": (True, False), "graphs": (True, True)}
    found: dict[str, Any] = {}
    for name in names:
        taken = {}
        for way, (compiled, graphs) in ways.items():
            if device != "cpu":
                torch._dynamo.reset()
                torch._inductor.config.triton.cudagraphs = graphs
            epoch = ours(name, train, val, device != "cpu", augment=True, compiled=compiled)
            taken[way] = wall(epoch, device, 1 if tiny else 3)
        found[name] = {"plain_s": round(taken["plain"], 4)}
        found[name] |= {way: round(taken["plain"] / t, 2) for way, t in taken.items() if way != "plain"}
    return found


def moco(device: str, tiny: bool) -> dict[str, Any]:
    """MoCo v2 as in CLEAR: ResNet-50, 224 pixels, batches of 256."""
    from pretrain import updates

    from driftline.curate.pretrain import MOCO_V2, SMALL

    recipe = replace(SMALL, batch=8, queue=16, size=32, room=36) if tiny else replace(MOCO_V2, queue=4096)
    ways, _ = updates(recipe, device)
    taken = {name: wall(lambda way=way: way(0), device, 1 if tiny else 10) for name, way in ways.items()}
    return {
        "images_per_second": round(recipe.batch / taken["driftline"], 1),
        "share_of_bare": round(taken["bare"] / taken["driftline"], 3),
    }


def clip(device: str, tiny: bool) -> dict[str, Any]:
    """The small CLIP of `driftline models train`."""
    import open_clip

    from driftline.curate.pretrain import small_clip

    batch, size, batches = (4, 32, 2) if tiny else (256, 64, 20)
    rng = rng_for(0, "clip")
    images = rng.integers(0, 256, (batch * batches, size, size, 3)).astype(np.uint8)
    texts = [f"a red thing of kind {i % 97}" for i in range(len(images))]
    with tempfile.TemporaryDirectory() as out:

        def train(epochs: int) -> object:
            say = RunLog(quiet=True)
            return small_clip.train(
                images, lambda i, rng: texts[i], texts, Path(out), say, epochs=epochs, batch=batch, device=device
            )

        ours = slope(train, 1, 2 if tiny else 6) / batches
    config = small_clip.model_config(size)
    model = open_clip.model.CLIP(**config).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, betas=(0.9, 0.98))
    tokens = open_clip.SimpleTokenizer(context_length=config["text_cfg"]["context_length"])(texts[:batch]).to(device)
    x = torch.randn(batch, 3, size, size, device=device)
    target = torch.arange(batch, device=device)

    def barest() -> None:
        image, text, scale = model(x, tokens)[:3]
        logits = scale * image @ text.T
        loss = torch.nn.functional.cross_entropy(logits, target) + torch.nn.functional.cross_entropy(logits.T, target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    bare = wall(barest, device, 1 if tiny else 10)
    return {"images_per_second": round(batch / ours, 1), "share_of_bare": round(bare / ours, 3)}


def neighbours(device: str, tiny: bool) -> dict[str, Any]:
    """Queries a second; `cpu:0` takes the device's way on a CPU."""
    from driftline.eval.memory.knn_index import Memory

    n, width, k = (5000 if tiny else 1_000_000), 384, 5
    rng = rng_for(0, "neighbours")
    memories = [Memory(width, n), Memory(width, n, device="cpu:0" if device == "cpu" else device)]
    for _ in range(n // 5000):
        part = rng.normal(size=(5000, width)).astype(np.float32)
        for memory in memories:
            memory.add(part)
    q = rng.normal(size=(256, width)).astype(np.float32)
    here, there = (wall(lambda memory=memory: memory.search(q, k), device, 1) for memory in memories)
    same = [(a == b).all() for a, b in zip(*(memory.search(q, k) for memory in memories), strict=True)]
    return {"queries_a_second": round(256 / there), "times_one_core": round(here / there, 1), "same": int(all(same))}


PARTS: dict[str, Callable[[str, bool], dict[str, Any]]] = {
    "embedding": embedding,
    "linear": lambda device, tiny: grid("linear", device, tiny),
    "mlp": lambda device, tiny: grid("mlp", device, tiny),
    "networks": networks,
    "moco": moco,
    "clip": clip,
    "neighbours": neighbours,
}


def main() -> int:
    """One line a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that any machine does in seconds; no figure counts")
    given = parser.parse_args()
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]!r}; available: {', '.join(PARTS)}")
    if given.device != "cpu" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; run this on a machine with one, or --device cpu --tiny here")
    torch.set_num_threads(1)
    for name in given.parts or PARTS:
        print(json.dumps({"part": name, **PARTS[name](given.device, given.tiny)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
