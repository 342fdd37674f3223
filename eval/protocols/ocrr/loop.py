"""The loop: predict; if wrong, the policy decides; correct. Tests at the start, every few samples, and at the end. A
stream is split into seed data, a stream of the novel distribution, and two test sets (`cut`).

Who corrects which errors, when, and how well: policies, joined by "+".

oracle               every error
random_50, random_10 half of them, a tenth
bernoulli:P          each with probability P
budget:N             no more than N in all
delayed:N            a correction comes N samples after its error
wrong:P              with probability P it names another class, each equally likely
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.eval.history import reveals
from driftline.eval.learner import Learner
from driftline.eval.memory.correction_ledger import Ledger
from driftline.eval.memory.knn_index import unit
from driftline.eval.predictions import Tally, answers, evaluate_split
from driftline.eval.protocol import require_two
from driftline.eval.rows import Row
from driftline.stream_builder.step import NEVER, Step
from driftline.stream_builder.stream import Split, Stream

Kind = Literal["auto", "categorical", "within-class", "paraphrase", "temporal"]
NEIGHBOURS = 5  # of the same class, with which a sample is compared
UNLIKE = 0.25  # share of every class that counts as paraphrased


@dataclass(frozen=True)
class Scenario:
    """The four parts of a stream."""

    seed: Split
    """learned first"""
    stream: Split
    """the novel distribution, in order"""
    novel: Split
    """test set"""
    original: Split
    """test set"""


def cut(stream: Stream, kind: Kind, held_out: int, tests: int, shuffled: bool, mix: float, seed: int) -> Scenario:
    """Split a stream into seed data and what is novel.

    kind: of novelty. "categorical": held-out classes [OCRR's reference: the same draws for the same seed];
    "within-class": the half of every class that is furthest along its first principal direction; "paraphrase": the
    quarter of every class that is least similar to the rest of it (mean cosine to the nearest 5); "temporal": the last
    step; "auto": temporal if there are several steps, else categorical. tests: samples of each test set at most.
    shuffled: seed rows in random order, else in their own. mix: rows of the original distribution in the stream, for
    each of the novel one; they are not in the seed data.

    If labels have times (label_time): the stream is in order of time, but for the rows of mix if the last step is
    novel. The seed data has no label that never comes, nor one that comes after the last step has begun if that is
    novel; in the other kinds the novelty is not one of time, and all labels of the seed data are there at once.

    Raises IncompatibleStream if a part would be empty.
    """
    several = len(stream.steps) > 1
    kind = ("temporal" if several else "categorical") if kind == "auto" else kind
    train, test = stream.flat("train"), stream.flat("test")
    if kind == "temporal":
        require_two(stream, "in the scenario temporal the last is novel.")
        new, new_test = (
            np.arange(len(split)) >= len(split) - len(stream.steps[-1][side])
            for side, split in (("train", train), ("test", test))
        )
    elif kind == "categorical":
        classes = _held_out(stream, held_out, seed)
        new, new_test = np.isin(train.y, classes), np.isin(test.y, classes)
    else:
        new, new_test = _by_class(train, test, _far_half if kind == "within-class" else _reworded)
    rng = np.random.default_rng(seed)  # the reference's own generator and order of draws
    original, novel = map(np.flatnonzero, (~new_test, new_test))
    original, novel = (p if len(p) <= tests else rng.choice(p, tests, replace=False) for p in (original, novel))
    order = rng.permutation(np.flatnonzero(new))
    if kind == "temporal":
        order = np.flatnonzero(new)  # in its own order
    order = _in_time(train, order)
    rows = np.flatnonzero(~new)
    if train.label_time is not None and train.time is not None and len(order):
        begins = train.time[order[0]] if kind == "temporal" else NEVER - 1
        rows = rows[train.label_time[rows] <= begins]
    if mix:
        again = rng.choice(rows, min(len(rows), round(mix * len(order))), replace=False)
        rows = np.setdiff1d(rows, again)  # what the stream brings was never taught
        both = np.concatenate([order, again])
        order = _spread(order, again, rng) if kind == "temporal" else _in_time(train, rng.permutation(both))
    if shuffled:
        rows = rng.permutation(rows)
    scenario = Scenario(train.take(rows), train.take(order), test.take(novel), test.take(original))
    for name in ("seed", "stream", "novel", "original"):
        if not len(getattr(scenario, name)):
            raise IncompatibleStream(f"The {name} part of {stream.name!r} would be empty.", f"The scenario is {kind}.")
    return scenario


def _in_time(train: Split, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The samples at these positions in order of time if their labels have times, else in their own order."""
    if train.label_time is None or train.time is None:
        return order
    return order[np.argsort(train.time[order], kind="stable")]


def _held_out(stream: Stream, n: int, seed: int) -> npt.NDArray[np.int64]:
    """Labels of n classes that have training samples, drawn over their sorted names."""
    there = np.unique(np.concatenate([step["train"].y for step in stream.steps]))
    if not 0 < n < len(there):
        problem = f"held_out is {n}; {stream.name!r} has samples of {len(there)} classes."
        raise IncompatibleStream(problem, f"Expected more than {max(1, n)}.")
    ordered = there[np.argsort(np.array(stream.classes)[there], kind="stable")]
    return np.asarray(ordered[np.random.default_rng(seed).choice(len(ordered), n, replace=False)], np.int64)


Masks = list[npt.NDArray[np.bool_]]  # which training, and which test samples are novel


def _by_class(train: Split, test: Split, novel: Callable[[Any, Any], Masks]) -> Masks:
    """novel: training and test samples of a class → their masks."""
    masks = [np.zeros(len(split), bool) for split in (train, test)]
    for label in np.unique(train.y).tolist():
        rows = [np.flatnonzero(split.y == label) for split in (train, test)]
        for mask, own, of_class in zip(masks, rows, novel(train.x[rows[0]], test.x[rows[1]]), strict=True):
            mask[own] = of_class
    return masks


def _far_half(train: Any, test: Any) -> Masks:
    """The half beyond the median along the first principal direction, both of the training data."""
    known, asked = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (train, test))
    centre = known.mean(0)
    direction = np.linalg.svd(known - centre, full_matrices=False)[2][0]
    direction *= np.sign(direction[np.abs(direction).argmax()])
    middle = np.median((known - centre) @ direction)
    return [(x - centre) @ direction > middle for x in (known, asked)]


def _reworded(train: Any, test: Any) -> Masks:
    """The quarter with the lowest mean cosine to the nearest training samples; the threshold comes from these."""
    known, asked = unit(train), unit(test)
    among = known @ known.T
    np.fill_diagonal(among, -np.inf)
    k = min(NEIGHBOURS, max(1, len(known) - 1))
    alike = [np.sort(cosines, 1)[:, -k:].mean(1) for cosines in (among, asked @ known.T)]
    edge = np.quantile(alike[0], UNLIKE)
    return [similarity < edge for similarity in alike]


def _spread(
    order: npt.NDArray[np.int64], again: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """`again` at random places of `order`, which keeps its own order."""
    out = np.empty(len(order) + len(again), np.int64)
    places = np.zeros(len(out), bool)
    places[rng.permutation(len(out))[: len(again)]] = True
    out[places], out[~places] = again, order
    return out


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
