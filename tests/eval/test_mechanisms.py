"""A row runs what its name says: replay replays, what is frozen stays, a memory has its size, a setting changes
something or is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core.errors import BadConfig, Diverged, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.deep import Deep
from driftline.eval.experiment.presets import GRIDS, fitting
from driftline.eval.experiment.settings import setting_names, spec_of
from driftline.eval.experiment.tune import check_needs
from driftline.eval.history import History
from driftline.eval.learner import Learner, Needs, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.regularised import Si
from driftline.eval.learners.replay import Agem
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate, plan
from driftline.stream_builder.stream import Split, Step, Stream

STREAM = drifting(steps=3, classes=4, n=80)
FROZEN = ("nap", "static-linear", "static-knn")


def begun(name: str, **settings: Any) -> Learner:
    learner: Learner = LEARNERS[name](**settings)
    learner.begin(Task(4, (8,)), rng_for(0, "mechanisms"))
    return learner


def of_step(number: int) -> Split:
    return STREAM.steps[number]["train"]


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_learner_answers_as_after_its_first_data(name: str) -> None:
    learner, x = begun(name), of_step(2).x
    learner.learn(of_step(0).x, of_step(0).y)
    before = np.asarray(learner.predict(x)[0] if name == "static-knn" else learner.scores(x))
    learner.learn(of_step(1).x, (of_step(1).y + 1) % 4)
    learner.correct(of_step(2).x[:1], np.array([3]))
    after = np.asarray(learner.predict(x)[0] if name == "static-knn" else learner.scores(x))
    np.testing.assert_array_equal(before, after)


def test_the_head_of_knn_lm_is_frozen_and_its_memory_grows() -> None:
    learner: Any = begun("knn-lm")
    learner.learn(of_step(0).x, of_step(0).y)
    head = [p.clone() for p in learner.head.params]
    learner.learn(of_step(1).x, of_step(1).y)
    assert all(bool((a == b).all()) for a, b in zip(head, learner.head.params, strict=True))
    assert learner.memory.n == len(of_step(0)) + len(of_step(1))


def test_every_need_that_a_protocol_refuses_has_a_sentence() -> None:
    for kind in map(PROTOCOLS.__getitem__, PROTOCOLS):
        for need in kind.refuses:
            value: Any = True if isinstance(getattr(Needs(), need), bool) else "a reason"

            class Needy(LEARNERS["majority"]):  # type: ignore[misc]
                needs = replace(Needs(), **{need: value})

            with pytest.raises(IncompatibleStream, match="driftline list learners --protocol"):
                check_needs(Needy(), kind.refuses)


def test_si_pulls_corrections_towards_the_weights_of_the_last_step() -> None:
    def moved(strength: float) -> float:
        learner: Any = Si(strength=strength)
        learner.begin(Task(4, (8,)), rng_for(0, "mechanisms"))
        learner.learn(of_step(0).x, of_step(0).y)
        start = [p.clone() for p in learner.head.params]
        for i in range(20):
            learner.correct(of_step(1).x[i : i + 1], (of_step(1).y[i : i + 1] + 1) % 4)
        return float(sum(((p - q) ** 2).sum() for p, q in zip(learner.head.params, start, strict=True)))

    assert moved(50.0) < 0.9 * moved(0.0)


def test_one_image_changes_no_statistics_of_batch_normalisation() -> None:
    learner: Any = LEARNERS["finetune"](net="resnet10t", epochs=1, batch=8)
    learner.begin(Task(3, (32, 32, 3)), rng_for(0, "mechanisms"))
    images = rng_for(1, "mechanisms").integers(0, 256, (8, 32, 32, 3)).astype(np.uint8)
    learner.learn(images, np.arange(8) % 3)
    assert isinstance(learner.head, Deep)
    statistics = {n: t.clone() for n, t in learner.head.module.state_dict().items() if "running" in n}
    before = learner.scores(images)
    learner.correct(images[:1], np.array([2]))
    after = learner.head.module.state_dict()
    assert statistics
    assert all(bool((after[name] == value).all()) for name, value in statistics.items())
    assert abs(learner.scores(images) - before).max() > 0


def on_a_stream(memory: int, sample: int = 0) -> Agem:
    learner = Agem(memory=memory, sample=sample)
    learner.begin(Task(4, (8,), batch=10, updates=4.0), rng_for(0, "mechanisms"))
    history = History([of_step(0), of_step(1)])
    for start in range(0, len(history), 10):
        learner.learn_from(history.past(start, start + 10))
    return learner


def test_agem_pays_for_the_samples_that_an_update_reads() -> None:
    """4 updates of plain SGD a batch of 10: two of A-GEM with 10 more samples, one with 30."""
    few, many = on_a_stream(memory=40), on_a_stream(memory=40, sample=30)
    assert (few.gradient_steps, many.gradient_steps) == (2 * 16, 16)
    assert few.spent() == many.spent() == 4 * 16


@pytest.mark.parametrize("name", ["er-online", "fc-only", "cosine-fc", "ace", "overadapt"])
def test_an_online_head_has_no_setting_that_it_does_not_use(name: str) -> None:
    assert not {"optimiser", "decay", "decay_after", "correct_lr"} & set(setting_names(LEARNERS[name]))


@pytest.mark.parametrize("settings", [{"finetune.epochs": 3}, {"epochs": 3}, {"finetune.batch": 4}, {"decay": 0.5}])
def test_a_setting_that_a_budget_replaces_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="which changes nothing: all learners share a budget of updates"):
        evaluate(STREAM, "near-future", ["finetune"], settings={"shift": 20, "batch": 10} | settings)


UNUSED = [
    ("clear-iid", "finetune", "correct_lr", 0.1, "the protocol brings no corrections"),
    ("ocrr", "nap", "correct_lr", 0.1, "it ignores corrections"),
    ("clear-iid", "static-linear", "classes", "open", "its head is frozen when corrections come"),
    ("clear-iid", "cosine-fc", "scale", "none", "an angle does not depend on the length of a sample"),
    ("clear-iid", "substrate-k1", "k", 3, "the nearest sample alone votes"),
]


@pytest.mark.parametrize(("protocol", "name", "setting", "value", "why"), UNUSED)
def test_a_setting_that_changes_nothing_is_refused(protocol, name, setting, value, why):
    by_name: list[tuple[list[Any], dict[str, Any]]] = [
        ([name], {f"{name}.{setting}": value}),
        ([f"{name}({setting}={value})"], {}),
        ([LEARNERS[name](**{setting: value})], {}),
        ([name], {setting: value}),
    ]
    for learners, settings in by_name:
        with pytest.raises(BadConfig, match=f"{setting} is {value!r}, which changes nothing: {why}"):
            plan(STREAM, protocol, learners, [0], settings)
    plan(STREAM, protocol, [name], [0], {f"{name}.{setting}": getattr(LEARNERS[name], setting)})


def test_a_setting_for_all_goes_to_those_that_use_it() -> None:
    shown = plan(STREAM, "clear-iid", ["fc-only", "cosine-fc"], [0], {"momentum": 0.5}).settings
    assert ("momentum" in shown["fc-only"], "momentum" in shown["cosine-fc"]) == (True, False)


def test_a_setting_that_a_budget_replaces_is_not_recorded() -> None:
    settings = {"shift": 20, "batch": 10, "prefix": 40}
    (result,) = evaluate(STREAM, "near-future", ["finetune"], settings=settings)["results"]
    assert result["settings"]["batch"] == 10  # of the protocol
    assert not {"epochs", "decay", "decay_after"} & set(result["settings"])


def test_a_presets_settings_reach_only_whom_it_names() -> None:
    class Er(LEARNERS["er"]):  # type: ignore[misc]
        """A stranger's, of the same name."""

    Er.__module__ = "somebody"
    given = fitting("clear-mlp", {"er": LEARNERS["er"], "majority": LEARNERS["majority"], "ocrr": PROTOCOLS["ocrr"]})
    assert given["er"]["net"] == "mlp"
    assert given["majority"] == given["ocrr"] == {}
    assert fitting("clear-mlp", {"er": Er}) == {"er": {}}


