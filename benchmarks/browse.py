"""The browse page over a million photos: the first screen, a click on a facet, a region of time.

    python benchmarks/browse.py [--photos N] [--folder F]

The metadata, vectors (64 wide) and reasons are made; all shards hold the same thousand pictures. Times are medians of
what one client waits for on loopback, pictures included; `processor` is the time of all cores; one JSON line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import sha256_bytes, write_array, write_json, write_parquet, write_text
from driftline.curate.core.seeding import rng_for
from driftline.curate.images.shards import index_path, shard_path, write_tar
from driftline.curate.metadata.schema import TABLE
from driftline.pipelines import VERSION
from driftline.pipelines.config import presets
from driftline.pipelines.demo.draw import jpeg, photo

SHARD, WIDTH, SCREEN, REPEATS = 1000, 64, 42, 7
FACETS = {
    "class": "c3",
    "licence": "licence 2",
    "uploader": "user 7",
    "reason": "tally: wrong_concept",
    "decision": "kept",
}


def collection(run: Path, photos: int) -> Path:
    """A run folder of `photos` photos, a fifth of them dropped by each of filter, fetch and tally."""
    rng = np.random.default_rng(0)
    stages = {name: run / "stages" / name for name in (
        "01_ingest", "02_filter", "03_fetch", "04_bucket", "05_embed", "06_retrieve", "08_tally"
    )}  # fmt: skip
    ids = pa.array([f"{i:08d}" for i in range(photos)])
    rows = np.arange(photos)
    fate = rng.integers(0, 5, photos)
    plain = {
        "id": ids, "row": rows, "uploaded": np.sort(rng.integers(1_072_915_200, 1_404_000_000, photos)),
        "title": pa.array([f"IMG {i}" for i in rows.tolist()]),
        "user": pa.array([f"user {i}" for i in rng.zipf(1.5, photos).clip(max=50_000).tolist()]),
        "licence": pa.array([f"licence {i}" for i in rng.integers(0, 6, photos).tolist()]),
        "url": pa.array([f"https://example.org/{i}.jpg" for i in rows.tolist()]),
    }  # fmt: skip
    table = pa.table({f.name: plain.get(f.name, pa.nulls(photos, f.type)) for f in TABLE})
    write_parquet(stages["01_ingest"] / "table" / "part-00000.parquet", table)
    late = rows[fate == 0]
    write_parquet(
        stages["02_filter"] / "rejects" / "part-00000.parquet",
        pa.table({"id": ids.take(pa.array(late)), "row": late, "reason": pa.array(["no_tags"] * len(late))}),
    )
    pictures = [jpeg(photo(["car"], 0.5, rng_for(i, "bench"))) for i in range(50)] * (SHARD // 50)
    names = [f"{i}.jpg" for i in range(SHARD)]
    write_tar(run / "one.tar", list(zip(names, pictures, strict=True)))
    member = {"member": names, "sha256": [sha256_bytes(p) for p in pictures], "bytes": [len(p) for p in pictures]}
    stages["03_fetch"].mkdir(parents=True)
    for shard in range(-(-photos // SHARD)):
        own = ids.slice(shard * SHARD, SHARD)
        write_parquet(
            index_path(stages["03_fetch"], shard), pa.table({"id": own} | {k: v[: len(own)] for k, v in member.items()})
        )
        os.link(run / "one.tar", shard_path(stages["03_fetch"], shard))
    fault = pa.array(np.where(fate == 1, "http_404", None), pa.string())
    shards = pa.array((rows // SHARD).astype(np.int32))
    write_parquet(stages["03_fetch"] / "index.parquet", pa.table({"id": ids, "shard": shards, "fault": fault}))
    good = pa.array(rows[fate > 1])
    bucket = pa.array((rows * 11 // photos).astype(np.int32)).take(good)
    write_json(stages["04_bucket"] / "buckets.json", [
        {"index": b, "name": str(2004 + b), "start": None, "end": None, "count": photos // 11} for b in range(11)
    ])  # fmt: skip
    write_parquet(stages["04_bucket"] / "members.parquet", pa.table({"id": ids.take(good), "bucket": bucket}))
    vectors = rng.standard_normal((len(good), WIDTH), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    write_array(stages["05_embed"] / "img_emb" / "img_emb_00000.npy", vectors.astype(np.float16))
    nothing = pa.nulls(len(good), pa.string())
    write_parquet(
        stages["05_embed"] / "metadata" / "metadata_00000.parquet",
        pa.table({"id": ids.take(good), "bucket": bucket, "fault": nothing}),
    )
    concept = pa.array([f"c{i}" for i in rng.integers(0, 40, len(good)).tolist()])
    score = pa.array(rng.random(len(good), np.float32))
    candidates = {"id": ids.take(good), "bucket": bucket, "concept": concept, "score": score}
    write_parquet(
        stages["06_retrieve"] / "candidates.parquet", pa.table(candidates | {"fate": pa.array(["kept"] * len(good))})
    )
    verdict = pa.array(np.where(fate[fate > 1] == 2, "wrong_concept", "kept"))
    write_parquet(
        stages["08_tally"] / "labels.parquet", pa.table({"id": ids.take(good), "concept": concept, "decision": verdict})
    )
    for folder in stages.values():
        counts = {"read": photos, "kept": photos, "dropped": {}}
        done = {"stage": folder.name[3:], "fingerprint": "", "counts": counts, "seconds": 0.0, "version": VERSION}
        done |= {"outside": [], "content": ""}
        write_json(folder / "done.json", done)
    write_text(run / "driftline.yaml", presets.full_text(presets.values("mini"), "benchmark"))
    return run


def screen(client: httpx.Client, address: str, **query: str) -> dict[str, Any]:
    """What a browser asks for to show the first screen."""
    view = client.get(address + "view", params=query).raise_for_status().json()
    for tile in view["photos"][:SCREEN]:
        if tile[5]:
            client.get(f"{address}thumb/{tile[0]}")
    return dict(view)


def main() -> None:
    """Make, serve, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the photos are made (default: the system's)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        run = collection(Path(folder) / "run", options.photos)
        begun = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-m", "driftline.pipelines.cli", "browse", str(run), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[0]
            found: dict[str, Any] = {"photos": options.photos, "open_seconds": round(time.perf_counter() - begun, 2)}
            with httpx.Client(timeout=120) as client:

                def seconds(path: str, **query: str) -> float:
                    begun = time.perf_counter()
                    if path == "screen":
                        client.get(address).raise_for_status()
                        screen(client, address, **query)
                    else:
                        client.get(address + path, params=query).raise_for_status()
                    return time.perf_counter() - begun

                found["first_screen_cold_ms"] = round(1000 * seconds("screen"), 1)  # also makes the thumbnails
                found["first_screen_ms"] = round(
                    1000 * float(np.median([seconds("screen") for _ in range(REPEATS)])), 1
                )
                clicks = {name: seconds("view", **{name: value}) for name, value in FACETS.items()}
                found["facet_ms"] = round(1000 * float(np.median(list(clicks.values()))), 1)
                found["slowest_facet_ms"] = round(1000 * max(clicks.values()), 1)
                found["two_facets_ms"] = round(1000 * seconds("view", **{"class": "c5", "licence": "licence 1"}), 1)
                found["span_ms"] = round(1000 * seconds("view", since="2008-01-01", until="2009-12-31"), 1)
        finally:
            server.terminate()
            server.wait()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
