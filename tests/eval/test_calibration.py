"""Calibration by age: against torchmetrics, scikit-learn and known answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support.helpers import drifting

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.rows import Answers, Row, Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.ageing import ageing
from driftline.eval.scoring.calibration import (
    BINS,
    Calibration,
    bin_of,
    calibration,
)
from driftline.eval.scoring.sums import Resampling

Floats = npt.NDArray[np.float64]
ABOUT: dict[str, Any] = {
    "protocol": "clear-iid", "learner": "er", "settings": {}, "protocol_settings": {}, "seed": 0, "steps": 2,
    "stream": {"name": "s", "sha256": "s"}, "stored_bytes": 0, "gradient_steps": 0, "seconds": 0.0,
}  # fmt: skip


def answered(confidence: Floats | None, right: npt.NDArray[np.bool_], j: int = 0) -> Row:
    size = len(right)
    given = None if confidence is None else confidence.astype(np.float32)
    label = np.zeros(size, np.uint8)
    answers = Answers(np.arange(size) + j * size, label, (~right).astype(np.uint8), given)
    return Row(str(j), size, int(right.sum()), 0, answers=answers)


def of(*rows: Row) -> Calibration:
    (found,) = calibration([Run(ABOUT, list(rows))])
    assert found is not None
    return found


def drawn(n: int, over: float, seed: int = 0) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Confidences, and answers that are right less often by `over`."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.3, 0.99, n)
    return confidence, rng.random(n) < confidence - over


class TestMeasures:
    def test_the_error_is_that_of_torchmetrics_less_its_bias(self) -> None:
        """Of the squared error; the bias by leaving out each sample."""
        from torchmetrics.functional.classification import binary_calibration_error

        confidence, right = drawn(40, 0.2)
        preds, target = torch.from_numpy(confidence.astype(np.float32)), torch.from_numpy(right.astype(int))

        def squared(part: Any) -> float:
            return float(binary_calibration_error(preds[part], target[part], n_bins=BINS, norm="l2")) ** 2

        without = [squared(np.arange(40) != k) for k in range(40)]
        expected = 40 * squared(slice(None)) - 39 * float(np.mean(without))
        assert expected > 0
        assert of(answered(confidence, right)).ece.value[0] == pytest.approx(np.sqrt(expected), rel=1e-3)

    def test_brier_is_that_of_scikit_learn(self) -> None:
        from sklearn.metrics import brier_score_loss

        confidence, right = drawn(500, 0.1)
        expected = brier_score_loss(right, confidence.astype(np.float32))
        assert of(answered(confidence, right)).brier.value[0] == pytest.approx(expected, abs=1e-6)

    def test_bins_hold_all_answers(self) -> None:
        confidence, right = drawn(300, 0.1)
        found = of(answered(confidence, right))
        assert found.n.sum() == 300
        assert np.nansum(found.accuracy * found.n) == pytest.approx(right.sum())
        assert np.nansum(found.confidence * found.n) == pytest.approx(confidence.sum(), rel=1e-5)

    def test_the_gap_is_overconfidence_with_an_interval(self) -> None:
        confidence, right = drawn(4000, 0.15)
        gap = of(answered(confidence, right)).gap
        assert gap.value[0] == pytest.approx(0.15, abs=0.02)
        expected = 1.96 * np.std(confidence - right) / np.sqrt(4000)
        assert (gap.high - gap.low)[0] / 2 == pytest.approx(expected, rel=0.3)

    def test_the_interval_of_a_calibrated_and_of_a_sure_model_covers(self) -> None:
        for over in (0.0, 0.2):
            bands = [of(answered(*drawn(200, over, seed))).ece for seed in range(60)]
            held = np.mean([band.low[0] <= over <= band.high[0] for band in bands])
            assert held >= 0.9
            assert np.median([band.value[0] for band in bands]) == pytest.approx(over, abs=0.03)

    def test_samples_of_one_uploader_are_one(self) -> None:
        """Five copies of each sample: the same error, with the same interval."""
        confidence, right = drawn(40, 0.2)
        many = answered(np.repeat(confidence, 5), np.repeat(right, 5))
        one, five = (
            calibration([Run(ABOUT, [row])], resampling=Resampling(groups=clusters))[0]
            for row, clusters in ((answered(confidence, right), None), (many, np.arange(200) // 5))
        )
        assert one is not None
        assert five is not None
        for end in ("value", "low", "high"):
            assert getattr(one.ece, end) == pytest.approx(getattr(five.ece, end))

    @pytest.mark.parametrize(("value", "expected"), [(0.0, 0), (1 / 15, 0), (0.0667, 1), (0.5, 7), (1.0, 14)])
    def test_borders_of_bins(self, value: float, expected: int) -> None:
        assert bin_of(np.array([value], np.float32)).tolist() == [expected]


def test_by_age() -> None:
    young, old = drawn(2000, 0.0), drawn(2000, 0.2, 1)
    found = of(answered(*young), answered(*old, 1))
    assert found.lags.tolist() == [0, 1]
    assert found.gap.low[1] > found.gap.high[0]


def test_without_confidence_there_is_none() -> None:
    assert calibration([Run(ABOUT, [answered(None, np.ones(5, bool))])]) == [None]


def test_of_real_runs_beside_learners_without_confidence() -> None:
    stream, kept = drifting(n=120), []
    evaluate(stream, "clear-iid", ["nap", "nearest-mean", "majority"], [0, 1], {"epochs": 3}, keep_run=kept.append)
    nap, mean, majority = calibration(kept, stream)
    assert mean is None
    assert nap is not None
    assert majority is not None
    assert nap.lags.tolist() == [0, 1, 2, 3], "it never learns again"
    assert nap.timeline.unit == "days"
    assert (nap.ece.value >= 0).all()


@pytest.mark.parametrize("function", [ageing, calibration])
def test_outcomes_of_another_stream_are_refused(function: Any) -> None:
    stream, kept = drifting(), []
    evaluate(stream, "clear-iid", ["nearest-mean"], keep_run=kept.append)
    with pytest.raises(IncompatibleStream, match=r"nearest-mean, seed 0, .*version drifting; .*version other"):
        function(kept, replace(stream, sha256="other"))
