"""The protocol with its settings; scores from rows: online and near-future accuracy, retention [near-future accuracy,
sec. 3 and 4]."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.foreign.names import is_count
from driftline.eval.history import Reveals, check_label_time, has_label_time, reveals
from driftline.eval.learner import Learner, Task
from driftline.eval.protocol import MAJORITY, Protocol, Ran, Result, Roles, Score, Start, require
from driftline.eval.protocols.near_future import loop
from driftline.eval.rows import Row
from driftline.eval.settings import NO_EFFECT
from driftline.eval.training.sgd_learner import NetworkLearner
from driftline.stream_builder.measures.label_correlation import blind_curve_of
from driftline.stream_builder.stream import Split, Step, Stream, join


def accuracy(rows: Sequence[Row], tested_on: str) -> float:
    """Share of right answers in all such tests; NaN if there were none."""
    n = sum(row.n for row in rows if row.tested_on == tested_on)
    return sum(row.n_correct for row in rows if row.tested_on == tested_on) / n if n else float("nan")


def running(rows: Sequence[Row], tested_on: str) -> tuple[list[int], list[float]]:
    """Samples seen, and the accuracy on all tested until then."""
    tests = [row for row in rows if row.tested_on == tested_on and row.n]
    right, n = np.cumsum([row.n_correct for row in tests]), np.cumsum([row.n for row in tests])
    return [row.seen for row in tests], (right / n).tolist()


def step_tested(row: Row) -> int | None:
    """Of tests on the held-out samples of a period."""
    return int(row.tested_on[10:]) if row.tested_on.startswith("retention/") else None


def decisive(rows: Sequence[Row]) -> list[Row]:
    """Tests S samples ahead."""
    return [row for row in rows if row.tested_on == "near_future" and row.n]


def retention(rows: Sequence[Row], steps: int) -> npt.NDArray[np.float64]:
    """(T, T): accuracy on the held-out samples of period j after period i; NaN for j > i."""
    cells = np.full((steps, steps), np.nan)
    for row in rows:
        if row.tested_on.startswith("retention/"):
            cells[row.learned_to, int(row.tested_on[10:])] = row.n_correct / row.n
    return cells


def retained(rows: Sequence[Row]) -> dict[int, float]:
    """Accuracy of the last model on the held-out samples of the periods up to each one; {} if there are none. The last
    is the paper's backward transfer @ T [its figures 4, 6 to 12]."""
    tests = [row for row in rows if row.tested_on.startswith("retention/")]
    last = max((row.learned_to for row in tests), default=-1)
    of_last = sorted((int(row.tested_on[10:]), row.n_correct, row.n) for row in tests if row.learned_to == last)
    right, n = (np.cumsum([row[k] for row in of_last]) for k in (1, 2))
    return dict(zip((period for period, *_ in of_last), (right / n).tolist(), strict=True))


LEAST_PREFIX = 2000  # docs/reference/near_future.md has what shorter ones lost
FEWEST_BATCHES = 4  # of a prefix: with fewer, what a learner learned there is not tested there
LEAST_SHARE = 0.9  # of the budget; a learner that takes less is compared at less work than the others
BLIND, CHANCE = "labels alone (the best k of the last labels)", "labels alone, in random order (chance)"
FEWEST_UPDATES = 100  # with 31 updates, so small a learning rate was chosen for ACE that it lost eleven points


