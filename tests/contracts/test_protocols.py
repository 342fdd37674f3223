"""Every protocol, with every learner: deterministic, counts in range, and the test data stays hidden."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.helpers import described as with_texts
from support.helpers import drifting, few_of, hinted

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS, scores_of
from driftline.eval.results import Results
from driftline.eval.rows import Row, Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.ranking import mean_of
from driftline.eval.settings import described, setting_names
from driftline.stream_builder.stream import Split, Step, Stream


@dataclass
class Spy(Learner):
    """Remembers every sample that it was given to learn."""

    seen: list[Array] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.seen.clear()
        self.splits.clear()

    def predict(self, x: Array) -> Labels:
        return np.zeros(len(x), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.seen.append(np.asarray(x))

    def learn_step(self, step: Step) -> None:
        self.splits.extend(step.splits)
        self.learn(step["train"].x, step["train"].y)


def with_val(stream: Stream) -> Stream:
    """A third of each step's training data validates."""
    steps = []
    for step in stream.steps:
        train, cut = step["train"], len(step["train"]) * 2 // 3
        splits = {**step.splits, "train": train.part(0, cut), "val": train.part(cut, len(train))}
        steps.append(Step(step.index, step.name, splits))
    return Stream(stream.name, steps, stream.classes, sha256="with val")


def fitting(protocol: str, stream: Stream) -> Stream:
    """The stream, or the same with validation data if the protocol needs some."""
    try:
        PROTOCOLS[protocol]().check(stream)
    except IncompatibleStream:
        return with_val(stream)
    return stream


def rows_of(name: str, stream: Stream, learner: Learner) -> list[Row]:
    protocol = PROTOCOLS[name]()
    protocol.check(stream)
    protocol = protocol.resolve(stream)
    learner.begin(protocol.task(stream), rng_for(0))
    return list(protocol.run(stream, learner, rng_for(0), 0))


def in_steps(name: str, sizes: dict[str, int], classes: int, steps: int, draw: Any) -> Stream:
    """A hard stream with texts or unlabelled samples: other classes are frequent in each step. draw: (labels, step,
    generator) → samples."""
    rng, share, made = rng_for(0, name), np.array([0.45, 0.2, 0.12, 0.09, 0.08, 0.06])[:classes], []
    for t in range(steps):
        splits = {}
        for side, n in sizes.items():
            drawn = rng.choice(classes, n - classes, p=np.roll(share / share.sum(), t))
            y = rng.permutation(np.concatenate([np.arange(classes), drawn])).astype(np.int64)
            ids = np.array([f"{t}-{side}-{i}" for i in range(n)])
            splits[side] = Split(draw(y, t, rng), y, ids, np.arange(n, dtype=np.int64) + 1000 * t)
        made.append(Step(t, str(t), splits))
    return hinted(Stream(name, made, [f"class {c}" for c in range(classes)], sha256=name))


@cache
def vectors() -> Stream:
    """Four steps of six classes that overlap and move."""
    rng = rng_for(0, "means")
    means, way = rng.normal(0, 1.2, (6, 8)), rng.normal(0, 0.7, (6, 8))
    sizes = {"train": 60, "val": 24, "test": 40}
    return with_texts(in_steps("vectors", sizes, 6, 4, lambda y, t, rng: _near((means + t * way)[y], rng)))


def _near(means: Array, rng: np.random.Generator) -> Array:
    return (means + rng.normal(0, 2.0, means.shape)).astype(np.float32)


def _pictures(y: Labels, t: int, rng: np.random.Generator) -> Array:
    """16 × 16 pixels of noise with a brighter patch, whose place and colour tell the class."""
    x = rng.integers(0, 200, (len(y), 16, 16, 3))
    for row, label in zip(x, y.tolist(), strict=True):
        row[2 * label + t : 2 * label + t + 5, 3:10, (label + t) % 3] += 45
    return x.clip(0, 255).astype(np.uint8)


@cache
def pictures() -> Stream:
    """Three steps of five classes."""
    return in_steps("pictures", {"train": 25, "val": 10, "test": 20}, 5, 3, _pictures)


