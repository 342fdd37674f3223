"""The loop: predict what comes S samples later, then learn the current batch [near-future accuracy, sec. 3; EvalOCL].

At time t a learner has learned [0, t·B); it predicts [S + t·B, S + (t+1)·B), and then learns batch t. Samples [0, S)
are never scored at S, and the last S are trained on and never scored. Nor is what comes before the first batch is
learned, where an untrained network would name classes by chance. S counts samples; several are scored in one pass,
since prediction is pure. A learner that works sample by sample learns each sample of a batch before it predicts the
next. Labels are shown, and their samples learned, in the order of `driftline.eval.history`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.checkpoint import Checkpoint
from driftline.eval.history import History, Reveals, reveals
from driftline.eval.learner import Learner
from driftline.eval.predictions import Sure, Tally, answers, evaluate_split, sure_answers
from driftline.eval.protocol import Ran, skip_reason
from driftline.eval.rows import Row, changed
from driftline.stream_builder.stream import Split, Stream

Labels = npt.NDArray[np.int64]
Spans = Mapping[int, tuple[int, int]]  # S → the samples that are predicted now, [low, high)


@dataclass(frozen=True)
class Plan:
    """How the stream is cut, and what is scored."""

    batch: int
    """B, samples"""
    shifts: Mapping[str, int]
    """name of the score → S, samples"""
    delay: int
    """batches until labels come, at least"""
    points: int
    """rows of each score"""
    prefix: int = 0
    """samples at the start that are never scored"""

    def span(self, t: int, shift: int, n: int, first: int) -> tuple[int, int] | None:
        """The samples of n that are predicted before batch t is learned and scored, [low, high); None: there are none,
        also before anything is learned. first: the batch at whose end the first label is shown."""
        low, high = max(self.prefix, shift + t * self.batch), min(n, shift + (t + 1) * self.batch)
        return (low, high) if t > first and low < high else None


@dataclass(frozen=True)
class Feed:
    """What a learner learns, one moment after the other."""

    history: History
    """samples in the order in which their labels are shown"""
    reveals: Reveals
    ahead: int
    """samples between a sample and its label, as `Task.shifts` has them"""

    def learn(self, learner: Learner, moment: int) -> None:
        """The samples whose labels are shown when a moment ends, if there are any."""
        start, seen = self.reveals.shown(moment - 1), self.reveals.shown(moment)
        if start < seen:
            learner.learn_from(self.history.past(start, seen))


@dataclass
class Progress:
    """How far one learner is."""

    done: int = 0
    """batches"""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """since the last row: name of the score → its test"""
    rows: list[Row] = field(default_factory=list)
    stopped: Exception | None = None
    """why it goes no further"""
    seconds: float = 0.0
    """of this learner's own work"""


