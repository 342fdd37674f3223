"""Acquisition against its physical limits and its peers: python benchmarks/acquisition.py [PART …] [--rows N]

Parts: ingest (a made .bz2 file → filtered Parquet), memory (the same, ten times as large), buckets (7.85 million rows),
fetch (images of 60 kB over loopback). Every ratio is taken within one run, variants interleaved; CPU seconds include
child processes. One JSON line a part.
"""

import argparse
import bz2
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yfcc_rows

CORES, REPEATS = len(os.sched_getaffinity(0)), 2


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """(CPU seconds with children, wall seconds) of `work`."""
    before = _cpu()
    begun = time.perf_counter()
    work()
    return _cpu() - before, time.perf_counter() - begun


def _cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in both)


def child(what: str, *arguments: object) -> dict[str, Any]:
    """Run one measurement in a process of its own; returns what it prints, with CPU, wall and peak memory."""
    command = [sys.executable, __file__, "--child", what, *map(str, arguments)]
    before = _cpu()
    begun = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found | {"cpu": _cpu() - before, "wall": time.perf_counter() - begun}


def median(runs: list[dict[str, Any]], key: str) -> float:
    """Of several runs."""
    return statistics.median(run[key] for run in runs)


def made_file(folder: Path, rows: int) -> Path:
    """A .bz2 of made YFCC100M lines (kept for the next call)."""
    path = folder / f"yfcc100m_dataset-{rows}.bz2"
    if not path.is_file():
        pack = bz2.BZ2Compressor()
        with path.with_suffix(".part").open("wb") as file:
            for block in yfcc_rows.lines(rows):
                file.write(pack.compress(block))
            file.write(pack.flush())
        path.with_suffix(".part").rename(path)
    return path


def decompressors(path: Path) -> dict[str, list[str]]:
    """What is at hand to decompress a .bz2: name → command."""
    found = {"python bz2": [sys.executable, "-c", PYTHON_BZ2, str(path)]}
    if program := shutil.which("bzip2"):
        found["bzip2"] = [program, "-dc", str(path)]
    if program := shutil.which("lbzip2"):
        found["lbzip2"] = [program, "-dc", f"-n{CORES}", str(path)]
    found["driftline"] = [sys.executable, "-c", OWN_BZ2, str(path), str(CORES)]
    return found


PYTHON_BZ2 = """
import bz2, sys
d = bz2.BZ2Decompressor()
with open(sys.argv[1], "rb") as f:
    while b := f.read(1 << 20): d.decompress(b)
"""
OWN_BZ2 = """
import sys
from pathlib import Path
from driftline.curate.sources.yfcc.bzip2 import blocks
for block in blocks(Path(sys.argv[1]), int(sys.argv[2])): pass
"""


def ingest(folder: Path, rows: int) -> dict[str, Any]:
    """A .bz2 of YFCC lines → filtered Parquet, against decompression alone and a line-by-line reader."""
    path = made_file(folder, rows)
    alone: dict[str, list[tuple[float, float]]] = {}
    ours: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []
    for _ in range(REPEATS):
        for name, command in decompressors(path).items():
            run = cost(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))  # type: ignore[misc]
            alone.setdefault(name, []).append(run)
        ours.append(child("ingest", path, CORES))
        plain = plain or [child("plain", path)]  # minutes: once is enough
    cpu = {name: statistics.median(c for c, _ in runs) for name, runs in alone.items()}
    wall = {name: statistics.median(w for _, w in runs) for name, runs in alone.items()}
    fastest, quickest = min(cpu, key=cpu.__getitem__), min(wall, key=wall.__getitem__)
    found = {
        "rows": rows,
        "kept": ours[0]["kept"],
        "decompress_cpu": cpu,
        "decompress_wall": wall,
        "cpu": median(ours, "cpu"),
        "wall": median(ours, "wall"),
        "peak_mb": median(ours, "peak_mb"),
        "line_by_line_cpu": median(plain, "cpu"),
        "cpu_over_decompression": median(ours, "cpu") / cpu[fastest],
        "wall_over_decompression": median(ours, "wall") / wall[quickest],
        "wall_over_limit": median(ours, "wall") / wall_limit(CORES, median(ours, "cpu"), wall[quickest]),
        "line_by_line_over_ours": median(plain, "cpu") / median(ours, "cpu"),
        "fastest": [fastest, quickest],
    }
    assert ours[0]["kept"] == plain[0]["kept"], "both must keep the same rows"
    return found


