"""What a protocol of a stranger must have and what it may have; what nothing calls any longer is refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadPlugin
from driftline.eval import protocol_abilities as abilities
from driftline.eval.protocol import REMOVED, Protocol, Roles
from driftline.eval.reporting.report import results_of
from driftline.eval.run import evaluate, plan
from driftline.ext import Learner, Result, Row, Score, Stream, Task, evaluate_split, learn_step, rng_for

ABILITIES = ("defaults", "facts", "learners_per_pass", "resolve", "run_many", "training_sizes", "trials")


@dataclass(frozen=True, slots=True)
class Slotted(Protocol):
    """Train on one step, test on all."""

    first: int | str = "auto"
    """the step that is learned"""
    trials: int = 3
    """a setting with the name of an ability"""

    scores = (Score("last", "last step"),)
    roles = Roles(step=lambda row: int(row.tested_on), decisive=lambda rows: rows[-1:])

    def check(self, stream: Stream) -> None: ...

    def task(self, stream: Stream) -> Task:
        return Task(len(stream.classes), stream.x_shape)

    def resolve(self, stream: Stream) -> Slotted:
        return replace(self, first=0)

    def defaults(self, learner: Learner) -> dict[str, Any]:
        return {"epochs": 1} if hasattr(learner, "epochs") else {}

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        return {"told": {"steps": len(stream.steps)}, "own": seed}

    def training_sizes(self, stream: Stream) -> list[int]:
        return [len(stream.steps[0]["train"])]

    def run(self, stream: Stream, learner: Learner, rng: Any, seed: int) -> Iterator[Row]:
        learn_step(learner, stream.steps[int(self.first)].visible())
        for step in stream.steps:
            yield evaluate_split(learner, step["test"], str(step.index), 0.0, learned_to=0)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        return Result({"last": rows[-1].n_correct / rows[-1].n})


def marked(kind: type) -> type:
    """A decorator that hands out a class of its own."""
    return type(kind.__name__, (kind,), {"mark": True, "__doc__": kind.__doc__})


@marked
class Decorated(Slotted):
    """The same, decorated."""


def test_four_methods_are_public_and_all_else_is_an_ability() -> None:
    public = [name for name in vars(Protocol) if not name.startswith("_") and callable(getattr(Protocol, name))]
    assert public == ["check", "task", "run", "score"]
    functions = inspect.getmembers(abilities, lambda f: getattr(f, "__module__", "") == abilities.__name__)
    assert sorted(name for name, _ in functions if not name.startswith("_")) == list(ABILITIES)
    assert not [name for name in ABILITIES if hasattr(Protocol, name)]


@pytest.mark.parametrize("kind", [Slotted, Decorated])
def test_a_frozen_slotted_or_decorated_protocol_runs_with_its_abilities(kind: type[Protocol], tmp_path: Path) -> None:
    kept: list[Any] = []
    learners = ["nearest-mean", "majority", "finetune"]
    found = evaluate(drifting(), kind, learners, [0, 1], out=tmp_path, keep_run=kept.append)
    assert found["skipped"] == []
    assert [result["settings"].get("epochs") for result in found["results"]] == [None, None, 1]
    assert all(result["settings"]["first"] == 0 for result in found["results"])
    assert [run.about["own"] for run in kept] == [run.about["seed"] for run in kept]
    assert all(run.about["told"] == {"steps": 4} for run in kept)
    (document,) = results_of([tmp_path])
    assert document["ageing"], "roles.step: accuracy by age"
    assert document["compared"], "roles.decisive: learners on single samples"


def test_a_setting_with_the_name_of_an_ability_is_none() -> None:
    stream = drifting()
    ((protocol, part),) = abilities.trials(Slotted(0), stream, rng_for(0), 0)
    assert protocol == Slotted(0)
    assert len(part.steps) == 3


@pytest.mark.parametrize("name", REMOVED)
def test_what_nothing_calls_is_refused_before_any_work(name: str) -> None:
    older = dataclass(frozen=True)(type("Older", (Slotted,), {name: lambda self, *given: None}))
    with pytest.raises(BadPlugin) as caught:
        plan(drifting(), older, ["majority"], [0])
    assert str(caught.value) == f"The protocol Older has {name}, which nothing calls. Expected {REMOVED[name]}."


def test_rows_of_a_protocol_that_has_what_nothing_calls_are_refused(tmp_path: Path) -> None:
    kind = dataclass(frozen=True)(type("Renewed", (Slotted,), {}))
    evaluate(drifting(), kind, ["majority"], out=tmp_path)
    kind.decisive = staticmethod(lambda rows: rows)
    with pytest.raises(BadPlugin, match=r"Renewed has decisive, .* Expected roles = Roles\(decisive"):
        results_of([tmp_path])


def test_a_setting_with_the_name_of_a_removed_method_is_a_setting() -> None:
    annotated = {"__annotations__": {"records": int}, "records": 5}
    kind = dataclass(frozen=True)(type("Newer", (Slotted,), annotated))
    assert evaluate(drifting(), kind, ["majority"])["results"][0]["settings"]["records"] == 5