STREAMS: dict[str, Callable[[], Stream]] = {"vectors": vectors, "pictures": pictures}
SMALL: dict[str, dict[str, Any]] = {  # settings of our own protocols
    "near-future": {"batch": 8, "shift": 8, "prefix": 0, "updates": 3},
    "ocrr": {"every": 20, "tests": 40},
    "seq-to-final": {"epochs": 3, "fits": 4, "per_step": True, "lrs": 0.01},
}
MEMORIES = {  # small enough to forget, strong enough to be seen
    "capacity": 30, "si.strength": 0.05, "threshold": 0.4, "icarl.memory": 12
}  # fmt: skip


def trained_shortly(protocol: str) -> dict[str, Any]:
    """Three passes over batches of 8 for each learner that trains so; under near-future a budget decides."""
    short = {"batch": 8, "epochs": 3}
    names = [] if protocol == "near-future" else list(LEARNERS)
    return {f"{n}.{key}": value for n in names for key, value in short.items() if key in setting_names(LEARNERS[n])}


def of_each_family(protocol: str, stream: str) -> list[str]:
    """The next learner of each family for each protocol and kind of samples, so that any two of the three meet."""
    families: dict[str, list[str]] = {}
    for name in LEARNERS:
        families.setdefault(LEARNERS[name].guide.family, []).append(name)
    cell = len(STREAMS) * list(PROTOCOLS).index(protocol) + list(STREAMS).index(stream)
    return [names[cell % len(names)] for names in families.values()]


@cache
def matrix(protocol: str, stream: str, whole: bool = True) -> tuple[Results, list[Run]]:
    """Every learner on a stream, or one of each family, once."""
    runs: list[Run] = []
    names = list(LEARNERS) if whole else of_each_family(protocol, stream)
    own = {key for name in names for key in setting_names(LEARNERS[name])}
    short = {
        key: value for key, value in (MEMORIES | trained_shortly(protocol)).items()
        if key in own or key.partition(".")[0] in names
    }  # fmt: skip
    made, settings = STREAMS[stream](), SMALL.get(protocol, {}) | short
    return evaluate(made, protocol, names, seeds=[3], settings=settings, keep_run=runs.append), runs


CELLS = [(protocol, stream, whole) for protocol in PROTOCOLS for stream in STREAMS for whole in (False, True)]


@pytest.mark.parametrize(
    ("protocol", "stream", "whole"), few_of(CELLS, [c for c in CELLS if not c[2]] + [("clear-iid", "vectors", True)])
)
def test_every_learner_has_scores_in_range_or_is_refused_by_name(protocol: str, stream: str, whole: bool) -> None:
    document, _ = matrix(protocol, stream, whole)
    names = set(LEARNERS) if whole else set(of_each_family(protocol, stream))
    because = {entry["learner"].partition("(")[0]: entry["because"] for entry in document["skipped"]}
    scores = {result["learner"].partition("(")[0] for result in document["results"]}
    assert not [reason for reason in because.values() if "It crashed" in reason]
    if protocol in SKIPPED:
        assert set(because) == SKIPPED[protocol](stream == "pictures") & names
    assert scores | set(because) == names
    for result in document["results"]:
        for score in scores_of(document):
            mean = mean_of(score, result)
            assert mean is None or 0 <= mean <= (1 if score.unit == "share" else 1e6)


@pytest.mark.proof("matrix")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_learner_is_deterministic_in_any_company(protocol: str) -> None:
    """Twice, the second time in the opposite order."""
    (_, first), again = matrix(protocol, "vectors"), list[Run]()
    settings = SMALL.get(protocol, {}) | MEMORIES | trained_shortly(protocol)
    evaluate(vectors(), protocol, list(LEARNERS)[::-1], seeds=[3], settings=settings, keep_run=again.append)
    assert {r.about["learner"]: answered(r) for r in first} == {r.about["learner"]: answered(r) for r in again}


def answered(run: Run) -> str:
    """Counts, answers and confidences of all tests."""
    rows = []
    for row in run.rows:
        own = row.answers
        sure = None if own is None or own.confidence is None else np.nan_to_num(own.confidence, nan=-1).tolist()
        rows.append([row.tested_on, row.learned_to, row.seen, row.n_correct, own and own.predicted.tolist(), sure])
    return json.dumps(rows)


