"""CLEAR: train bucket after bucket, test on every bucket (iid) or on later ones (streaming).

Its five scores come from rows [CLEAR, supplement 3, equations 1–5]: R[i, j] is the accuracy on step j after learning
step i. Backward transfer is an accuracy here, not the difference of GEM. The loops are those of CLEAR, sec. 4.
"""

import copy
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from driftline.curate.core.errors import BadInput, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Learner, Task
from driftline.eval.learners.online import chosen_rate
from driftline.eval.predictions import evaluate_split
from driftline.eval.protocol import Protocol, Result, Roles, Score, bare, mean_of_tests, rehearsal, require, require_two
from driftline.eval.rows import Row
from driftline.eval.visits import halved, newest
from driftline.stream_builder.step import Split, Step
from driftline.stream_builder.stream import Stream

Matrix = npt.NDArray[np.float64]
MOST = 10_000  # steps of a matrix: 800 MB


def step_tested(row: Row) -> int:
    """Of every row: `tested_on` is its number."""
    return int(row.tested_on)


def decisive(rows: Sequence[Row]) -> list[Row]:
    """Tests on the step after the last one learned."""
    return [row for row in rows if row.learned_to >= 0 and int(row.tested_on) == row.learned_to + 1]


ROLES = Roles(step_tested, decisive, mean_of_tests)  # next_domain


def matrix(rows: Sequence[Row], steps: int) -> Matrix:
    """Rows of one run → (T, T) float64; cells that were not tested are NaN.

    Raises BadInput for a test of no samples (an average over nothing is not 0), and for rows beyond the steps.
    """
    counts = [(row.learned_to, int(row.tested_on), row.n, row.n_correct) for row in rows]
    learned, tested, n, right = np.array(counts, np.int64).reshape(-1, 4).T
    last = max(int(learned.max(initial=-1)), int(tested.max(initial=-1)))
    if not last < steps <= MOST:
        problem = f"A run of {steps:,} steps has results up to step {last:,}."
        raise BadInput(problem, f"Expected results of its own steps, at most {MOST:,}.", "Evaluate again.")
    if not n.all():
        raise BadInput(f"Step {tested[n == 0][0]} was tested on no samples.", "Expected at least one.")
    cells = np.full((steps, steps), np.nan)
    after = learned >= 0
    cells[learned[after], tested[after]] = right[after] / n[after]
    return cells


def start(rows: Sequence[Row], steps: int) -> npt.NDArray[np.float64]:
    """(T,) accuracy on each step before anything was learned: chance, 1 / C, where that was not tested."""
    classes = max((len(row.class_n) for row in rows), default=0)
    cells = np.full(steps, 1 / classes if classes else np.nan)
    for row in rows:
        if row.learned_to < 0:
            cells[int(row.tested_on)] = row.n_correct / row.n
    return cells


# A report asks for the same triangles thousands of times.
lower, upper = (lru_cache(maxsize=64)(places) for places in (np.tril_indices, np.triu_indices))
IID: dict[Score, Callable[[Matrix], Any]] = {  # equations 4, 5, 1, 2, 3
    Score("in_domain", "in-domain"): lambda r: np.diag(r).mean(),
    Score("next_domain", "next-domain"): lambda r: np.diag(r, 1).mean(),
    Score("accuracy", "accuracy"): lambda r: r[lower(len(r), 0)].mean(),
    Score("backward", "backward transfer"): lambda r: r[lower(len(r), -1)].mean(),
    Score("forward", "forward transfer"): lambda r: r[upper(len(r), 1)].mean(),
}
STREAMING = {kind: function for kind, function in IID.items() if kind.name in ("next_domain", "forward")}


def backward_change(r: Matrix) -> Any:
    """Mean of R[i, j] − R[j, j] over all j < i [Díaz-Rodríguez et al. 2018, eq. 3]."""
    i, j = lower(len(r), -1)
    return (r[i, j] - r[j, j]).mean()


