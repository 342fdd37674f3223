"""The protocol with its settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from curate.core.errors import BadConfig, IncompatibleStream
from eval.checkpoint import Checkpoint
from eval.learner import Learner, Task
from eval.protocol import Walk
from eval.protocols.near_future import loop as walks
from eval.protocols.near_future import score as scores
from eval.rows import Row
from stream_builder.measures.label_correlation import blind_curve_of
from stream_builder.stream import Split, Step, Stream

TOLERANCE = 0.005  # of the blind classifier's accuracy above chance


@dataclass(frozen=True)
class NearFuture(Walk):
    """Online accuracy, accuracy S samples ahead, and retention, in one pass over a stream in its own order.

    batch: B samples at a time. shift: S in samples, or "auto": the smallest at which the blind classifier is at chance.
    also: further shifts, joined by "+". updates: of the weights that a batch of the stream pays for; methods whose
    update costs more do fewer. delay: batches until labels come. points: rows of each score along the way. sort: order
    the samples by time first, where the stream is not. abreast: runs that share one pass over the stream, and with it
    main memory; it changes no result.
    """

    batch: int = 64
    shift: int | str = "auto"
    also: str = ""
    updates: float = 1.0
    delay: int = 0
    points: int = 50
    sort: bool = False
    abreast: int = 16

    def __post_init__(self) -> None:
        whole = isinstance(self.shift, int) and not isinstance(self.shift, bool) and self.shift >= 0
        if self.shift != "auto" and not whole:
            raise BadConfig(f"shift is {self.shift!r}.", "Expected a number of samples from 0, or auto.")
        if min(self.batch, self.points, self.abreast) < 1 or self.delay < 0 or self.updates <= 0:
            raise BadConfig(
                f"batch is {self.batch}, updates {self.updates}, delay {self.delay}, points {self.points}.",
                "Expected at least 1, above 0, at least 0, and at least 1.",
            )
        self.further()

    def further(self) -> list[int]:
        """The shifts of `also`. Raises BadConfig."""
        words = [w for w in str(self.also).split("+") if w]
        if wrong := [w for w in words if not w.isdigit()]:
            raise BadConfig(f"also holds {wrong[0]!r}.", "Expected numbers of samples joined by +, as in 64+1024.")
        return [int(w) for w in words]

    def trains(self, stream: Stream) -> list[Split]:
        """The training split of every step, in order of time. Raises IncompatibleStream where they are not."""
        splits = [step["train"] for step in stream.steps]
        times = [s.time for s in splits]
        if any(t is None for t in times):
            return splits
        when = np.concatenate([np.asarray(t) for t in times if t is not None])
        if not len(when) or bool((np.diff(when) >= 0).all()):
            return splits
        if not self.sort:
            at = int(np.argmax(np.diff(when) < 0)) + 1
            raise IncompatibleStream(
                f"Sample {at} of {stream.name!r} is older than the one before it.",
                "near-future walks a stream in order of time.",
                "Add --sort, or make the stream with driftline stream from-order.",
            )
        whole = stream.flat("train")
        return [whole.take(np.argsort(when, kind="stable"))]

    def fit(self, stream: Stream) -> None:
        """Raise IncompatibleStream, before any work, where the stream cannot be walked."""
        for step in stream.steps:
            if "test" not in step.splits or not len(step.splits["test"]):
                raise IncompatibleStream(
                    f"Step {step.name!r} of {stream.name!r} has no test split.",
                    "near-future holds samples of every period out, for retention.",
                    "Use driftline stream from-order --held-out 0.1.",
                )
        n = sum(len(split) for split in self.trains(stream))
        labels = np.unique(np.concatenate([np.asarray(step["train"].y) for step in stream.steps]))
        if len(labels) < 2:
            raise IncompatibleStream(f"{stream.name!r} has one class only.", "Every learner that names it is right.")
        if isinstance(self.shift, int) and n < self.shift + self.batch:
            raise IncompatibleStream(
                f"{stream.name!r} has {n} training samples; shift and batch are {self.shift} and {self.batch}.",
                "Expected at least as many as both together.",
                "Use a smaller shift, or a longer stream.",
            )

    def settled(self, stream: Stream) -> NearFuture:
        """The same with a number for `shift`. Raises IncompatibleStream where no shift is at chance."""
        if isinstance(self.shift, int):
            return self
        curve = blind_curve_of(stream)
        if curve.suggested is None:
            raise IncompatibleStream(
                f"In {stream.name!r} the blind classifier is above chance ({curve.chance:.3f}) at every shift up to "
                f"{curve.shifts[-1]} ({curve.best[-1]:.3f}): labels tell of each other as far as the stream can show.",
                "Expected a stream that is longer than its labels' correlation.",
                "Set shift to a number of samples.",
            )
        settled = replace(self, shift=curve.suggested)
        settled.fit(stream)
        return settled

    def told(self, stream: Stream) -> dict[str, Any]:
        """The blind classifier's curve, and whether S is where it is at chance."""
        curve = blind_curve_of(stream)
        told: dict[str, Any] = {"blind": curve.plain()}
        near = [b for s, b in zip(curve.shifts, curve.best, strict=True) if s <= int(self.shift)]
        if near and near[-1] > curve.chance + TOLERANCE:
            told["warning"] = (
                f"At S = {self.shift} labels alone still give {near[-1]:.3f} (chance {curve.chance:.3f}): near-future "
                f"accuracy there rewards what never looks at a sample."
            )
        return told

    def task(self, stream: Stream) -> Task:
        """Classes, shape, batch and budget; the number of steps is not disclosed."""
        return Task(len(stream.classes), stream.x_shape, None, self.batch, self.updates)

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """The first step's training split."""
        return stream.steps[0].visible()

    def together(
        self, stream: Stream, learners: Sequence[Learner], saves: Sequence[Checkpoint | None]
    ) -> Iterator[tuple[int, list[Row] | Exception]]:
        """One pass with all learners; each one's rows, or why it stopped."""
        shifts = {"online": 0, "near_future": int(self.shift)} | {f"shift/{s}": s for s in self.further()}
        plan = walks.Plan(self.batch, shifts, self.delay, self.points)
        return walks.advance(stream, self.trains(stream), plan, learners, saves)

    def walk(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "online", "near_future", "shift/S" and "retention/j". Raises IncompatibleStream for a
        learner that needs whole steps."""
        walk = self.settled(stream)
        if learner.needs_whole_steps:
            raise IncompatibleStream(f"It cannot learn batch by batch: {learner.needs_whole_steps}.")
        for _, rows in walk.together(stream, [learner], [None]):
            if isinstance(rows, Exception):
                raise rows
            yield from rows

    def spent(self, learner: Learner, samples: int) -> dict[str, Any]:
        """Updates that were paid for and that were taken, in those of plain SGD."""
        paid = self.updates * -(-samples // self.batch)
        taken = learner.gradient_steps * learner.cost
        over = {"overspent": round(taken / paid, 3)} if taken > paid * 1.000001 else {}
        return {"updates_paid": paid, "updates_taken": round(taken, 3), **over}

    def score(self, rows: Sequence[Row], steps: int) -> dict[str, Any]:
        """online, near_future, retention; the retention matrix and the running curves."""
        return scores.scored(rows, steps)
