"""Protocols: the order in which a learner sees a stream and is tested on it, and the scores of stored counts.

A new protocol is a class derived from `Protocol`. `evaluate` takes the class, an instance, or `package.module:Name`; a
line in `PROTOCOLS` or an entry point (`driftline.protocols`) gives it a name.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, Busy, DriftlineError, IntegrityError, UnknownName, crashed
from driftline.curate.core.registry import Registry
from driftline.eval.checkpoint import Checkpoint
from driftline.eval.experiment.rehearsal import rehearsal
from driftline.eval.experiment.settings import check_instance
from driftline.eval.learner import Learner, Task
from driftline.eval.rows import Row
from driftline.stream_builder.stream import Stream

DECIMALS = {"share": 1, "corrections": 0, "microseconds": 0}  # of a printed score, by unit; others: 3
Document = Mapping[str, Any]  # of `driftline eval --json`

PROTOCOLS = Registry(
    "protocol",
    {
        "clear-iid": "driftline.eval.protocols.clear.protocol:Iid",
        "clear-streaming": "driftline.eval.protocols.clear.protocol:Streaming",
        "ocrr": "driftline.eval.protocols.ocrr.protocol:Ocrr",
        "seq-to-final": "driftline.eval.protocols.seq_to_final.protocol:SeqToFinal",
        "adaptation": "driftline.eval.protocols.adaptation.protocol:Adaptation",
        "near-future": "driftline.eval.protocols.near_future.protocol:NearFuture",
    },
    group="protocols",
    base="driftline.eval.protocol:Protocol",
)


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
    """"share" (0 … 1, printed in per cent), "corrections" or "microseconds"; others are printed as they are"""

    def gain(self, value: float | None) -> float:
        """The larger, the better: the value or, if lower is better, its negative; None and NaN are worse than any
        number."""
        return -np.inf if value is None or np.isnan(value) else value if self.higher_is_better else -value

    def text(self, value: float | None) -> str:
        """A value as reports print it.

        >>> Score("accuracy", "accuracy").text(0.5), Score("cost", "cost", False, "corrections").text(None)
        ('50.0', '–')
        """
        if value is None:
            return "–"
        return f"{100 * value if self.unit == 'share' else value:.{DECIMALS.get(self.unit, 3)}f}"

    def of(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Mean, standard deviation and values of one of a document's results; {} if it lacks this score."""
        return result["scores"].get(self.name) or result.get("measures", {}).get(self.name, {})

    def mean(self, result: Mapping[str, Any]) -> float | None:
        """Over the seeds of one of a document's results; None if no seed got there."""
        return self.of(result).get("mean")

    def detail(self, result: Mapping[str, Any]) -> str:
        """What reports print behind the mean: the standard deviation if there are several seeds, and how many seeds
        got there if some did not.

        >>> score = Score("cost", "cost", False, "corrections")
        >>> score.detail({"scores": {"cost": {"mean": 3.0, "sd": 1.0, "values": [2.0, None, 4.0]}}})
        '± 1 (2/3)'
        """
        values = self.of(result).get("values", [])
        reached = sum(value is not None for value in values)
        deviation = [f"± {self.text(self.of(result)['sd'])}"] if reached > 1 else []
        return " ".join(deviation + ([f"({reached}/{len(values)})"] if reached < len(values) else []))

    def spread(self, result: Mapping[str, Any]) -> str:
        """Mean and detail, as reports print them."""
        return f"{self.text(self.mean(result))} {self.detail(result)}".rstrip()


@dataclass(frozen=True)
class Result:
    """What one run scored. Shares are in 0 … 1; None: the run never got there."""

    scores: Mapping[str, float | None]
    """by name, in the order of the table's columns"""
    measures: Mapping[str, float | None] = field(default_factory=dict)
    """further numbers, in a table of their own"""
    by_class: Sequence[float | None] | None = None
    """accuracy of each class; None for a class without samples"""
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
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what the run's record says beside its rows"""


