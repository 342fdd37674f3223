"""Learners with a closed form against scikit-learn and slow transcriptions of their papers."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from driftline.curate.core.errors import BadArray
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Learner, Task
from driftline.eval.learners import closed_forms as ridge
from driftline.eval.learners.closed_forms import PENALTIES, NearestMean, RandomFeatures, Ranpac, Ridge, Slda, oas
from driftline.eval.learners.neighbours import Knn
from driftline.eval.predictions import answers as answers_to
from driftline.eval.predictions import sure_answers
from driftline.eval.settings import spec_of

CLASSES, WIDTH = 4, 6
NAMES = ["nearest-mean", "simple-cil", "slda", "slda(shrinkage=0.01)", "ridge", "random-features(width=20)",
         "ranpac(width=20)", "ranpac(width=20,penalty=held-out)",
         "fecam", "fecam(covariance=common)"]  # fmt: skip


def labels(learner: Learner, x: Any) -> Any:
    """Its answers."""
    return answers_to(learner, x, len(x))


def confidence(learner: Learner, x: Any) -> Any:
    """How sure it is of them."""
    return sure_answers(learner, x, len(x))[1]


def samples(n: int = 120, seed: int = 0) -> tuple[Any, Any]:
    """Correlated Gaussian classes far from the origin, whose sizes differ."""
    rng = rng_for(seed, "closed")
    y = np.minimum(rng.geometric(0.4, n) - 1, CLASSES - 1)
    mixing = rng_for(1).normal(size=(WIDTH, WIDTH))
    means = rng_for(2).normal(0, 2, (CLASSES, WIDTH)) + 5
    return (means[y] + rng.normal(size=(n, WIDTH)) @ mixing).astype(np.float32), y.astype(np.int64)


X, Y = samples()
TEST = samples(60, 1)[0]


def begun(learner: str | Learner, width: int = WIDTH) -> Any:
    made = spec_of(learner)() if isinstance(learner, str) else learner
    made.begin(Task(CLASSES, (width,)), rng_for(0, "begun"))
    return made


def taught(learner: str | Learner, x: Any = X, y: Any = Y, sizes: int = 0) -> Any:
    made = begun(learner)
    for low in range(0, len(y), sizes or len(y)):
        made.learn(x[low : low + (sizes or len(y))], y[low : low + (sizes or len(y))])
    return made


@pytest.mark.parametrize("time", ["", "half_life=30"])
@pytest.mark.parametrize("name", NAMES)
def test_one_sample_at_a_time_gives_what_all_at_once_gives(name: str, time: str) -> None:
    inside = ",".join(part for part in (name.partition("(")[2].rstrip(")"), time) if part)
    spec = f"{name.partition('(')[0]}({inside})" if inside else name
    whole, single, uneven = taught(spec), taught(spec, sizes=1), taught(spec, sizes=7)
    assert np.allclose(single.of_classes(TEST), whole.of_classes(TEST), rtol=1e-6, atol=1e-8)
    assert np.allclose(uneven.of_classes(TEST), whole.of_classes(TEST), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("half_life", [0.0, 30.0])
def test_neighbours_are_the_same_however_they_came(half_life: float) -> None:
    whole, *portions = (taught(Knn(half_life=half_life), sizes=size) for size in (0, 1, 7))
    for other in portions:
        assert (labels(other, TEST) == labels(whole, TEST)).all()
        assert np.allclose(confidence(other, TEST), confidence(whole, TEST), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_of_the_features_does_not_matter(name: str) -> None:
    assert (labels(taught(name, X * 1000), TEST * 1000) == labels(taught(name), TEST)).all()


@pytest.mark.parametrize("shrinkage", [1e-4, 0.1, 0.5])
def test_slda_is_scikit_learns_lda(shrinkage: float) -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(X.astype(np.float64), Y)
    learner = taught(Slda(shrinkage=shrinkage, priors="observed"), sizes=10)
    assert np.allclose(confidence(learner, TEST), reference.predict_proba(TEST).max(1), atol=1e-6)
    assert (labels(learner, TEST) == reference.predict(TEST)).all()


def test_its_posterior_is_scikit_learns_with_shrinkage_of_within_class_deviations() -> None:
    """The shares that scikit-learn's OAS and ours give to the same deviations from class means."""
    from sklearn.covariance import oas as sklearn_oas

    centred = X - np.stack([X[k == Y].mean(0) for k in range(CLASSES)])[Y]
    scatter = centred.T.astype(np.float64) @ centred
    assert oas((scatter**2).sum(), scatter.diagonal(), len(X)) == pytest.approx(
        sklearn_oas(centred, assume_centered=True)[1], rel=1e-5
    )


