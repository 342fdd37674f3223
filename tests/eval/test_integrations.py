"""Other people's code under our protocols: it repeats by seed, sees no test, and learns."""

import functools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.helpers import drifting, few_of

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.seeding import rng_for
from driftline.eval.integrations import Avalanche, Sklearn, Torch, described
from driftline.eval.learner import Learner, Task
from driftline.eval.results import Results
from driftline.eval.run import evaluate


def network(task: Task) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(task.x_shape)), task.n_classes))


def naive(task: Task) -> object:
    from avalanche.evaluation.metrics import accuracy_metrics
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    model = network(task)
    quiet = EvaluationPlugin(accuracy_metrics(stream=True), loggers=[])
    return Naive(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), train_mb_size=16, train_epochs=5,
                 evaluator=quiet)  # fmt: skip


def replay(task: Task) -> object:
    from avalanche.training.plugins import ReplayPlugin

    made = naive(task)
    made.plugins.append(ReplayPlugin(40))  # type: ignore[attr-defined]
    return made


def of_river() -> Learner:
    """A river classifier by river's own door to scikit-learn."""
    from river.compat import convert_river_to_sklearn
    from river.linear_model import LogisticRegression
    from river.multiclass import OneVsRestClassifier

    return Sklearn("one-vs-rest", convert_river_to_sklearn(OneVsRestClassifier(LogisticRegression())))


def learners() -> list[Learner]:
    return [
        Sklearn("sgd", SGDClassifier(loss="log_loss"), epochs=3),
        of_river(),
        Torch("linear", network, functools.partial(torch.optim.SGD, lr=0.1), epochs=5, batch=16),
        Avalanche("naive", naive),
        Avalanche("replay", replay),
    ]


EVERY_DAY = ["sgd", "one-vs-rest", "linear"]  # to import Avalanche takes ten seconds


@pytest.mark.parametrize("name", few_of([one.name for one in learners()], EVERY_DAY))
def test_it_learns_under_the_protocol_and_repeats_by_its_seed(name: str) -> None:
    (learner,) = (one for one in learners() if one.name == name)
    stream = drifting(steps=3, drift=0.1)
    first = evaluate(stream, "clear-iid", [learner, "majority"], seeds=[0, 1])
    assert not first["skipped"]
    by = {r["learner"]: r for r in first["results"]}
    mine = by[name]
    assert mine["scores"]["in_domain"]["mean"] > by["majority"]["scores"]["in_domain"]["mean"] + 0.2
    assert mine["stored_bytes"] > 0
    again = evaluate(stream, "clear-iid", [learner], seeds=[0, 1])["results"][0]
    assert again["scores"] == mine["scores"]


def test_images_reach_a_module_channels_first() -> None:
    shapes = []

    class Looks(torch.nn.Module):
        def __init__(self, task: Task) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, task.n_classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            shapes.append((tuple(x.shape[1:]), float(x.max())))
            return self.head(x.mean((2, 3)))

    learner = Torch("looks", Looks, functools.partial(torch.optim.SGD, lr=0.1))
    learner.begin(Task(2, (6, 5, 3)), rng_for(0))
    learner.learn(np.full((4, 6, 5, 3), 255, np.uint8), np.array([0, 1, 0, 1]))
    assert set(shapes) == {((3, 6, 5), 1.0)}


def test_a_loss_that_explodes_is_named_and_the_others_go_on() -> None:
    explodes = Torch("explodes", network, functools.partial(torch.optim.SGD, lr=1e38), epochs=3)
    found = evaluate(drifting(steps=2), "clear-iid", [explodes, "majority"])
    assert [r["learner"] for r in found["results"]] == ["majority"]
    assert "explodes is not finite" in found["skipped"][0]["because"]


def test_a_pass_over_a_batch_counts_as_an_update_and_the_budget_says_how_many() -> None:
    wrapped = [Sklearn("sgd", SGDClassifier()), of_river()]
    found = evaluate(drifting(), "near-future", wrapped, settings={"batch": 20, "shift": 20, "updates": 5})
    assert [result["budget"] for result in found["results"]] == [{"updates_paid": 60, "updates_taken": 60}] * 2


