"""The walk: predict; if wrong, the policy decides; correct. Tests before the first sample, every few, at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eval.learner import Learner
from eval.protocol import tested
from eval.protocols.ocrr.policies import Policy
from eval.protocols.ocrr.scenarios import Scenario
from eval.rows import Row
from stream_builder.stream import Step


def recover(
    scenario: Scenario, learner: Learner, policy: Policy, every: int, n_classes: int, rng: np.random.Generator
) -> Iterator[Row]:
    """Rows tested on "novel" and "original", each at a number of corrections and samples seen; "stream" says how many
    of the samples since the last test were right when they came."""
    begun = time.process_time()
    learner.learn_step(Step(0, "seed", {"train": scenario.seed}))
    learner.expect([scenario.stream.x, scenario.novel.x, scenario.original.x])
    given, right, since = 0, 0, 0
    waiting: list[tuple[int, int, int]] = []  # when, which sample, what it is said to be

    def tests(seen: int) -> Iterator[Row]:
        for name in ("novel", "original"):
            row = tested(learner, getattr(scenario, name), name, begun, learned_to=0, seen=seen, corrections=given)
            yield replace(row, class_n=(), class_correct=(), stored=learner.stored_bytes())

    yield from tests(0)
    total = len(scenario.stream)
    for i in range(total):
        while waiting and waiting[0][0] <= i:
            _, which, label = waiting.pop(0)
            learner.correct(scenario.stream.x[which : which + 1], np.array([label]))
        truth = int(scenario.stream.y[i])
        answer = int(learner.predict(scenario.stream.x[i : i + 1])[0])
        since += 1
        right += answer == truth
        if answer != truth and policy.corrects(given, rng):
            given += 1
            label = policy.label(truth, n_classes, rng)
            if policy.delay:
                waiting.append((i + policy.delay, i, label))
            else:
                learner.correct(scenario.stream.x[i : i + 1], np.array([label]))
        if (i + 1) % every == 0 or i + 1 == total:
            seconds = time.process_time() - begun
            yield Row("stream", since, right, seen=i + 1, corrections=given, seconds=seconds)
            right, since = 0, 0
            yield from tests(i + 1)