# What other papers compute from the same matrix, under their own names; b[j]: accuracy on step j before learning.
MEASURES: dict[Score, Callable[[Matrix, Any], Any]] = {
    # Mean of R[T-1, j] − R[j, j] over j < T − 1, below 0: forgetting; of R[j-1, j] − b[j] over j ≥ 1
    # [Lopez-Paz & Ranzato 2017, eq. 3 and 4].
    Score("gem_backward", "GEM backward"): lambda r, b: (r[-1, :-1] - np.diag(r)[:-1]).mean(),
    Score("gem_forward", "GEM forward"): lambda r, b: (np.diag(r, 1) - b[1:]).mean(),
    # Of the backward change 1 − |its negative part|, and its positive part [Díaz-Rodríguez et al. 2018, eq. 4 and 5].
    Score("remembering", "remembering"): lambda r, b: 1 - abs(min(backward_change(r), 0.0)),
    Score("positive_backward", "positive backward"): lambda r, b: max(backward_change(r), 0.0),
    # Mean over j < T − 1 of the best accuracy on j before the end minus that at the end [Chaudhry et al. 2018, eq. 3].
    Score("forgetting", "forgetting", higher_is_better=False): lambda r, b: (r[:-1, :-1].max(0) - r[-1, :-1]).mean(),
    # Mean over i of the mean accuracy on steps 0 … i after step i [Rebuffi et al. 2017].
    Score("incremental_accuracy", "incremental accuracy"): lambda r, b: np.mean(
        [r[i, : i + 1].mean() for i in range(len(r))]
    ),
}


def check(stream: Stream, streaming: bool) -> None:
    """Raise IncompatibleStream, naming the step and split, if the protocol cannot run on the stream."""
    require_two(stream, "next-domain accuracy tests on the step after.", "Use more buckets.")
    name, other = ("clear-streaming", "") if streaming else ("clear-iid", ", or clear-streaming")
    why = f"{name} needs one in every step."
    require(stream, ("train",) if streaming else ("train", "test"), why, f"Use longer steps{other}.")


def after_each(
    stream: Stream, learner: Learner, steps: Sequence[Step], tests: Sequence[Split], first: int, equal: bool = False
) -> Iterator[Row]:
    """After each step but the last `first`, test on every step, or on those from `first` steps later on. Where all are
    tested, a learner that `knows` something is tested before the first step, too. equal: a new model for each step
    learns the newest n samples, n those of the least step.

    A learner that sees all steps at once (`joint`) learns them first; its rows are equal.
    """
    begun, seen, labels = time.process_time(), 0, np.zeros(len(stream.classes), np.int64)
    least, last = min(len(step["train"]) for step in steps), len(steps) - 1 - first
    for j, test in enumerate(tests if learner.knows and not first and not equal else ()):
        yield evaluate_split(learner, test, str(j), begun, learned_to=-1, seen=0)
    if learner.needs.future and not equal:
        learner.learn_sequence(steps)
    for i, step in enumerate(steps[: last + 1]):
        part = newest(step, least) if equal else step
        model = copy.deepcopy(learner) if equal and i < last else learner  # what is kept is measured in `learner`
        if equal:
            model.learn_sequence([part])
            seen, labels = 0, np.zeros_like(labels)
        elif not learner.needs.future:
            learner.learn_step(part)
        seen, labels = seen + len(part["train"]), labels + np.bincount(part["train"].y, minlength=len(labels))
        for j in range(i + 1 if first else 0, len(steps)):
            at = {"learned_to": i, "seen": seen, "constant": int(labels.argmax())}
            yield evaluate_split(model, tests[j], str(j), begun, **at)


class Clear(Protocol):
    """What both have in common."""

    primary = "next_domain"
    roles = ROLES
    walk = staticmethod(after_each)

    @abstractmethod
    def parts(self, stream: Stream, rng: np.random.Generator, seed: int) -> tuple[list[Step], list[Split], int]:
        """What is learned, the test of each step, and how many steps later than what is learned tests begin."""

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "0" … "T-1"."""
        return self.walk(stream, learner, *self.parts(stream, rng, seed))

    def task(self, stream: Stream) -> Task:
        """Classes, shape, number of steps."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps), corrections=False)

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """Online heads choose their learning rates."""
        return chosen_rate(learner)


