"""Statistics of stored outcomes, and what recording outcomes costs an evaluation.

    python benchmarks/outcomes.py [statistics] [cost] [--learners 60] [--seeds 5] [--samples 2000] [--demo DEMO]

One JSON line a part. `statistics`: ageing, paired comparison, calibration and slices of a grid of 10 × 10 cells, CPU
seconds on one core. `cost`: CPU and wall time of an evaluation with and without outcomes, by turns, and CPU nanoseconds
a sample: on a stream like the demo's, or with --demo on the stream and learners of a finished `driftline demo`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from driftline.eval import outcomes, rows
from driftline.eval.outcomes import recorded
from driftline.eval.rows import Answers, Row, Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.ageing import ageing
from driftline.eval.scoring.calibration import calibration
from driftline.eval.scoring.comparing import compare
from driftline.eval.scoring.slices import slices
from driftline.eval.scoring.sums import Resampling
from driftline.pipelines.demo.journey import LEARNERS
from driftline.stream_builder.stream import Split, Step, Stream

STEPS, CLASSES = 10, 11
FEW = ("nap", "finetune", "cumulative", "er", "reservoir", "nearest-mean")


def grid(learners: int, seeds: int, samples: int) -> list[Run]:
    """Runs of learners that age at different rates."""
    rng = np.random.default_rng(0)
    label = [rng.integers(0, CLASSES, samples).astype(np.uint8) for _ in range(STEPS)]
    about = {
        "protocol": "clear-iid", "settings": {}, "protocol_settings": {}, "steps": STEPS, "stored_bytes": 0,
        "stream": {"name": "s", "sha256": "s"}, "gradient_steps": 0, "seconds": 0.0,
    }  # fmt: skip
    runs = []
    for a in range(learners):
        for seed in range(seeds):
            tests = []
            for i in range(STEPS):
                for j in range(STEPS):
                    share = 0.9 - 0.0005 * a - 0.02 * abs(j - i)
                    hits = rng.random(samples) < share
                    predicted = np.where(hits, label[j], (label[j] + 1) % CLASSES).astype(np.uint8)
                    confidence = recorded(np.clip(rng.normal(0.8, 0.1, samples), 0, 1))
                    answers = Answers(np.arange(samples) + j * samples, label[j], predicted, confidence)
                    counts = np.bincount(label[j], minlength=CLASSES), np.bincount(label[j][hits], minlength=CLASSES)
                    shown: Any = {"class_n": counts[0].tolist(), "class_correct": counts[1].tolist()}
                    tests.append(Row(str(j), samples, int(hits.sum()), i, answers=answers, **shown))
            runs.append(Run({**about, "learner": f"learner-{a}", "seed": seed}, tests))
    return runs


def statistics(learners: int, seeds: int, samples: int) -> dict[str, float]:
    """CPU seconds of each function."""
    runs, resampling, figures = grid(learners, seeds, samples), Resampling(), {}
    uploader = np.arange(STEPS * samples).astype(object) % 20
    parts = {
        "ageing": lambda: ageing(runs, resampling=resampling),
        "comparison": lambda: compare(runs, resampling=resampling),
        "calibration": lambda: calibration(runs),
        "slices": lambda: slices(runs, uploader, resampling=resampling),
    }
    for name, function in parts.items():
        clock = time.process_time()
        function()
        figures[f"{name}_s"] = round(time.process_time() - clock, 2)
    return figures | {"seconds": round(sum(figures.values()), 2)}


def like_the_demos() -> Stream:
    """A stream of the size of the demo's: 10 steps, 11 classes."""
    rng = np.random.default_rng(0)
    means = rng.normal(0, 0.3, (CLASSES, 512))

    def split(n: int) -> Split:
        y = rng.integers(0, CLASSES, n)
        return Split((means[y] + rng.normal(size=(n, 512))).astype(np.float32), y)

    steps = [Step(t, str(t), {"train": split(300), "test": split(130)}) for t in range(STEPS)]
    return Stream("demo", steps, [str(c) for c in range(CLASSES)], sha256="demo")


def cost(stream: Stream, learners: Sequence[str], rounds: int) -> dict[str, float]:
    """Both CLEAR protocols, each learner with and without outcomes by turns, either first; sums of the least times."""
    numbered, write = outcomes.numbered, outcomes.write
    seconds: dict[tuple[str, str, bool], list[tuple[float, float]]] = {}
    tests = 0
    for turn in range(rounds):
        for protocol in ("clear-iid", "clear-streaming"):
            for learner in learners:
                for on in (False, True) if turn % 2 else (True, False):
                    outcomes.numbered = numbered if on else lambda s, *_: s
                    outcomes.write = write if on else lambda path, found: None
                    with tempfile.TemporaryDirectory() as folder:
                        clock, wall = time.process_time(), time.perf_counter()
                        evaluate(stream, protocol, [learner], [0], out=Path(folder))
                        took = time.process_time() - clock, time.perf_counter() - wall
                        seconds.setdefault((protocol, learner, on), []).append(took)
                        if on and not turn:
                            tests += sum(row.n for run in rows.find([Path(folder)]) for row in run.rows)
    least = {key: np.array(took).min(0) for key, took in seconds.items()}
    off, on = (sum(took for (*_, recorded), took in least.items() if recorded == kind) for kind in (False, True))
    shares = {"share": round(on[0] / off[0] - 1, 4), "share_of_wall_time": round(on[1] / off[1] - 1, 4)}
    share = shares | {"ns_a_sample": round(1e9 * (on[0] - off[0]) / tests)}
    return share | {"seconds": round(off[0], 2), "samples": tests}


def main() -> None:
    """Print one JSON line a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["statistics", "cost"])
    parser.add_argument("--learners", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--demo", type=Path, help="folder of driftline demo: its stream and learners, for cost")
    given = parser.parse_args()
    if "statistics" in given.parts:
        print(json.dumps({"part": "statistics", **statistics(given.learners, given.seeds, given.samples)}), flush=True)
    if "cost" in given.parts:
        stream = like_the_demos() if given.demo is None else Stream.load(given.demo / "stream")
        learners = LEARNERS if given.demo is not None else FEW
        print(json.dumps({"part": "cost", **cost(stream, learners, given.rounds)}), flush=True)


if __name__ == "__main__":
    main()
