"""Retrieval: exact search against reading, products and faiss, a prompt on the page of browse.

    python benchmarks/retrieval.py [search] [many] [prompts] [--rows N] [--folder F]

Every figure is a ratio to a peer or a limit measured in the same run; one JSON line a part. `search` is the size of one
CLEAR bucket (713,626 × 1,024). Vectors are made (clustered, unit length) and removed again.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import write_json, write_parquet
from driftline.curate.core.executor import Executor
from driftline.curate.embedding.vector_store import VectorFile, VectorStore, vector_file
from driftline.curate.retrieval.exact_search import search

CORES = len(os.sched_getaffinity(0))
REPEATS = 5


def make(path: Path, rows: int, width: int, dtype: str, seed: int = 0) -> VectorFile:
    """Clustered unit vectors on disk."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((256, width)).astype(np.float32)
    out = np.lib.format.open_memmap(path, "w+", dtype, (rows, width))
    for low in range(0, rows, 16_384):
        n = min(16_384, rows - low)
        x = centres[rng.integers(0, 256, n)] + rng.standard_normal((n, width), np.float32)
        out[low : low + n] = x / np.linalg.norm(x, axis=1, keepdims=True)
    out.flush()
    return vector_file(path)


def prompts(n: int, width: int) -> Any:
    x = np.random.default_rng(1).standard_normal((n, width)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def store_of(part: VectorFile, buckets: int) -> VectorStore:
    ids = pa.chunked_array([pa.array([f"{i:010d}" for i in range(part.rows)])])
    return VectorStore((part,), (np.arange(part.rows) % buckets).astype(np.int32), ids)


def median(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def read(path: Path) -> None:
    """One sequential read of the whole file through one buffer of 8 MiB."""
    view = memoryview(bytearray(8 << 20))
    with path.open("rb", buffering=0) as file:
        while file.readinto(view):
            pass


def private_memory() -> int:
    """Bytes that belong to this process alone: not the pages of files, which the system can take back."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Anonymous:"))


def peak_of(work: Callable[[], Any]) -> int:
    """How much private memory grew while `work` ran, looked at every 5 ms."""
    gc.collect()
    before, most, stop = private_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.wait(0.005):
            most = max(most, private_memory() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    stop.set()
    watcher.join()
    return most


def part_search(folder: Path, rows: int) -> dict[str, Any]:
    """Top 600 of 10 prompts; top and bottom of 11 buckets; memory; faiss and NumPy."""
    import faiss

    width, q = 1024, prompts(10, 1024)
    files = {dtype: make(folder / f"{dtype}.npy", rows, width, dtype) for dtype in ("float32", "float16")}
    found: dict[str, Any] = {"part": "search", "rows": rows, "width": width, "cores": CORES}
    one = {dtype: store_of(part, 1) for dtype, part in files.items()}
    eleven = {dtype: store_of(part, 11) for dtype, part in files.items()}
    executor = Executor(workers=CORES)
    for dtype in files:  # everything warm
        read(files[dtype].path)
    reading = median(lambda: read(files["float32"].path))
    whole = median(lambda: np.fromfile(files["float32"].path, np.float32), 3)
    for dtype in files:
        seconds = median(lambda d=dtype: search(one[d], q, 600, [0], sides=("top",), executor=executor))  # type: ignore[misc]
        found[dtype] = {
            "seconds": round(seconds, 3),
            "over_read": round(seconds / reading, 2),
            "over_read_into_memory": round(seconds / whole, 2),
            "one_thread": round(median(lambda d=dtype: search(one[d], q, 600, [0], sides=("top",)), 3), 3),  # type: ignore[misc]
            "top_and_bottom_of_11_buckets": round(
                median(lambda d=dtype: search(eleven[d], q, 600, list(range(11)), executor=executor), 3),
                3,  # type: ignore[misc]
            ),
            "private_bytes": peak_of(lambda d=dtype: search(one[d], q, 600, [0], executor=executor)),  # type: ignore[misc]
        }
    found["read_seconds"], found["read_into_memory_seconds"] = round(reading, 3), round(whole, 3)

    x = np.load(files["float32"].path)  # in memory, as their best public use has it; ours reads the file each time
    faiss.omp_set_num_threads(CORES)
    theirs = faiss.knn(q, x, 600, metric=faiss.METRIC_INNER_PRODUCT)
    ours = search(one["float32"], q, 600, [0], sides=("top",), executor=executor).ranked["top"][0]
    found["same_answers_as_faiss"] = round(
        float(np.mean([len(np.intersect1d(a.rows, b)) / 600 for a, b in zip(ours, theirs[1], strict=True)])), 5
    )
    seconds = median(lambda: faiss.knn(q, x, 600, metric=faiss.METRIC_INNER_PRODUCT), 3)
    numpy = median(lambda: np.argpartition(q @ x.T, -600, axis=1)[:, -600:], 3)
    found["faiss_knn_seconds"], found["numpy_seconds"] = round(seconds, 3), round(numpy, 3)
    found["over_faiss_knn"] = round(found["float32"]["seconds"] / seconds, 2)
    found["over_numpy"] = round(found["float32"]["seconds"] / numpy, 2)
    return found


def part_many(folder: Path, rows: int) -> dict[str, Any]:
    """1,000 concepts × 11 buckets, both ends of the lists, at CLEAR's share of a bucket: against the bare products."""
    import faiss

    width, buckets, q = 1024, 11, prompts(1000, 1024)
    depth = max(1, round(rows / buckets * 16_000 / (99.2e6 / buckets)))  # CLEAR: 16,000 of 9 million
    part = make(folder / "x.npy", rows, width, "float16")
    store, executor = store_of(part, buckets), Executor(workers=CORES)
    read(part.path)
    products(part, q)  # warm
    bare, whole = products(part, q)
    begun = time.perf_counter()
    result = search(store, q, depth, list(range(buckets)), executor=executor)
    seconds = time.perf_counter() - begun
    faiss.omp_set_num_threads(CORES)
    begun, same = time.perf_counter(), []
    for bucket in range(buckets):
        x = np.asarray(part.map()[bucket::buckets], np.float32)
        for sign, side in ((1, "top"), (-1, "bottom")):
            _, near = faiss.knn(sign * q, x, depth, metric=faiss.METRIC_INNER_PRODUCT)
            ours = result.ranked[side][bucket]  # type: ignore[index]
            same += [np.intersect1d(near[c], ours[c].rows // buckets).size / depth for c in range(0, len(q), 50)]
    theirs = time.perf_counter() - begun
    return {
        "part": "many",
        "rows": rows,
        "concepts": len(q),
        "depth": depth,
        "cores": CORES,
        "seconds": round(seconds, 2),
        "product_seconds": round(bare, 2),
        "read_widen_product_seconds": round(whole, 2),
        "faiss_knn_seconds": round(theirs, 2),
        "over_product": round(seconds / bare, 2),
        "over_read_widen_product": round(seconds / whole, 2),
        "over_faiss_knn": round(seconds / theirs, 2),
        "bytes_over_vectors": round(result.bytes_read / (rows * width * 2), 3),
        "same_answers_as_faiss": round(float(np.mean(same)), 5),
    }


def products(part: VectorFile, q: Any) -> tuple[float, float]:
    """Seconds of the products of the same blocks as the search's, and with reading and widening; nothing is kept."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    rows, queries, x = 4096, torch.from_numpy(q), part.map()

    def work(share: int) -> float:
        torch.set_num_threads(1)
        wide, out, spent = torch.empty((rows, part.width)), torch.empty((256, rows)), 0.0
        low, high = part.rows * share // CORES, part.rows * (share + 1) // CORES
        for block in range(low, high - rows + 1, rows):
            wide.numpy()[:] = x[block : block + rows]
            begun = time.perf_counter()
            for first in range(0, len(q), 256):
                piece = queries[first : first + 256]
                torch.mm(piece, wide.t(), out=out[: len(piece)])
            spent += time.perf_counter() - begun
        return spent

    begun = time.perf_counter()
    with ThreadPoolExecutor(CORES) as pool:
        spent = max(pool.map(work, range(CORES)))
    return spent, time.perf_counter() - begun


def part_prompts(folder: Path, rows: int) -> dict[str, Any]:
    """A new prompt in the page over a collection of `rows` pictures, the first bucket's pictures included."""
    import httpx

    run = collection(folder, rows)
    server = subprocess.Popen(
        [sys.executable, "-m", "driftline.pipelines.cli", "browse", str(run), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[0]
        part = vector_file(run / "stages" / "05_embed" / "img_emb" / "img_emb_00000.npy")
        store = store_of(part, 11)
        with httpx.Client(timeout=120) as client:
            client.get(address + "prompts", params={"text": "warm up"})
            pages, firsts, limits, passes = [], [], [], []
            for i in range(REPEATS):
                limits.append(median(lambda: bare_pass(part), 1))
                passes.append(prompt_pass(store, prompts(1, part.width)))
                begun = time.perf_counter()
                found = client.get(address + "prompts", params={"text": f"a new prompt, number {i}"}).json()
                pages.append(time.perf_counter() - begun)
                for tile in found["buckets"][0]["photos"]:
                    client.get(f"{address}thumb/{tile[0]}").raise_for_status()
                firsts.append(time.perf_counter() - begun)
    finally:
        server.terminate()
        server.wait()
    limit = float(np.median(limits))
    return {
        "part": "prompts",
        "rows": rows,
        "width": part.width,
        "bare_pass_seconds": round(limit, 3),
        "search_seconds": round(float(np.median(passes)), 3),
        "page_seconds": round(float(np.median(pages)), 3),
        "first_pictures_seconds": round(float(np.median(firsts)), 3),
        "search_over_bare_pass": round(float(np.median(passes)) / limit, 2),
    }


def prompt_pass(store: VectorStore, q: Any) -> float:
    """Seconds of one search as the page makes it."""
    executor = Executor(workers=CORES)
    return median(lambda: search(store, q, 60, list(range(11)), sides=("top",), executor=executor), 1)


def bare_pass(part: VectorFile) -> None:
    """What any exact search has to do: read, widen, multiply by one prompt; all cores, nothing kept."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    rows = 1024
    q = torch.from_numpy(prompts(1, part.width))

    def work(share: int) -> None:
        torch.set_num_threads(1)
        raw, wide = torch.empty((rows, part.width), dtype=torch.float16), torch.empty((rows, part.width))
        view = raw.numpy().reshape(-1).view(np.uint8).data
        low, high = part.rows * share // CORES, part.rows * (share + 1) // CORES
        with part.path.open("rb", buffering=0) as file:
            for block in range(low, high, rows):
                n = min(rows, high - block)
                size = n * part.width * 2
                os.preadv(file.fileno(), [view[:size]], part.offset + block * part.width * 2)
                wide[:n].copy_(raw[:n])
                torch.mm(q, wide[:n].t())

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(work, range(CORES)))


def collection(folder: Path, rows: int) -> Path:
    """A run folder whose stages up to embed are there; all shards hold the same thousand pictures."""
    import open_clip

    from driftline.curate.core.atomic_io import sha256_bytes, write_text
    from driftline.curate.core.seeding import rng_for
    from driftline.curate.encoders.clip import Clip
    from driftline.curate.images.shards import index_path, shard_path, write_tar
    from driftline.curate.pretrain.small_clip import model_config, save
    from driftline.pipelines import VERSION
    from driftline.pipelines.config import presets
    from driftline.pipelines.demo.draw import jpeg, photo

    run, each = folder / "run", 1000
    stages = {name: run / "stages" / name for name in ("01_ingest", "02_filter", "03_fetch", "04_bucket", "05_embed")}
    pictures = [jpeg(photo(["car"], 0.5, rng_for(i, "bench"))) for i in range(50)] * (each // 50)
    names = [f"{i}.jpg" for i in range(each)]
    write_tar(folder / "one.tar", list(zip(names, pictures, strict=True)))
    told = {"member": names, "sha256": [sha256_bytes(p) for p in pictures], "bytes": [len(p) for p in pictures]}
    stages["03_fetch"].mkdir(parents=True)
    ids = [f"{i:010d}" for i in range(rows)]
    for stage in ("01_ingest", "02_filter"):
        numbers = np.arange(rows)
        write_parquet(stages[stage] / "table/0.parquet", pa.table({"id": ids, "row": numbers, "uploaded": numbers}))
    for shard in range(-(-rows // each)):
        mine = ids[shard * each : (shard + 1) * each]
        write_parquet(
            index_path(stages["03_fetch"], shard), pa.table({"id": mine} | {k: v[: len(mine)] for k, v in told.items()})
        )
        os.link(folder / "one.tar", shard_path(stages["03_fetch"], shard))
    where = {
        "id": ids,
        "shard": pa.array((np.arange(rows) // each).astype(np.int32)),
        "fault": pa.nulls(rows, pa.string()),
    }
    write_parquet(stages["03_fetch"] / "index.parquet", pa.table(where))
    buckets = [{"index": b, "name": str(2004 + b), "start": None, "end": None, "count": rows // 11} for b in range(11)]
    write_json(stages["04_bucket"] / "buckets.json", buckets)
    of = pa.array((np.arange(rows) % 11).astype(np.int32))
    write_parquet(stages["04_bucket"] / "members.parquet", pa.table({"id": ids, "shard": where["shard"], "bucket": of}))
    settings = model_config(embed_dim=1024)  # random weights: the page does not mind
    save(open_clip.model.CLIP(**settings), settings, run / "model")
    encoder = Clip(str(run / "model"), device="cpu")
    write_json(stages["05_embed"] / "encoder.json", {"model": "made", "fingerprint": encoder.fingerprint})
    (stages["05_embed"] / "img_emb").mkdir()
    (stages["05_embed"] / "metadata").mkdir()
    make(stages["05_embed"] / "img_emb" / "img_emb_00000.npy", rows, encoder.width, "float16")
    table = pa.table({"id": ids, "bucket": of, "fault": pa.nulls(rows, pa.string())})
    write_parquet(stages["05_embed"] / "metadata" / "metadata_00000.parquet", table)
    for stage in stages.values():
        counts = {"read": rows, "kept": rows, "dropped": {}}
        done = {"stage": stage.name[3:], "fingerprint": "", "counts": counts, "seconds": 0.0, "version": VERSION}
        write_json(stage / "done.json", done | {"outside": [], "content": ""})
    values = presets.values("mini")
    values["retrieve"]["per_class"] = 600
    values["embed"]["model"] = "model"
    write_text(run / "driftline.yaml", presets.full_text(values, "benchmark"))
    return run


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["search", "many", "prompts", []], help="default: all")
    parser.add_argument("--rows", type=int, help="rows of search, many and prompts (default: 713,626)")
    parser.add_argument("--folder", type=Path, help="where the vectors are made (default: the system's)")
    options = parser.parse_args()
    rows = options.rows or 713_626
    runs: dict[str, tuple[Callable[[Path, int], dict[str, Any]], int]] = {
        "search": (part_search, rows),
        "many": (part_many, rows),
        "prompts": (part_prompts, rows),
    }
    for name in options.parts or runs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            work, size = runs[name]
            print(json.dumps(work(Path(folder), size)), flush=True)


if __name__ == "__main__":
    main()
