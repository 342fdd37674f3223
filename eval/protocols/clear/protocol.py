"""The two protocols with their settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.core.errors import BadConfig
from eval.learner import Learner, Task
from eval.protocol import Walk
from eval.protocols.clear import loop as walks
from eval.protocols.clear import score as scores
from eval.protocols.clear.measures import MEASURES
from eval.rows import Row
from stream_builder.stream import Step, Stream


@dataclass(frozen=True)
class Iid(Walk):
    """CLEAR's iid protocol: train and test splits of every step, a T × T accuracy matrix.

    splits: "stream" uses the stream's own test sets; "seeded" draws a fresh stratified split for every seed, as
    the paper's five 70/30 splits do. test_share: share of test samples with "seeded".
    """

    splits: str = "stream"
    test_share: float = 0.3

    def __post_init__(self) -> None:
        if self.splits not in ("stream", "seeded"):
            raise BadConfig(f"splits is {self.splits!r}.", "Expected stream or seeded.")
        if not 0 < self.test_share < 1:
            raise BadConfig(f"test_share is {self.test_share}.", "Expected a number between 0 and 1.")

    def fit(self, stream: Stream) -> None:
        """Raise IncompatibleStream where a step lacks train or test."""
        walks.fit(stream, streaming=self.splits == "seeded")

    def task(self, stream: Stream) -> Task:
        """Classes, shape, number of steps."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps))

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """The first step's training split."""
        first = stream.steps[0]
        return (walks.resplit(first, self.test_share, rng) if self.splits == "seeded" else first).visible()

    def walk(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "0" … "T-1" after each step."""
        return walks.iid(stream, learner, rng, self.splits == "seeded", self.test_share)

    def score(self, rows: Sequence[Row], steps: int) -> dict[str, Any]:
        """in_domain, next_domain, accuracy, backward, forward, and the matrix; the measures of other papers beside."""
        r, b = scores.matrix(rows, steps), scores.start(rows, steps)
        return {
            "scores": {name: f(r) for name, f in scores.IID.items()},
            "matrix": r,
            "measures": {name: f(r, b) for name, f in MEASURES.items()},
            "by_class": scores.by_class(rows, steps),
        }


@dataclass(frozen=True)
class Streaming(Walk):
    """CLEAR's streaming protocol: all of a step is training data, tests are all of the later steps."""

    def fit(self, stream: Stream) -> None:
        """Raise IncompatibleStream where a step lacks training data."""
        walks.fit(stream, streaming=True)

    def task(self, stream: Stream) -> Task:
        """Classes, shape, number of steps."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps))

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """All of the first step."""
        return stream.steps[0].past()

    def walk(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on later steps only."""
        return walks.streaming(stream, learner, rng)

    def score(self, rows: Sequence[Row], steps: int) -> dict[str, Any]:
        """next_domain and forward; cells with j ≤ i do not exist."""
        r = scores.matrix(rows, steps)
        found = {name: f(r) for name, f in scores.STREAMING.items()}
        return {"scores": found, "matrix": r, "measures": {}, "by_class": scores.by_class(rows, steps)}