def test_an_estimator_without_partial_fit_is_fitted_again_on_all_samples_so_far() -> None:
    """A Pipeline, too; its first step has one class only, and not every class from the first step on."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    stream, model = drifting(steps=3), make_pipeline(StandardScaler(), LogisticRegression())
    first = stream.steps[0]["train"]
    steps = [
        replace(stream.steps[0], splits={**stream.steps[0].splits, "train": first.take(first.y == 1)}),
        *stream[1:],
    ]
    result = evaluate(replace(stream, steps=steps), "clear-iid", model)["results"][0]
    assert (result["learner"], result["settings"]["learns"]) == ("Pipeline", "by fit on all samples so far")
    x, y = (np.concatenate([getattr(step["train"], name) for step in steps]) for name in ("x", "y"))
    last, after = steps[-1]["test"], make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    assert result["matrix"][2][2] == pytest.approx((after.predict(last.x) == last.y).mean())
    assert result["matrix"][0][0] == pytest.approx((steps[0]["test"].y == 1).mean())
    assert result["stored_bytes"] > x.nbytes


def test_a_budget_pays_for_fits_on_all_samples_as_for_updates_on_as_many() -> None:
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    settings = {"batch": 20, "shift": 20, "updates": 5}
    tree, bayes = evaluate(drifting(), "near-future", [DecisionTreeClassifier(), GaussianNB()], settings=settings)[
        "results"
    ]
    assert 40 < tree["budget"]["updates_taken"] <= tree["budget"]["updates_paid"] == 60
    assert bayes["budget"] == {"updates_paid": 60, "updates_taken": 60}


@pytest.mark.parametrize(
    ("learner", "says"),
    [
        (torch.nn.Linear(8, 3), "A learner is a Linear. Expected a name, a Learner, or a scikit-learn classifier"),
        (3, "A learner is a int"),
        (torch.nn.Linear, "A learner is Linear."),
    ],
)
def test_what_is_no_learner_is_refused(learner: object, says: str) -> None:
    with pytest.raises(BadConfig, match=re.escape(says)):
        evaluate(drifting(steps=2), "clear-iid", learner)


class TestTorch:
    def learner(self, **more: object) -> Torch:
        sgd = functools.partial(torch.optim.SGD, lr=0.1)
        return Torch("own", network, sgd, **{"epochs": 3, "batch": 16, **more})  # type: ignore[arg-type]

    def test_a_loss_of_ones_own_is_used(self) -> None:
        calls = []

        def loss(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            calls.append(len(y))
            return torch.nn.functional.multi_margin_loss(net(x), y)

        train = drifting(steps=1).steps[0]["train"]
        learner = self.learner(loss=loss)
        learner.begin(Task(3, (8,)), rng_for(0))
        learner.learn(train.x, train.y)
        assert (sum(calls), learner.gradient_steps) == (3 * len(train), len(calls))

    def test_the_record_names_all_of_it(self) -> None:
        sgd = {"optimiser": "SGD(lr=0.1)", "epochs": 3, "batch": 16, "device": "cpu"}
        assert self.learner().settings() == {"module": "own", **sgd}
        assert self.learner(loss=torch.nn.functional.multi_margin_loss).settings()["loss"] == "multi_margin_loss"

    def test_a_module_that_is_none_is_refused(self) -> None:
        (skipped,) = evaluate(drifting(steps=2), "clear-iid", [self.bad()])["skipped"]
        assert "made int. Expected a function from a Task to a torch.nn.Module." in skipped["because"]

    def bad(self) -> Torch:
        return Torch("own", lambda task: 3, functools.partial(torch.optim.SGD, lr=0.1))


class TestOneName:
    """Two estimators of one name, which rows tell apart by their settings."""

    def two(self, first: Any, second: Any) -> Results:
        return evaluate(drifting(steps=3), "clear-iid", [first, second])

    def test_one_that_fails_leaves_the_results_of_the_other(self) -> None:
        class Broken(SGDClassifier):
            def partial_fit(self, *batch: Any, **options: Any) -> Any:
                raise RuntimeError("broken")

        for pair in ((Broken(), SGDClassifier()), (SGDClassifier(), Broken())):
            results = self.two(*(Sklearn("a", one) for one in pair))
            assert [one["learner"] for one in results["results"]] == ["a"]
            assert [one["learner"] for one in results["skipped"]] == ["a"]

    def test_the_same_one_twice_is_refused(self) -> None:
        with pytest.raises(
            BadConfig, match=r"Two learners are named a and have the same settings\. Expected each once"
        ):
            self.two(Sklearn("a", SGDClassifier()), Sklearn("a", SGDClassifier()))

    def test_pipelines_that_differ_in_the_middle_of_a_long_text_are_two(self) -> None:
        def long(number: int) -> Any:
            numbers = {f"x{k}": "y" * 60 for k in range(20)} | {"x2": number}
            return make_pipeline(FunctionTransformer(kw_args=numbers), FunctionTransformer(inv_kw_args=numbers))

        first, second = (described(long(k)) for k in (1, 2))
        assert repr(long(1)) == repr(long(2))
        assert first != second
        assert "\n" not in first
