"""Agreement and models of workers against crowd-kit, statsmodels and values computed by hand."""

import numpy as np
import pandas as pd
import pytest

from driftline.curate.validation.answers.agreement import (
    Votes,
    dawid_skene,
    fleiss_kappa,
    krippendorff_alpha,
    pairwise,
    worker_table,
)


def simulated(seed: int = 0, items: int = 400, workers: int = 20, labels: int = 4) -> tuple[Votes, np.ndarray]:
    """Three answers an item; a quarter of the workers guess, the others are right with 0.8 to 0.95."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, labels, items)
    skill = np.where(rng.random(workers) < 0.25, 1 / labels, rng.uniform(0.8, 0.95, workers))
    rows = []
    for i in range(items):
        for w in rng.choice(workers, 3, replace=False):
            right = rng.random() < skill[w]
            rows.append((i, w, truth[i] if right else (truth[i] + rng.integers(1, labels)) % labels))
    return Votes(*np.array(rows, np.int64).T), truth


def frame(answers: Votes) -> pd.DataFrame:
    return pd.DataFrame({"task": answers.items, "worker": answers.workers, "label": answers.labels})


@pytest.mark.proof("statistics")
def test_dawid_skene_equals_crowd_kit() -> None:
    from crowdkit.aggregation import DawidSkene

    answers, truth = simulated()
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
    lazy = Votes(
        np.append(answers.items, np.arange(60)),
        np.append(answers.workers, [4] * 60),
        np.append(answers.labels, [2] * 60),
    )
    row = worker_table(lazy, np.ones(len(lazy.items)))[4]
    assert (row["answers"], row["one_answer"], row["median_seconds"]) == (60, True, 1.0)
    assert row["agreement"] < 0.5


@pytest.mark.parametrize("measure", [pairwise, fleiss_kappa, krippendorff_alpha])
def test_nothing_to_compare_has_no_agreement(measure):
    assert np.isnan(measure(Votes(np.array([0]), np.array([0]), np.array([0]))))
