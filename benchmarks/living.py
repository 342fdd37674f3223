"""Speed of the store: overhead on a fresh fetch, a changed filter, growth, look-ups among many entries, near copies.

    python benchmarks/living.py --photos 20000

Prints one JSON line a part. Photos are generated and served on loopback; the encoder is the built-in one. Shares of a
fresh run and the store's overhead are of processor time, which other work on the machine does not lengthen; beside them
is the time on the clock. The overhead is what is measured inside the store during the fresh run; `pairs` are whole runs
with and without a store.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image

from driftline.curate.core.run_log import RunLog
from driftline.curate.embedding import embed
from driftline.curate.fetch import shard
from driftline.curate.images.near_duplicates import near_stored
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import address_key, outcomes
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context

CONFIG = """
collection: {source: delimited, path: photos.csv, columns: {url: url, uploaded: uploaded}}
filter: {upload_after_capture: false}
fetch: {threads: 16}
buckets: {kind: equal, count: 5, unlabelled: []}
embed: {model: driftline-photo-world}
retrieve: {per_class: 10, depth: 50, background_share: 0, concepts: [{name: car, prompts: [a car]}]}
"""


class Photos:
    """A loopback server of generated photos, /N.jpg, each of its own, in a process of its own."""

    def __init__(self, edge: int) -> None:
        rng = np.random.default_rng(0)
        small = Image.fromarray(rng.integers(0, 256, (edge // 8, edge // 8, 3)).astype(np.uint8)).resize((edge, edge))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=85)
        fork = multiprocessing.get_context("fork")
        self._asked, (here, there) = fork.Value("q", 0), fork.Pipe(duplex=False)
        fork.Process(target=_serve, args=(buffer.getvalue(), self._asked, there), daemon=True).start()
        self.base = f"http://127.0.0.1:{here.recv()}"

    def asked(self) -> int:
        """Requests so far."""
        return int(self._asked.value)

    def table(self, root: Path, rows: int) -> None:
        """The metadata of the first `rows` photos."""
        lines = [f"{self.base}/{i}.jpg,{1_200_000_000 + 60 * i}" for i in range(rows)]
        (root / "photos.csv").write_text("\n".join(["url,uploaded", *lines]) + "\n", encoding="utf-8")


def _serve(body: bytes, asked: Any, port: Any) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with asked.get_lock():
                asked.value += 1
            comment = self.path.encode().ljust(14)
            data = body[:2] + b"\xff\xfe\x00\x10" + comment + body[2:]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    port.send(server.server_address[1])
    server.serve_forever()


class StoreClock:
    """Seconds on the clock and of the processor inside the store, while a run does its work in this process."""

    USES = (
        (shard, ("keep", "recall", "remember", "reuse_part", "shard_key")),
        (embed, ("keep_looks", "keep_part", "known_looks", "part_key", "reuse_part", "with_known")),
    )

    def __init__(self) -> None:
        self.clock = self.cpu = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure inside."""
        with ExitStack() as stack:
            for module, names in self.USES:
                for name in names:
                    stack.enter_context(patch.object(module, name, self._measured(getattr(module, name))))
            yield

    def _measured(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any) -> Any:
            clock, cpu = time.perf_counter(), time.thread_time()
            try:
                return do(*given)
            finally:
                self.clock += time.perf_counter() - clock
                self.cpu += time.thread_time() - cpu

        return measured


