"""The loop: predict what comes S samples later, then learn the current batch [near-future accuracy, sec. 3; EvalOCL].

At time t a learner has learned [0, t·B); it predicts [S + t·B, S + (t+1)·B), and then learns batch t. Samples [0, S)
are never scored at S, and the last S are trained on and never scored. S counts samples; several are scored in one pass,
since prediction is pure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from curate.core.errors import BadArray
from eval.checkpoint import Checkpoint
from eval.history import Past
from eval.learner import Learner
from eval.protocol import answers, evaluate_split, skip_reason
from eval.rows import Row
from stream_builder.stream import Split, Stream


@dataclass(frozen=True)
class Plan:
    """How the stream is cut, and what is scored."""

    batch: int
    """B, samples"""
    shifts: Mapping[str, int]
    """name of the score → S, samples"""
    delay: int
    """batches until labels come"""
    points: int
    """rows of each score"""


@dataclass
class Progress:
    """How far one learner is."""

    done: int = 0
    """batches"""
    counts: dict[str, list[int]] = field(default_factory=dict)
    """since the last row: name of the score → tested, right"""
    rows: list[Row] = field(default_factory=list)
    stopped: Exception | None = None
    """why it goes no further"""
    seconds: float = 0.0
    """of this learner's own work"""


def advance(
    stream: Stream, trains: Sequence[Split], plan: Plan, learners: Sequence[Learner], saves: Sequence[Checkpoint | None]
) -> Iterator[tuple[int, list[Row] | Exception]]:
    """One pass over the stream with all learners; yields the position and rows of each, or why it stopped.

    saves: where the state of each learner is kept from time to time. A learner with a stored state goes on from it, and
    ends with the same rows as one that was never interrupted.
    """
    whole = Past.of(trains)
    n, batch = len(whole.labels), plan.batch
    last = -(-n // batch)
    ends = np.cumsum([len(step["train"]) for step in stream.steps])
    every = max(1, last // plan.points)
    states = [Progress() for _ in learners]
    current: list[Learner] = list(learners)
    for i, save in enumerate(saves):
        if save is not None and (kept := save.load()) is not None:
            current[i], states[i] = kept
    for t in range(min((state.done for state in states), default=last), last):
        start, seen = t * batch, min(n, (t + 1) * batch)
        ahead = {name: (s + start, min(n, s + seen)) for name, s in plan.shifts.items() if s + start < n}
        spans = list(dict.fromkeys(ahead.values()))
        view = whole.at(0, n)
        x = view.x(np.concatenate([np.arange(*span) for span in spans])) if spans else None
        periods = [j for j, end in enumerate(ends.tolist()) if start < end <= seen]
        for i, (learner, state) in enumerate(zip(current, states, strict=True)):
            if state.done > t or state.stopped is not None:
                continue
            begun = time.process_time()
            try:
                if x is not None:
                    _count(learner, state, x, spans, ahead, whole.labels, stream)
                if t >= plan.delay:
                    learner.learn_from(whole.at((t - plan.delay) * batch, min(n, (t + 1 - plan.delay) * batch)))
                state.seconds += time.process_time() - begun
                if (t + 1) % every == 0 or t + 1 == last:
                    _emit(state, plan, seen)
                for j in periods:
                    _retain(learner, state, stream, j, seen)
            except Exception as error:
                state.stopped = skip_reason(error)
            state.done = t + 1
            save = saves[i]
            if save is not None and state.stopped is None:
                save.keep(learner, state, final=t + 1 == last)
    for i, state in enumerate(states):
        learners[i].__dict__.update(vars(current[i]))
        yield i, state.stopped or state.rows


def _count(
    learner: Learner, state: Progress, x: object, spans: Sequence[tuple[int, int]],
    ahead: Mapping[str, tuple[int, int]], labels: np.ndarray, stream: Stream,
) -> None:  # fmt: skip
    """Predict all spans at once, and count right answers by name."""
    answer = answers(learner, x, sum(high - low for low, high in spans))
    if len(answer) and not 0 <= int(answer.min()) <= int(answer.max()) < len(stream.classes):
        problem = f"{type(learner).__name__}.predict named label {int(answer.max())}."
        raise BadArray(problem, f"Expected 0 … {len(stream.classes) - 1}.")
    places = dict(zip(spans, np.cumsum([0, *(high - low for low, high in spans)]).tolist(), strict=False))
    for name, (low, high) in ahead.items():
        begin = places[low, high]
        right = int((answer[begin : begin + high - low] == labels[low:high]).sum())
        counted = state.counts.setdefault(name, [0, 0])
        counted[0] += high - low
        counted[1] += right


def _emit(state: Progress, plan: Plan, seen: int) -> None:
    """A row for each score that was tested since the last one."""
    for name in plan.shifts:
        if name in state.counts:
            n, right = state.counts.pop(name)
            state.rows.append(Row(name, n, right, seen=seen, seconds=state.seconds))


def _retain(learner: Learner, state: Progress, stream: Stream, j: int, seen: int) -> None:
    """After period j: the held-out samples of every period so far."""
    begun = time.process_time() - state.seconds
    for i in range(j + 1):
        test = stream.steps[i]["test"]
        state.rows.append(evaluate_split(learner, test, f"retention/{i}", begun, learned_to=j, seen=seen))
