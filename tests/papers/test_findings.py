"""docs/studies/findings.md: what no other test repeats of it."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.helpers import study

from driftline.eval.learner import Task
from driftline.eval.learners.online import RiverLogreg
from driftline.eval.outcomes import answers
from driftline.eval.run import evaluate

STUDIES = Path(__file__).resolve().parents[2] / "docs" / "studies"


def test_the_page_counts_the_findings_of_its_table() -> None:
    with (STUDIES / "findings.csv").open(encoding="utf-8") as file:
        counts = Counter(row["holds"] for row in csv.DictReader(file))
    stated = f"{counts['yes']} of {counts.total()} hold, {counts['depends on the dataset']} depend on the dataset"
    assert f"{stated}, {counts['in part']} hold in part" in (STUDIES / "findings.md").read_text(encoding="utf-8")


@pytest.mark.shared(twin="tests/eval/test_replay.py::test_replay_forgets_less_than_finetuning")
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
