"""Seq-to-Final's findings at small scale: CIFAR-10 at half its height and width, Conv-1, fewer samples; and on vectors
that need no file, in clusters that move, with two layers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.eval.run import evaluate
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import Samples, open_dataset
from driftline.stream_builder.stream import Split, Step, Stream

CIFAR = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "cifar10"
REAL = [
    pytest.mark.shared(twin="tests/eval/test_finetuning.py::test_a_frozen_first_time_is_fine_tuning"),
    pytest.mark.proof("paper"),
    pytest.mark.skipif(not CIFAR.is_dir(), reason="needs ../shared/data/cifar10"),
]
LEARNERS = {"R:C:L": ["baseline", "erm", "ft", "lp-ft", "sft"], "T:T:T": ["oracle", "baseline", "ft", "lp-ft", "sft"]}
NEAR = 0.02  # the paper's threshold for being among the best
CHANCE = 0.02  # standard error of a difference on 1,500 test samples: other processors round differently
CLASSES, CLUSTERS, WIDTH, SIZES = 10, 30, 24, (900, 600, 200)
Scores = dict[str, dict[str, float]]


@pytest.fixture(scope="module", params=["made", pytest.param("cifar", marks=REAL)])
def scores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scores:
    """Sequence → learner → accuracy on the last step. R:C:L ends in a label flip; T:T:T drifts."""
    return made() if request.param == "made" else cifar(tmp_path_factory)


def made() -> Scores:
    """Means over three draws."""
    settings = {"network": "mlp", "epochs": 15, "lrs": "0.003", "fits": 1}
    found = {}
    for sequence in LEARNERS:
        learners = LEARNERS[sequence]
        drawn = [moving(sequence.endswith("L"), draw) for draw in range(3)]
        runs = [evaluate(stream, "seq-to-final", learners, settings=settings)["results"] for stream in drawn]
        found[sequence] = {
            name: float(np.mean([run[i]["scores"]["final"]["mean"] for run in runs])) for i, name in enumerate(learners)
        }
    return found


def moving(flipped: bool, draw: int) -> Stream:
    """Three clusters a class, which move from step to step; the last step is short, and may have its labels flipped. As
    many samples as all steps have, of the last step's kind, are for the oracle."""
    rng = rng_for(draw, "moving")
    means, way = rng.normal(0, 1.3, (CLUSTERS, WIDTH)), rng.normal(0, 0.25, (CLUSTERS, WIDTH))

    def split(t: int, size: int) -> Split:
        cluster = rng.integers(0, CLUSTERS, size)
        x = (means + t * way)[cluster] + rng.normal(0, 1, (size, WIDTH))
        return Split(x.astype(np.float32), (cluster + (flipped and t == last)) % CLASSES)

    steps, last = [], len(SIZES) - 1
    for t, n in enumerate(SIZES):
        sizes = {"train": n * 3 // 4, "val": n // 4, **({"test": 1000} if t == last else {})}
        steps.append(Step(t, str(t), {name: split(t, size) for name, size in sizes.items()}))
    oracle = Step(last + 1, "oracle", {"train": split(last, sum(SIZES) * 3 // 4), "val": split(last, sum(SIZES) // 4)})
    classes = [str(c) for c in range(CLASSES)]
    return Stream("moving", steps, classes, sha256=f"moving{flipped}{draw}", oracle=oracle)


def cifar(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    base = open_dataset(_part(tmp_path_factory.mktemp("cifar")))
    small = replace(base, train=_halved(base.train), test=_halved(base.test))
    found = {}
    for sequence, learners in LEARNERS.items():
        stream = compose(small, sequence, (900, 600, 900, 600), 1500, 0)
        settings = {"network": "conv-1", "epochs": 8, "lrs": "0.003", "fits": 1}  # one for each stage
        out = tmp_path_factory.mktemp("fits")
        results = evaluate(stream, "seq-to-final", learners, settings=settings, out=out)["results"]
        found[sequence] = {r["learner"]: r["scores"]["final"]["mean"] for r in results}
    return found


def _part(folder: Path) -> Path:
    """A quarter of the training images and two fifths of the test images, which are sorted by class."""
    train, test = (pq.read_table(CIFAR / f"cifar10_{name}.parquet") for name in ("train", "test"))
    pq.write_table(train.slice(0, 7000), folder / "train.parquet")
    pq.write_table(test.take(np.flatnonzero(np.arange(len(test)) % 5 < 2)), folder / "test.parquet")
    return folder


def _halved(side: Samples) -> Samples:
    x = side.x[:]
    n, height, width, channels = x.shape
    parts = x.reshape(n, height // 2, 2, width // 2, 2, channels)
    return replace(side, x=parts.mean((2, 4)).round().astype(np.uint8))


def test_a_probe_then_fine_tuning_is_among_the_best_after_a_label_flip(scores: Scores) -> None:
    of = scores["R:C:L"]
    assert of["lp-ft"] >= max(of.values()) - NEAR


def test_all_steps_together_collapse_after_a_label_flip(scores: Scores) -> None:
    assert scores["R:C:L"]["erm"] < 0.2
    assert scores["R:C:L"]["baseline"] > scores["R:C:L"]["erm"] + 0.1


def test_after_red_tints_history_is_nearly_as_good_as_the_oracle(scores: Scores) -> None:
    of = scores["T:T:T"]
    assert max(of["ft"], of["lp-ft"]) >= of["oracle"] - NEAR - CHANCE
    assert max(of["ft"], of["lp-ft"]) > of["baseline"] + NEAR


def test_learning_all_history_then_adapting_is_no_worse_than_step_after_step(scores: Scores) -> None:
    for of in scores.values():
        assert max(of["ft"], of["lp-ft"]) >= of["sft"]
