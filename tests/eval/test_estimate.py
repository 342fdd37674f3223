"""What a grid will cost, told before it starts, against what it did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls
from support.helpers import described, drifting

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.cost_estimate import Past, core_seconds, fitted_line, product_rate
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import Protocol
from driftline.eval.protocols.clear.protocol import Iid, Streaming
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.run import evaluate, plan
from driftline.eval.training.online_learner import OnlineLearner
from driftline.eval.training.sgd_learner import NetLearner
from driftline.stream_builder.stream import Step, Stream

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


def test_an_estimate_follows_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.eval.experiment.cost_estimate.product_rate", lambda: 1e9)
    stream = drifting(steps=4, n=60)
    one, ten, mlp = (
        core_seconds(stream, [LEARNERS["finetune"](**settings)], [60] * 4)[0]
        for settings in ({"epochs": 1}, {"epochs": 10}, {"epochs": 1, "net": "mlp"})
    )
    assert one is not None
    assert ten == pytest.approx(10 * one)
    assert mlp is not None
    assert mlp > 100 * one
    assert one == pytest.approx(240 * 4 * 8 * 3 / 1e9 / 0.75)
    others = [LEARNERS["majority"](), LEARNERS["finetune"](net="resnet18"), LEARNERS["finetune"](epochs=1)]
    assert core_seconds(stream, others, [60] * 4) == [None, None, one], "one that is not known hides no other"


@pytest.mark.parametrize(("protocol", "sizes"), [(Iid(), [60] * 4), (Streaming(), [90] * 3), (Ocrr(), None)])
def test_an_estimate_knows_what_a_protocol_trains_on(protocol: Protocol, sizes: list[int] | None) -> None:
    assert protocol.training_sizes(drifting(steps=4, n=60)) == sizes, "streaming: whole steps, and not the last"


def test_the_rate_of_products_is_a_rate() -> None:
    assert 1e8 < product_rate(128) < 1e13


def test_finished_runs_are_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.eval.experiment.cost_estimate.product_rate", lambda: 1e9)  # a busy machine's varies
    stream, names = drifting(), ["finetune", "nearest-mean"]
    before = plan(stream, "clear-iid", names, [0, 1], {"epochs": 2}, tmp_path)
    assert (before.runs, before.finished, before.not_known) == (4, 0, ["nearest-mean"])
    evaluate(stream, "clear-iid", names, [0], {"epochs": 2}, tmp_path)
    after = plan(stream, "clear-iid", names, [0, 1], {"epochs": 2}, tmp_path)
    assert (after.runs, after.finished, after.not_known) == (4, 2, [])
    took = [json.loads(path.read_text())["seconds"] for path in tmp_path.rglob("run.json")]
    assert after.core_seconds == pytest.approx(sum(took)), "the other seed takes as long"
    assert plan(stream, "clear-iid", names, [0, 1], {"epochs": 3}, tmp_path).finished == 1, "nearest-mean has no epochs"


@pytest.mark.parametrize(("slower", "fixed"), [(5.0, 0.0), (0.2, 0.0), (5.0, 2.0), (1.0, 30.0)])
def test_after_ten_runs_an_estimate_is_within_a_factor_of_two(slower, fixed, tmp_path, monkeypatch):
    """On machines that are not what the constants say: their clock stands in the records of ten small runs."""
    monkeypatch.setattr("driftline.eval.experiment.cost_estimate.product_rate", lambda: 1e6)
    stream, rng = drifting(steps=4, n=60), rng_for(0)
    truth = {}

    def takes(learner: str) -> float:
        return fixed + slower * plan(stream, "clear-iid", [learner], [0]).core_seconds

    names = ["nearest-mean", *(f"{name}(epochs={n})" for name in ("finetune", "er", "cumulative") for n in (1, 2, 4))]
    evaluate(stream, "clear-iid", names, [0], {}, tmp_path)
    records = {json.loads(path.read_text())["learner"]: path for path in tmp_path.rglob("run.json")}
    for path in map(records.__getitem__, names):  # in an order that no file system decides
        about = json.loads(path.read_text())
        truth[about["learner"]] = takes(about["learner"]) * rng.uniform(0.8, 1.25)
        path.write_text(json.dumps(about | {"seconds": max(0.001, truth[about["learner"]])}))
    assert len(truth) == 10
    for learner in ("finetune(epochs=100)", "lwf(epochs=1)", "joint(net=mlp,epochs=3)", "er(epochs=2)"):
        found = plan(stream, "clear-iid", [learner], [0, 1, 2], out=tmp_path)
        assert not found.not_known
        assert found.core_seconds / (found.runs - found.finished) / takes(learner) == pytest.approx(1, rel=0.49)


@pytest.mark.parametrize("seed", range(20))
def test_a_line_without_negative_parts_is_that_of_scipy(seed: int) -> None:
    rng = rng_for(seed)
    work = rng.exponential(size=8) * (rng.random(8) < 0.8)
    seconds = rng.uniform(0.9, 1.1, 8) * (rng.choice([0, 0.02, 3]) + rng.choice([0.1, 5]) * work + 0.01)
    fixed, factor = fitted_line(work, seconds)
    (slope, start), error = nnls(np.stack([work, np.ones(8)], axis=1) / seconds[:, None], np.ones(8))
    flat = nnls((1 / seconds)[:, None], np.ones(8))[1]
    if error**2 <= flat**2 / 2:
        assert (fixed, factor) == pytest.approx((start, slope))
    else:
        assert factor == 1, "seconds that do not follow the work say nothing of it"


def test_a_learner_that_takes_more_than_its_arithmetic_is_estimated_by_its_own_runs(monkeypatch):
    monkeypatch.setattr("driftline.eval.experiment.cost_estimate.product_rate", lambda: 1e6)
    stream, sizes = drifting(steps=4, n=60), [60] * 4

    def seconds(name: str, epochs: int, past: Past = ()) -> float:
        return core_seconds(stream, [LEARNERS[name](epochs=epochs)], sizes, past)[0] or 0.0

    slower = {"finetune": 1, "er": 1, "agem": 4}
    past = [
        (LEARNERS[n](epochs=e), seconds(n, e) * slower[n]) for n in ("finetune", "er", "agem") for e in (1, 2, 3, 4)
    ]
    assert seconds("agem", 50, past) == pytest.approx(4 * seconds("agem", 50), rel=0.4)
    assert seconds("er", 50, past) == pytest.approx(seconds("er", 50), rel=0.4)


def test_a_plan_refuses_what_a_run_would() -> None:
    bare = Stream("bare", [Step(0, "0", drifting().steps[0].splits)], ["a", "b", "c"])
    with pytest.raises(IncompatibleStream, match="at least two"):
        plan(bare, "clear-iid", ["finetune"], [0])
