"""What a protocol of a stranger must have, and what it may have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadConfig, BadPlugin
from driftline.eval.protocol import Protocol, Roles
from driftline.eval.reporting.report import results_of
from driftline.eval.run import evaluate, plan
from driftline.ext import Learner, Result, Row, Score, Stream, Task, evaluate_split, rng_for


@dataclass(frozen=True, slots=True)
class Slotted(Protocol):
    """Train on one step, test on all."""

    first: int | str = "auto"
    """the step that is learned"""
    further: int = 3
    """a setting that changes nothing"""

    scores = (Score("last", "last step"),)
    roles = Roles(step=lambda row: int(row.tested_on), decisive=lambda rows: rows[-1:])

    def check(self, stream: Stream) -> None: ...

    def task(self, stream: Stream) -> Task:
        return Task(len(stream.classes), stream.x_shape)

    def unused(self) -> dict[str, str]:
        return {"further": "nothing is further"}

    def resolve(self, stream: Stream) -> "Slotted":
        return replace(self, first=0)

    def defaults(self, learner: Learner) -> dict[str, Any]:
        return {"epochs": 1} if hasattr(learner, "epochs") else {}

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        return {"told": {"steps": len(stream.steps)}, "own": seed}

    def training_sizes(self, stream: Stream) -> list[int]:
        return [len(stream.steps[0]["train"])]

    def run(self, stream: Stream, learner: Learner, rng: Any, seed: int) -> Iterator[Row]:
        learner.learn_step(stream.steps[int(self.first)].visible())
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


def test_settings_are_chosen_on_three_parts_of_the_first_step_by_default() -> None:
    ((protocol, part),) = Slotted(0).trials(drifting(), rng_for(0), 0)
    assert (protocol, len(part.steps)) == (Slotted(0), 3)


@pytest.mark.parametrize(("given", "settings"), [(Slotted, {"further": 4}), (Slotted(further=4), {})])
def test_a_setting_of_a_protocol_that_changes_nothing_is_refused(given: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="further is 4, which changes nothing: nothing is further"):
        plan(drifting(), given, ["majority"], [0], settings)
    assert plan(drifting(), Slotted, ["majority"], [0], {"further": 3}).runs == 1, "its default may be given"


def test_a_setting_with_the_name_of_a_method_is_refused() -> None:
    annotated = {"__annotations__": {"facts": int}, "facts": 5}
    kind = dataclass(frozen=True)(type("Clashing", (Slotted,), annotated))
    with pytest.raises(BadPlugin, match="Clashing has a setting facts, which is a name of Protocol"):
        plan(drifting(), kind, ["majority"], [0])