def timed(do: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds on the clock, seconds of this process's processor, and the result."""
    clock, cpu = time.perf_counter(), time.process_time()
    result = do()
    return time.perf_counter() - clock, time.process_time() - cpu, result


def built(root: Path, photos: Photos, rows: int, *changes: str) -> tuple[float, float]:
    """Run up to embed; returns seconds on the clock and of the processor."""
    root.mkdir(exist_ok=True)
    photos.table(root, rows)
    (root / "driftline.yaml").write_text(CONFIG, encoding="utf-8")
    return timed(lambda: run(context(root, *changes), until="embed", yes=True))[:2]


def context(root: Path, *changes: str) -> Context:
    return Context(root, load(root / "driftline.yaml", changes), RunLog(quiet=True), changes=changes)


def pairs(folder: Path, photos: Photos, rows: int, count: int = 5) -> dict[str, Any]:
    """Fresh runs with and without a store, in turn: what the store costs, with the noise of the machine."""
    ratios = []
    for i in range(count):
        seconds = {}
        for use in (("true", "false"), ("false", "true"))[i % 2]:
            seconds[use] = built(folder / "pair", photos, rows, f"store.use={use}")[1]
            shutil.rmtree(folder / "pair")
        ratios.append(seconds["true"] / seconds["false"] - 1)
    return {"part": "pairs", "photos": rows, "cpu_overhead": round(median(ratios), 4),
            "all": [round(ratio, 4) for ratio in sorted(ratios)]}  # fmt: skip


def journey(folder: Path, photos: Photos, rows: int) -> dict[str, Any]:
    """A fresh run, 1 % more rows, and a changed filter."""
    inside, asked = StoreClock(), photos.asked()
    with inside.running():
        fresh, fresh_cpu = built(folder / "run", photos, rows)
    fresh_asked = photos.asked() - asked
    stored = sum(p.stat().st_size for p in (folder / "run" / "stages").rglob("*") if p.is_file())
    index = sum(p.stat().st_size for p in (folder / "run" / "store").glob("index.sqlite*"))
    photos.table(folder / "run", rows + rows // 100)
    asked = photos.asked()
    grown, grown_cpu, found = timed(lambda: grow(context(folder / "run"), until="embed"))
    grown_asked = photos.asked() - asked
    changed = context(folder / "run", "filter.where=id not like '%7.jpg'")
    filtered, filtered_cpu, _ = timed(lambda: run(changed, until="embed", yes=True))
    return {
        "part": "run", "photos": rows, "photo_bytes": stored // rows,
        "seconds": round(fresh, 1), "cpu_seconds": round(fresh_cpu, 1), "requests": fresh_asked,
        "time_overhead": round(inside.cpu / (fresh_cpu - inside.cpu), 4),
        "clock_overhead": round(inside.clock / (fresh - inside.clock), 4),
        "bytes_overhead": round(index / stored, 4), "index_bytes_a_photo": index // rows,
        "grow_requests_share": round(grown_asked / fresh_asked, 4),
        "grow_embeddings_share": round(found["embeddings"] / rows, 4),
        "grow_share": round(grown_cpu / fresh_cpu, 4), "grow_cpu_seconds": round(grown_cpu, 1),
        "grow_clock_share": round(grown / fresh, 4), "grow_seconds": round(grown, 1),
        "grow_stages": {e["stage"]: e["seconds"] for e in found["stages"] if e["seconds"] is not None},
        "filter_requests": photos.asked() - asked - grown_asked,
        "filter_share": round(filtered_cpu / fresh_cpu, 4), "filter_seconds": round(filtered, 1),
    }  # fmt: skip


NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "


def look_ups(folder: Path, entries: int, wanted: int = 10_000) -> dict[str, Any]:
    """Outcomes of a shard of addresses in a store of many. The store is filled in order of its keys, which is fast; one
    that grew has the same depth and some room in its pages."""
    urls = [f"http://a/{i}" for i in range(wanted)]
    with open_store(folder) as store:
        store.base.execute("PRAGMA journal_mode = OFF")
        store.base.execute(
            "INSERT INTO images (sha, file, start, size, suffix, width, height) "
            f"{NUMBERS} SELECT randomblob(32), 1 + i % 1000, 512, 9, 'jpg', 1, 1 FROM n ORDER BY 1",
            (entries,),
        )
        image = f"1 + abs(random()) % {entries}"
        store.base.execute(
            f"INSERT INTO attempts {NUMBERS} "
            f"SELECT randomblob(16), 1, 0, randomblob(8), {image}, NULL, NULL, NULL FROM n ORDER BY 1",
            (entries - wanted,),
        )
        store.base.execute("PRAGMA journal_mode = WAL")
        with store.transaction() as base:
            base.executemany(
                f"INSERT INTO attempts VALUES (?, 1, 0, randomblob(8), {image}, NULL, NULL, NULL)",
                [(address_key(url),) for url in urls],
            )
    with open_store(folder) as store:
        seconds, cpu, found = timed(lambda: outcomes(store, urls))
    assert len(found) == wanted
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "part": "look_ups",
        "entries": entries,
        "addresses": wanted,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "peak_mb": round(memory),
    }


def near(new: int = 1_000, stored: int = 1_000_000, bits: int = 4) -> dict[str, Any]:
    """New hashes against stored ones."""
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 1 << 63, stored).astype(np.uint64)
    fresh = rng.integers(0, 1 << 63, new).astype(np.uint64)
    fresh[: new // 10] = hashes[: new // 10] ^ np.uint64(5)
    seconds, cpu, found = timed(lambda: near_stored(fresh, hashes, bits))
    return {
        "part": "near",
        "new": new,
        "stored": stored,
        "bits": bits,
        "near": int(found.sum()),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
    }


def main() -> None:
    """Measure all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=100_000)
    parser.add_argument("--edge", type=int, default=256, help="pixels of a photo")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--only-run", action="store_true", help="leave out near copies and look-ups")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.only_run:
            print(json.dumps(near()), flush=True)
            print(json.dumps(look_ups(Path(folder, "many"), given.entries)), flush=True)
        photos = Photos(given.edge)
        built(Path(folder, "first"), photos, min(given.photos, 200))  # imports and the model
        print(json.dumps(journey(Path(folder), photos, given.photos)), flush=True)
        print(json.dumps(pairs(Path(folder), photos, max(500, given.photos // 50))), flush=True)


if __name__ == "__main__":
    main()
