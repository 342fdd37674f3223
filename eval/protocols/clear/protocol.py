"""The two protocols with their settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Learner, Task
from driftline.eval.protocol import Protocol, Result, rehearsal
from driftline.eval.protocols.clear import loop
from driftline.eval.protocols.clear.score import IID, MEASURES, ROLES, STREAMING, by_class, matrix, start
from driftline.eval.rows import Row
from driftline.eval.training.online_learner import chosen_rate
from driftline.stream_builder.stream import Stream


class Clear(Protocol):
    """What both have in common."""

    primary = "next_domain"
    roles = ROLES

    def task(self, stream: Stream) -> Task:
        """Classes, shape, number of steps."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps), corrections=False)

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """Online heads choose their learning rates."""
        return chosen_rate(learner)


@dataclass(frozen=True)
class Iid(Clear):
    """CLEAR's iid protocol: train and test splits of every step, a T × T accuracy matrix."""

    splits: Literal["stream", "seeded", "published", "random"] = "stream"
    """"stream": the stream's own test sets; "seeded": a new split for every seed, stratified by class, with all samples
    of an uploader or group of near copies on one side, if they are known; "published": seed s takes published split
    s mod K of the stream's K, so that seeds 0 … nK − 1 run each n times; "random": like "seeded" without groups, as in
    the paper's five 70/30 splits, whose test samples share uploaders with training"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """share of test samples in a seeded or random split"""

    scores = tuple(IID)
    measures = tuple(MEASURES)
    refuses = ("all_steps",)

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks train or test, or the stream has no published splits to choose."""
        loop.check(stream, streaming=self.splits in ("seeded", "random"))
        if self.splits == "published" and not stream.published_splits:
            raise IncompatibleStream(
                f"{stream.name!r} has one split only.",
                "splits=published needs a stream from a release with several.",
                "Make it with driftline stream from-release, or set splits=stream.",
            )

    def unused(self) -> dict[str, str]:
        """The share of splits that are not drawn."""
        drawn = self.splits in ("seeded", "random")
        return {} if drawn else {"test_share": f"splits is {self.splits}, and none is drawn"}

    def split(self, stream: Stream, rng: np.random.Generator, seed: int) -> Stream:
        """The stream with the train and test splits of a run."""
        if self.splits == "published":
            return stream.published(seed % stream.published_splits)
        grouped = self.splits == "seeded"
        return stream if self.splits == "stream" else stream.resplit(self.test_share, rng, grouped)

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """Three parts of the first step's training data, as this seed splits it."""
        train = self.split(stream, rng, seed).steps[0]["train"]
        return [(replace(self, splits="stream"), rehearsal(stream, train, rng))]

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """Share of test samples that share an uploader, or are near copies of, a training sample, on the split of seed
        0, and a warning if there are any."""
        bare = replace(  # the samples are not needed, and need not be copied
            stream,
            steps=[
                replace(step, splits={name: replace(split, x=split.y) for name, split in step.splits.items()})
                for step in stream.steps
            ],
        )
        shared = self.split(bare, rng_for(0, "shared"), 0).shared_with_training()
        if shared is None:
            return {}
        about: dict[str, Any] = {"shared_with_training": round(shared, 4)}
        if shared:
            about["warning"] = (
                f"{shared:.1%} of the test samples share an uploader, or are near copies of, a training sample: "
                f"in-domain accuracy is too high. splits=seeded keeps them apart."
            )
        return {"told": about}

    def training_sizes(self, stream: Stream) -> list[int]:
        """The training splits."""
        return [len(step["train"]) for step in stream.steps]

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "0" … "T-1" after each step."""
        return loop.iid(self.split(stream, rng, seed), learner)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """in_domain, next_domain, accuracy, backward, forward; the measures of other papers; the matrix."""
        r, b = matrix(rows, steps), start(rows, steps)
        scores = {kind.name: float(function(r)) for kind, function in IID.items()}
        measures = {kind.name: float(function(r, b)) for kind, function in MEASURES.items()}
        return Result(scores, measures, by_class(rows, steps), r)


@dataclass(frozen=True)
class Streaming(Clear):
    """CLEAR's streaming protocol: all of a step is training data, tests are all of the later steps."""

    scores = tuple(STREAMING)
    refuses = ("all_steps", "future")

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks training data."""
        loop.check(stream, streaming=True)

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """Three parts of the first step, which is never tested on."""
        return [(self, rehearsal(stream, stream.steps[0].everything(), rng))]

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
        scores = {kind.name: float(function(r)) for kind, function in STREAMING.items()}
        return Result(scores, by_class=by_class(rows, steps), matrix=r)


class EqualIid(Iid):
    """clear-iid with models that all learn equally many samples: what `--equal-data` runs beside it."""

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows as of `Iid`."""
        split = self.split(stream, rng, seed)
        return loop.equally(stream, learner, [step.visible() for step in split], [step["test"] for step in split], 0)


class EqualStreaming(Streaming):
    """The same of clear-streaming."""

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows as of `Streaming`."""
        steps = [step.past() for step in stream]
        return loop.equally(stream, learner, steps, [step["train"] for step in steps], 1)
