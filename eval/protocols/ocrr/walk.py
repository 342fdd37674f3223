"""The walk: predict; if wrong, the policy decides; correct. Tests before the first sample, every few, at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from eval.learner import Learner
from eval.ledger import Ledger
from eval.protocol import tested
from eval.protocols.ocrr.policies import Policy
from eval.protocols.ocrr.scenarios import Scenario
from eval.rows import Row
from stream_builder.stream import Step


def recover(
    scenario: Scenario, learner: Learner, policy: Policy, every: int, classes: Sequence[str],
    rng: np.random.Generator, book: Ledger | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Rows tested on "novel" and "original", each at a number of corrections and samples seen; "stream" says how many
    of the samples since the last test were right when they came. book: gets each correction before the learner does."""
    begun = time.process_time()
    learner.learn_step(Step(0, "seed", {"train": scenario.seed}))
    learner.expect([scenario.stream.x, scenario.novel.x, scenario.original.x])
    given, right, since = 0, 0, 0
    waiting: list[tuple[int, int, int]] = []  # when, which sample, what it is said to be

    def tests(seen: int) -> Iterator[Row]:
        for name in ("novel", "original"):
            row = tested(learner, getattr(scenario, name), name, begun, learned_to=0, seen=seen, corrections=given)
            yield replace(row, class_n=(), class_correct=(), stored=learner.stored_bytes())

    def correct(which: int, label: int) -> None:
        x = scenario.stream.x[which : which + 1]
        if book is not None:
            book.append({"id": str(scenario.stream.ids[which]), "label": classes[label], "sample": which}, x[0])
        learner.correct(x, np.array([label]))

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
        if answer != truth and policy.corrects(given, rng):
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