@dataclass(frozen=True)
class NearFuture(Protocol):
    """Online accuracy, accuracy S samples ahead, and retention, in one pass over a stream in its own order.

    Scores: accuracy on the next samples (online), on those S samples later (near-future), and of the last model on
    held-out samples of all periods (retention)."""

    batch: Annotated[int, Field(ge=1)] = 64
    """samples that the stream brings at a time"""
    shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """S in samples; "auto": the smallest S at which the blind classifier's 95 % interval ends at most 2 points above
    chance, or, in a stream too short to show it, is not above chance and S is longer than any run of one label"""
    also: Annotated[str | int, NO_EFFECT] = ""
    """other lookaheads in samples, joined by +"""
    updates: Annotated[float, Field(gt=0)] = 1.0
    """updates of the weights that each batch of the stream pays for; a method whose update costs more does fewer"""
    prefix: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """samples at the start that are learned but never scored: settings are chosen there; "auto": those that the stream
    sets apart, else min(max(N / 10, 2,000), N / 3) of N, or 0 if that is less than four batches; 0: none, and
    learning rates as in CLEAR. What is predicted before the first batch is learned is never scored"""
    delay: Annotated[int, Field(ge=0)] = 0
    """batches until labels come, at least: where a stream has label_time, they come in its order, and none before it.
    A label that never comes is not learned, and still scored"""
    points: Annotated[int, Field(ge=1), NO_EFFECT] = 50
    """points of each score along the stream"""
    sort: bool = False
    """sort the samples by time first; equal times come in one random order for all seeds"""
    abreast: Annotated[int, Field(ge=1), NO_EFFECT] = 16
    """runs that share one pass over the stream, and with it main memory; changes no result"""

    scores = (Score("online", "online"), Score("near_future", "near-future"), Score("retention", "retention"))
    primary = "near_future"
    chooses = "online"  # by near-future accuracy, what adapts at once is tuned into an answer that never changes
    roles = Roles(step_tested, decisive, fresh=("online", "near_future", "shift/"))
    refuses = ("all_steps", "whole_steps", "first_step")
    late_labels = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.further()

    def further(self) -> list[int]:
        """The shifts of `also`. Raises BadConfig."""
        words = [word for word in str(self.also).split("+") if word]
        if wrong := [word for word in words if not is_count(word)]:
            raise BadConfig(f"also holds {wrong[0]!r}.", "Expected numbers of samples joined by +, as in 64+1024.")
        return [int(word) for word in words]

    def trains(self, stream: Stream) -> list[Split]:
        """The training split of every step, in order of time. Raises IncompatibleStream if they are not in order."""
        order = stream.time_order()
        if order is None:
            return [step["train"] for step in stream.steps]
        whole = stream.flat("train")
        if not self.sort:
            first = int(np.argmax(np.diff(np.asarray(whole.time, np.int64)) < 0)) + 1
            problem = f"Sample {first} of {stream.name!r} is older than the one before it."
            way_out = "Add --set sort=true, or make the stream with driftline stream from-table."
            raise IncompatibleStream(problem, "near-future needs a stream in order of time.", way_out)
        return [whole.take(order)]

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream for a step without test split, a single class, or too few samples."""
        why = "near-future measures retention on held-out samples of every period."
        require(stream, ("test",), why, "Use driftline stream from-table --test-share 0.1.")
        check_label_time(stream)
        shown = self._shown(trains := self.trains(stream))
        n = sum(map(len, trains))
        if shown.first >= -(-n // self.batch) > self.delay:
            problem = f"Of {stream.name!r} no label comes before the stream ends."
            raise IncompatibleStream(problem, "Expected a label_time that is not after the last sample's time.")
        labels = np.unique(np.concatenate([np.asarray(step["train"].y) for step in stream.steps]))
        if len(labels) < 2:
            expected = "Expected at least two: with one, every answer is right."
            raise IncompatibleStream(f"{stream.name!r} has one class only.", expected)
        if not (isinstance(self.shift, int) and isinstance(self.prefix, int)):
            return
        ahead = self.shift + (1 + shown.first) * self.batch
        if n <= (unscored := max(ahead, self.prefix)):
            raise IncompatibleStream(
                f"{stream.name!r} has {n} training samples; batch is {self.batch}, and the first {unscored} are not "
                f"scored (tuning segment: prefix {self.prefix}, shift {self.shift}, and the batches before the first "
                "learned).",
                f"Expected at least {unscored + 1}.",
                "Set a smaller shift, or use a longer stream.",
            )

    def resolve(self, stream: Stream) -> "NearFuture":
        """The same with numbers for `shift` and `prefix`. Raises IncompatibleStream if no shift is at chance."""
        if isinstance(self.shift, int) and isinstance(self.prefix, int):
            return self
        n = sum(len(step["train"]) for step in stream.steps)
        third = min(max(n // 10, LEAST_PREFIX), n // 3)
        apart = stream.facts.get("pretrain") or (third if third >= FEWEST_BATCHES * self.batch else 0)
        resolved = replace(self, shift=self._shift(stream), prefix=apart if self.prefix == "auto" else self.prefix)
        resolved.check(stream)
        return resolved

    def _shift(self, stream: Stream) -> int:
        if isinstance(self.shift, int):
            return self.shift
        curve = blind_curve_of(stream)
        if curve.suggested is None:
            raise IncompatibleStream(
                f"In {stream.name!r} the blind classifier is above chance ({curve.chance:.3f}) at every lookahead up "
                "to "
                f"{curve.shifts[-1]} ({curve.best[-1]:.3f}): labels predict each other over the whole stream.",
                "Expected a stream that is longer than its labels' correlation.",
                "Set shift to a number of samples.",
            )
        return curve.suggested

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """One momentum for all learners of a table, and learning rates chosen on the prefix."""
        if not isinstance(learner, NetworkLearner):
            return {}
        return {"momentum": 0.0} | ({"lr": "auto"} if learner.lr is None and self.prefix else {})

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """The prefix; S is at most half of it. On a short prefix, where small learning rates leave a network as it was,
        a second time with more updates for each batch: in all a hundred, or those of the whole run if they are fewer.
        Raises IncompatibleStream if there is no prefix."""
        n = int(self.prefix)
        if n <= 2 * self.batch:
            problem = f"Settings are chosen on the tuning segment, which has {n} samples."
            hint = "Set prefix, or give the setting a value."
            raise IncompatibleStream(problem, f"Expected more than two batches of {self.batch}.", hint)
        starts = np.cumsum([0, *map(len, trains := self.trains(stream))]).tolist()
        parts = [split.part(0, n - low) for split, low in zip(trains, starts, strict=False) if low < n]
        steps, texts = [Step(0, "prefix", {"train": join(parts)})], stream.class_texts
        part = Stream(f"{stream.name}: prefix", steps, stream.classes, stream.unlabelled, class_texts=texts)
        within = replace(self, prefix=0, shift=min(int(self.shift), n // 2), also="")
        updates = min(FEWEST_UPDATES * self.batch / n, self.updates * starts[-1] / n)
        longer = [replace(within, updates=updates)] if updates > self.updates else []
        return [(protocol, part) for protocol in (within, *longer)]

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """The blind classifier's curve, how many samples share their time, and a warning if the curve is above chance
        at S; updates that were paid for and that were taken, in updates of plain SGD on a batch of the stream."""
        shown = self._shown(trains := self.trains(stream))
        paid = self.updates * (-(-shown.n // self.batch) - shown.idle)
        taken = learner.spent()
        over = {"overspent": round(taken / paid, 3)} if taken > paid * 1.000001 else {}
        under = {"underspent": round(taken / paid, 3)} if 0 < taken < LEAST_SHARE * paid else {}
        curve = blind_curve_of(stream)
        at = curve.at(int(self.shift))
        notes: dict[str, Any] = {"blind": curve.plain(), "ties": stream.ties(), "ties_text": stream.ties_text()}
        notes["shift_text"] = curve.text(int(self.shift))
        labels = np.concatenate([np.asarray(train.y, np.int64) for train in trains])
        if (majority := loop.majority(labels, shown, self._plan(), int(self.shift))) is not None:
            notes["references"] = {MAJORITY: majority, BLIND: curve.best[at], CHANCE: curve.chance}
        if shown.order is not None:
            notes["labels_not_shown"] = shown.n - len(shown.order)
        if curve.above[at]:
            notes["warning"] = "Near-future accuracy there rewards learners that never look at a sample."
        return {"told": notes, "budget": {"updates_paid": paid, "updates_taken": round(taken, 3), **over, **under}}

    def task(self, stream: Stream) -> Task:
        """Classes, shape, batch and budget; the number of steps is not disclosed."""
        lag = self._shown(self.trains(stream)).lag if has_label_time(stream) else self.delay * self.batch
        shifts = tuple(shift + lag for shift in self.resolve(stream).shifts().values())
        return Task(
            len(stream.classes), stream.x_shape, None, self.batch, self.updates, shifts=shifts, corrections=False
        )

    def shifts(self) -> dict[str, int]:
        """Name of a test → S; `shift` must be a number."""
        return {"online": 0, "near_future": int(self.shift)} | {f"shift/{s}": s for s in self.further()}

    def _shown(self, trains: Sequence[Split]) -> Reveals:
        return reveals(trains, self.batch, self.delay)

    def _plan(self) -> loop.Plan:
        return loop.Plan(self.batch, self.shifts(), self.delay, self.points, int(self.prefix))

    @property
    def learners_per_pass(self) -> int:
        """The setting `abreast`."""
        return self.abreast

    def run_many(self, stream: Stream, starts: Sequence[Start]) -> Iterator[tuple[int, Ran | Exception]]:
        """One pass with all learners."""
        trains = self.trains(stream)
        plan = self._plan()
        learners, saves = [start.learner for start in starts], [start.save for start in starts]
        yield from loop.advance(stream, trains, plan, learners, saves)

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "online", "near_future", "shift/S" and "retention/j"."""
        for _, ran in self.resolve(stream).run_many(stream, [Start(learner, rng, seed)]):
            if isinstance(ran, Exception):
                raise ran
            yield from ran.rows

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """online, near_future, retention; accuracy at further shifts; the retention matrix and the running curves."""
        at, value = running(rows, "near_future")
        at_online, online = running(rows, "online")
        scores: dict[str, float | None] = {name: accuracy(rows, name) for name in ("online", "near_future")}
        further = sorted({int(row.tested_on[6:]) for row in rows if row.tested_on.startswith("shift/")})
        measures = {f"shift_{s}": accuracy(rows, f"shift/{s}") for s in further}
        curve: dict[str, Sequence[float]] = {"at": at, "value": value, "online_at": at_online, "online": online}
        after = retained(rows)
        curve |= {"period": list(after), "retention": list(after.values())}
        final = next(reversed(after.values()), None)
        return Result(scores | {"retention": final}, measures, retention(rows, steps), curve)