@dataclass(frozen=True)
class Iid(Clear):
    """CLEAR's iid protocol: train and test splits of every step, a T × T accuracy matrix.

    Scores: mean accuracy on the step that was learned last (in-domain), on the next one (next-domain), on it and all
    earlier ones (accuracy), on earlier ones alone (backward transfer), and on later ones (forward transfer)."""

    splits: Literal["stream", "seeded", "published", "random"] = "stream"
    """"stream": the stream's own test sets; "seeded": a new split for every seed, stratified by class, with all samples
    of an uploader or group of near-duplicates in the same split, if they are known; "published": seed s takes published
    split s mod K of the stream's K, so that seeds 0 … nK − 1 run each n times; "random": like "seeded" without groups,
    as in the paper's five 70/30 splits, whose test samples share uploaders with training"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """share of test samples in a seeded or random split"""

    scores = tuple(IID)
    measures = tuple(MEASURES)
    refuses = ("all_steps",)

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks train or test, or the stream has no published splits to choose."""
        check(stream, streaming=self.splits in ("seeded", "random"))
        if self.splits == "published" and not stream.published_splits:
            problem = f"{stream.name!r} has one split only."
            way_out = "Make it with driftline stream from-release, or set splits=stream."
            raise IncompatibleStream(problem, "splits=published needs a stream from a release with several.", way_out)

    def unused(self) -> dict[str, str]:
        """The share of splits that are not drawn."""
        drawn = self.splits in ("seeded", "random")
        return {} if drawn else {"test_share": f"splits is {self.splits}, and no new split is made"}

    def split(self, stream: Stream, rng: np.random.Generator, seed: int) -> Stream:
        """The stream with the train and test splits of a run."""
        if self.splits == "published":
            return stream.published(seed % stream.published_splits)
        grouped = self.splits == "seeded"
        return stream if self.splits == "stream" else stream.resplit(self.test_share, rng, grouped)

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """Three parts of the first step's training data, as this seed splits it."""
        train = self.split(stream, rng, seed).steps[0]["train"]
        return [(replace(self, splits="stream"), rehearsal(stream, train, rng))]

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """Share of test samples that share an uploader, or are near-duplicates of, a training sample, on the split of
        seed 0, and a warning if there are any."""
        labels = replace(stream, steps=[bare(step) for step in stream.steps])
        shared = self.split(labels, rng_for(0, "shared"), 0).shared_with_training()
        if shared is None:
            return {}
        about: dict[str, Any] = {"shared_with_training": round(shared, 4)}
        if shared:
            about["warning"] = (
                f"{shared:.1%} of the test samples share an uploader, or are near-duplicates of, a training sample: "
                f"in-domain accuracy is too high. splits=seeded keeps them apart."
            )
        return {"told": about}

    def training_sizes(self, stream: Stream) -> list[int]:
        """The training splits."""
        return [len(step["train"]) for step in stream.steps]

    def parts(self, stream: Stream, rng: np.random.Generator, seed: int) -> tuple[list[Step], list[Split], int]:
        """Every step is tested after each."""
        steps = self.split(stream, rng, seed).steps
        return [step.visible() for step in steps], [step["test"] for step in steps], 0

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """in_domain, next_domain, accuracy, backward, forward; the measures of other papers; the matrix."""
        r, b = matrix(rows, steps), start(rows, steps)
        scores = {kind.name: float(function(r)) for kind, function in IID.items()}
        measures = {kind.name: float(function(r, b)) for kind, function in MEASURES.items()}
        return Result(scores, measures, r)


@dataclass(frozen=True)
class Streaming(Clear):
    """CLEAR's streaming protocol: all of a step is training data, all later steps are tested.

    Scores: mean accuracy on the next step (next-domain) and on all later ones (forward transfer)."""

    scores = tuple(STREAMING)
    refuses = ("all_steps", "future")

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks training data."""
        check(stream, streaming=True)

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """Three parts of the first step, which is never tested on."""
        return [(self, rehearsal(stream, stream.steps[0].everything(), rng))]

    def training_sizes(self, stream: Stream) -> list[int]:
        """All of each step but the last, which is only tested on."""
        sizes = [sum(len(split) for split in step.splits.values()) for step in stream.steps]
        return sizes[:-1]

    def parts(self, stream: Stream, rng: np.random.Generator, seed: int) -> tuple[list[Step], list[Split], int]:
        """All of a step is training data and, after an earlier one, test data."""
        steps = [step.past() for step in stream.steps]
        return steps, [step["train"] for step in steps], 1

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """next_domain and forward; cells with j ≤ i do not exist."""
        r = matrix(rows, steps)
        scores = {kind.name: float(function(r)) for kind, function in STREAMING.items()}
        return Result(scores, matrix=r)


class EqualIid(Iid):
    """clear-iid with models that all learn equally many samples: what `--equal-data` runs beside it."""

    walk = staticmethod(partial(after_each, equal=True))


class EqualStreaming(Streaming):
    """The same of clear-streaming."""

    walk = EqualIid.walk


@dataclass(frozen=True)
class Half(Clear):
    """Models of half of the training visits, which differ by as much as those of other training samples would."""

    draw: int = 0

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows as of the protocol."""
        steps, tests, first = self.parts(stream, rng, seed)
        half = [halved(step, rng_for(seed, "half", self.draw, step.index)) for step in steps]
        return self.walk(stream, learner, half, tests, first)


@dataclass(frozen=True)
class HalfIid(Half, Iid):
    """Of clear-iid."""


@dataclass(frozen=True)
class HalfStreaming(Half, Streaming):
    """Of clear-streaming."""
