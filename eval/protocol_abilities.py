"""What a protocol may do beyond `check`, `task`, `run` and `score`: it has an ability by having the method.

Each function is called in place of the method, and says what happens for a protocol without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from driftline.eval.experiment.rehearsal import rehearsal
from driftline.eval.learner import Learner
from driftline.eval.protocol import Protocol, Ran, Start, skip_reason
from driftline.stream_builder.stream import Stream


def _own(protocol: Protocol, ability: str) -> Callable[..., Any] | None:
    """None also for a setting of that name."""
    method = getattr(protocol, ability, None)
    return method if callable(method) else None


def resolve(protocol: Protocol, stream: Stream) -> Protocol:
    """`resolve(stream)`: the same protocol with numbers in place of settings that depend on the stream ("auto"); called
    after `check`. Without it: unchanged."""
    own = _own(protocol, "resolve")
    resolved: Protocol = own(stream) if own else protocol
    return resolved


def defaults(protocol: Protocol, learner: Learner) -> dict[str, Any]:
    """`defaults(learner)`: settings that the protocol gives a learner in place of its own defaults; those that a user
    gives stay. Without it: none."""
    own = _own(protocol, "defaults")
    return own(learner) if own else {}


def trials(protocol: Protocol, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
    """`trials(stream, rng, seed)`: what candidates of settings run on: streams none of whose samples is scored in the
    run itself, each with its protocol; the mean of the scores that choose decides. rng: in the state in which `run`
    gets it. Without it: one trial, on three parts of the first step's training data.

    Raises IncompatibleStream if there are too few samples.
    """
    if own := _own(protocol, "trials"):
        return list(own(stream, rng, seed))
    part = rehearsal(stream, stream.steps[0]["train"], rng)
    protocol.check(part)
    return [(protocol, part)]


def learners_per_pass(protocol: Protocol) -> int:
    """`learners_per_pass`, a number: how many runs `run_many` takes at once. Without it: 1."""
    return int(getattr(protocol, "learners_per_pass", 1))


def run_many(protocol: Protocol, stream: Stream, starts: Sequence[Start]) -> Iterator[tuple[int, Ran | Exception]]:
    """`run_many(stream, starts)`: position and outcome of each run, or why it was skipped. Without it: `run`, one after
    the other."""
    if own := _own(protocol, "run_many"):
        yield from own(stream, starts)
        return
    for i, start in enumerate(starts):
        try:
            rows = list(protocol.run(stream, start.learner, start.rng, start.seed))
            ran: Ran | Exception = Ran(rows, start.learner)
        except Exception as error:
            ran = skip_reason(error)
        yield i, ran


def facts(protocol: Protocol, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
    """`facts(stream, learner, seed)`: what a finished run's record says beside its rows, as plain data. Documents and
    the protocol's page have its entries "told" (about the stream) and "budget". Without it: none."""
    own = _own(protocol, "facts")
    return own(stream, learner, seed) if own else {}


def training_sizes(protocol: Protocol, stream: Stream) -> list[int] | None:
    """`training_sizes(stream)`: samples of each step that learners train on, for estimates of the time. Without it:
    None, there is no estimate."""
    own = _own(protocol, "training_sizes")
    return own(stream) if own else None
