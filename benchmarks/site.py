"""A report of 10,000 runs: seconds and bytes.

    python benchmarks/site.py            25 learners × 4 protocols × 20 streams × 5 seeds

Rows and predictions are written as an evaluation writes them, with random answers; what is measured is the report
alone. Goals: at most 30 s and 30 MB, and the first picture of its first page within 2 s in a browser.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.eval import predictions, rows
from driftline.eval.learners import LEARNERS
from driftline.eval.predictions import Tally
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

OF_A_FILE = ("format", rows.ROWS_DIGEST, rows.PREDICTIONS_DIGEST)
PROTOCOLS = ("clear-iid", "clear-streaming", "near-future", "ocrr")


def stream_of(name: str, steps: int) -> Stream:
    """Small and easy: its rows are what counts."""
    rng = rng_for(0, name)
    made = []
    for t in range(steps):
        splits = {}
        for side, n in (("train", 40), ("test", 20)):
            y = np.arange(n, dtype=np.int64) % 4
            x = (np.eye(6)[y] + rng.normal(0, 0.5, (n, 6))).astype(np.float32)
            splits[side] = Split(
                x, y, np.array([f"{t}{side}{i}" for i in range(n)]), np.arange(n, dtype=np.int64) + t * 99
            )
        made.append(Step(t, str(t), splits))
    return Stream(name, made, list("abcd"), sha256=name)


def fill(out: Path, runs: int) -> int:
    """Templates of each protocol, copied with other learners, seeds, streams and counts."""
    names = list(LEARNERS)[:25]
    rng = rng_for(0, "fill")
    templates = {}
    for protocol in PROTOCOLS:
        evaluate(stream_of("template", 10), protocol, ["nearest-mean"], out=out / "template" / protocol)
        templates[protocol] = predictions.find([out / "template" / protocol])[0][0]
    made = 0
    for s in range(10**6):
        for run in templates.values():
            for name in names:
                for seed in range(5):
                    if made == runs:
                        return made
                    stream = {**run.about["stream"], "name": f"stream {s}", "sha256": f"{s:064d}"}
                    about = {**run.about, "learner": name, "seed": seed, "stream": stream}
                    folder, told = out / "runs" / f"{made:06d}", [_drawn(row, rng) for row in run.rows]
                    predictions.write(folder / predictions.FILE, predictions.table(told))
                    rows.save(folder, {key: value for key, value in about.items() if key not in OF_A_FILE}, told)
                    made += 1
    return made


def _drawn(row: Row, rng: np.random.Generator) -> Row:
    """With other answers, right with probability 0.7."""
    if row.answers is None or not len(row.answers):
        return row
    label = row.answers.label
    predicted = np.where(rng.random(len(label)) < 0.7, label, (label + 1) % 4).astype(label.dtype)
    tally = Tally(row.tested_on)
    tally.add(row.answers.sample, label, predicted, None if row.answers.confidence is None else rng.random(len(label)))
    new = tally.row(bool(row.class_n))
    return replace(row, n_correct=new.n_correct, class_correct=new.class_correct, answers=new.answers)


def main() -> None:
    """Fill a folder, make the report, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        made = fill(out, options.runs)
        clock, cpu = time.perf_counter(), time.process_time()
        documents = results_of([out / "runs"])
        read = time.perf_counter() - clock
        write(documents, out / "report")
        pages = list((out / "report").glob("*.html"))
        found = {
            "runs": made,
            "seconds": round(time.perf_counter() - clock, 1),
            "core_seconds": round(time.process_time() - cpu, 1),
            "seconds_reading": round(read, 1),
            "pages": len(pages),
            "megabytes_of_pages": round(sum(p.stat().st_size for p in pages) / 1e6, 1),
            "megabytes": round(sum(p.stat().st_size for p in (out / "report").iterdir()) / 1e6, 1),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
