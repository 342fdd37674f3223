"""From what a learner is handed, no later label or sample can be reached: not by attributes, nor behind arrays."""

import mmap
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import correlated

from driftline.curate.core.errors import BadArray
from driftline.curate.core.seeding import rng_for
from driftline.eval.history import History, Past
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, np.generic, np.random.Generator)
RUN = 15  # labels in a row: as many of 12 random classes do not repeat by chance
QUICK: dict[str, Any] = {"shift": 50, "batch": 20, "points": 5}


def reachable(*roots: Any) -> Iterator[np.ndarray]:
    """Every array in the object graph: attributes, items, what stands behind arrays, methods and closures."""
    waiting, known = list(roots), set()
    keep = []  # ids of objects that are gone could be used again
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, PLAIN) or id(thing) in known:
            continue
        known.add(id(thing))
        keep.append(thing)
        if isinstance(thing, np.ndarray):
            yield thing
            waiting.append(thing.base)
        elif isinstance(thing, mmap.mmap):
            yield np.frombuffer(thing, np.uint8)
        elif isinstance(thing, memoryview):
            waiting.append(thing.obj)
        elif isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting += list(thing)
        elif isinstance(thing, types.MethodType):
            waiting += [thing.__self__, thing.__func__]
        elif isinstance(thing, types.FunctionType):
            waiting += [cell.cell_contents for cell in thing.__closure__ or ()] + list(thing.__defaults__ or ())
        elif isinstance(thing, partial):
            waiting += [thing.func, thing.args, thing.keywords]
        else:
            waiting += list(getattr(thing, "__dict__", {}).values())
            names = [n for n in dir(type(thing)) if not n.startswith("__")]
            waiting += [getattr(thing, n, None) for n in names]


def holds(arrays: list[np.ndarray], labels: Labels) -> bool:
    """Whether any array has these labels in a row, as integers or as their bytes."""
    needle = np.ascontiguousarray(labels, np.int64)
    for array in arrays:
        if (
            array.dtype == np.uint8
            and array.ndim == 1
            and array.base is not None
            and needle.tobytes() in array.tobytes()
        ):
            return True
        flat = array.ravel() if array.dtype.kind in "iu" else np.zeros(0, np.int64)
        if len(flat) >= len(needle):
            windows = np.lib.stride_tricks.sliding_window_view(flat, len(needle))
            if (windows == needle).all(1).any():
                return True
    return False


@dataclass
class Walker(Learner):
    """Walks whatever it is handed; `secret` names the labels that it must not find now."""

    tests: list[Labels] = field(default_factory=list)
    train: Labels = field(default_factory=lambda: np.zeros(0, np.int64))
    walks: int = 0

    def look(self, *handed: Any, later: Labels | None = None) -> None:
        arrays = list(reachable(*handed))
        for secret in [*self.tests, *([] if later is None or len(later) < RUN else [later[:RUN]])]:
            assert not holds(arrays, secret), f"{[type(thing).__name__ for thing in handed]} leads to later labels"
        self.walks += 1

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.look(task, later=self.train)

    def predict(self, x: Array) -> Labels:
        self.look(x, later=self.train)
        return np.zeros(len(x), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.look(x, y)

    def learn_from(self, past: Past) -> None:
        batch = past.newest()
        self.look(past, batch, past.take(np.arange(past.seen)), later=self.train[past.seen :])

    def learn_step(self, step: Step) -> None:
        self.look(step)

    def correct(self, x: Array, y: Labels) -> None:
        self.look(x, y, later=self.train)

    def prepare(self, x: Any) -> None:
        self.look(x, later=self.train)


@pytest.fixture(params=["in memory", "on disk"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    """A stream whose labels are random."""
    made = correlated(n=600, stay=0.0)
    return made.save(tmp_path / "s") if request.param == "on disk" else made


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "near-future", "ocrr"])
def test_nothing_later_can_be_reached(protocol: str, whole: Stream) -> None:
    tests = [np.array(step["test"].y[:RUN]) for step in whole.steps]
    last = np.array(whole.steps[-1]["train"].y)
    train = np.array(whole.flat("train").y) if protocol == "near-future" else last
    walker = Walker(tests if protocol != "clear-streaming" else [], train)
    settings = QUICK if protocol == "near-future" else {}
    kind = PROTOCOLS[protocol](**settings).resolve(whole)
    if protocol == "ocrr":
        walker.train = last  # the stream of corrections
    walker.begin(kind.task(whole), rng_for(0))
    list(kind.run(whole, walker, rng_for(0), 0))
    assert walker.walks > 3


def leaky_views() -> Iterator[Any]:
    y = np.array(correlated(n=600, stay=0.0).flat("train").y)

    @dataclass
    class WithLabels:
        labels: Labels

    class WithProperty:
        @property
        def labels(self) -> Labels:
            return y

    yield pytest.param(WithLabels(y), id="attribute")
    yield pytest.param(y[:20], id="behind a view")
    yield pytest.param(WithProperty(), id="property")
    yield pytest.param(lambda: y[:20], id="closure")
    yield pytest.param(History([Split(np.zeros((len(y), 2), np.float32), y)]), id="the history itself")


@pytest.mark.parametrize("view", leaky_views())
def test_the_walk_finds_what_is_badly_hidden(view: Any) -> None:
    train = np.array(correlated(n=600, stay=0.0).flat("train").y)
    with pytest.raises(AssertionError, match="leads to later labels"):
        Walker(train=train).look(view, later=train[20:])


class Peeks(Learner):
    """Takes the longest array of integers that it can reach for the labels of the whole stream."""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.seen, self.found = 0, np.zeros(1, np.int64)

    def learn(self, x: Array, y: Labels) -> None: ...

    def learn_from(self, past: Past) -> None:
        arrays = [a for a in reachable(past, past.newest()) if a.dtype == np.int64 and a.ndim == 1]
        self.seen, self.found = past.seen, max(arrays, key=len)

    def predict(self, x: Array) -> Labels:
        later = np.arange(self.seen, self.seen + len(x))
        return self.found[later % len(self.found)]


def test_a_learner_that_reads_every_attribute_is_at_chance() -> None:
    found = evaluate(correlated(stay=0.0), "near-future", [Peeks()], settings=QUICK | {"shift": 0})["results"][0]
    assert found["scores"]["online"]["mean"] < 0.2


def test_a_past_gives_copies_of_what_is_past_and_refuses_the_rest() -> None:
    train = correlated().flat("train")
    history = History([train.part(0, 30), train.part(30, len(train))])
    past = history.past(20, 40)
    x, y = past.take([39, 2, 31])
    assert (x == train.x[[39, 2, 31]]).all()
    assert (y == train.y[[39, 2, 31]]).all()
    assert (past.newest()[0] == train.x[20:40]).all()
    for read in (past.x, past.y, past.take):
        with pytest.raises(BadArray, match="Position 40"):
            read([39, 40])
        with pytest.raises(BadArray, match="of which 40 samples are past"):
            read([-1])
    x[:] = 0
    assert train.x[39].any(), "a copy"
    del history
    with pytest.raises(BadArray, match="The stream of this past is over"):
        past.x([0])
