"""CLEAR's equations on hand-made matrices, and its findings on a drifting stream [CLEAR, sec. 5, supplement 3]."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.helpers import drifting, study

from driftline.curate.core.errors import BadInput
from driftline.eval.learner import Task
from driftline.eval.learners.online import RiverLogreg
from driftline.eval.predictions import answers
from driftline.eval.protocols import clear
from driftline.eval.rows import Row
from driftline.eval.run import evaluate

SCORES = {of.name: function for of, function in clear.IID.items()}
R = np.array([[0.9, 0.6, 0.3], [0.8, 0.7, 0.5], [0.4, 0.2, 1.0]])


def test_the_five_equations_by_hand() -> None:
    assert SCORES["in_domain"](R) == pytest.approx((0.9 + 0.7 + 1.0) / 3)
    assert SCORES["next_domain"](R) == pytest.approx((0.6 + 0.5) / 2)
    assert SCORES["accuracy"](R) == pytest.approx((0.9 + 0.8 + 0.7 + 0.4 + 0.2 + 1.0) / 6)
    assert SCORES["backward"](R) == pytest.approx((0.8 + 0.4 + 0.2) / 3)
    assert SCORES["forward"](R) == pytest.approx((0.6 + 0.3 + 0.5) / 3)


def test_streaming_scores_read_only_cells_that_exist() -> None:
    rows = [Row(str(j), 10, i + j, learned_to=i) for i in range(3) for j in range(i + 1, 3)]
    matrix = clear.matrix(rows, 3)
    assert np.isnan(matrix[np.tril_indices(3)]).all()
    assert SCORES["next_domain"](matrix) == pytest.approx((0.1 + 0.3) / 2)
    assert SCORES["forward"](matrix) == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert np.isnan(SCORES["in_domain"](matrix)), "a score that needs missing cells says so"


def test_a_test_on_nothing_is_an_error_not_zero() -> None:
    with pytest.raises(BadInput, match="no samples"):
        clear.matrix([Row("0", 0, 0, learned_to=0)], 1)


def test_in_domain_is_above_next_domain_is_above_forward_where_there_is_drift() -> None:
    found = evaluate(
        drifting(steps=6, n=300, drift=0.55, noise=2.5), "clear-iid", ["scratch", "finetune"], seeds=[0, 1, 2]
    )
    for result in found["results"]:
        means = {k: v["mean"] for k, v in result["scores"].items()}
        assert means["in_domain"] > means["next_domain"] > means["forward"], result["learner"]


def test_napping_falls_behind_learning() -> None:
    found = evaluate(
        drifting(steps=6, n=300, drift=0.55, noise=2.5), "clear-streaming", ["nap", "finetune"], seeds=[0, 1, 2]
    )
    nap, finetune = (r["scores"]["next_domain"]["mean"] for r in found["results"])
    assert nap < finetune


def test_streaming_trains_on_more_and_so_predicts_the_next_step_better() -> None:
    stream = drifting(steps=6, n=40, drift=0.25, noise=3.0)
    iid, streaming = (
        evaluate(stream, p, ["cumulative"], seeds=range(5))["results"][0]["scores"]["next_domain"]["mean"]
        for p in ("clear-iid", "clear-streaming")
    )
    assert streaming > iid


def means(learners: list[str], score_: str = "in_domain") -> list[float]:
    stream = drifting(steps=8, n=150, drift=0.55, noise=2.5)
    return [r["scores"][score_]["mean"] for r in evaluate(stream, "clear-iid", learners, seeds=range(3))["results"]]


def test_with_one_bucket_of_memory_a_larger_alpha_helps_finetuning() -> None:
    """Table 4: in-domain 88.6 (α = 0.5), 89.5 (1), 90.7 (2), 91.5 (5); 89.7 to 91.6 for dynamic 0.25 to 1."""
    fixed = means([f"reservoir(alpha={a})" for a in (0.5, 1.0, 5.0)])
    dynamic = means([f"reservoir(alpha=dynamic:{c})" for c in (0.25, 1.0)])
    assert fixed[0] < fixed[2]
    assert fixed[1] < fixed[2]
    assert dynamic[0] < dynamic[1]


def test_gdumb_falls_behind() -> None:
    """Table 1: GDumb 85.5 in-domain, EWC, ER and A-GEM 91.6 to 91.9; it is no nap, which has 86.7 in table 4."""
    nap, gdumb, *others = means(["nap", "gdumb", "finetune", "er", "agem", "ewc"])
    assert gdumb < min(others)
    assert gdumb > nap + 0.2, "on a stream that drifts this far"


def test_all_data_are_better_than_one_bucket_and_the_future_better_still_for_the_future() -> None:
    """Table 4, accuracy: cumulative 93.1, one bucket at most 91.7. Joint has seen what forward transfer asks."""
    everything, one = means(["cumulative", "reservoir(alpha=1.0)"], "accuracy")
    assert everything > one
    joint, cumulative = means(["joint", "cumulative"], "forward")
    assert joint > cumulative


# ---- docs/studies/findings.md: what no other test repeats of it


STUDIES = Path(__file__).resolve().parents[2] / "docs" / "studies"


def test_the_page_counts_the_findings_of_its_table() -> None:
    with (STUDIES / "findings.csv").open(encoding="utf-8") as file:
        counts = Counter(row["holds"] for row in csv.DictReader(file))
    stated = f"{counts['yes']} of {counts.total()} hold, {counts['depends on the dataset']} depend on the dataset"
    assert f"{stated}, {counts['in part']} hold in part" in (STUDIES / "findings.md").read_text(encoding="utf-8")


@pytest.mark.shared(twin="tests/eval/test_memory.py::test_replay_forgets_less_than_finetuning")
def test_er_ace_keeps_old_classes_where_er_gives_them_up(shared: Path) -> None:
    """Caccia et al. 2022, abstract: gains where new classes appear. One of three seeds, a fifth of the samples."""
    stream = study("findings").intents(shared)
    names = [f"{name}(sampler=mixed,memory=77,batch=20,lr={lr})" for name in ("er-online", "ace") for lr in (10, 30)]
    results = evaluate(stream, "clear-iid", names)["results"]
    of = [result["scores"]["accuracy"]["mean"] for result in results]
    assert max(of[2:]) > max(of[:2]) + 0.03, of


def test_rivers_weights_answer_as_river() -> None:
    """`river-logreg` reads river's weights for a whole batch; river itself answers one sample after the other."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    learner = RiverLogreg()
    learner.begin(Task(3, (5,)), rng)
    learner.learn(x, y)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    alone = [learner.model.predict_one(dict(enumerate(row.tolist()))) for row in unit]
    assert answers(learner, x, len(x)).tolist() == alone