def every(condition: Callable[[type[Learner]], object]) -> set[str]:
    return {name for name in LEARNERS if condition(LEARNERS[name])}


def unfit(pictures: bool) -> set[str]:
    """Learners of texts, and of images or of texts about the classes, whichever the stream has not; without a
    transformer there is no LoRA."""
    return every(lambda k: k.needs.texts or (k.needs.class_texts if pictures else k.needs.images))


def to_final() -> set[str]:
    return every(lambda kind: kind.needs.all_steps)


SKIPPED: dict[str, Callable[[bool], set[str]]] = {  # of our own protocols, on pictures or not: all others must run
    "clear-iid": lambda pictures: unfit(pictures) | to_final(),
    "clear-streaming": lambda pictures: unfit(pictures) | to_final() | every(lambda kind: kind.needs.future),
    "near-future": lambda pictures: (
        unfit(pictures) | every(lambda kind: kind.needs.whole_steps or kind.needs.first_step)
    ),
    "ocrr": lambda pictures: unfit(pictures) | every(lambda kind: kind.needs.whole_steps),
    "seq-to-final": lambda pictures: (  # no data for an oracle; without blocks no side modules
        unfit(pictures)
        | every(lambda kind: kind.needs.oracle)
        | (set() if pictures else {"st-1", "st-b", "sst-1", "sst-b"})
    ),
}


SAME = {  # names with equal rows → why
    frozenset({"er-online", "fc-only"}): "without layers below the head both are one method",
    frozenset({"substrate", "substrate-count-only", "substrate-no-recency"}): "they differ at ties only",
    frozenset({"ft", "to-final"}): "to-final has the settings of ft as its defaults",
}


@pytest.mark.parametrize("protocol", few_of(SKIPPED, ["clear-iid"]))  # protocols of others may show too little
@pytest.mark.parametrize("stream", few_of(STREAMS, ["vectors"]))
def test_no_two_names_have_equal_rows_without_a_reason(protocol: str, stream: str) -> None:
    names: dict[str, set[str]] = {}
    for run in matrix(protocol, stream)[1]:
        name = run.about["learner"].partition("(")[0]
        if stream == "vectors" or LEARNERS[name].needs.images or LEARNERS[name].obeys:  # to others they are vectors
            names.setdefault(answered(run), set()).add(name)
    equal = [frozenset(of) for of in names.values() if len(of) > 1]
    assert not [of for of in equal if of not in SAME]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_setting_has_a_meaning(protocol: str) -> None:
    settings = described(PROTOCOLS[protocol])
    assert [setting.name for setting in settings] == setting_names(PROTOCOLS[protocol])
    assert not [setting.name for setting in settings if not setting.meaning]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_declared_scores_are_returned_and_the_primary_one_is_declared(protocol: str, stream: Stream) -> None:
    kind = PROTOCOLS[protocol]
    (result,) = evaluate(fitting(protocol, stream), protocol, ["nearest-mean"])["results"]
    assert {score.name for score in kind.scores} <= set(result["scores"])
    assert {score.name for score in kind.measures} <= set(result["measures"])
    assert kind.primary in ("", *result["scores"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_learner_never_holds_a_test_split(protocol: str, stream: Stream) -> None:
    spy = Spy()
    rows_of(protocol, fitting(protocol, stream), spy)
    assert "test" not in spy.splits


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming"])
def test_a_stream_of_one_step_is_refused_before_any_work(protocol: str) -> None:
    spy = Spy()
    with pytest.raises(IncompatibleStream, match="at least two"):
        evaluate(drifting(steps=1), protocol, [spy])
    assert not spy.seen


def test_iid_names_the_step_that_lacks_a_test_split(stream: Stream) -> None:
    bare = [Step(s.index, s.name, {"train": s["train"]} if s.index == 2 else s.splits) for s in stream.steps]
    with pytest.raises(IncompatibleStream, match="Step '2'.*no test split"):
        evaluate(Stream("bare", bare, stream.classes), "clear-iid", ["majority"])
