"""Every learner keeps the same promises, also one of an installed package."""

import numpy as np
import pytest
from support.helpers import described, drifting, hinted

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.registry import HOME
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.settings import check_settings, setting_names
from driftline.eval.experiment.settings import described as described_settings
from driftline.eval.learner import Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.outcomes import answers, sure_answers
from driftline.eval.training.sgd_learner import NetworkLearner

STREAM = described(drifting(drift=0.1))
TRAIN, TEST = STREAM.steps[0]["train"], STREAM.steps[0]["test"]
TASK = Task(3, (8,), 4, class_texts=STREAM.class_texts)
IGNORE_SAMPLES = {"majority": "counts labels", "random": "guesses", "blind": "repeats labels"}
SHORT = {"static-linear": "thirty updates on the first step, and none later"}


def left_out(name: str) -> str:
    """Why a learner cannot be tested on single batches of vectors; "" if it can."""
    kind = LEARNERS[name]
    if kind.needs.images:
        return "it learns from images"
    return "it learns from texts: eval/test_texts.py" if kind.needs.texts else kind.needs.all_steps


def begun(name: str, seed: int = 0, task: Task | None = None) -> Learner:
    kind = LEARNERS[name]
    learner: Learner = kind(epochs=5) if "epochs" in setting_names(kind) else kind()
    try:
        learner.begin(task or TASK, rng_for(seed, name))
    except IncompatibleStream as error:
        if ours(name):
            raise
        pytest.skip(f"{name}: {error}")
    return learner


def ours(name: str) -> bool:
    return LEARNERS.entry(name).origin == HOME


def test_those_that_are_left_out_have_tests_of_their_own() -> None:
    families = {f"driftline.eval.learners.{n}" for n in ("seq_to_final", "texts")}
    assert {LEARNERS[name].__module__ for name in LEARNERS if left_out(name) and ours(name)} == families


def asked(learner: Learner) -> Labels:
    """Its answers to the test samples."""
    return answers(learner, TEST.x, len(TEST))


@pytest.mark.parametrize("name", LEARNERS)
def test_defaults_are_settings_that_fit(name: str) -> None:
    kind = LEARNERS[name]
    learner = kind()
    check_settings(kind, {setting: getattr(learner, setting) for setting in setting_names(kind)})


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_has_a_meaning(name: str) -> None:
    settings = described_settings(LEARNERS[name])
    assert [setting.name for setting in settings] == setting_names(LEARNERS[name])
    assert not [setting.name for setting in settings if not setting.meaning]


@pytest.mark.parametrize("name", [name for name in LEARNERS if not left_out(name)])
class TestLearner:
    def test_predicts_before_it_has_learned(self, name: str) -> None:
        answer = asked(begun(name))
        assert answer.shape == (len(TEST),)
        assert answer.dtype == np.int64
        assert set(answer.tolist()) <= ({-1} if name == "river-logreg" else {0, 1, 2})

    def test_predicts_the_same_with_confidence(self, name: str) -> None:
        learner = begun(name)
        for _ in range(2):
            labels, confidence = sure_answers(learner, TEST.x, len(TEST))
            assert (labels == asked(learner)).all()
            if confidence is not None:
                assert ((confidence >= 0) & (confidence <= 1 + 1e-6)).all()
            learner.learn(TRAIN.x, TRAIN.y)

    def test_predicting_does_not_learn(self, name: str) -> None:
        a, b = begun(name), begun(name)
        a.learn(TRAIN.x, TRAIN.y)
        b.learn(TRAIN.x, TRAIN.y)
        for _ in range(3):
            a.predict(TRAIN.x)
        a.learn(TRAIN.x[::-1], TRAIN.y[::-1])
        b.learn(TRAIN.x[::-1], TRAIN.y[::-1])
        assert (asked(a) == asked(b)).all()

    def test_leaves_its_input_alone(self, name: str) -> None:
        x, y = TRAIN.x.copy(), TRAIN.y.copy()
        x.flags.writeable = y.flags.writeable = False
        learner = begun(name)
        learner.learn(x, y)
        learner.learn(x, y)
        learner.predict(x)
        assert (x == TRAIN.x).all()
        assert (y == TRAIN.y).all()

    def test_the_same_seed_gives_the_same_answers(self, name: str) -> None:
        answers = []
        for _ in range(2):
            learner = begun(name, seed=7)
            learner.learn(TRAIN.x, TRAIN.y)
            learner.learn(TRAIN.x + 0.5, TRAIN.y)
            answers.append(asked(learner))
        assert (answers[0] == answers[1]).all()

    def test_begin_forgets_all(self, name: str) -> None:
        used, fresh = begun(name), begun(name)
        used.learn(TRAIN.x, (TRAIN.y + 1) % 3)
        used.begin(TASK, rng_for(0, name))
        used.learn(TRAIN.x, TRAIN.y)
        fresh.learn(TRAIN.x, TRAIN.y)
        assert (asked(used) == asked(fresh)).all()

    def test_beats_the_majority_on_an_easy_stream(self, name: str) -> None:
        learner = begun(name)
        learner.learn_sequence([step.visible() for step in hinted(STREAM).steps])
        right = (asked(learner) == TEST.y).mean()
        assert right > 0.6 or name in {*IGNORE_SAMPLES, *SHORT} or not ours(name)

    def test_takes_one_correction(self, name: str) -> None:
        learner = begun(name)
        learner.learn(TRAIN.x, TRAIN.y)
        learner.correct(TEST.x[:1], TEST.y[:1])
        assert asked(learner).shape == (len(TEST),)

    def test_says_what_it_keeps(self, name: str) -> None:
        """A head keeps (D + 1) × C numbers of 4 bytes, momentum not among them; a memory comes on top."""
        learner = begun(name)
        learner.learn(TRAIN.x, TRAIN.y)
        kept = learner.stored_bytes()
        assert kept >= (4 * 3 * 9 if isinstance(learner, NetworkLearner) else 0)
        if name in ("nap", "finetune", "scratch", "lwf"):
            assert kept == 4 * 3 * 9
        if name in ("cumulative", "er", "reservoir", "gdumb", "agem"):
            weights = 8 * len(TRAIN) if name == "gdumb" else 0  # of its uniform sample
            assert kept == 4 * 3 * 9 + TRAIN.x.nbytes + TRAIN.y.nbytes + weights

    def test_takes_images_too(self, name: str) -> None:
        if LEARNERS[name].needs.class_texts:
            pytest.skip("refused on images: eval/test_zero_shot.py")
        learner = begun(name, task=Task(2, (4, 4, 3)))
        images = rng_for(1).integers(0, 256, (10, 4, 4, 3)).astype(np.uint8)
        learner.learn(images, np.arange(10) % 2)
        assert answers(learner, images, 10).shape == (10,)