def wall_limit(cores: int, cpu: float, decompression: float) -> float:
    """Seconds by the clock that `ingest` may take. cpu: its CPU seconds. decompression: seconds by the clock.

    With few cores decompression keeps all of them busy, so that all other work comes on top. Then the target is that
    no core waits.
    """
    return 1.2 * decompression if cores >= 4 else 1.1 * cpu / cores


def child_ingest(path: str, workers: str) -> dict[str, Any]:
    """Ingest and filter, as `driftline run --until filter` does them."""
    from driftline.curate.core.executor import Executor
    from driftline.curate.core.run_log import RunLog
    from driftline.pipelines.config.loader import load
    from driftline.pipelines.run import runner
    from driftline.pipelines.stages.base import Context

    with tempfile.TemporaryDirectory(dir=Path(path).parent) as name:
        root = Path(name)
        (root / "driftline.yaml").write_text(
            f"collection: {{source: yfcc, path: {path}}}\nembed: {{model: x}}\n"
            "retrieve: {concepts: [{name: a, prompts: [b]}]}\n"
        )
        context = Context(root, load(root / "driftline.yaml"), RunLog(quiet=True), Executor("local", int(workers)))
        entries = {e["stage"]: e for e in runner.run(context, until="filter")}
    kept = entries["filter"]["counts"]["kept"]
    return {"kept": kept, "read": entries["ingest"]["counts"]["read"]} | peak()


def child_plain(path: str) -> dict[str, Any]:
    """CLEAR's way: line by line, a dictionary a line, dateutil for both dates, JSON out [yfcc_download.py]."""
    from datetime import UTC, datetime

    from dateutil import parser

    names = [f"column {i}" for i in range(23)]
    names[3], names[4], names[22] = "DATE_TAKEN", "DATE_UPLOADED", "MARKER"
    kept = 0
    with bz2.open(path, "rt", encoding="utf-8") as file, tempfile.TemporaryFile("w", encoding="utf-8") as out:
        for line in file:
            record = dict(zip(names, line.rstrip("\n").split("\t"), strict=True))
            if record["MARKER"] != "0":
                continue
            try:
                taken = parser.parse(record["DATE_TAKEN"])
                uploaded = datetime.fromtimestamp(int(record["DATE_UPLOADED"]), UTC).replace(tzinfo=None)
            except (ValueError, OverflowError):
                continue
            if taken < uploaded:
                kept += 1
                json.dump(record, out)
    return {"kept": kept} | peak()


def memory(folder: Path, rows: int) -> dict[str, Any]:
    """Peak memory of ingest and filter on a file ten times as large."""
    small = child("ingest", made_file(folder, rows), CORES)
    large = child("ingest", made_file(folder, 10 * rows), CORES)
    return {"rows": [rows, 10 * rows], "small_peak_mb": small["peak_mb"], "peak_mb": large["peak_mb"]}


def buckets(folder: Path, rows: int) -> dict[str, Any]:
    """7.85 times as many rows → 11 equal buckets, Parquet in and out, against DuckDB sorting the same column."""
    total = 785 * rows // 100
    path = folder / f"uploads-{total}.parquet"
    if not path.is_file():
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        from driftline.curate.core.seeding import rng_for

        rng = rng_for(0, "uploads")
        ids = rng.permutation(total) + 3_000_000_000
        table = pa.table(
            {
                "id": pa.array(ids).cast(pa.string()),
                "uploaded": rng.integers(1_107_000_000, 1_398_000_000, len(ids)).astype(np.int64),
            }
        )
        pq.write_table(table, path, row_group_size=65_536, compression="zstd")
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(REPEATS):
        ours.append(child("buckets", path))
        theirs.append(child("duckdb", path))
    found = {
        "rows": total,
        "seconds": median(ours, "inside"),
        "duckdb_sort": median(theirs, "inside"),
        "ratio": median(ours, "inside") / median(theirs, "inside"),
        "peak_mb": median(ours, "peak_mb"),
        "duckdb_peak_mb": median(theirs, "peak_mb"),
    }
    return found


