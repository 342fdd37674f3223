"""Agreement and models of workers against crowd-kit, statsmodels and values computed by hand."""

import numpy as np
import pandas as pd
import pytest
from support.campaigns import simulated

from driftline.curate.validation.answers import agreement
from driftline.curate.validation.answers.agreement import Votes, dawid_skene, fleiss_kappa, krippendorff_alpha, pairwise


def frame(answers: Votes) -> pd.DataFrame:
    return pd.DataFrame({"task": answers.items, "worker": answers.workers, "label": answers.labels})


@pytest.mark.proof("statistics")
def test_dawid_skene_equals_crowd_kit() -> None:
    from crowdkit.aggregation import DawidSkene

    answers, truth = simulated(4)  # crowd-kit's floor of 1e-10 takes some campaigns to another optimum
    theirs = DawidSkene(n_iter=400, tol=1e-13).fit_predict_proba(frame(answers)).sort_index().sort_index(axis=1)
    ours = dawid_skene(answers, 400, 1e-13, prior=0)
    assert np.abs(ours - theirs.to_numpy()).max() < 1e-6
    assert np.mean(ours.argmax(1) == truth) > 0.9


def test_a_model_of_workers_beats_counting_votes() -> None:
    answers, truth = simulated(2)
    votes = answers.counts().argmax(1)
    assert np.mean(dawid_skene(answers).argmax(1) == truth) > np.mean(votes == truth)


def test_fleiss_kappa_equals_statsmodels() -> None:
    from statsmodels.stats.inter_rater import fleiss_kappa as theirs

    answers, _ = simulated(3)
    assert fleiss_kappa(answers) == pytest.approx(theirs(answers.counts().astype(int)), abs=1e-12)


@pytest.mark.proof("statistics")
def test_alpha_equals_crowd_kit() -> None:
    from crowdkit.metrics.data import alpha_krippendorff

    answers, _ = simulated(4)
    assert krippendorff_alpha(answers) == pytest.approx(alpha_krippendorff(frame(answers)), abs=1e-9)


def test_values_computed_by_hand() -> None:
    """Two items, two workers: they agree on one and not on the other."""
    answers = Votes(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1]))
    assert pairwise(answers) == 0.5
    assert fleiss_kappa(answers) == pytest.approx((0.5 - 10 / 16) / (1 - 10 / 16))
    assert krippendorff_alpha(answers) == pytest.approx(1 - 2 / (6 / 3))


def test_a_worker_who_always_gives_one_label_is_visible() -> None:
    answers, _ = simulated(5, items=60, workers=4)
    columns = zip((answers.items, answers.workers, answers.labels), (np.arange(60), [4] * 60, [2] * 60), strict=True)
    lazy = Votes(*(np.append(column, more) for column, more in columns))
    row = agreement.worker_table(lazy, np.ones(len(lazy.items)))[4]
    assert (row["answers"], row["one_answer"], row["median_seconds"]) == (60, True, 1.0)
    assert row["agreement"] < 0.5
    two = Votes(np.array([0, 0]), np.array([0, 1]), np.array([0, 1]))
    assert [row["agreement"] for row in agreement.worker_table(two)] == [0, 0]


@pytest.mark.parametrize("measure", [pairwise, fleiss_kappa, krippendorff_alpha])
def test_nothing_to_compare_has_no_agreement(measure):
    assert np.isnan(measure(Votes(np.array([0]), np.array([0]), np.array([0]))))


def test_kappa_is_of_images_with_as_many_answers_as_most() -> None:
    """Three images with three answers, one with two: (1 + 1/3 + 1) / 3 of the pairs are equal, (5/9)² + (4/9)² by
    chance."""
    items, labels = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3], [0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1]
    found = fleiss_kappa(Votes(np.array(items), np.zeros(11, np.int64), np.array(labels)))
    chance = (5 / 9) ** 2 + (4 / 9) ** 2
    assert found == pytest.approx((7 / 9 - chance) / (1 - chance))
