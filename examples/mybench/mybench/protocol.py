import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from driftline.ext import (
    Learner,
    Protocol,
    Result,
    Roles,
    Row,
    Score,
    Stream,
    Task,
    evaluate_split,
    require,
)


@dataclass(frozen=True)
class FirstOnly(Protocol):
    """How long does a model last that is never trained again?"""

    scores = (Score("last_step", "last step"), Score("errors_added", "errors added", higher_is_better=False))
    roles = Roles(step=lambda row: int(row.tested_on), decisive=lambda rows: rows[-1:])

    def check(self, stream: Stream) -> None:
        require(stream, ["train", "test"], "Expected them in every step.")

    def task(self, stream: Stream) -> Task:
        return Task(len(stream.classes), stream.x_shape, len(stream.steps))

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int) -> Iterator[Row]:
        start = time.process_time()
        learner.learn_step(stream.steps[0].visible())  # visible: without the test split
        for step in stream.steps:
            yield evaluate_split(learner, step["test"], str(step.index), start, learned_to=0)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        accuracy = [row.n_correct / row.n for row in rows]
        scores = {"last_step": accuracy[-1], "errors_added": max(accuracy) - accuracy[-1]}
        return Result(scores, curve={"at": list(range(steps)), "value": accuracy})
