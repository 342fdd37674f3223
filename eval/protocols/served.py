"""The protocol of runs that `driftline age --runs` writes: its rows come from a log, no learner is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from driftline.curate.core.errors import BadInput, IncompatibleStream
from driftline.eval.learner import Learner, Task
from driftline.eval.protocol import Protocol, Result, Roles, Score, mean_of_tests
from driftline.eval.rows import Row
from driftline.stream_builder.stream import Stream

MOST = 10_000  # steps of a matrix


@dataclass(frozen=True)
class Served(Protocol):
    """A model in service, by its log: each version is tested on what it answered, by period. Its accuracy is the mean
    over these periods; versions that answered in others are not compared by it."""

    scores = (Score("accuracy", "accuracy"),)
    primary = "accuracy"
    roles = Roles(lambda row: int(row.tested_on), list, mean_of_tests)

    def check(self, stream: Stream) -> NoReturn:
        """Raise IncompatibleStream: there is nothing to run."""
        raise IncompatibleStream("The protocol 'log' is of logs of models in service.", "Write runs with age --runs.")

    def task(self, stream: Stream) -> Task:
        """As `check`."""
        self.check(stream)

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """As `check`."""
        self.check(stream)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """accuracy; the matrix. Raises BadInput for rows of other steps, or of no samples."""
        places = [row.tested_on.isdecimal() and row.n > 0 and 0 <= row.learned_to <= int(row.tested_on) for row in rows]
        if not all(places) or not rows or not max(int(row.tested_on) for row in rows) < steps <= MOST:
            problem = f"A run of {steps:,} steps has rows of others, or of no samples."
            raise BadInput(
                problem, f"Expected its own steps, at most {MOST:,}.", "Write it again: driftline age --runs."
            )
        r = np.full((steps, steps), np.nan)
        for row in rows:
            r[row.learned_to, int(row.tested_on)] = row.n_correct / row.n
        return Result({"accuracy": float(np.nanmean(r))}, matrix=r)
