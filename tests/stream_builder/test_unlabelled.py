"""Samples without labels: stored, hashed, encoded, and used by the learners that need them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core.atomic_io import write_array
from driftline.curate.core.errors import BadArray, BadConfig, IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Task
from driftline.eval.learners.trained_heads import SelfTraining
from driftline.eval.run import evaluate
from driftline.stream_builder.builders.encoded import count_samples, encode
from driftline.stream_builder.stream import Split, Step, Stream


def hinted(labels: int = 6, bare: int = 200) -> Stream:
    """Two wide classes, few labels a step, and unlabelled samples beside them."""
    rng = rng_for(0, "hinted")
    way = rng.normal(size=16)
    steps = []

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(n) % 2
        return ((y * 2 - 1)[:, None] * way + rng.normal(0, 2.2, (n, 16))).astype(np.float32), y.astype(np.int64)

    for t in range(3):
        splits = {
            s: Split(*draw(n), np.array([f"{t}{s}{i}" for i in range(n)]))
            for s, n in (("train", labels), ("test", 200))
        }
        steps.append(Step(t, str(t), splits, draw(bare)[0]))
    return Stream("hinted", steps, ["a", "b"], draw(50)[0])


def test_a_stream_keeps_its_unlabelled_samples(tmp_path: Path) -> None:
    stream = hinted()
    again = stream.save(tmp_path)
    assert np.array_equal(again.unlabelled, stream.unlabelled)
    assert all(np.array_equal(a.unlabelled, b.unlabelled) for a, b in zip(again.steps, stream.steps, strict=True))
    again.verify(tmp_path)


@pytest.mark.parametrize(
    ("file", "what"), [("unlabelled_x.npy", "the unlabelled past"), ("step_00001/unlabelled_x.npy", "step .1.")]
)
def test_a_changed_unlabelled_sample_is_named(tmp_path: Path, file: str, what: str) -> None:
    hinted().save(tmp_path)
    x = np.load(tmp_path / file)
    write_array(tmp_path / file, x + 1)
    with pytest.raises(IntegrityError, match=what):
        Stream.load(tmp_path).verify(tmp_path)


def test_another_past_is_another_stream(tmp_path: Path) -> None:
    stream = hinted()
    pasts = (stream.unlabelled, stream.unlabelled + 1, stream.unlabelled[:-1], stream.unlabelled)
    hashes = [replace(stream, unlabelled=x).save(tmp_path / str(k)).sha256 for k, x in enumerate(pasts)]
    assert [hashes.index(value) for value in hashes] == [0, 1, 2, 0]


def test_a_learner_sees_them_and_never_the_test() -> None:
    step = hinted().steps[0].visible()
    assert step.unlabelled is not None
    assert set(step.splits) == {"train"}


class Mean:
    """An encoder: the mean colour."""

    fingerprint, width, device, precision = "mean", 3, "cpu", "float32"

    def prepare(self, image: object) -> object:
        import torch

        return torch.from_numpy(np.asarray(image, np.float32)).permute(2, 0, 1)

    def images(self, batch: object) -> np.ndarray:
        return np.asarray(batch, np.float32).mean((2, 3))


def test_images_are_encoded_with_all_that_has_no_label() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (6, 8, 8, 3), np.uint8)
    stream = Stream("images", [Step(0, "0", {"train": Split(x, np.zeros(6, np.int64))}, x[:3])], ["a"], x[:2])
    counted: list[int] = []
    made = encode(stream, Mean(), "mean", counted.append)  # type: ignore[arg-type]
    assert np.allclose(made.steps[0]["train"].x, x.mean((1, 2)), rtol=1e-2)
    assert len(made.unlabelled) == 2
    assert len(made.steps[0].unlabelled) == 3
    assert sum(counted) == count_samples(stream) == 11
    with pytest.raises(BadArray, match="Expected texts or images"):
        encode(made, Mean(), "mean")  # type: ignore[arg-type]


def test_self_training_gains_by_what_has_no_label() -> None:
    means = {}
    for name in ("finetune", "self-training(threshold=0.8)"):
        settings = {"epochs": 60, "decay_after": 60}
        found = evaluate(hinted(2, 400), "clear-iid", [name], range(5), settings)
        means[name] = found["results"][0]["scores"]["in_domain"]["mean"]
    assert means["self-training(threshold=0.8)"] > means["finetune"] + 0.02


def test_self_training_counts_what_it_took() -> None:
    stream = hinted()
    learner = SelfTraining(epochs=30, threshold=0.7)
    learner.begin(Task(2, (16,), unlabelled=stream.unlabelled), rng_for(0, "x"))
    learner.learn_step(stream.steps[0].visible())
    facts = learner.metadata()
    assert facts["unlabelled"] == 250
    assert 0 < facts["pseudo_labelled"] <= 250


def test_nothing_is_taken_where_nothing_is_sure() -> None:
    stream = hinted()
    learner = SelfTraining(epochs=2, threshold=1.0)
    learner.begin(Task(2, (16,)), rng_for(0, "x"))
    learner.learn_step(stream.steps[0].visible())
    assert learner.metadata()["pseudo_labelled"] == 0


def test_without_unlabelled_samples_it_says_so() -> None:
    found = evaluate(drifting(), "clear-iid", ["self-training", "majority"])
    assert [r["learner"] for r in found["results"]] == ["majority"]
    assert "It needs unlabelled samples; 'drifting' has none." in found["skipped"][0]["because"]


def test_a_threshold_is_a_probability() -> None:
    with pytest.raises(BadConfig, match="threshold is 2.0. Expected a number less than or equal to 1"):
        evaluate(hinted(), "clear-iid", [SelfTraining(threshold=2.0)])
