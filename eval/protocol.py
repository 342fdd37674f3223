"""Protocols: the order in which a learner sees a stream and is tested on it, and the scores of stored counts.

A new protocol is a class derived from `Protocol`. `evaluate` takes the class, an instance, or `package.module:Name`; a
line in `PROTOCOLS` or an entry point (`driftline.protocols`) gives it a name.
"""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from driftline.curate.core import errors
from driftline.curate.core.registry import Registry
from driftline.eval.checkpoint import Checkpoint
from driftline.eval.learner import Learner, Task
from driftline.eval.rows import Row
from driftline.eval.settings import check_instance, check_names
from driftline.stream_builder.stream import Split, Step, Stream

Document = Mapping[str, Any]  # of `driftline eval --json`
Floats = npt.NDArray[np.float64]

PROTOCOLS = Registry(
    "protocol", "driftline.eval.protocols", {"clear-iid": ".clear:Iid", "clear-streaming": ".clear:Streaming",
                                             "ocrr": ".ocrr.protocol:Ocrr",
                                             "seq-to-final": ".seq_to_final.protocol:SeqToFinal",
                                             "near-future": ".near_future.protocol:NearFuture"},
    group="protocols", base="driftline.eval.protocol:Protocol",
)  # fmt: skip


@dataclass(frozen=True)
class Score:
    """A score or measure that a protocol reports."""

    name: str
    """key in JSON and CSV"""
    label: str
    """column heading in reports"""
    higher_is_better: bool = True
    """False for costs and errors"""
    unit: str = "share"
    """"share" (0 … 1, printed in %), "corrections" or "microseconds"; others are printed as they are"""

    def gain(self, value: float | None) -> float:
        """The larger, the better: the value or, if lower is better, its negative; None and NaN are worse than any
        number."""
        return -np.inf if value is None or np.isnan(value) else value if self.higher_is_better else -value


MAJORITY = "most frequent class so far"  # by training labels: the answer of a reference in each table
OF_CLASSES = (Score("balanced_accuracy", "balanced accuracy"), Score("macro_f1", "macro-F1"))  # of every protocol
REHEARSED = 3  # steps: the fewest with one that has a step before it and is tested on the next
REHEARSAL_TESTS = 0.2  # share of a step
LEAST_REHEARSED = 4  # samples of a step


@dataclass(frozen=True)
class Result:
    """What one run scored. Shares are in 0 … 1; None: the run never got there."""

    scores: Mapping[str, float | None]
    """by name, in the order of the table's columns"""
    measures: Mapping[str, float | None] = field(default_factory=dict)
    """further numbers, in a table of their own"""
    matrix: npt.NDArray[np.float64] | None = None
    """(T, T) accuracies; row: trained up to this step, column: tested on this step; NaN: not tested"""
    curve: Mapping[str, Sequence[float]] | None = None
    """lists of equal length: "at" (x) and "value" (y), and further y by name"""


@dataclass(frozen=True)
class Start:
    """A learner after `begin`, and what its run needs."""

    learner: Learner
    rng: np.random.Generator
    """of this run"""
    seed: int = 0
    """from which `rng` comes"""
    save: Checkpoint | None = None
    """where a long run may keep its state"""


@dataclass(frozen=True)
class Ran:
    """A finished run."""

    rows: list[Row]
    learner: Learner
    """as it is after the run: another object than at the start if the run went on from a stored state"""


def require(
    stream: Stream, splits: Sequence[str], why: str, way_out: str = "", steps: Sequence[Step] | None = None
) -> None:
    """Raise IncompatibleStream, naming the step, for a step without samples in one of these splits. why: what they are
    needed for. steps: those that need them; None: all."""
    for step in stream.steps if steps is None else steps:
        if missing := [split for split in splits if not len(step.splits.get(split, ()))]:
            problem = f"Step {step.name!r} of {stream.name!r} has no {missing[0]} split."
            raise errors.IncompatibleStream(problem, why, way_out)


def require_two(stream: Stream, why: str, way_out: str = "") -> None:
    """Raise IncompatibleStream for a stream of one step. why: what two are needed for."""
    if len(stream.steps) < 2:
        problem = f"The stream {stream.name!r} has one step."
        raise errors.IncompatibleStream(problem, f"Expected at least two: {why}", way_out)


def bare(step: Step) -> Step:
    """The step with its labels in place of its samples, which need not be copied."""
    return dataclasses.replace(
        step, splits={name: dataclasses.replace(split, x=split.y) for name, split in step.splits.items()}
    )


def shares(right: Floats, n: Floats) -> Floats:
    """Right answers and samples of tests (...) → accuracies (...); NaN where a bootstrap replicate, or what is left
    without a cluster, has no sample of a small test."""
    return np.divide(right, n, out=np.full(np.shape(n), np.nan), where=n > 0)


def mean_of_tests(right: Floats, n: Floats) -> Floats:
    """The same (..., R) → mean of the accuracies (...) of the tests with samples; NaN if none has any."""
    tests = (n > 0).sum(-1)
    return np.where(tests > 0, np.nansum(shares(right, n), -1) / np.maximum(tests, 1), np.nan)


