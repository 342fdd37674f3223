"""Adaptation without labels: the contract, the learners, and the estimates of accuracy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import drifting

from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Task
from driftline.eval.learners.label_shift import Bbse, HoldsOut, Mlls, calibrated, em
from driftline.eval.learners.nearest_mean import NearestMean
from driftline.eval.learners.t3a import T3a
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.protocols.adaptation.estimates import atc, doc, gde
from driftline.eval.protocols.adaptation.neighbours import neighbours_of
from driftline.eval.protocols.adaptation.protocol import Adaptation
from driftline.eval.protocols.adaptation.unlabelled import Unlabelled
from driftline.eval.reporting.protocols.adaptation import Adaptation as Page
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

STREAM = drifting(drift=0.3, n=120)
TRAIN = STREAM.steps[0]["train"]


def shifted(n: int = 3000) -> Stream:
    """Two steps of the same overlapping classes; in the second, class 0 is seldom."""
    rng = rng_for(0, "shifted")
    means = rng.normal(0, 1.0, (3, 4))
    steps = []
    for t, share in enumerate(([1 / 3, 1 / 3, 1 / 3], [0.05, 0.35, 0.6])):
        splits = {}
        for name in ("train", "test"):
            y = rng.choice(3, n, p=share).astype(np.int64)
            splits[name] = Split((means[y] + rng.normal(size=(n, 4))).astype(np.float32), y)
        steps.append(Step(t, str(t), splits))
    return Stream("shifted", steps, ["a", "b", "c"], sha256="shifted")


def begun(learner: Any, stream: Stream = STREAM) -> Any:
    learner.begin(Task(len(stream.classes), stream.x_shape), rng_for(0))
    learner.learn(stream.steps[0]["train"].x, stream.steps[0]["train"].y)
    return learner


@dataclass
class Peeks(NearestMean):
    """Asks for labels."""

    def adapt(self, batch: Any) -> dict[str, Any]:
        self.learn(batch.x, batch.y)
        return {}


@dataclass
class Counts(NearestMean):
    """Remembers what it was shown."""

    batches: list[int] = field(default_factory=list)

    def adapt(self, batch: Any) -> dict[str, Any]:
        assert not hasattr(batch, "position")
        self.batches.append(len(batch))
        return {"batches": len(self.batches)}


class TestContract:
    def test_labels_are_refused_by_name(self) -> None:
        (entry,) = evaluate(STREAM, "adaptation", [Peeks()])["skipped"]
        assert "Peeks asked for the labels of test samples" in entry["because"]

    @pytest.mark.parametrize(("reset", "last"), [("step", 2), ("never", 6)])
    def test_every_update_is_logged_and_resets_are_those_declared(self, reset: str, last: int, tmp_path: Path) -> None:
        evaluate(STREAM, "adaptation", [Counts], settings={"reset": reset, "batch": 40}, out=tmp_path)
        (record,) = [json.loads(path.read_text()) for path in tmp_path.rglob("run.json")]
        log = record["test_time_updates"]
        assert [(entry["step"], entry["from"], entry["samples"]) for entry in log] == [
            (t, low, n) for t in (1, 2, 3) for low, n in ((0, 40), (40, 20))
        ]
        assert log[-1]["batches"] == last

    def test_a_learner_that_does_not_adapt_is_frozen(self) -> None:
        (result,) = evaluate(STREAM, "adaptation", ["nearest-mean"])["results"]
        assert result["scores"]["adapted"]["mean"] == result["scores"]["frozen"]["mean"]


def sorted_tests(stream: Stream) -> Stream:
    """The same, where test samples come class after class."""

    def in_order(split: Split) -> Split:
        return split.take(np.argsort(split.y, kind="stable"))

    steps = [replace(s, splits={**s.splits, "test": in_order(s.splits["test"])}) for s in stream.steps]
    return replace(stream, steps=steps)


@dataclass
class OneAnswer(NearestMean):
    """Gives a batch the answer that is most frequent in it."""

    def adapt(self, batch: Any) -> dict[str, Any]:
        answers = NearestMean.predict(self, batch.x)
        self.answer = int(np.bincount(answers).argmax())
        return {"answer": self.answer}

    def predict(self, x: Any) -> Any:
        answers = NearestMean.predict(self, x)
        return np.full(len(x), self.answer) if hasattr(self, "answer") else answers


class TestOrder:
    """Tests come shuffled: the order in which photos lie in a stream must not give labels to a model that adapts."""

    STREAM = sorted_tests(shifted(600))

    def run(self, order: str) -> dict[str, Any]:
        settings = {"batch": 20, "order": order}
        (result,) = evaluate(self.STREAM, "adaptation", [OneAnswer], settings=settings, seeds=[3])["results"]
        return dict(result)

    def test_the_streams_order_changes_nothing(self) -> None:
        orders = [rng_for(7, "another order").permutation(600), np.arange(600)]
        scores = []
        for order in orders:
            steps = [replace(s, splits={**s.splits, "test": s.splits["test"].take(order)}) for s in self.STREAM.steps]
            stream = replace(self.STREAM, steps=steps, sha256=str(order[0]))
            scores += evaluate(stream, "adaptation", ["mlls"], settings={"epochs": 20, "batch": 600})["results"]
        adapted, frozen = ([result["scores"][name]["mean"] for result in scores] for name in ("adapted", "frozen"))
        assert adapted[0] == pytest.approx(adapted[1], abs=1e-3)  # sums of another order
        assert frozen[0] == frozen[1]

    def test_an_order_that_gives_labels_away_pays_only_as_given_and_is_named(self) -> None:
        shuffled, given = self.run("shuffled"), self.run("as-given")
        gain = [
            result["scores"]["adapted"]["mean"] - result["scores"]["frozen"]["mean"] for result in (shuffled, given)
        ]
        assert gain[0] < 0 < 0.2 < gain[1]
        told = [result["told"]["neighbours"] for result in (shuffled, given)]
        assert [about["correlated"] for about in told] == [False, True]
        assert told[1]["majority"] > 0.95 > 0.8 > told[0]["majority"]
        for result, about in zip((shuffled, given), told, strict=True):
            assert result["references"]["most frequent label of each batch"] == about["majority"]
        notes = [Page.note({"results": [result]}) for result in (shuffled, given)]
        assert ["gives labels away" in note for note in notes] == [False, True]

    def test_the_order_is_the_seeds(self) -> None:
        protocol, step = Adaptation(), self.STREAM.steps[1]
        first, again, other = (protocol.tests_of(step, seed).ids.tolist() for seed in (0, 0, 1))
        assert first == again
        assert sorted(first) == sorted(other)
        assert sum(a == b for a, b in zip(first, other, strict=True)) < 20

    def test_neighbours_by_hand(self) -> None:
        """Batches 0 0 1, 1 1 2: 2 + 2 right of 6; pairs 00 01 11 11 12: 3 of 5; by chance (2·1 + 3·2) / (6·5)."""
        about = neighbours_of([np.array([0, 0, 1, 1, 1, 2])], 3)
        assert about == {"repeated": 0.6, "by_chance": 0.2667, "majority": 0.6667, "correlated": False}


class TestLearners:
    def test_t3a_is_its_algorithm(self) -> None:
        """Iwasawa & Matsuo 2021, as the authors' code has it (matsuolab/T3A, adapt_algorithms.py): the trained head,
        with its bias, says which set a sample joins."""
        learner, test = begun(T3a(support=7)), STREAM.steps[3]["test"]
        weights, bias = (p.clone() for p in learner.head.params)

        def entropy(z: Any) -> Any:
            p = torch.softmax(z @ weights.T + bias, 1)
            return -(p * p.log()).sum(1)

        unit = torch.nn.functional.normalize
        supports, labels, entropies = unit(weights), torch.eye(3), entropy(weights)
        for low in range(0, len(test), 20):
            x = test.x[low : low + 20]
            learner.adapt(Unlabelled(x, "T3a"))
            z = torch.from_numpy(learner.inputs(x))
            answers = (z @ weights.T + bias).argmax(1)
            supports = torch.cat([supports, unit(z)])
            labels = torch.cat([labels, torch.eye(3)[answers]])
            entropies = torch.cat([entropies, entropy(z)])
            kept = []
            for k in range(3):
                of_class = torch.where(labels.argmax(1) == k)[0]
                kept.append(of_class[torch.argsort(entropies[of_class])][:7])
            rows = torch.cat(kept)
            supports, labels, entropies = supports[rows], labels[rows], entropies[rows]
            expected = (z @ unit(supports.T @ labels, dim=0)).argmax(1)
            assert (learner.predict(x) == expected.numpy()).all()

    def test_em_is_the_maximum_of_the_likelihood(self) -> None:
        rng = rng_for(0)
        prior, truth = np.array([0.5, 0.5]), np.array([0.2, 0.8])
        y = rng.choice(2, 4000, p=truth)
        x = rng.normal(np.array([-1.0, 1.0])[y])
        likelihood = np.exp(-((x[:, None] - np.array([-1.0, 1.0])) ** 2) / 2)
        posterior = likelihood * prior / (likelihood * prior).sum(1, keepdims=True)
        grid = np.linspace(0.01, 0.99, 981)
        of_grid = [np.log(posterior @ (np.array([q, 1 - q]) / prior)).sum() for q in grid]
        assert em(posterior, prior)[0] == pytest.approx(grid[int(np.argmax(of_grid))], abs=0.002)

    @pytest.mark.parametrize("kind", [Bbse, Mlls])
    def test_frequencies_are_found_without_labels(self, kind: type[HoldsOut]) -> None:
        stream = shifted()
        learner = begun(kind(epochs=20, lr=0.3), stream)
        facts = learner.adapt(Unlabelled(stream.steps[1]["test"].x, kind.__name__))
        assert np.abs(np.array(facts["frequencies"]) - [0.05, 0.35, 0.6]).max() < 0.1

    def test_bbse_solves_its_equation(self) -> None:
        learner = begun(Bbse(epochs=5))
        learner.confusions = np.array([[8.0, 1, 0], [2, 9, 1], [0, 0, 9]])
        probabilities = np.eye(3)[[0] * 5 + [1] * 3 + [2] * 2]
        joint = learner.confusions / 30
        weights = np.linalg.inv(joint) @ [0.5, 0.3, 0.2]
        expected = weights * joint.sum(0)
        found = learner.estimate(probabilities, np.full(3, 1 / 3))
        assert np.allclose(found, expected / expected.sum())

    @pytest.mark.parametrize("biased", [False, True])
    def test_calibration_is_the_least_cross_entropy(self, biased: bool) -> None:
        """Alexandari et al. 2020, sec. 2, against torch's optimiser."""
        rng = rng_for(4)
        y = rng.choice(4, 500, p=[0.6, 0.3, 0.1, 0.0])
        scores = rng.normal(size=(500, 4)) + 0.7 * np.eye(4)[y]
        factor, biases = calibrated(scores, y, biased)
        z, labels = torch.from_numpy(scores), torch.from_numpy(y)
        t, b = torch.ones((), dtype=torch.float64, requires_grad=True), torch.zeros(3, dtype=torch.float64)
        b.requires_grad_(biased)
        optimiser = torch.optim.LBFGS([t, b] if biased else [t], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> Any:
            optimiser.zero_grad()
            value = torch.nn.functional.cross_entropy(z[:, :3] * t + b, labels)
            value.backward()
            return value

        optimiser.step(loss)
        assert factor == pytest.approx(t.item(), abs=1e-3)
        assert np.allclose(biases[:3], (b - b.mean()).detach().numpy(), atol=1e-3)
        assert biases[3] == 0  # no sample of it

    def test_mlls_of_an_unsure_head_needs_calibration(self) -> None:
        """The published finding: calibration helps maximum likelihood [Alexandari et al. 2020]."""
        off = {}
        for calibrate in ("none", "temperature", "bcts"):
            learner = begun(Mlls(epochs=20, lr=0.3, calibrate=calibrate), stream := shifted())
            for param in learner.head.params:
                param.mul_(0.15)  # as right, and less sure
            facts = learner.adapt(Unlabelled(stream.steps[1]["test"].x, "Mlls"))
            off[calibrate] = np.abs(np.array(facts["frequencies"]) - [0.05, 0.35, 0.6]).max()
        assert max(off["temperature"], off["bcts"]) < 0.1, off
        assert off["none"] > 2 * max(off["temperature"], off["bcts"]), off

    @pytest.mark.parametrize("kind", [Bbse, Mlls])
    def test_every_fifth_sample_is_held_out_in_any_portions(self, kind: type[HoldsOut]) -> None:
        learner = kind(epochs=1)
        learner.begin(Task(3, STREAM.x_shape), rng_for(0))
        for low in range(0, 30, 3):
            learner.learn(TRAIN.x[low : low + 3], TRAIN.y[low : low + 3])
        assert (np.concatenate([y for _, y in learner.held]) == TRAIN.y[4:30:5]).all()

    def test_correction_helps_where_frequencies_changed(self) -> None:
        """The published finding [Lipton et al. 2018, abstract; Alexandari et al. 2020, abstract]."""
        found = evaluate(shifted(), "adaptation", ["bbse", "mlls"], settings={"epochs": 20, "lr": 0.3, "batch": 500})
        for result in found["results"]:
            assert result["scores"]["adapted"]["mean"] > result["scores"]["frozen"]["mean"] + 0.01, result["learner"]


class TestEstimates:
    def test_without_a_shift_they_are_the_source_accuracy(self) -> None:
        rng = rng_for(0)
        sure = rng.random(20_000)
        right = rng.random(20_000) < sure
        assert atc(sure, right, sure) == pytest.approx(right.mean(), abs=1e-3)
        assert doc(sure, right, sure) == pytest.approx(right.mean())
        assert gde(np.array([0, 1, 2, 0]), np.array([0, 1, 1, 2])) == 0.5

    def test_they_are_shares(self) -> None:
        low, high, wrong = np.array([0.1, 0.2]), np.array([0.8, 0.9]), np.array([False, False])
        assert atc(low, wrong, high) == 0, "where the source was never right, nothing is sure enough"
        assert atc(low, ~wrong, np.array([0.05, 0.1, 0.3, 0.4])) == 0.75
        assert (doc(low, ~wrong, high), doc(high, wrong, low)) == (1, 0)

    def test_they_are_their_equations_sample_by_sample(self) -> None:
        """Garg et al. 2022, eq. 1-2: the threshold below which are as many source samples as are wrong; Guillory et al.
        2021, sec. 3.2; Jiang et al. 2022, eq. 2."""
        rng = rng_for(1)
        sure, target = rng.random(200), rng.random(90)
        right = rng.random(200) < sure
        wrong = sum(not one for one in right)
        threshold = min(t for t in sure if sum(s < t for s in sure) == wrong)
        assert atc(sure, right, target) == sum(s >= threshold for s in target) / 90
        assert sum(s >= threshold for s in sure) / 200 == sum(map(bool, right)) / 200  # what eq. 2 asks for
        lost = sum(sure) / 200 - sum(target) / 90
        assert doc(sure, right, target) == pytest.approx(sum(map(bool, right)) / 200 - lost)
        one, other = rng.integers(0, 4, 90), rng.integers(0, 4, 90)
        assert gde(one, other) == sum(a == b for a, b in zip(one.tolist(), other.tolist(), strict=True)) / 90

    def test_scores_and_errors_by_hand(self) -> None:
        right = {"adapted": (8, 6), "frozen": (7, 5), "gde": (9, 3), "atc": (7,)}
        rows = [Row(f"{kind}/{t}", 10, k) for kind, found in right.items() for t, k in enumerate(found, 1)]
        result = PROTOCOLS["adaptation"]().score(rows, 3)
        assert result.scores == pytest.approx({"adapted": 0.7, "frozen": 0.6})
        assert result.measures == {"gde_error": pytest.approx(0.2), "atc_error": pytest.approx(0), "doc_error": None}
        assert result.curve is not None
        assert list(result.curve["at"]) == [1, 2]

    def test_they_are_scored_against_the_truth(self) -> None:
        (result,) = evaluate(STREAM, "adaptation", ["finetune"], settings={"epochs": 10})["results"]
        errors = {name: value["mean"] for name, value in result["measures"].items()}
        assert set(errors) == {"atc_error", "doc_error", "gde_error"}
        assert all(0 <= error < 0.5 for error in errors.values())

    def test_a_learner_without_confidence_has_gde_only(self) -> None:
        (result,) = evaluate(STREAM, "adaptation", ["nearest-mean"])["results"]
        assert result["measures"]["atc_error"]["mean"] is None
        assert result["measures"]["gde_error"]["mean"] is not None