def recursion(x: Any, y: Any, shrinkage: float) -> Callable[[Any], Any]:
    """SLDA as the paper writes it, sample by sample [Hayes & Kanan 2020, eq. 1-4], on a base of known means."""
    means, counts = np.zeros((CLASSES, WIDTH)), np.zeros(CLASSES)
    covariance = np.zeros((WIDTH, WIDTH))
    for t, (z, k) in enumerate(zip(x.astype(np.float64), y, strict=True)):
        if counts[k]:  # the first sample of a class has no deviation
            deviation = z - means[k]
            covariance = (t * covariance + t / (t + 1) * np.outer(deviation, deviation)) / (t + 1)
        means[k] = (counts[k] * means[k] + z) / (counts[k] + 1)
        counts[k] += 1
    target = np.eye(WIDTH) * covariance.trace() / WIDTH
    weights = np.linalg.inv((1 - shrinkage) * covariance + shrinkage * target) @ means.T
    return lambda test: (test @ weights - (means.T * weights).sum(0) / 2).argmax(1)


def test_slda_answers_as_the_papers_recursion() -> None:
    x, y = samples(600)
    answers = labels(taught(Slda(shrinkage=1e-4), x, y), TEST)
    assert (answers == recursion(x, y, 1e-4)(TEST)).mean() >= 0.97


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_scikit_learns(intercept: bool) -> None:
    from sklearn.linear_model import Ridge as SklearnRidge

    x = X.astype(np.float64)
    unit = (x**2).sum(1).mean()
    reference = SklearnRidge(alpha=2.0 * unit, fit_intercept=intercept).fit(x, np.eye(CLASSES)[Y])
    learner = taught(Ridge(penalty=2.0, intercept=intercept), sizes=11)
    assert np.allclose(learner.of_classes(TEST), reference.predict(TEST), atol=1e-9)


def test_ridge_that_forgets_is_recursive_least_squares_with_a_forgetting_factor() -> None:
    """P and w as in Haykin 2002, table 9.1; the penalty at the start has then been forgotten."""
    x, y = samples(400)
    forget, p, weights = 0.5 ** (1 / 20), np.eye(WIDTH) * 1e3, np.zeros((WIDTH, CLASSES))
    for row, label in zip(x.astype(np.float64), y, strict=True):
        gain = p @ row / (forget + row @ p @ row)
        weights += np.outer(gain, np.eye(CLASSES)[label] - row @ weights)
        p = (p - np.outer(gain, row @ p)) / forget
    learner = taught(Ridge(penalty=1e-9, intercept=False, half_life=20), x, y, sizes=1)
    assert np.allclose(learner.of_classes(TEST), TEST @ weights, atol=1e-4)


