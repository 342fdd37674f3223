"""OCRR's scale study: what a substrate of many samples costs and finds, by exact search and by each index."""

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Task
from driftline.eval.learners.neighbours import Substrate
from driftline.eval.memory.knn_index import unit

Search = Literal["brute", "ivf", "hnsw"]
CLASSES, WIDTH, PART = 100, 384, 65_536
ASKED, CORRECTED, NOISE = 64, 200, 0.15


def scale_study(n: int, search: Search) -> dict[str, Any]:
    """A substrate of n entries with one search (brute: exact): CPU microseconds of a single prediction and of a
    correction, the share of the five nearest that the search finds (`recall`), and of right answers.

    100 Gaussian classes of 384 numbers, with `NOISE` a number around a mean of length one; 64 predictions, then 200
    corrections. Ten thousand entries take seconds; an HNSW index takes 1 to 3 ms an entry, a million nearly an hour
    and 8 GB of memory.
    """
    rng = rng_for(0, "scale", n)
    means = unit(rng.normal(size=(CLASSES, WIDTH)))
    y = rng.integers(0, CLASSES, n + ASKED + CORRECTED)
    parts = np.split(y, range(PART, len(y), PART))
    x = np.concatenate([(means[p] + rng.normal(0, NOISE, (len(p), WIDTH))).astype(np.float32) for p in parts])
    learner = Substrate(index=search) if search == "brute" else Substrate(index=search, exact_below=n - 1)
    learner.begin(Task(CLASSES, (WIDTH,)), rng_for(0))
    learner.learn(x[:n], y[:n])
    asked, truth = x[n : n + ASKED], y[n : n + ASKED]
    learner.predict(asked)  # the first search allocates
    single = _seconds(lambda: [learner.predict(q[None]) for q in asked]) / ASKED
    labels, _ = learner.predict(asked)
    recall = learner.recall(asked)

    def correct() -> None:
        for i in range(n + ASKED, n + ASKED + CORRECTED):
            learner.correct(x[i : i + 1], y[i : i + 1])

    corrected = _seconds(correct) / CORRECTED
    one, change = (round(1e6 * seconds, 1) for seconds in (single, corrected))
    right = round(float((labels == truth).mean()), 3)
    costs = {"entries": n, "search": search, "predict_us": one, "correct_us": change}
    return costs | {"recall": round(recall, 3), "accuracy": right}


def _seconds(work: Callable[[], object]) -> float:
    clock = time.process_time()
    work()
    return time.process_time() - clock