def rehearsal(stream: Stream, data: Split, rng: np.random.Generator, steps: int = REHEARSED) -> Stream:
    """A small stream of training data alone, on which a protocol may run before its scored run: `data` in equal steps
    with train and test splits, in order of time if times are known, else at random.

    Classes and their labels are those of `stream`. Raises IncompatibleStream for too few samples.
    """
    if len(data) < steps * LEAST_REHEARSED:
        problem = f"Settings would be chosen on {len(data)} training samples of {stream.name!r}."
        expected = f"Expected at least {steps * LEAST_REHEARSED}."
        raise errors.IncompatibleStream(problem, expected, "Give the setting a value.")
    shuffled = rng.permutation(len(data))
    order = shuffled if data.time is None else shuffled[np.argsort(data.time[shuffled], kind="stable")]
    parts = []
    for t, rows in enumerate(np.array_split(order, steps)):
        is_test = np.zeros(len(rows), bool)
        is_test[rng.permutation(len(rows))[: max(1, round(REHEARSAL_TESTS * len(rows)))]] = True
        splits = {"train": data.take(np.sort(rows[~is_test])), "test": data.take(np.sort(rows[is_test]))}
        parts.append(Step(t, str(t), splits))
    name, texts = f"{stream.name}: settings", stream.class_texts
    return Stream(name, parts, stream.classes, stream.unlabelled, facts=stream.facts, class_texts=texts)


@dataclass(frozen=True)
class Roles:
    """What the rows of a protocol are for. Without it a protocol has scores and a curve, but no accuracy by age, no
    calibration, and no comparison of learners on single samples."""

    step: Callable[[Row], int | None] = lambda row: None
    """the step on whose samples a row tests a model that was trained up to `learned_to`; None: no such test"""
    decisive: Callable[[Sequence[Row]], Sequence[Row]] = lambda rows: ()
    """the tests of one run that decide the primary score, each sample in at most one of them; () if there are none
    such. The score must be the higher, the better"""
    pooled: Callable[[Floats, Floats], Floats] = lambda right, n: np.asarray(right.sum(-1) / n.sum(-1))
    """right answers and samples (..., R) of the R decisive tests → the primary score (...)"""
    fresh: Sequence[str] = ()
    """how `tested_on` begins for tests that bring new samples each time; the others test the same samples again"""


@dataclass(frozen=True)
class Protocol(ABC):
    """`check`, `task`, `run` and `score` must be written. All else has a default.

    A protocol's settings are its dataclass fields. Its docstring is the text of its page in reports, which
    `driftline.eval.reporting.protocols` writes.
    """

    scores: ClassVar[Sequence[Score]] = ()
    """labels, directions and units; a score that is not declared is a share, and higher is better"""
    measures: ClassVar[Sequence[Score]] = ()
    """the same for `Result.measures`"""
    primary: ClassVar[str] = ""
    """the score that ranks learners and marks the best; "" for the first"""
    chooses: ClassVar[str] = ""
    """the score that chooses settings; "" for the primary one"""
    roles: ClassVar[Roles] = Roles()
    """what its rows are for"""
    shardable: ClassVar[bool] = False
    """True: several processes may share the work of one run"""
    refuses: ClassVar[Sequence[str]] = ()
    """needs of learners (fields of `Needs`) that it cannot meet"""
    bounds: ClassVar[Sequence[str]] = ("future", "oracle")
    """needs that give a learner more than the others get: its scores are upper bounds, and it is no rival of theirs"""
    late_labels: ClassVar[bool] = False
    """True: shows labels in the order of a stream's label_time (see `driftline.eval.history`); False: does not use it,
    and a run's record says so"""
    reaches: ClassVar[Mapping[str, str]] = {}
    """as for learners: setting → what it names outside the run"""

    def __post_init__(self) -> None:
        """Raises BadConfig for a setting of the wrong type, out of range or not among the choices."""
        check_instance(self)

    @abstractmethod
    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream, before any work, if the stream lacks what the protocol needs."""

    @abstractmethod
    def task(self, stream: Stream) -> Task:
        """What learners know in advance."""

    @abstractmethod
    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int) -> Iterator[Row]:
        """Let the learner learn and predict in the protocol's order; yield counts. seed: of the run, from which `rng`
        comes."""

    @abstractmethod
    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """Rows of one run on a stream of that many steps → its scores."""

    def unused(self) -> dict[str, str]:
        """Setting that changes nothing beside the others → why. Who sets it is refused."""
        return {}

    def resolve(self, stream: Stream) -> "Protocol":
        """The same with numbers in place of settings that depend on the stream ("auto"); called after `check`."""
        return self

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """Settings that it gives a learner in place of its own defaults; those that a user gives stay."""
        return {}

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> "list[tuple[Protocol, Stream]]":
        """What candidates of settings run on: streams none of whose samples is scored in the run itself, each with its
        protocol; the mean of the scores that choose decides. rng: in the state in which `run` gets it. Default: one
        trial, on three parts of the first step's training data. Raises IncompatibleStream for too few samples."""
        part = rehearsal(stream, stream.steps[0]["train"], rng)
        self.check(part)
        return [(self, part)]

    @property
    def learners_per_pass(self) -> int:
        """How many runs `run_many` takes at once."""
        return 1

    def run_many(self, stream: Stream, starts: Sequence[Start]) -> Iterator[tuple[int, Ran | Exception]]:
        """Position and outcome of each run, or why it was skipped. Default: `run`, one after the other."""
        for i, start in enumerate(starts):
            try:
                rows = list(self.run(stream, start.learner, start.rng, start.seed))
                ran: Ran | Exception = Ran(rows, start.learner)
            except Exception as error:
                ran = skip_reason(error)
            yield i, ran

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """What a finished run's record says beside its rows, as plain data. Documents and the protocol's page have its
        entries "told" (about the stream) and "budget"."""
        return {}

    def training_sizes(self, stream: Stream) -> list[int] | None:
        """Samples of each step that learners train on, for estimates of the time; None: `run_seconds` has them."""
        return None

    def run_seconds(self, stream: Stream, make: Callable[..., Learner]) -> float | None:
        """CPU seconds that a run trains, by a small one; None: not known. make: the learner."""
        return None