def child_buckets(path: str) -> dict[str, Any]:
    """id and time in, id and bucket out."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from driftline.curate.bucketing.assign import assign
    from driftline.curate.bucketing.settings import BucketSettings
    from driftline.curate.metadata.schema import whole

    begun = time.perf_counter()
    table = pq.read_table(path)
    ids = whole(table["id"])
    where, made = assign(table["uploaded"].to_numpy(), ids, BucketSettings())
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as name:
        pq.write_table(
            pa.table({"id": ids, "bucket": where.astype(np.int32)}), f"{name}/x.parquet", use_dictionary=False
        )
    seconds = time.perf_counter() - begun
    assert {b.count for b in made} <= {len(ids) // 11, len(ids) // 11 + 1}
    return {"inside": seconds} | peak()


def child_duckdb(path: str) -> dict[str, Any]:
    """DuckDB sorts the same column, with the id, and writes it."""
    import duckdb

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as name:
        duckdb.execute(f"COPY (SELECT id, uploaded FROM '{path}' ORDER BY uploaded) TO '{name}/x.parquet'")
    return {"inside": time.perf_counter() - begun} | peak()


def fetch(folder: Path, rows: int) -> dict[str, Any]:
    """Images of 60 kB over loopback: both ways of driftline, img2dataset alone, and a bare client."""
    images = min(rows, 4000)
    with serving() as address:
        names = ("native", "img2dataset", "alone", "bare")
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(REPEATS):
            for name in names:
                runs[name].append(child(f"fetch_{name}", address, images, folder))
    ms = {name: 1000 * median(found, "work_cpu") / images for name, found in runs.items()}
    wall = {name: median(found, "inside") for name, found in runs.items()}
    checks = 1000 * median(runs["native"], "check_cpu") / images
    found = {
        "images": images,
        "cpu_ms_an_image": ms,
        "wall": wall,
        "of_which_checks_ms": checks,
        "img2dataset_way_over_alone": wall["img2dataset"] / wall["alone"],
        "native_download_ms": ms["native"] - checks,
    }
    return found


class serving:
    """A server of one JPEG of 60 kB in a process of its own; its CPU time is nobody's."""

    def __enter__(self) -> str:
        self._job = subprocess.Popen([sys.executable, __file__, "--child", "serve"], stdout=subprocess.PIPE, text=True)
        assert self._job.stdout is not None  # PIPE
        return self._job.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._job.kill()
        self._job.wait()


def child_serve() -> dict[str, Any]:
    """Answer every GET with the same JPEG, on kept connections."""
    import asyncio

    body = photograph()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = head.encode() + body

    class Server(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.held = transport, b""

        def data_received(self, data: bytes) -> None:
            self.held += data
            while (end := self.held.find(b"\r\n\r\n")) >= 0:
                close = b"connection: close" in self.held[:end].lower()
                self.held = self.held[end + 4 :]
                self.transport.write(answer)
                if close:
                    self.transport.close()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=512)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    asyncio.run(main())
    return {}


def photograph() -> bytes:
    """A JPEG of 500 × 375 and about 60 kB: smooth noise, as detailed as a photograph."""
    import io

    import numpy as np
    from PIL import Image, ImageFilter

    from driftline.curate.core.seeding import rng_for

    pixels = rng_for(0, "photograph").integers(0, 256, (375, 500, 3)).astype(np.uint8)
    image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(0.9))
    best = b""
    for quality in range(50, 96):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        best = buffer.getvalue()
        if len(best) >= 60_000:
            break
    return best