@dataclass(frozen=True)
class Protocol(ABC):
    """Settings are the dataclass fields of a subclass. `check`, `task`, `run` and `score` must be written; the rest has
    defaults. The docstring is the text of the protocol's page in reports, which `eval/reporting/protocols` writes."""

    scores: ClassVar[Sequence[Score]] = ()
    """labels, directions and units; a score that is not declared is a share, and higher is better"""
    measures: ClassVar[Sequence[Score]] = ()
    """the same for `Result.measures`"""
    primary: ClassVar[str] = ""
    """the score that ranks learners and marks the best; "" for the first"""
    fresh: ClassVar[Sequence[str]] = ()
    """how `tested_on` begins for tests that bring new samples each time; the others test the same samples again"""
    shardable: ClassVar[bool] = False
    """True: several processes may share the work of one run"""
    refuses: ClassVar[Sequence[str]] = ()
    """needs of learners (fields of `Needs`) that it cannot meet"""
    bounds: ClassVar[Sequence[str]] = ("future", "oracle")
    """needs that give a learner more than the others get: its scores are upper bounds, and it is no rival of theirs"""
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

    def resolve(self, stream: Stream) -> Protocol:
        """The same with numbers in place of settings that depend on the stream ("auto"); called after `check`."""
        return self

    def goal(self, result: Result) -> Score:
        """The score that ranks learners, by which settings are chosen, too."""
        return self.score_of(self.primary or next(iter(result.scores)))

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """Settings that this protocol gives a learner in place of its own defaults; those that a user gives stay."""
        return {}

    def selection(self, stream: Stream, rng: np.random.Generator, seed: int) -> tuple[Protocol, Stream]:
        """What settings are chosen on: a stream none of whose samples is scored in the run itself, and the protocol
        for it. rng: in the state in which `run` gets it. Default: three parts of the first step's training data.
        Raises IncompatibleStream if there are too few samples."""
        part = rehearsal(stream, stream.steps[0]["train"], rng)
        self.check(part)
        return self, part

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """What candidates of settings run on, each as `selection`; the mean of their primary scores decides."""
        return [self.selection(stream, rng, seed)]

    @property
    def learners_per_pass(self) -> int:
        """How many runs `run_many` takes at once."""
        return 1

    def run_many(self, stream: Stream, starts: Sequence[Start]) -> Iterator[tuple[int, Ran | Exception]]:
        """Position and outcome of each run, or why it was skipped. Default: one after the other."""
        for i, start in enumerate(starts):
            try:
                ran: Ran | Exception = Ran(list(self.run(stream, start.learner, start.rng, start.seed)), start.learner)
            except Exception as error:
                ran = skip_reason(error)
            yield i, ran

    def stream_notes(self, stream: Stream) -> dict[str, Any]:
        """What every run's record says about the stream."""
        return {}

    def budget_report(self, learner: Learner, samples: int) -> dict[str, Any]:
        """What every run's record says about its budget. samples: training samples in the stream."""
        return {}

    def records(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """What a finished run's record says about files that the run wrote, such as the head of a ledger."""
        return {}

    def training_sizes(self, stream: Stream) -> list[int] | None:
        """Samples of each step that learners train on, for estimates of the time; None: there is no estimate."""
        return None

    @staticmethod
    def step_tested(row: Row) -> int | None:
        """The step on whose samples a row tests a model that was trained up to `learned_to`; None: no such test."""
        return None

    @staticmethod
    def decisive(rows: Sequence[Row]) -> Sequence[Row]:
        """The tests of one run that decide the primary score, each sample in at most one of them; () if there are none
        such. The score must be the higher, the better."""
        return ()

    @staticmethod
    def score_of_counts(right: npt.NDArray[np.float64], n: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Right answers and samples (..., R) of the R decisive tests → the primary score (...); default: pooled."""
        return np.asarray(right.sum(-1) / n.sum(-1))

    @classmethod
    def score_of(cls, name: str) -> Score:
        """The declaration of a score or measure."""
        declared = {score.name: score for score in (*cls.scores, *cls.measures)}
        return declared.get(name, Score(name, name))


def protocol_named(given: str | Protocol | type[Protocol]) -> tuple[str, type[Protocol], Callable[..., Protocol]]:
    """Name in rows, class, and what makes one from settings.

    given: a registered name, `package.module:Name`, a class, or an instance, whose settings become the defaults. Raises
    UnknownName, BadPlugin, and BadConfig for what is no protocol.
    """
    kind = PROTOCOLS.resolve(given) if isinstance(given, str) else given if isinstance(given, type) else type(given)
    if not issubclass(kind, Protocol):
        raise BadConfig(
            f"The protocol is {given!r}.", "Expected a name, or a class derived from driftline.eval.protocol.Protocol."
        )
    if inspect.isabstract(kind):
        raise BadConfig(f"The protocol {kind.__name__} lacks {', '.join(sorted(kind.__abstractmethods__))}.")
    name = given if isinstance(given, str) else PROTOCOLS.admit(kind)
    return name, kind, partial(dataclasses.replace, given) if isinstance(given, Protocol) else kind


def stored_protocol(name: str) -> type[Protocol]:
    """The class of stored rows. Raises UnknownName if it is not known here: a name in a file imports no module."""
    if name not in PROTOCOLS:
        raise UnknownName(
            f"The rows are of the protocol {name!r}, which is not registered.",
            f"Available: {', '.join(sorted(PROTOCOLS))}.",
            "Install its package, or name it with --plugin package.module:Name.",
        )
    return PROTOCOLS[name]


def kind_of(document: Document) -> type[Protocol]:
    """The class of a document's protocol; the base class, with its default texts, if that is not known here."""
    if document["protocol"] not in PROTOCOLS:
        return Protocol
    return stored_protocol(document["protocol"])


def scores_of(document: Document) -> list[Score]:
    """The scores of a document's results, in the order that the protocol declares: JSON may have sorted their names."""
    kind = kind_of(document)
    order = [score.name for score in (*kind.scores, *kind.measures)]
    names = dict.fromkeys(name for result in document["results"] for name in result["scores"])
    return [kind.score_of(name) for name in sorted(names, key=lambda n: order.index(n) if n in order else len(order))]


def primary_of(document: Document) -> Score:
    """The score that ranks a document's learners; the document must have results."""
    scores, name = scores_of(document), kind_of(document).primary
    return next((score for score in scores if score.name == name), scores[0])


def skip_reason(error: Exception) -> Exception:
    """Why one learner is skipped. Raises an error that concerns all learners: a damaged file, or a folder in use."""
    if isinstance(error, IntegrityError | Busy):
        raise error
    return error if isinstance(error, DriftlineError) else crashed(error)