def test_random_features_approach_kernel_ridge_regression() -> None:
    from sklearn.kernel_ridge import KernelRidge

    def unit(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    learner = taught(RandomFeatures(penalty=0.5, intercept=False, width=800, gamma=2.0))
    exact = KernelRidge(alpha=0.5, kernel="rbf", gamma=2.0).fit(unit(X), np.eye(CLASSES)[Y]).predict(unit(TEST))
    assert np.abs(learner.of_classes(TEST) - exact).mean() < 0.05


def test_ranpac_is_its_algorithm_with_the_penalty_of_its_held_out_samples() -> None:
    """McDonnell et al. 2023, algorithm 1 and appendix C, with every fifth sample held out."""
    learner = taught(Ranpac(width=20, penalty="held-out"), sizes=13)
    features, targets = np.maximum(X.astype(np.float64) @ learner.projection, 0), np.eye(CLASSES)[Y]
    apart = np.arange(len(Y)) % 5 == 4

    def weights(h: Any, t: Any, penalty: float) -> Any:
        return np.linalg.solve(h.T @ h + penalty * (h**2).sum(1).mean() * np.eye(20), h.T @ t)

    losses = [
        ((features[apart] @ weights(features[~apart], targets[~apart], p) - targets[apart]) ** 2).mean()
        for p in PENALTIES
    ]
    best = PENALTIES[int(np.argmin(losses))]
    expected = np.maximum(TEST.astype(np.float64) @ learner.projection, 0) @ weights(features, targets, best)
    assert np.allclose(learner.of_classes(TEST), expected, atol=1e-7)
    assert learner.metadata() == {"penalty": best}


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
def test_a_penalty_is_chosen_with_few_solutions_and_is_the_best_of_all(noise, monkeypatch):
    tried: list[float] = []
    original = ridge.fitted

    def counted(moments: Any, penalty: float, intercept: bool) -> Any:
        tried.append(penalty)
        return original(moments, penalty, intercept)

    learner = taught(Ridge(penalty="held-out"), X + noise * rng_for(3).normal(size=X.shape))
    errors = [ridge.error(learner.held, *original(learner.moments, each, True)) for each in PENALTIES]
    monkeypatch.setattr(ridge, "fitted", counted)
    labels(learner, TEST)
    best = int(np.argmin(errors))
    assert learner.chosen == PENALTIES[best]
    assert len(tried) <= abs(best - PENALTIES.index(0.1)) + 4  # its neighbours, the way to it, and the final one


@pytest.mark.parametrize("covariance", ["class", "common"])
def test_fecam_is_its_algorithm(covariance: str) -> None:
    """Goswami et al. 2023, eq. 4-10, with `np.cov` and the inverse of each matrix."""

    def power(x: Any) -> Any:
        return np.sign(x) * np.sqrt(np.abs(x.astype(np.float64)))

    def unit(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    distances = []
    for k in range(CLASSES):
        of_class = power(X[k == Y])
        sigma = np.cov((of_class if covariance == "class" else power(X)).T)
        off = sigma[~np.eye(WIDTH, dtype=bool)].mean()
        sigma = sigma + np.diag(sigma).mean() * np.eye(WIDTH) + off * (1 - np.eye(WIDTH))
        sigma /= np.sqrt(np.outer(np.diag(sigma), np.diag(sigma)))
        away = unit(power(TEST)) - unit(of_class.mean(0))
        distances.append(np.einsum("nd,de,ne->n", away, np.linalg.inv(sigma), away))
    learner = taught(f"fecam(covariance={covariance})", sizes=8)
    assert np.allclose(-learner.of_classes(TEST), np.stack(distances, 1), rtol=1e-5)


def test_nearest_mean_is_scikit_learns() -> None:
    from sklearn.neighbors import NearestCentroid

    x, y = samples(300)
    test, _ = samples(200, 3)
    assert (labels(taught(NearestMean(), x, y), test) == NearestCentroid().fit(x, y).predict(test)).all()


def test_simple_cil_is_the_mean_of_the_largest_cosine() -> None:
    means = np.stack([X[k == Y].mean(0) for k in range(CLASSES)])
    cosines = (TEST @ means.T) / np.linalg.norm(TEST, axis=1)[:, None] / np.linalg.norm(means, axis=1)
    assert np.allclose(taught("simple-cil").of_classes(TEST), cosines, atol=1e-6)


def test_knn_without_decay_and_with_one_neighbour_is_the_nearest_and_with_decay_the_newest_wins() -> None:
    x, y = np.array([[1, 0], [1, 0.1], [0, 1]], np.float32), np.array([0, 1, 2])
    query = np.array([[1, 0.0]], np.float32)
    answers = {}
    for learner in (Knn(k=1), Knn(k=3), Knn(k=3, half_life=0.1)):
        made = begun(learner, 2)
        for i in range(3):
            made.learn(x[i : i + 1], y[i : i + 1])
        answers[learner.k, learner.half_life] = int(labels(made, query)[0])
    assert answers == {(1, 0.0): 0, (3, 0.0): 0, (3, 0.1): 1}


@pytest.mark.parametrize("name", NAMES)
def test_one_sample_a_class_and_features_without_variance_are_no_error(name: str) -> None:
    learner = begun(name)
    learner.learn(X[:1], np.array([2]))
    assert (labels(learner, TEST) == 2).all()
    constant = np.ones((8, WIDTH), np.float32)
    assert labels(taught(name, constant, np.arange(8) % 2), constant).shape == (8,)


def test_features_that_are_not_finite_and_classes_that_do_not_exist_are_named() -> None:
    learner, bad = begun("slda"), X.copy()
    bad[77, 3] = np.nan
    with pytest.raises(BadArray, match="Sample 77 holds NaN"):
        learner.learn(bad, Y)
    with pytest.raises(BadArray, match="class 9"):
        begun("ridge").learn(X[:1], np.array([9]))


def test_answers_alone_need_little_more_memory_than_their_scores() -> None:
    """A confidence would take three further arrays of the scores' size."""
    classes, x = 200, np.ones((2000, WIDTH), np.float32)
    learner = Slda()
    learner.begin(Task(classes, (WIDTH,)), rng_for(0))
    learner.learn(x[:classes], np.arange(classes))
    labels(learner, x[:1])
    tracemalloc.start()
    labels(learner, x)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1.7 * len(x) * classes * 8