def advance(
    stream: Stream, trains: Sequence[Split], plan: Plan, learners: Sequence[Learner], saves: Sequence[Checkpoint | None]
) -> Iterator[tuple[int, Ran | Exception]]:
    """One pass over the stream with all learners; yields the position and run of each, or why it stopped.

    saves: where the state of each learner is kept from time to time. A learner with a stored state goes on from it, and
    ends with the same rows as one that was never interrupted.
    """
    whole = History(trains)
    n, batch = len(whole.labels), plan.batch
    batches = reveals(trains, batch, plan.delay)
    feeds = {
        single: Feed(whole if shown.order is None else History(trains, shown.order), shown, batches.lag)
        for single, shown in ((False, batches), (True, reveals(trains, 1, plan.delay * batch)))
    }
    places = [split.position for split in trains]
    positions = None if any(p is None for p in places) else np.concatenate([p for p in places if p is not None])
    last = -(-n // batch)
    ends = np.cumsum([len(step["train"]) for step in stream.steps])
    every = max(1, last // plan.points)
    states = [Progress() for _ in learners]
    current: list[Learner] = list(learners)
    for i, save in enumerate(saves):
        try:
            if save is not None and (kept := save.load(current[i], states[i])) is not None:
                current[i], states[i] = kept
        except Exception as error:
            states[i].stopped = skip_reason(error)
    for t in range(min((state.done for state in states), default=last), last):
        start, seen = t * batch, min(n, (t + 1) * batch)
        spans = {s: span for s in plan.shifts.values() if (span := plan.span(t, s, n, batches.first)) is not None}
        x = whole.x(np.concatenate([np.arange(*span) for span in spans.values()])) if spans else None
        periods = [j for j, end in enumerate(ends.tolist()) if start < end <= seen]
        for i, (learner, state) in enumerate(zip(current, states, strict=True)):
            if state.done > t or state.stopped is not None:
                continue
            begun = time.process_time()
            try:
                single = learner.needs.single_samples
                asked = (_samples if single else _batch)(learner, feeds[single], plan, t, spans, x)
                _count(state, plan, spans, asked, whole.labels, positions)
                state.seconds += time.process_time() - begun
                if (t + 1) % every == 0 or t + 1 == last:
                    for name in (name for name in plan.shifts if name in state.tallies):
                        state.rows.append(state.tallies.pop(name).row(seen=seen, seconds=state.seconds))
                _retain(learner, state, stream, periods, seen)
                state.done = t + 1
                if (save := saves[i]) is not None:
                    save.keep(learner, state, final=t + 1 == last)
            except Exception as error:
                state.stopped = skip_reason(error)
    for i, state in enumerate(states):
        yield i, state.stopped or Ran(state.rows, current[i])


def majority(labels: Labels, shown: Reveals, plan: Plan, shift: int) -> float | None:
    """Accuracy `shift` samples ahead of the class that is most frequent so far, the lowest of equal ones; None if
    nothing is scored. shown: when labels are."""
    learned = labels if shown.order is None else labels[shown.order]
    counts, right, asked = np.zeros(int(labels.max(initial=0)) + 1, np.int64), 0, 0
    for t in range(-(-len(labels) // plan.batch)):
        if (span := plan.span(t, shift, len(labels), shown.first)) is not None:
            right += int((labels[slice(*span)] == counts.argmax()).sum())
            asked += span[1] - span[0]
        np.add.at(counts, learned[shown.shown(t - 1) : shown.shown(t)], 1)
    return right / asked if asked else None


def _batch(learner: Learner, feed: Feed, plan: Plan, t: int, spans: Spans, x: Any) -> Sure:
    """Predict x, the samples of all spans, then learn the batch whose labels come; returns the answers."""
    size = sum(high - low for low, high in spans.values())
    asked: Sure = sure_answers(learner, x, size) if size else (np.zeros(0, np.int64), None)
    feed.learn(learner, t)
    return asked


def _samples(learner: Learner, feed: Feed, plan: Plan, t: int, spans: Spans, x: Any) -> Sure:
    """The same, one sample after the other, without confidence."""
    begins = np.cumsum([0, *(high - low for low, high in spans.values())]).tolist()
    labels = np.zeros(begins[-1], np.int64)
    for position in range(t * plan.batch, min(feed.reveals.n, (t + 1) * plan.batch)):
        for begin, (shift, (low, high)) in zip(begins, spans.items(), strict=False):
            if low <= position + shift < high:
                row = begin + position + shift - low
                labels[row] = answers(learner, x[row : row + 1].copy(), 1, shift + feed.ahead)[0]
        feed.learn(learner, position)
    return labels, None


def _count(state: Progress, plan: Plan, spans: Spans, answers: Sure, labels: Labels, positions: Labels | None) -> None:
    """Count right answers by name."""
    named, confidence = answers
    begins = dict(zip(spans, np.cumsum([0, *(high - low for low, high in spans.values())]).tolist(), strict=False))
    for name, shift in plan.shifts.items():
        if shift in spans:
            low, high = spans[shift]
            part = slice(begins[shift], begins[shift] + high - low)
            tally = state.tallies.setdefault(name, Tally(name))
            sure = None if confidence is None else confidence[part]
            tally.add(None if positions is None else positions[low:high], labels[low:high], named[part], sure)


def _retain(learner: Learner, state: Progress, stream: Stream, periods: Sequence[int], seen: int) -> None:
    """After periods that end with one batch: for each, the held-out samples of every period so far, if there are any.
    The model is the same for all of them, so each split is tested once."""
    begun, tested = time.process_time() - state.seconds, dict[int, Row]()
    for j in periods:
        for i in range(j + 1 if "test" in stream.steps[j].splits else 0):
            if i not in tested:
                test = stream.steps[i]["test"]
                tested[i] = evaluate_split(learner, test, f"retention/{i}", begun, learned_to=j, seen=seen)
            state.rows.append(changed(tested[i], {"learned_to": j}))