def _rows(address: str, images: int, folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = range(images)
    table = {"id": [str(i) for i in n], "row": list(n), "url": [f"{address}/{i}.jpg" for i in n]}
    none = pa.nulls(images, pa.string())
    pq.write_table(
        pa.table({**table, "path": none, "uploaded": list(n), "until": pa.nulls(images, pa.int64())}),
        folder / "part.parquet",
    )
    return folder / "part.parquet"


def child_fetch(way: str, address: str, images: str, folder: str) -> dict[str, Any]:
    """Our fetch, one worker: imports and img2dataset's start are not counted, its steady state is."""
    from driftline.curate.core.run_log import RunLog
    from driftline.curate.fetch import shard
    from driftline.curate.fetch.run import FetchSettings
    from driftline.curate.fetch.run import fetch as run
    from driftline.curate.images.checks import check_image

    spent = 0.0

    def timed_check(*arguments: Any) -> Any:
        nonlocal spent
        begun = time.process_time()
        found = check_image(*arguments)
        spent += time.process_time() - begun
        return found

    shard.check_image = timed_check
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name)
        rules = FetchSettings(downloader=way, private_addresses="allow", threads=32, per_host=32)  # type: ignore[arg-type]
        run([_rows(address, 1000, root)], root / "warm", rules, RunLog(quiet=True))
        part = _rows(address, int(images), root)
        spent, before = 0.0, _all_cpu()
        begun = time.perf_counter()
        counts = run([part], root / "out", rules, RunLog(quiet=True))
        seconds = time.perf_counter() - begun
        used = _all_cpu() - before
    assert counts == {"": int(images)}, counts
    return {"inside": seconds, "work_cpu": used, "check_cpu": spent} | peak()


def _all_cpu() -> float:
    """CPU seconds of this process and of its living children."""
    total = time.process_time()
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def child_fetch_alone(address: str, images: str, folder: str) -> dict[str, Any]:
    """img2dataset by itself: its own settings for kept sizes, webdataset out, one process."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import pyarrow as pa
    from img2dataset.downloader import Downloader
    from img2dataset.resizer import Resizer
    from img2dataset.writer import WebDatasetSampleWriter

    def run(first: int, count: int, out: Path) -> None:
        for number, low in enumerate(range(first, first + count, 1000)):
            rows = range(low, min(low + 1000, first + count))
            table = pa.table({"url": [f"{address}/{i}.jpg" for i in rows], "row": list(rows)})
            with pa.OSFile(str(out / "in.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            downloader = Downloader(
                WebDatasetSampleWriter, Resizer(256, "no", False, skip_reencode=True), 32, False, True, str(out),
                ["url", "row"], 10, 1000, 5, "md5", None, "jpg", 0, None, ["noai", "noimageai", "noindex"],
            )  # fmt: skip
            assert downloader((number, str(out / "in.arrow")))[0]

    with tempfile.TemporaryDirectory(dir=folder) as name:
        run(0, 1000, Path(name))
        before, begun = time.process_time(), time.perf_counter()
        run(0, int(images), Path(name))
        return {
            "inside": time.perf_counter() - begun,
            "work_cpu": time.process_time() - before,
            "check_cpu": 0,
        } | peak()


def child_fetch_bare(address: str, images: str, folder: str) -> dict[str, Any]:
    """A bare aiohttp loop that reads every body and does nothing with it."""
    import asyncio

    import aiohttp

    async def main() -> None:
        left = iter(range(int(images)))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=32)) as session:

            async def serve() -> None:
                for i in left:
                    async with session.get(f"{address}/{i}.jpg") as response:
                        await response.read()

            await asyncio.gather(*(serve() for _ in range(32)))

    before, begun = time.process_time(), time.perf_counter()
    asyncio.run(main())
    return {"inside": time.perf_counter() - begun, "work_cpu": time.process_time() - before} | peak()


def peak() -> dict[str, float]:
    """Peak resident memory of this process, MB."""
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": child_ingest,
    "plain": child_plain,
    "buckets": child_buckets,
    "duckdb": child_duckdb,
    "serve": child_serve,
    "fetch_native": lambda *a: child_fetch("native", *a),
    "fetch_img2dataset": lambda *a: child_fetch("img2dataset", *a),
    "fetch_alone": child_fetch_alone,
    "fetch_bare": child_fetch_bare,
}
PARTS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "ingest": ingest,
    "memory": memory,
    "buckets": buckets,
    "fetch": fetch,
}


def main() -> None:
    """Measure the parts that are asked for."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(CHILDREN[sys.argv[2]](*sys.argv[3:])))
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help="default: all"
    )  # argparse looks for [] if there is none
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "driftline-bench")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.parts or PARTS:
        found = PARTS[name](given.folder, given.rows)
        print(json.dumps({"part": name, "cores": CORES, **_short(found)}), flush=True)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    return [_short(v) for v in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
