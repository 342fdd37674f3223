"""A learner that cannot run is skipped with its reason; the others go on, under every protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts.test_protocols import fitting

import driftline as dl
from driftline.curate.core import errors
from driftline.curate.core.errors import Busy, DriftlineError, IntegrityError
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners.references import Majority
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate, plan
from driftline.stream_builder.stream import Stream

FOR_ALL = (IntegrityError, Busy)  # of a file or folder that all learners use
REFUSALS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DriftlineError) and kind not in FOR_ALL
]


@dataclass
class Refuses(Learner):
    """Raises `error` in the method `where`."""

    where: str = "begin"
    error: Any = None

    def _do(self, method: str) -> None:
        if self.where == method:
            raise self.error

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self._do("begin")

    def predict(self, x: Array) -> Labels:
        self._do("predict")
        return np.zeros(len(x), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self._do("learn")

    def stored_bytes(self) -> int:
        self._do("stored_bytes")
        return 0

    def settings(self) -> dict[str, Any]:
        return {"where": self.where}


def others_finish(stream: Stream, protocol: str, learner: Learner, **more: Any) -> str:
    """Evaluate it between two majorities, which must finish; returns why it was skipped."""
    other = "majority" if protocol != "seq-to-final" else "baseline"
    settings = {"budget": "small"} if protocol == "seq-to-final" else {}
    names: list[Any] = [other, learner, "random" if protocol != "seq-to-final" else "oracle"]
    found = evaluate(fitting(protocol, stream), protocol, names, settings=settings, **more)
    assert other in {result["learner"] for result in found["results"]}
    (because,) = [entry["because"] for entry in found["skipped"] if entry["learner"] == type(learner).__name__]
    return str(because)


@pytest.mark.parametrize("kind", [*REFUSALS, ValueError, OSError, MemoryError], ids=lambda kind: kind.__name__)
def test_every_kind_of_refusal_stays_with_its_learner(kind: Callable[[str], Exception], stream: Stream) -> None:
    assert "not on this machine" in others_finish(stream, "clear-iid", Refuses(error=kind("not on this machine")))


def test_from_python_it_is_a_warning_and_a_row(stream: Stream) -> None:
    crashes = Refuses("predict", ValueError("boom"))
    with pytest.warns(UserWarning, match=r"^Refuses was skipped: It crashed: ValueError: boom"):
        frame = dl.evaluate(stream, "clear-iid", ["majority", crashes], seeds=2).frame()
    row = frame.iloc[-1]
    assert (row["learner"], row["score"]) == ("Refuses", "next_domain")
    assert np.isnan(row["value"])
    assert "boom" in row["skipped"]
    assert set(frame.loc[frame["learner"] == "majority", "skipped"]) == {""}


def test_one_call_takes_several_streams_and_protocols_and_sets_as_the_command_does(stream: Stream) -> None:
    protocols = ["clear-iid", "clear-streaming"]
    found = dl.evaluate([stream, stream], protocols, "ocrr-sanity", seeds=[0])
    assert [one["protocol"] for one in found] == protocols * 2
    assert {one["learner"] for one in found[0]["results"]} == {"substrate", "ewc", "online-linear", "static-knn"}


@pytest.mark.parametrize("where", ["begin", "learn", "predict", "stored_bytes"])
@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "seq-to-final"])
def test_wherever_it_happens(protocol: str, where: str, stream: Stream) -> None:
    assert others_finish(stream, protocol, Refuses(where, errors.MissingFile("There is no file x."))) == (
        "There is no file x."
    )


@pytest.mark.parametrize("kind", FOR_ALL, ids=lambda kind: kind.__name__)
def test_what_concerns_all_learners_ends_the_evaluation(kind: type[Exception], stream: Stream) -> None:
    with pytest.raises(kind, match="in use"):
        evaluate(stream, "clear-iid", [Refuses(error=kind("in use")), "majority"])


class Uncreatable(Majority):
    def __init__(self, *, needed: int) -> None:
        self.needed = needed


def test_a_learner_that_cannot_be_created_is_planned_and_skipped(stream: Stream, tmp_path: Path) -> None:
    planned = plan(stream, "clear-iid", [Uncreatable, "majority"], [0], out=tmp_path)
    assert (planned.runs, planned.finished) == (2, 0)
    found = evaluate(stream, "clear-iid", [Uncreatable, "majority"], out=tmp_path)
    assert [result["learner"] for result in found["results"]] == ["majority"]
    assert "'Uncreatable' cannot be created" in found["skipped"][0]["because"]


def test_a_state_that_cannot_be_read_stops_its_learner_only(stream, tmp_path, monkeypatch):
    def damaged(self: object, *state: object) -> None:
        raise errors.BadInput("state.json is no stored state.")

    monkeypatch.setattr("driftline.eval.checkpoint.Checkpoint.load", damaged)
    found = evaluate(stream, "near-future", ["majority"], settings={"shift": 8}, out=tmp_path)
    assert found["skipped"] == [{"learner": "majority", "because": "state.json is no stored state."}]
