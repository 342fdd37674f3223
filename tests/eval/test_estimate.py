"""What a grid will cost, told before it starts, against what it did."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.helpers import described, drifting

from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.online import OnlineLearner
from driftline.eval.protocol import Protocol
from driftline.eval.protocols.clear import Iid, Streaming
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.protocols.seq_to_final.protocol import SeqToFinal, with_val
from driftline.eval.run import core_seconds, evaluate, plan
from driftline.eval.training.sgd_learner import NetLearner

TRAINED = [
    n for n in LEARNERS
    if issubclass(LEARNERS[n], NetLearner) and not issubclass(LEARNERS[n], OnlineLearner)
    and not LEARNERS[n].needs.images and n != "self-training"  # what it will be sure of nobody knows before
]  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_samples_trained_are_those_of_the_gradient_steps(name: str) -> None:
    stream = described(drifting(steps=6, n=160))
    learner = LEARNERS[name](epochs=4, batch=16)
    learner.begin(Task(3, (8,), 6, class_texts=stream.class_texts), rng_for(0))
    steps = [step.visible() for step in stream.steps]
    if learner.needs.future:
        learner.learn_sequence(steps)
    else:
        for step in steps:
            learner.learn_step(step)
    looked = (learner.gradient_steps * learner.cost + learner.extra) * 16
    if name == "er":  # each later step looks at as many again
        looked += (learner.gradient_steps - 4 * 10) * 16
    assert learner.samples_trained([160] * 6) == pytest.approx(looked, rel=0.01)


class Clock:
    """CPU time that only learning takes."""

    now = 0.0

    def process_time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A sample that is trained takes a millisecond; what is first loaded takes ten seconds."""
    made = Clock()
    train = NetLearner.train

    def takes(learner: Any, x: Any, y: Any, **more: Any) -> int:
        made.now += 1e-3 * len(y) * learner.epochs + (10.0 if not made.now else 0.0)
        return train(learner, x, y, **more)

    monkeypatch.setattr(NetLearner, "train", takes)
    monkeypatch.setattr("driftline.eval.run.time", made)
    return made


@pytest.mark.parametrize("settings", [{"epochs": 1}, {"epochs": 10}, {"epochs": 7, "batch": 16}])
def test_an_estimate_is_one_timed_step_times_the_samples(settings: dict[str, int], clock: Clock) -> None:
    stream = drifting(steps=4, n=60)
    (one,) = core_seconds(stream, Iid(), "clear-iid", [partial(LEARNERS["finetune"], **settings)])
    assert one == pytest.approx(4 * 60 * 1e-3 * settings["epochs"])


@pytest.mark.parametrize("name", ["nap", "joint", "cumulative"])
def test_what_a_learner_looks_at_decides_its_estimate(name: str, clock: Clock) -> None:
    kind = LEARNERS[name]
    (one,) = core_seconds(drifting(steps=4, n=60), Iid(), "clear-iid", [kind])
    assert one == pytest.approx(1e-3 * kind().samples_trained([60] * 4))


def test_a_method_for_the_last_step_is_timed_by_a_fit_of_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes(learner: Any, steps: Any) -> None:
        samples = sum(len(step["train"]) for step in steps)
        clock.now += 1e-3 * samples * learner.task.rules.rule.epochs + (10.0 if not clock.now else 0.0)
        learner.work.book.tried, learner.work.book.points = 2, 16  # stages, and points of their grids

    clock, stream = Clock(), drifting(steps=4, n=300)
    monkeypatch.setattr(LEARNERS["sft"], "learn_sequence", takes)
    monkeypatch.setattr("driftline.eval.protocols.seq_to_final.protocol.time", clock)
    trained = sum(len(with_val(step, 0.25, 0)["train"]) for step in stream.steps)
    for fidelity, fits in (("clean", 12), ("paper-code", 16)):
        protocol = SeqToFinal(val_share=0.25, fidelity=fidelity)
        seconds = core_seconds(stream, protocol, "seq-to-final", [LEARNERS["sft"], LEARNERS["er"]])
        assert seconds == [pytest.approx(1e-3 * trained * 10 * fits / 2), None], "10 epochs; er has fits of its own"


def test_an_estimate_is_the_median_of_earlier_runs_of_the_same_learner() -> None:
    past = [(LEARNERS["majority"](), seconds) for seconds in (1.0, 2.0, 9.0)]
    assert core_seconds(drifting(), Iid(), "clear-iid", [LEARNERS["majority"]], past) == [2.0]


def test_what_cannot_be_timed_hides_no_other(clock: Clock) -> None:
    makers = [partial(LEARNERS["finetune"], net="resnet18"), partial(LEARNERS["llm"], model="m"), LEARNERS["finetune"]]
    found = core_seconds(drifting(steps=4, n=60), Iid(), "clear-iid", makers)
    assert found == [None, None, pytest.approx(24.0)]


def test_a_plan_is_timed_only_when_it_is_asked(clock: Clock) -> None:
    found = plan(drifting(), "clear-iid", ["finetune"], [0, 1])
    assert clock.now == 0
    assert found.core_seconds == pytest.approx(2 * 24.0)
    assert plan(drifting(), "clear-iid", ["finetune"], [0], tune={"lr": [1.0, 3.0]}).not_known == ["finetune"]


@pytest.mark.parametrize(("protocol", "sizes"), [(Iid(), [60] * 4), (Streaming(), [90] * 3), (Ocrr(), None)])
def test_an_estimate_knows_what_a_protocol_trains_on(protocol: Protocol, sizes: list[int] | None) -> None:
    assert protocol.training_sizes(drifting(steps=4, n=60)) == sizes, "streaming: whole steps, and not the last"


def test_finished_runs_are_not_planned_again(tmp_path: Path) -> None:
    stream, names = drifting(), ["finetune", "nearest-mean"]
    before = plan(stream, "clear-iid", names, [0, 1], {"epochs": 2}, tmp_path)
    assert (before.runs, before.finished, before.not_known) == (4, 0, [])
    evaluate(stream, "clear-iid", names, [0], {"epochs": 2}, tmp_path)
    after = plan(stream, "clear-iid", names, [0, 1], {"epochs": 2}, tmp_path)
    assert (after.runs, after.finished, after.not_known) == (4, 2, [])
    took = [json.loads(path.read_text())["seconds"] for path in tmp_path.rglob("run.json")]
    assert after.core_seconds == pytest.approx(sum(took)), "the other seed takes as long"
    assert plan(stream, "clear-iid", names, [0, 1], {"epochs": 3}, tmp_path).finished == 1, "nearest-mean has no epochs"
