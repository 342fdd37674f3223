"""The protocol with its settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.atomic_io import fingerprint
from curate.core.errors import BadConfig, IncompatibleStream
from curate.core.seeding import rng_for
from eval.learner import Learner, Task
from eval.memory.correction_ledger import Ledger
from eval.protocol import Walk
from eval.protocols.ocrr import loop as walks
from eval.protocols.ocrr import policies, scenarios
from eval.protocols.ocrr import score as scores
from eval.rows import Row
from stream_builder.stream import Step, Stream


@dataclass(frozen=True)
class Ocrr(Walk):
    """Recovery from a shift by online correction: seed data, then samples that are predicted and, if wrong, corrected.

    policy: who corrects what, as in `random_50+delayed:20` (see `policies`). scenario: "categorical", "within-class",
    "temporal", or "auto". held_out: classes that are novel. order: of seed rows, "shuffled", or "file" as the
    reference. every: samples between tests. tests: samples of each test set at most. mix: samples of the original
    distribution in the stream, for each novel one. ledger: a folder that gets a record of every correction, one file
    a learner, its settings and seed; begun anew with the run.
    """

    policy: str = "oracle"
    scenario: str = "auto"
    held_out: int = 10
    order: str = "shuffled"
    every: int = 50
    tests: int = 400
    mix: float = 0.0
    ledger: str = ""

    def __post_init__(self) -> None:
        policies.parse(self.policy)
        if self.order not in ("shuffled", "file") or min(self.every, self.tests) < 1 or self.mix < 0:
            raise BadConfig(
                f"order is {self.order!r}, every {self.every}, tests {self.tests}, mix {self.mix}.",
                "Expected shuffled or file, at least 1, at least 1, and at least 0.",
            )

    def fit(self, stream: Stream) -> None:
        """Raise IncompatibleStream, before any work, where the stream cannot be cut."""
        for step in stream.steps:
            for side in ("train", "test"):
                if side not in step.splits:
                    raise IncompatibleStream(
                        f"Step {step.name!r} of {stream.name!r} has no {side} split.", "ocrr needs both."
                    )
        self.cut(stream, 0)

    def cut(self, stream: Stream, seed: int) -> scenarios.Scenario:
        """The four parts for a seed."""
        shuffled = self.order == "shuffled"
        return scenarios.cut(stream, self.scenario, self.held_out, self.tests, shuffled, self.mix, seed)

    def task(self, stream: Stream) -> Task:
        """Classes (the label space is disclosed, as the reference's heads need), shape."""
        return Task(len(stream.classes), stream.x_shape, classes=tuple(stream.classes))

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """The first step's training split."""
        return stream.steps[0].visible()

    def walk(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "novel", "original" and "stream"."""
        cut = self.cut(stream, seed)
        draws = rng_for(seed, "ocrr", self.policy)
        policy = policies.parse(self.policy)
        rows = walks.recover(cut, learner, policy, self.every, list(stream.classes), draws, self._book(learner, seed))
        yield from rows

    def _book(self, learner: Learner, seed: int) -> Ledger | None:
        """An empty ledger for this run."""
        if not self.ledger:
            return None
        kind, settings = type(learner).__name__.lower(), learner.settings()
        usual = settings == type(learner)().settings()
        digest = "" if usual else f"-{fingerprint(settings)[:8]}"
        path = Path(self.ledger) / f"{kind}{digest}-seed{seed}.ledger"
        path.unlink(missing_ok=True)
        return Ledger(path)

    def score(self, rows: Sequence[Row], steps: int) -> dict[str, Any]:
        """novel, original, corrections_to_50, _70, _90 (None: never); the curve over corrections."""
        return scores.scored(rows)
