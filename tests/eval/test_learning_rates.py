"""No learner falls far behind for the learning rate that it runs with by default."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from support.helpers import benchmark, correlated

from driftline.curate.core.seeding import rng_for
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.fc_only import FcOnly
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.run import evaluate
from driftline.eval.training.sgd_learner import RATES, NetworkLearner
from driftline.stream_builder.builders.time_order import TimedSamples, in_time_order
from driftline.stream_builder.stream import Stream

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
TRAINED = [
    n for n, kind in LEARNERS.items()
    if issubclass(kind, NetworkLearner) and not (kind.needs.whole_steps or kind.needs.first_step or kind.needs.images)
]  # fmt: skip
WITHOUT_TEXTS = [name for name in TRAINED if not LEARNERS[name].needs.class_texts]  # streams here have none
CHOSEN = [name for name in WITHOUT_TEXTS if LEARNERS[name]().lr is None]
# No rate of the grid brings these to .1 on the stream below: there is nothing that a default could fall behind.
NOWHERE = ("finetune", "der", "der++", "agem", "overadapt")
REFUSED = ("ewc", "si", "lwf")  # one update a batch


@cache
def gaussian() -> Stream:
    """60 classes in 64 dimensions, in runs of one label of 20 samples on average."""
    return correlated(n=3000, classes=60, width=64, stay=0.95, steps=1, timed=False, apart=0.5)


@cache
def usda() -> Stream:
    """MobileNet vectors of 6,562 watercolours of fruit, by year."""
    with np.load(DATA / "usda" / "usda_mnv1_embeddings_u8.npz", allow_pickle=False) as data:
        x = data["embedding_u8"].astype(np.float32) * data["scale"]
        classes, y = np.unique(data["label"], return_inverse=True)
        ids = np.array([f"{i:05d}" for i in range(len(y))])
        timed = TimedSamples("usda", x, y.astype(np.int64), ids, data["year"].astype(np.int64), classes.tolist())
    return in_time_order(timed, period=6)


@cache
def banking77() -> Stream:
    """10,003 sentences in runs of one intent."""
    return benchmark("defaults").banking77(DATA)  # type: ignore[no-any-return]


def run_all(stream: Stream, specs: list[str]) -> Any:
    """The results in the order of the specs."""
    found = {result["learner"]: result for result in evaluate(stream, "near-future", specs)["results"]}
    return [found[spec] for spec in specs]


def near_future(stream: Stream, learner: str, preset: str = "", **settings: Any) -> float:
    (result,) = evaluate(stream, "near-future", [learner], settings=settings, preset=preset)["results"]
    return float(result["scores"]["near_future"]["mean"])


def test_nearest_means_show_that_the_classes_can_be_told_apart() -> None:
    assert near_future(gaussian(), "nearest-mean") > 0.5
    assert near_future(gaussian(), "fc-only", lr=1.0) < 0.1


@pytest.mark.parametrize("name", [name for name in CHOSEN if name not in (*NOWHERE, *REFUSED)])
def test_no_default_ends_ten_points_below_the_best_of_its_grid(name: str) -> None:
    best = max(near_future(gaussian(), name, lr=rate) for rate in RATES)
    assert near_future(gaussian(), name) > best - 0.1


@pytest.mark.parametrize(
    ("name", "setting", "grid"),
    [("slda", "shrinkage", (1e-4, 1e-2, 0.1, 0.5, 1.0)), ("ridge", "penalty", (1e-4, 1e-2, 0.1, 0.5, 1.0)),
     ("knn", "k", (5, 50))],
)  # fmt: skip
def test_no_closed_form_ends_ten_points_below_the_best_of_its_grid(name: str, setting: str, grid: Any) -> None:
    best = max(near_future(gaussian(), name, **{setting: value}) for value in grid)
    assert near_future(gaussian(), name) > best - 0.1


def test_on_vectors_er_online_is_fc_only() -> None:
    one, other = run_all(correlated(steps=1), ["er-online(lr=3)", "fc-only(lr=3)"])
    assert one["scores"] == other["scores"]


class TestOcrr:
    def test_online_heads_choose_theirs_on_seed_data_and_the_papers_systems_keep_theirs(self) -> None:
        found = evaluate(correlated(steps=1), "ocrr", ["fc-only", "online-linear"], settings={"held_out": 3})
        results = {result["learner"]: result for result in found["results"]}
        assert results["fc-only"]["selection"][0]["score"] == "worst"
        assert results["online-linear"]["settings"]["lr"] == 0.01
        assert "chosen" not in results["online-linear"]

    @pytest.mark.parametrize("stream", [gaussian(), correlated()], ids=["categorical", "temporal"])
    def test_what_they_choose_on_is_neither_novel_nor_a_test(self, stream: Stream) -> None:
        protocol = Ocrr()
        ((within, part),) = protocol.trials(stream, rng_for(0), 3)
        scenario, again = protocol.cut(stream, 3), cast(Ocrr, within).cut(part, 3)
        seed = set(map(bytes, scenario.seed.x))
        assert all(set(map(bytes, split.x)) <= seed for step in part.steps for split in step.splits.values())
        assert min(len(again.stream), len(again.novel)) > 0


@pytest.mark.shared(
    twin="tests/eval/test_learning_rates.py::test_nearest_means_show_that_the_classes_can_be_told_apart"
)
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_on_the_usdas_pictures_a_trained_head_beats_the_majority_by_far() -> None:
    """.56 and .55 for both at the old defaults."""
    assert near_future(usda(), "fc-only", updates=10) > 0.8 > 0.6 > near_future(usda(), "majority")


def test_on_images_candidates_are_the_papers_rate_and_its_tenfolds() -> None:
    """[Near-future accuracy, supplement B.2 and figure 12]"""
    assert FcOnly(net="resnet18", lr="auto").candidates() == {"lr": [0.005, 0.05, 0.0005]}
    assert FcOnly(lr="auto").candidates() == {"lr": list(RATES)}
    assert FcOnly(lr=0.3).candidates() == {}


def test_the_papers_preset_is_far_above_chance_on_vectors_of_unit_length() -> None:
    steps = [
        replace(
            step, splits={n: replace(s, x=s.x / np.linalg.norm(s.x, axis=1)[:, None]) for n, s in step.splits.items()}
        )
        for step in gaussian().steps
    ]
    unit = replace(gaussian(), steps=steps, sha256="unit")
    assert near_future(unit, "fc-only", preset="cglm") > 0.4
    assert near_future(unit, "fc-only", preset="cglm", lr=0.005) < 0.1
