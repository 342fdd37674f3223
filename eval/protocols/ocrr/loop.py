"""The loop: predict; if wrong, the policy decides; correct. Tests at the start, every few samples, and at the end.

Who corrects which errors, when, and how well: policies, joined by "+".

oracle               every error
random_50, random_10 half of them, a tenth
bernoulli:P          each with probability P
budget:N             no more than N in all
delayed:N            a correction comes N samples after its error
wrong:P              with probability P it names another class, each equally likely
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.eval.history import reveals
from driftline.eval.learner import Learner
from driftline.eval.memory.correction_ledger import Ledger
from driftline.eval.outcomes import Tally, answers, evaluate_split
from driftline.eval.protocols.ocrr.scenarios import Scenario
from driftline.eval.rows import Row
from driftline.stream_builder.step import NEVER, Step

RATES = {"oracle": 1.0, "random_50": 0.5, "random_10": 0.1}
HINT = "Expected oracle, random_50, random_10, bernoulli:P, budget:N, delayed:N, wrong:P, joined by +."


@dataclass(frozen=True)
class Policy:
    """Which errors are corrected."""

    rate: float = 1.0
    """share of errors that are corrected"""
    budget: int | None = None
    """corrections in all; None: no limit"""
    delay: int = 0
    """samples between an error and its correction"""
    wrong: float = 0.0
    """share of corrections that name another class"""

    def corrects(self, made: int, rng: np.random.Generator) -> bool:
        """Whether an error is corrected, after `made` corrections; draws only if the rate is below 1."""
        if self.budget is not None and made >= self.budget:
            return False
        return self.rate >= 1 or bool(rng.random() < self.rate)

    def label(self, truth: int, n_classes: int, rng: np.random.Generator) -> int:
        """What the correction says."""
        if self.wrong and rng.random() < self.wrong:
            return int((truth + 1 + rng.integers(n_classes - 1)) % n_classes)
        return truth


def policy_of(text: str) -> Policy:
    """`random_50+delayed:20+wrong:0.1` → a policy. Raises BadConfig."""
    parts: dict[str, float | int] = {}
    for word in str(text).split("+"):
        kind, _, number = word.strip().partition(":")
        if kind in RATES and not number:
            key, value = "rate", str(RATES[kind])
        elif kind in ("bernoulli", "budget", "delayed", "wrong"):
            key, value = {"bernoulli": "rate", "delayed": "delay"}.get(kind, kind), number
        else:
            raise BadConfig(f"The policy {text!r} holds {word.strip()!r}.", HINT)
        if key in parts:
            raise BadConfig(f"The policy {text!r} says {key} twice.", HINT)
        share = key in ("rate", "wrong")
        try:
            amount = float(value) if share else int(value)
        except ValueError:
            raise BadConfig(f"The policy {text!r}: {value!r} is no number.", HINT) from None
        if amount < 0 or (share and amount > 1):
            raise BadConfig(f"The policy {text!r}: {value}.", "Expected shares from 0 to 1, counts from 0.")
        parts[key] = amount
    return Policy(**parts)  # type: ignore[arg-type]


ASKED = 20  # single predictions, to measure their cost


def recover(
    scenario: Scenario, learner: Learner, policy: Policy, every: int, classes: Sequence[str],
    rng: np.random.Generator, ledger: Ledger | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Rows tested on "novel" and "original", each after a number of corrections and samples; "stream": right first
    predictions since the last test; "cost": seconds of single predictions and corrections. A correction counts when the
    learner receives it; one whose delay goes beyond the stream never does. If the samples have a label_time,
    corrections come in its order (see `reveals`); one whose label never comes is not made, and its answer is scored.
    ledger: open; records each correction before the learner learns it.
    """
    begun = time.process_time()
    learner.learn_step(Step(0, "seed", {"train": scenario.seed}))
    learner.prepare([scenario.stream.x, scenario.novel.x, scenario.original.x])
    made, given, correcting, tally = 0, 0, 0.0, Tally("stream")  # corrections made by users, given to the learner
    waiting: dict[int, int] = {}  # corrections that have not come: sample → label
    labels, late = reveals([scenario.stream], 1, policy.delay), scenario.stream.label_time
    learned = np.bincount(scenario.seed.y, minlength=len(classes))  # labels

    def tests(seen: int) -> Iterator[Row]:
        for name in ("novel", "original"):
            part = getattr(scenario, name)
            at = {"learned_to": 0, "seen": seen, "constant": int(learned.argmax()), "corrections": given}
            row = evaluate_split(learner, part, name, begun, **at)
            stored, share = learner.stored_bytes(), learner.recall(part.x)
            yield replace(row, class_n=(), class_correct=(), stored=stored, recall=share)

    def correct(which: int, label: int) -> None:
        x = scenario.stream.x[which : which + 1]
        if ledger is not None:
            ledger.append({"id": str(scenario.stream.ids[which]), "label": classes[label], "sample": which}, x[0])
        nonlocal given, correcting
        given += 1
        learned[label] += 1
        clock = time.process_time()
        learner.correct(x, np.array([label]))
        correcting += time.process_time() - clock

    yield from tests(0)
    total = len(scenario.stream)
    for i in range(total):
        for which in (shown := labels.newly(i)):
            if which in waiting:
                correct(which, waiting.pop(which))
        truth = int(scenario.stream.y[i])
        answer = int(answers(learner, scenario.stream.x[i : i + 1], 1)[0])
        here = None if scenario.stream.position is None else scenario.stream.position[i : i + 1]
        tally.add(here, scenario.stream.y[i : i + 1], np.array([answer]))
        comes = late is None or late[i] != NEVER
        if answer != truth and comes and policy.corrects(made, rng):
            made += 1
            waiting[i] = policy.label(truth, len(classes), rng)
            if i in shown:
                correct(i, waiting.pop(i))
        if (i + 1) % every == 0 or i + 1 == total:
            seconds = time.process_time() - begun
            yield tally.row(seen=i + 1, corrections=given, seconds=seconds)
            tally = Tally("stream")
            yield from tests(i + 1)
    some = [np.array(scenario.stream.x[i : i + 1]) for i in range(min(ASKED, total))]  # copies: none is prepared for
    clock = time.process_time()
    for x in some:
        learner.predict(x)
    asking = time.process_time() - clock
    yield Row("cost", len(some), 0, seen=total, corrections=given, asking=asking, correcting=correcting)
