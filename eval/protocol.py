"""Protocols: ways to walk a stream. A walk yields counts, a score is a function of stored rows.

A new protocol is one folder in `eval/protocols/` (walk, score, presets) and one line in `PROTOCOLS`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np

from curate.core.errors import BadArray
from curate.core.registry import Registry
from eval.learner import Learner, Task
from eval.rows import Row
from stream_builder.stream import Split, Step, Stream


class Walk(TypingProtocol):
    """A frozen dataclass of settings with these verbs. One that also has `together` walks a stream once with many
    learners; see `eval.protocols.near_future`. One with `divides` lets several processes share the work of one run."""

    def fit(self, stream: Stream) -> None:
        """Raise IncompatibleStream, before any work, where the stream lacks what the protocol needs."""
        ...

    def task(self, stream: Stream) -> Task:
        """What learners are told."""
        ...

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """The first step as `walk` shows it for training, from a generator in the same state."""
        ...

    def walk(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Let the learner see and predict in the protocol's order; yield counts. seed: of the run, which `rng` also
        comes from."""
        ...

    def settled(self, stream: Stream) -> Walk:
        """The same with numbers in place of settings that the stream decides; called after `fit`."""
        return self

    def told(self, stream: Stream) -> dict[str, Any]:
        """What every run's record says of the stream under this protocol."""
        return {}

    def spent(self, learner: Learner, samples: int) -> dict[str, Any]:
        """What every run's record says of its budget. samples: of training, in the stream."""
        return {}

    def score(self, rows: Sequence[Row], steps: int) -> dict[str, Any]:
        """Rows of one run → {"scores": {name: float | None}, "matrix": …, "curve": …}."""
        ...


CHUNK = 8192  # samples predicted at once

PROTOCOLS = Registry(
    "protocol",
    {
        "clear-iid": "eval.protocols.clear.protocol:Iid",
        "clear-streaming": "eval.protocols.clear.protocol:Streaming",
        "ocrr": "eval.protocols.ocrr.protocol:Ocrr",
        "seq-to-final": "eval.protocols.seq_to_final.protocol:SeqToFinal",
        "near-future": "eval.protocols.near_future.protocol:NearFuture",
    },
    group="protocols",
)


def tested(learner: Learner, split: Split, where: str, begun: float, **at: int) -> Row:
    """Predict a split in chunks and count; the learner never sees the labels.

    Raises BadArray when the learner's answer has another shape than the labels.
    """
    right = 0
    n_classes = int(split.y.max()) + 1 if len(split) else 0
    counts, hits = np.zeros(n_classes, np.int64), np.zeros(n_classes, np.int64)
    for start in range(0, len(split), CHUNK):
        part = split.part(start, start + CHUNK)
        answer = np.asarray(learner.predict(part.x))
        if answer.shape != part.y.shape:
            raise BadArray(
                f"{type(learner).__name__}.predict gave shape {answer.shape} for {len(part)} samples.",
                f"Expected {part.y.shape}.",
            )
        right += int((answer == part.y).sum())
        counts += np.bincount(part.y, minlength=n_classes)
        hits += np.bincount(part.y[answer == part.y], minlength=n_classes)
    seconds = time.process_time() - begun
    return Row(where, len(split), right, seconds=seconds, class_n=counts.tolist(), class_correct=hits.tolist(), **at)
