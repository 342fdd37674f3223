"""How long `driftline age` takes on a log of so many rows, and its memory.

python benchmarks/service_log.py [--rows 10000000]
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAY = 86_400


def speed(rows: int) -> None:
    """A log of 23 months with a new version each three months, of which every fifth row has a label."""
    with tempfile.TemporaryDirectory() as folder:
        log, page = Path(folder) / "log.parquet", Path(folder) / "page.html"
        # Elsewhere: the peak of a process is handed on to its children.
        maker = multiprocessing.get_context("spawn").Process(target=_log, args=(rows, log))
        maker.start()
        maker.join()
        wall = time.perf_counter()
        words = ["-m", "driftline", "age", log, "--out", page]
        child = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        figures = {"part": "speed", "rows": rows, "cold_s": round(time.perf_counter() - wall, 1),
                   "cold_cpu_s": round(used.ru_utime + used.ru_stime, 1), "peak_mb": round(used.ru_maxrss * 1024 / 1e6),
                   "page_mb": round(page.stat().st_size / 1e6, 2)}  # fmt: skip
        print(json.dumps(figures))


def _log(rows: int, path: Path) -> None:
    rng, days = np.random.default_rng(0), 700
    begin = int(np.datetime64("2024-01-01", "s").astype(np.int64))
    moment = np.sort(rng.integers(begin, begin + days * DAY, rows))
    day = (moment - begin) // DAY
    label = rng.integers(0, 20, rows)
    answer = np.where(rng.random(rows) < 0.9 - 0.0006 * (day % 90), label, rng.integers(0, 20, rows))
    columns = {
        "time": pa.array(moment).cast(pa.timestamp("s")), "id": pa.array(np.arange(rows)).cast("string"),
        "version": pa.array(day // 90).cast("string"), "prediction": pa.array(answer).cast("string"),
        "score": pa.array(rng.beta(8, 2, rows).astype(np.float32)),
        "label": pa.array(label, mask=rng.random(rows) > 0.2).cast("string"),
        "group": pa.array(rng.integers(0, 500, rows)).cast("string"),
    }  # fmt: skip
    pq.write_table(pa.table(columns), path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**7)
    speed(parser.parse_args().rows)
