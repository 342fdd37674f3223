"""Speed of the store: overhead on a fresh fetch, a changed filter, growth, look-ups among many entries, near copies.

    python benchmarks/living.py --photos 20000

Prints one JSON line a part. Photos are generated and served on loopback; the encoder is the built-in one.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from curate.core.run_log import RunLog
from curate.images.near_duplicates import near_stored
from curate.store.database import opened
from curate.store.photos import address_key, outcomes
from pipelines.config.loader import load
from pipelines.living import grow
from pipelines.runner import run
from pipelines.stage import Context

CONFIG = """
collection: {source: delimited, path: photos.csv, columns: {url: url, uploaded: uploaded}}
filter: {upload_after_capture: false}
fetch: {threads: 16}
buckets: {kind: equal, count: 5, unlabelled: []}
embed: {model: driftline-photo-world}
retrieve: {per_class: 10, depth: 50, background: false, concepts: [{name: car, prompts: [a car]}]}
"""


class Photos:
    """A loopback server of generated photos, /N.jpg, each of its own."""

    def __init__(self, edge: int) -> None:
        self.asked: Counter[str] = Counter()
        rng = np.random.default_rng(0)
        small = Image.fromarray(rng.integers(0, 256, (edge // 8, edge // 8, 3)).astype(np.uint8)).resize((edge, edge))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=85)
        body = buffer.getvalue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked[self.path] += 1
                comment = self.path.encode().ljust(14)
                data = body[:2] + b"\xff\xfe\x00\x10" + comment + body[2:]
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"

    def table(self, root: Path, rows: int) -> None:
        """The metadata of the first `rows` photos."""
        lines = [f"{self.base}/{i}.jpg,{1_200_000_000 + 60 * i}" for i in range(rows)]
        (root / "photos.csv").write_text("\n".join(["url,uploaded", *lines]) + "\n", encoding="utf-8")


def timed(do: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds on the clock, seconds of the processor (of this process: the server of photos, too), and the result."""
    clock, cpu = time.perf_counter(), time.process_time()
    result = do()
    return time.perf_counter() - clock, time.process_time() - cpu, result


def built(root: Path, photos: Photos, rows: int, until: str, *changes: str) -> tuple[float, float]:
    """Run up to a stage; returns seconds on the clock and of the processor."""
    root.mkdir(exist_ok=True)
    photos.table(root, rows)
    (root / "driftline.yaml").write_text(CONFIG, encoding="utf-8")
    return timed(lambda: run(context(root, *changes), until=until, yes=True))[:2]


def context(root: Path, *changes: str) -> Context:
    return Context(root, load(root / "driftline.yaml", changes), RunLog(quiet=True), changes=changes)


def journey(folder: Path, rows: int, edge: int) -> dict[str, Any]:
    """A fresh run with and without a store, a changed filter, and 1 % more rows."""
    photos = Photos(edge)
    built(folder / "first", photos, min(rows, 200), "embed")  # imports and the model
    photos.asked.clear()
    bare, bare_cpu = built(folder / "bare", photos, rows, "embed", "store.use=false")
    fresh, fresh_cpu = built(folder / "run", photos, rows, "embed")
    asked = photos.asked.total()
    other = context(folder / "run", "filter.where=id not like '%7.jpg'")
    filtered, filtered_cpu, _ = timed(lambda: run(other, until="embed", yes=True))
    refetched = photos.asked.total() - asked
    run(context(folder / "run"), until="embed", yes=True)
    photos.table(folder / "run", rows + rows // 100)
    asked = photos.asked.total()
    grown, grown_cpu, found = timed(lambda: grow(context(folder / "run"), until="embed"))
    stored = sum(p.stat().st_size for p in (folder / "run" / "stages").rglob("*") if p.is_file())
    index = sum(p.stat().st_size for p in (folder / "run" / "store").glob("index.sqlite*"))
    return {
        "part": "run", "photos": rows, "photo_bytes": stored // rows, "seconds_without_store": round(bare, 2),
        "seconds": round(fresh, 2), "time_overhead": round(fresh / bare - 1, 4),
        "cpu_seconds": round(fresh_cpu, 2), "cpu_overhead": round(fresh_cpu / bare_cpu - 1, 4),
        "filter_cpu_share": round(filtered_cpu / fresh_cpu, 4), "grow_cpu_share": round(grown_cpu / fresh_cpu, 4),
        "grow_stages": {e["stage"]: e["seconds"] for e in found["stages"] if e["seconds"] is not None},
        "bytes_overhead": round(index / stored, 4), "index_bytes_a_photo": index // rows,
        "filter_seconds": round(filtered, 2), "filter_requests": refetched,
        "grow_seconds": round(grown, 2), "grow_share": round(grown / fresh, 4),
        "grow_requests_share": round((photos.asked.total() - asked) / rows, 4),
        "grow_embeddings_share": round(found["embeddings"] / rows, 4),
    }  # fmt: skip


def look_ups(folder: Path, entries: int, wanted: int = 10_000) -> dict[str, Any]:
    """Outcomes of a shard of addresses in a store of many."""
    with opened(folder) as store:
        for low in range(0, entries, 100_000):
            with store.transaction() as base:
                rows = [
                    (hashlib.sha256(str(i).encode()).digest(), i % 1000, 512, 9, "jpg", 1, 1)
                    for i in range(low, min(low + 100_000, entries))
                ]
                base.executemany(
                    "INSERT INTO images (sha, file, start, size, suffix, width, height) VALUES (?,?,?,?,?,?,?)", rows
                )
                base.executemany(
                    "INSERT INTO attempts VALUES (?, 1, 0, x'00', ?, NULL, NULL, NULL)",
                    [(address_key(f"http://a/{low + i}"), low + i + 1) for i in range(len(rows))],
                )
    draw = random.Random(0)
    urls = [f"http://a/{draw.randrange(entries)}" for _ in range(wanted)]
    with opened(folder) as store:
        clock = time.perf_counter()
        found = outcomes(store, urls)
        seconds = time.perf_counter() - clock
    assert len(found) == len(set(urls))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "part": "look_ups",
        "entries": entries,
        "addresses": wanted,
        "seconds": round(seconds, 3),
        "peak_mb": round(memory),
    }


def near(new: int = 1_000, stored: int = 1_000_000, bits: int = 4) -> dict[str, Any]:
    """New hashes against stored ones."""
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 1 << 63, stored).astype(np.uint64)
    fresh = rng.integers(0, 1 << 63, new).astype(np.uint64)
    fresh[: new // 10] = hashes[: new // 10] ^ np.uint64(5)
    clock = time.perf_counter()
    found = near_stored(fresh, hashes, bits)
    seconds = time.perf_counter() - clock
    return {
        "part": "near",
        "new": new,
        "stored": stored,
        "bits": bits,
        "near": int(found.sum()),
        "seconds": round(seconds, 3),
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
        print(json.dumps(journey(Path(folder), given.photos, given.edge)), flush=True)


if __name__ == "__main__":
    main()
