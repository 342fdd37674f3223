"""Probabilities of classes beside the outcomes: asked for by a setting, checked, resumed, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadConfig
from driftline.eval import outcomes, rows
from driftline.eval.engine.scores import softmax
from driftline.eval.learners.references import Majority
from driftline.eval.learners.trained_heads import Nap
from driftline.eval.outcomes import PROBABILITIES
from driftline.eval.run import evaluate, plan
from driftline.eval.training.online_learner import OnlineLearner

NEAR = {"batch": 20, "shift": 40}


def one(out: Path) -> Path:
    (folder,) = rows.folders([out])
    return folder


def test_they_are_the_learners_own_and_rows_and_outcomes_stay(tmp_path: Path) -> None:
    stream, learner = drifting(), Nap(epochs=2)
    evaluate(stream, "clear-iid", [learner], settings={"probabilities": "all"}, out=tmp_path / "with")
    evaluate(stream, "clear-iid", [Nap(epochs=2)], out=tmp_path / "without")
    (one_run,), (other,) = (outcomes.find([tmp_path / side])[0] for side in ("with", "without"))
    assert [rows.counted(row) for row in one_run.rows] == [rows.counted(row) for row in other.rows]
    files = [(one(tmp_path / side) / outcomes.FILE).read_bytes() for side in ("with", "without")]
    assert files[0] == files[1]
    assert not (one(tmp_path / "without") / PROBABILITIES).exists()
    stored = pd.read_parquet(one(tmp_path / "with") / PROBABILITIES)
    last = stored[stored["row"] == stored["row"].max()].to_numpy()
    classes, shares = last[:, 1::2], last[:, 2::2] / outcomes.STEPS
    own = softmax(learner.scores(stream.steps[-1]["test"].x))
    assert np.abs(np.take_along_axis(own, classes.astype(int), 1) - shares).max() <= 0.5 / outcomes.STEPS + 1e-6
    assert np.array_equal(classes[:, 0], one_run.rows[-1].answers.predicted)  # type: ignore[union-attr]
    assert (np.sort(classes, 1) == np.arange(len(stream.classes))).all()
    assert (np.diff(shares) <= 0).all()


def test_an_interrupted_run_ends_with_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**NEAR, "probabilities": 2}
    evaluate(drifting(), "near-future", ["fc-only"], settings=settings, out=tmp_path / "whole")
    monkeypatch.setattr("driftline.eval.checkpoint.EVERY", 0.0)
    learn_from = OnlineLearner.learn_from

    def stops(self: Any, past: Any) -> None:
        if list((tmp_path / "cut").rglob("state2.pt")):
            raise KeyboardInterrupt
        learn_from(self, past)

    with monkeypatch.context() as patch:
        patch.setattr(OnlineLearner, "learn_from", stops)
        with pytest.raises(KeyboardInterrupt):
            evaluate(drifting(), "near-future", ["fc-only"], settings=settings, out=tmp_path / "cut")
    evaluate(drifting(), "near-future", ["fc-only"], settings=settings, out=tmp_path / "cut")
    whole, cut = (pd.read_parquet(one(tmp_path / side) / PROBABILITIES) for side in ("whole", "cut"))
    pd.testing.assert_frame_equal(whole, cut)
    assert whole.columns.tolist() == ["row", "class_1", "probability_1", "class_2", "probability_2"]


def test_a_finished_run_is_done_again_only_if_it_lacks_them(tmp_path: Path) -> None:
    def left(most: Any) -> int:
        planned = plan(drifting(), "clear-iid", ["majority"], [0], {"probabilities": most}, tmp_path)
        return planned.runs - planned.finished

    evaluate(drifting(), "clear-iid", ["majority"], out=tmp_path)
    assert (left(0), left(2)) == (0, 1)
    evaluate(drifting(), "clear-iid", ["majority"], settings={"probabilities": 2}, out=tmp_path)
    assert (left(0), left(1), left(2), left("all")) == (0, 0, 0, 1)
    assert outcomes.find([tmp_path])[1] == []


@pytest.mark.parametrize("given", ["nan", "1.5", "-0.1"])
def test_what_is_no_probability_names_the_learner(given: str) -> None:
    class Odd(Majority):
        def predict(self, x: Any) -> Any:
            return np.zeros(len(x), np.int64), np.full((len(x), 2), float(given))

    (skipped,) = evaluate(drifting(), "clear-iid", [Odd], settings={"probabilities": "all"})["skipped"]
    assert skipped["because"].startswith("Odd.predict gave the")
    assert "at most 1 in all" in skipped["because"]


@pytest.mark.parametrize("value", [-1, "most", 1.5, True])
def test_another_value_is_refused(value: Any) -> None:
    with pytest.raises(BadConfig, match="Expected all or a number of classes"):
        evaluate(drifting(), "clear-iid", ["majority"], settings={"probabilities": value})