def test_the_record_says_where_each_setting_comes_from() -> None:
    runs: list[Any] = []
    changed = {"shift": 20, "batch": 10, "prefix": 40, "finetune.weight_decay": 0.5}
    evaluate(STREAM, "near-future", ["finetune"], settings=changed, preset="cglm", keep_run=runs.append)
    origin = runs[0].about["settings_from"]
    assert origin == {"momentum": "protocol", "lr": "chosen", "weight_decay": "set"}
    del changed["finetune.weight_decay"]
    text = plan(STREAM, "near-future", ["fc-only"], [0], changed, preset="cglm").settings["fc-only"]
    assert "weight_decay 0.0001 (preset cglm)" in text
    assert "momentum" not in text  # the protocol's is the learner's own


def test_a_papers_preset_is_its_recipe_on_images_and_says_what_it_leaves_out_elsewhere() -> None:
    pixels = Split(rng_for(0).integers(0, 256, (64, 32, 32, 3)).astype(np.uint8), np.arange(64) % 3)
    images = Stream("painted", [Step(0, "0", {"train": pixels, "test": pixels})], list("abc"), sha256="painted")
    rules = {"shift": 8, "batch": 8, "prefix": 0}
    planned = plan(images, "near-future", ["er-online", "overadapt", "acm"], [0], rules, preset="cglm")
    assert planned.left_out == ""
    assert "net resnet50 (preset cglm), weights tv_in1k (preset cglm)" in planned.settings["acm"]
    assert "lr 0.005 (preset cglm)" in planned.settings["er-online"]
    assert "weights fb_swsl_ig1b_ft_in1k (preset cglm)" in planned.settings["overadapt"]
    for learner in ("er-online(net=linear)", "finetune(net=mlp)"):
        with pytest.raises(BadConfig, match=r"raw pixels.*driftline stream encode"):
            plan(images, "near-future", [learner], [0], rules, preset="cloc-fast")
    own = {**rules, "net": "test_resnet", "weights": "none", "updates": 1}
    (ran,) = evaluate(images, "near-future", ["cosine-fc"], [0], own, preset="cglm")["results"]
    assert (ran["settings"]["net"], ran["settings"]["lr"], ran["gradient_steps"]) == ("test_resnet", 0.005, 8)
    vectors = plan(STREAM, "near-future", ["er-online"], [0], {"shift": 20}, preset="cglm")
    assert vectors.left_out.startswith("preset cglm: the samples are no images")
    assert "net" not in vectors.settings["er-online"]
    assert plan(STREAM, "clear-iid", ["er-online"], [0], preset="cglm").left_out == ""


def test_every_learner_of_a_named_set_exists() -> None:
    for learners in GRIDS.values():
        assert len({(spec_of(name).kind, str(spec_of(name).with_name)) for name in learners}) == len(learners)


def test_ewc_is_held_on_corrections_as_in_training() -> None:
    """Where the learning rate times the pull is above 2, each step would go further beyond the anchor."""
    learner: Any = begun("ewc", strength=1e4)
    learner.learn(of_step(0).x, of_step(0).y)
    for i in range(40):
        learner.correct(of_step(1).x[i : i + 1], of_step(1).y[i : i + 1])
    (anchor,) = learner.anchors
    assert max(float((p - old).abs().max()) for p, old in zip(learner.head.params, anchor.params, strict=True)) < 1


def test_a_correction_that_diverges_is_an_error() -> None:
    learner: Any = begun("finetune", correct_lr=0.5)
    learner.learn(of_step(0).x, of_step(0).y)
    x, y = of_step(1).x[:1] * np.float32(1e37), (of_step(1).y[:1] + 1) % 4
    learner.correct(x, y)
    with pytest.raises(Diverged, match=r"Lower correct_lr \(it is 0\.5\)"):
        learner.correct(x, (y + 1) % 4)
