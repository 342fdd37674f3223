"""Class texts of streams, and the learners that compare samples with them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from support.console import document, inside
from support.helpers import described, drifting, example
from typer.testing import CliRunner

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, IncompatibleStream, IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import spec_of
from driftline.curate.release import Release
from driftline.eval.experiment.tune import check_stream
from driftline.eval.learner import Task
from driftline.eval.learners.trained_heads import ZeroShot
from driftline.eval.run import evaluate
from driftline.eval.settings import spec_of as learner_of
from driftline.pipelines.cli import app
from driftline.stream_builder.builders.encoded import encode
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.class_texts import ClassTexts, prompts_of
from driftline.stream_builder.stream import Stream

CLIP = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "clip_vectors"
PLAIN = drifting(width=8, noise=2.0)
STREAM = described(PLAIN)
TRAIN, TEST = STREAM.steps[0]["train"], STREAM.steps[0]["test"]


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def texts() -> Any:
    """(C, D): the ensemble, written out."""
    return unit(np.stack([STREAM.class_texts.x[STREAM.class_texts.y == k].mean(0) for k in range(3)]))


def begun(learner: Any) -> Any:
    learner.begin(Task(3, (8,), class_texts=STREAM.class_texts), rng_for(0))
    return learner


class TestTexts:
    def test_they_are_stored_and_hashed_and_streams_without_keep_their_hash(self, tmp_path: Path) -> None:
        stored, plain = STREAM.save(tmp_path / "texts"), PLAIN.save(tmp_path / "plain")
        assert (stored.class_texts.x == STREAM.class_texts.x).all()
        assert stored.class_texts.prompts.tolist() == STREAM.class_texts.prompts.tolist()
        assert stored.sha256 != plain.sha256
        assert "class_texts" not in (tmp_path / "plain" / "stream.json").read_text()
        assert plain.class_texts is None

    def test_changed_vectors_are_found(self, tmp_path: Path) -> None:
        STREAM.save(tmp_path / "s")
        x = np.load(tmp_path / "s" / "class_texts" / "x.npy")
        np.save(tmp_path / "s" / "class_texts" / "x.npy", x[::-1])
        with pytest.raises(IntegrityError, match="class texts"):
            Stream.load(tmp_path / "s").verify(tmp_path / "s")

    def test_templates_take_the_place_of_prompts(self) -> None:
        classes, prompts = ["sports_car", "bus"], {"bus": ["a bus", "a coach"]}
        assert prompts_of(classes, prompts) == [(1, "a bus"), (1, "a coach")]
        assert prompts_of(classes, prompts, ["a {}", "old {}"])[:2] == [(0, "a sports car"), (0, "old sports car")]
        with pytest.raises(BadConfig, match="template is 'car'"):
            prompts_of(classes, prompts, ["car"])
        with pytest.raises(BadConfig, match="No class has a prompt"):
            prompts_of(["car"], prompts)

    def test_another_encoder_for_the_samples_drops_them(self) -> None:
        step = STREAM.steps[0]
        words = {name: replace(split, x=np.array(["word"] * len(split))) for name, split in step.splits.items()}
        raw = replace(STREAM, steps=[replace(step, splits=words)])
        assert encode(raw, spec_of("ngrams:8").load(), "ngrams").class_texts is None


class TestFromRelease:
    def test_the_prompts_of_a_release_become_vectors_of_its_encoder(self, journey: Path, tmp_path: Path) -> None:
        result = CliRunner().invoke(
            app, ["stream", "from-release", str(journey), "--texts", "--out", str(tmp_path / "s")]
        )
        assert result.exit_code == 0, result.output
        stream = Stream.load(tmp_path / "s")
        prompts = Release.open(journey).facts["provenance"]["prompts"]
        assert stream.class_texts.prompts.tolist() == [p for c in stream.classes for p in prompts.get(c, ())]
        assert stream.class_texts.x.shape[1:] == stream.x_shape
        result = evaluate(stream, "clear-iid", ["zero-shot", "majority"])["results"]
        accuracy = {r["learner"]: r["scores"]["in_domain"]["mean"] for r in result}
        assert accuracy["zero-shot"] > accuracy["majority"] + 0.3

    def test_templates_and_another_text_encoder_are_those_that_are_named(self, journey: Path, tmp_path: Path) -> None:
        words = ("stream", "from-release", journey, "--device", "cpu", "--out", tmp_path / "s")
        templates = ("--template", "a photo of a {}", "--template", "one {}")
        document(*words, "--texts", *templates, "--text-encoder", "clip:driftline-photo-world")
        stream = Stream.load(tmp_path / "s")
        named = [c.replace("_", " ") for c in stream.classes]
        assert stream.class_texts.prompts.tolist() == [t for c in named for t in (f"a photo of a {c}", f"one {c}")]
        assert "another encoder" in inside(*words, "--texts", "--text-encoder", "ngrams:64").stderr
        assert "without --texts" in inside(*words, *templates).stderr

    def test_texts_for_vectors_of_another_encoder_are_refused(self, journey: Path) -> None:
        with pytest.raises(BadConfig, match="photos-of-2004"):
            from_release(journey, "photos-of-2004", texts=spec_of("ngrams:64").load)
        with pytest.raises(BadConfig, match="another encoder"):
            from_release(journey, "clip", texts=spec_of("ngrams:64").load)


class TestMethods:
    def test_zero_shot_is_the_largest_cosine_with_the_mean_text(self) -> None:
        learner = begun(ZeroShot())
        assert (learner.predict(TEST.x) == (unit(TEST.x) @ texts().T).argmax(1)).all()

    def test_wise_ft_lies_between_the_zero_shot_head_and_the_trained_one(self) -> None:
        heads = {a: begun(learner_of(f"wise-ft(epochs=5,alpha={a})")()) for a in (0, 0.5, 1)}
        probe, zero = begun(learner_of("text-probe(epochs=5)")()), begun(ZeroShot())
        for learner in (*heads.values(), probe):
            learner.learn(TRAIN.x, TRAIN.y)
        assert (heads[0].predict(TEST.x) == zero.predict(TEST.x)).all()
        assert (heads[1].predict(TEST.x) == probe.predict(TEST.x)).all()
        middle = (heads[0].mixed().params[0] + heads[1].mixed().params[0]) / 2
        assert np.allclose(heads[0.5].mixed().params[0], middle, atol=1e-6)

    def test_the_adapters_of_the_guide_divide_by_the_mean_and_vote_by_stored_samples(self) -> None:
        package = example("mybench/mybench/zero_shot")
        calibrated, tip = begun(package.Calibrated()), begun(package.TipAdapter(shots=1000, alpha=1e6))
        for learner in (calibrated, tip):
            learner.learn(TRAIN.x, TRAIN.y)
        p = softmax(100 * unit(TRAIN.x) @ texts().T, axis=1)
        mean = (p.sum(0) + 1 / 3) / (len(p) + 1)
        expected = (softmax(100 * unit(TEST.x) @ texts().T, axis=1) / mean).argmax(1)
        assert (calibrated.predict(TEST.x) == expected).mean() > 0.99  # float32 may turn a tie
        votes = np.exp(-5.5 * (1 - unit(TEST.x) @ unit(TRAIN.x).T)) @ np.eye(3)[TRAIN.y]
        assert (tip.predict(TEST.x) == votes.argmax(1)).mean() > 0.99

    def test_a_class_without_texts_is_never_answered(self) -> None:
        learner = ZeroShot()
        learner.begin(Task(3, (8,), class_texts=STREAM.class_texts.of([0, 1])), rng_for(0))
        learner.learn(TRAIN.x, TRAIN.y)
        assert set(learner.predict(TEST.x).tolist()) == {0, 1}


def test_images_and_vectors_of_another_width_are_refused() -> None:
    wide = drifting(width=9)
    with pytest.raises(IncompatibleStream, match="vectors of 8 numbers"):
        check_stream(ZeroShot(), replace(wide, class_texts=STREAM.class_texts))
    step = PLAIN.steps[0]
    pictures = {"train": replace(TRAIN, x=np.zeros((len(TRAIN), 4, 4, 3), np.uint8))}
    images = replace(STREAM, steps=[replace(step, splits=pictures)])
    with pytest.raises(IncompatibleStream, match="holds images"):
        check_stream(ZeroShot(), images)


@pytest.mark.shared(twin="tests/eval/test_zero_shot.py::test_zero_shot_is_the_largest_cosine_with_the_mean_text")
@pytest.mark.skipif(not CLIP.is_dir(), reason="needs ../shared/data")
def test_on_clips_own_vectors_all_dogs_and_cats_are_right_among_80_names() -> None:
    with np.load(CLIP / "web50_clip_vitb32_image.npz", allow_pickle=False) as data:
        of_image = dict(zip(data["names"].tolist(), data["embeddings"], strict=True))
    labels = {name: label for name, label in read_json(CLIP / "web50_labels.json").items() if label != "other"}
    names = read_json(CLIP / "coco_names.json")
    vectors = unit(np.load(CLIP / "coco_clip_a+cname.npy").astype(np.float32))
    texts_of_names = ClassTexts(vectors, np.arange(80), np.array([f"a {name}" for name in names]), "ViT-B/32")
    learner = ZeroShot()
    learner.begin(Task(80, (512,), class_texts=texts_of_names), rng_for(0))
    answers = learner.predict(np.stack([of_image[name] for name in labels]))
    assert len(answers) == 20
    assert [names[k] for k in answers] == list(labels.values())
