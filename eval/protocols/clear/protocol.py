"""The two protocols with their settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from eval.learner import Learner, Task
from eval.protocol import Protocol, Result
from eval.protocols.clear import figures as charts
from eval.protocols.clear import loop
from eval.protocols.clear.measures import MEASURES
from eval.protocols.clear.score import IID, MATRIX_NOTE, STREAMING, by_class, matrix, start
from eval.rows import Row
from stream_builder.stream import Step, Stream


@dataclass(frozen=True)
class Iid(Protocol):
    """CLEAR's iid protocol: train and test splits of every step, a T × T accuracy matrix."""

    splits: Literal["stream", "seeded"] = "stream"
    """"stream": the stream's own test sets; "seeded": a new stratified split for every seed, as in the paper's five
    70/30 splits"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """share of test samples in a seeded split"""

    scores = tuple(IID)
    measures = tuple(MEASURES)
    primary = "next_domain"
    measures_title = "The same matrix by other papers' measures, and how sure the differences are"
    measures_note = (
        "GEM: Lopez-Paz & Ranzato 2017; remembering, positive backward: Díaz-Rodríguez et al. 2018; "
        "forgetting: Chaudhry et al. 2018; incremental accuracy: Rebuffi et al. 2017."
    )
    matrix_note = MATRIX_NOTE
    across = staticmethod(charts.across)

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks train or test."""
        loop.check(stream, streaming=self.splits == "seeded")

    def task(self, stream: Stream) -> Task:
        """Classes, shape, number of steps."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps))

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """The first step's training split."""
        first = stream.steps[0]
        return (loop.resplit(first, self.test_share, rng) if self.splits == "seeded" else first).visible()

    def training_sizes(self, stream: Stream) -> list[int]:
        """The training splits."""
        return [len(step["train"]) for step in stream.steps]

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "0" … "T-1" after each step."""
        return loop.iid(stream, learner, rng, self.splits == "seeded", self.test_share)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """in_domain, next_domain, accuracy, backward, forward; the measures of other papers; the matrix."""
        r, b = matrix(rows, steps), start(rows, steps)
        scores = {kind.name: function(r) for kind, function in IID.items()}
        measures = {kind.name: function(r, b) for kind, function in MEASURES.items()}
        return Result(scores, measures, by_class(rows, steps), r)


@dataclass(frozen=True)
class Streaming(Protocol):
    """CLEAR's streaming protocol: all of a step is training data, tests are all of the later steps."""

    scores = tuple(STREAMING)
    primary = "next_domain"
    matrix_note = MATRIX_NOTE
    across = staticmethod(charts.across)

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks training data."""
        loop.check(stream, streaming=True)

    def task(self, stream: Stream) -> Task:
        """Classes, shape, number of steps."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps))

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """All of the first step."""
        return stream.steps[0].past()

    def training_sizes(self, stream: Stream) -> list[int]:
        """All of each step but the last, which is only tested on."""
        sizes = [sum(len(split) for split in step.splits.values()) for step in stream.steps]
        return sizes[:-1]

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on later steps only."""
        return loop.streaming(stream, learner, rng)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """next_domain and forward; cells with j ≤ i do not exist."""
        r = matrix(rows, steps)
        scores = {kind.name: function(r) for kind, function in STREAMING.items()}
        return Result(scores, by_class=by_class(rows, steps), matrix=r)
