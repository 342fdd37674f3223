"""The walk: predict; if wrong, the policy decides; correct. Tests before the first sample, every few, at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from curate.core.errors import IncompatibleStream
from eval.learner import Array, Learner
from eval.memory.correction_ledger import Ledger
from eval.protocol import tested
from eval.protocols.ocrr.policies import Policy
from eval.protocols.ocrr.scenarios import Scenario
from eval.rows import Row
from stream_builder.stream import Step

ASKED = 20  # single predictions that the cost is measured on


def recover(
    scenario: Scenario, learner: Learner, policy: Policy, every: int, classes: Sequence[str],
    rng: np.random.Generator, book: Ledger | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Rows tested on "novel" and "original", each at a number of corrections and samples seen; "stream" says how many
    of the samples since the last test were right when they came; "cost" what single predictions and corrections took.
    book: gets each correction before the learner does.
    """
    begun = time.process_time()
    learner.learn_step(Step(0, "seed", {"train": scenario.seed}))
    learner.prepare([scenario.stream.x, scenario.novel.x, scenario.original.x])
    given, right, since, correcting = 0, 0, 0, 0.0
    waiting: list[tuple[int, int, int]] = []  # when, which sample, what it is said to be

    def tests(seen: int) -> Iterator[Row]:
        for name in ("novel", "original"):
            row = tested(learner, getattr(scenario, name), name, begun, learned_to=0, seen=seen, corrections=given)
            recall = learner.recall(getattr(scenario, name).x)
            yield replace(row, class_n=(), class_correct=(), stored=learner.stored_bytes(), recall=recall)

    def correct(which: int, label: int) -> None:
        x = scenario.stream.x[which : which + 1]
        if book is not None:
            book.append({"id": str(scenario.stream.ids[which]), "label": classes[label], "sample": which}, x[0])
        nonlocal correcting
        clock = time.process_time()
        learner.correct(x, np.array([label]))
        correcting += time.process_time() - clock

    yield from tests(0)
    total = len(scenario.stream)
    for i in range(total):
        while waiting and waiting[0][0] <= i:
            _, which, label = waiting.pop(0)
            correct(which, label)
        truth = int(scenario.stream.y[i])
        answer = int(learner.predict(scenario.stream.x[i : i + 1])[0])
        since += 1
        right += answer == truth
        if answer != truth and _noticed(policy, learner, scenario.stream.x[i : i + 1]) and policy.corrects(given, rng):
            given += 1
            label = policy.label(truth, len(classes), rng)
            if policy.delay:
                waiting.append((i + policy.delay, i, label))
            else:
                correct(i, label)
        if (i + 1) % every == 0 or i + 1 == total:
            seconds = time.process_time() - begun
            yield Row("stream", since, right, seen=i + 1, corrections=given, seconds=seconds)
            right, since = 0, 0
            yield from tests(i + 1)
    if book is not None:
        book.close()
    some = [np.array(scenario.stream.x[i : i + 1]) for i in range(min(ASKED, total))]  # copies: nobody expects them
    clock = time.process_time()
    for x in some:
        learner.predict(x)
    asking = time.process_time() - clock
    yield Row("cost", len(some), 0, seen=total, corrections=given, asking=asking, correcting=correcting)


def _noticed(policy: Policy, learner: Learner, x: Array) -> bool:
    """Whether users of this policy mind such an error. Raises IncompatibleStream for a learner that cannot say how
    sure it is."""
    if policy.confident is None:
        return True
    sure = learner.confidence(x)
    if sure is None:
        raise IncompatibleStream(
            f"{type(learner).__name__} cannot say how sure it is.", "confident:P needs that.", "Leave it out."
        )
    return bool(sure[0] >= policy.confident)