def protocol_named(given: str | Protocol | type[Protocol]) -> tuple[str, type[Protocol], Callable[..., Protocol]]:
    """Name in rows, class, and what makes one from settings.

    given: a registered name, `package.module:Name`, a class, or an instance, whose settings become the defaults. Raises
    UnknownName, BadPlugin (also for a setting with the name of a method), and BadConfig for what is no protocol.
    """
    kind = PROTOCOLS.resolve(given) if isinstance(given, str) else given if isinstance(given, type) else type(given)
    if not issubclass(kind, Protocol):
        problem = f"The protocol is {given!r}."
        raise errors.BadConfig(problem, "Expected a name, or a class derived from driftline.eval.protocol.Protocol.")
    if inspect.isabstract(kind):
        raise errors.BadConfig(f"The protocol {kind.__name__} lacks {', '.join(sorted(kind.__abstractmethods__))}.")
    check_names(kind, Protocol)
    name = given if isinstance(given, str) else PROTOCOLS.admit(kind)
    return name, kind, partial(dataclasses.replace, given) if isinstance(given, Protocol) else kind


def stored_protocol(name: str) -> type[Protocol]:
    """The class of stored rows. Raises UnknownName if it is not known here: a name in a file imports no module."""
    if name not in PROTOCOLS:
        problem = f"The results are of the protocol {name!r}, which is not registered."
        way_out = "Install its package, or name it with --plugin package.module:Name."
        raise errors.UnknownName(problem, f"Available: {', '.join(sorted(PROTOCOLS))}.", way_out)
    return cast(type[Protocol], PROTOCOLS[name])


def kind_of(document: Document) -> type[Protocol]:
    """The class of a document's protocol; the base class, with its default texts, if that is not known here."""
    name = document["protocol"]
    return stored_protocol(name) if name in PROTOCOLS else Protocol


def standing_of(learner: type[Learner], protocol: type[Protocol]) -> str:
    """What a learner is under a protocol: "bound" if it learns from data that others may not have, as later steps or
    the last distribution at will; "blind" if it never looks at a sample; "" for the others.

    >>> from driftline.eval.learners import LEARNERS
    >>> [standing_of(LEARNERS["joint"], PROTOCOLS[name]) for name in ("clear-iid", "seq-to-final")]
    ['bound', '']
    """
    if any(getattr(learner.needs, need) for need in protocol.bounds):
        return "bound"
    return "blind" if learner.blind else ""


def score_of(kind: type[Protocol], name: str) -> Score:
    """The declaration of a protocol's score or measure."""
    return next(
        (score for score in (*kind.scores, *kind.measures, *OF_CLASSES) if score.name == name), Score(name, name)
    )


def scores_of(document: Document) -> list[Score]:
    """The scores of a document's results, in the order that the protocol declares: JSON may have sorted their names."""
    kind = kind_of(document)
    order = [score.name for score in (*kind.scores, *kind.measures)]
    names = dict.fromkeys(name for result in document["results"] for name in result["scores"])
    return [score_of(kind, name) for name in sorted(names, key=lambda n: order.index(n) if n in order else len(order))]


def primary_of(document: Document) -> Score:
    """The score that ranks a document's learners; the document must have results."""
    scores, name = scores_of(document), kind_of(document).primary
    return next((score for score in scores if score.name == name), scores[0])


def skip_reason(error: Exception) -> Exception:
    """Why one learner is skipped. Raises an error that concerns all learners: a damaged file, or a folder in use."""
    if isinstance(error, errors.IntegrityError | errors.Busy):
        raise error
    return error if isinstance(error, errors.DriftlineError) else errors.crashed(error)
