"""The demo's world ages: what is learned on its early photos fails on later ones, on the features that the demo
evaluates. Nothing in the learners knows of it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from claims.test_first_screen import WORLDS, both, screen

from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import EncoderSpec, Vectors
from driftline.curate.release import Release
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.ageing import Ageing, ageing
from driftline.pipelines.demo.draw import CONCEPTS, SCENES, photo
from driftline.pipelines.demo.journey import FEATURES
from driftline.pipelines.demo.world import END, START
from driftline.pipelines.stages.embed import BUILT_IN, OF_2004, built_in
from driftline.stream_builder.step import Split, Step
from driftline.stream_builder.stream import Stream

AGES = [0.1, 0.3, 0.5, 0.7, 0.9]  # of the world's ten years
TRAIN, TEST = 12, 8  # photos of a class and step


def encoded(spec: EncoderSpec) -> Stream:
    """Five years of the world as features; a scene is of the class background."""
    import torch

    encoder, steps = spec.load(), []
    for number, age in enumerate(AGES):
        images, labels = [], []
        for label in range(len(CONCEPTS) + 1):
            for i in range(TRAIN + TEST):
                things = [*CONCEPTS][label : label + 1] or [[*SCENES][i % len(SCENES)]]
                images.append(encoder.prepare(photo(things, age, rng_for(3, "aged", number, label, i))))
                labels.append(label)
        x: Vectors = encoder.images(torch.stack(images))
        y, test = np.array(labels), np.arange(len(labels)) % (TRAIN + TEST) >= TRAIN
        time = np.full(len(y), int((START + age * (END - START)).timestamp()))
        splits = {name: Split(x[rows], y[rows], time=time[rows]) for name, rows in (("train", ~test), ("test", test))}
        steps.append(Step(number, str(2004 + round(age * 10)), splits))
    return Stream("photo-world", steps, [*CONCEPTS, "background"])


@pytest.fixture(scope="module")
def aged() -> dict[str, Ageing]:
    stream = encoded(EncoderSpec(encoder="backbone", model="test_resnet", weights=built_in(OF_2004)))
    runs: list[Run] = []
    learners = ["nap", "finetune", "cumulative"]
    evaluate(stream, "clear-iid", learners, seeds=[0, 1], settings={"epochs": 100}, keep_run=runs.append)
    of_each = {name: ageing([run for run in runs if run.about["learner"] == name])[0] for name in learners}
    return {name: one for name, one in of_each.items() if one is not None}


@pytest.mark.parametrize("learner", ["nap", "finetune"])
def test_a_model_of_the_first_year_loses_more_each_year(learner: str, aged: dict[str, Ageing]) -> None:
    row = aged[learner].accuracy_on.value[aged[learner].model == 0]
    assert row[0] > 0.8
    assert row[0] > row[1] > row[-1]
    assert row[0] - row[-1] >= 0.1


def test_a_model_that_learns_on_stays_current(aged: dict[str, Ageing]) -> None:
    half_life = aged["nap"].half_life.value
    assert aged["nap"].timeline.unit == "years"
    assert half_life is not None
    assert 2 < half_life < 8, "years"
    last = aged["nap"].tested.max()
    newest = float(aged["cumulative"].accuracy_on.value[aged["cumulative"].model == last][-1])
    oldest = float(aged["nap"].accuracy_on.value[-1])  # nap has no other model
    assert newest > oldest + 0.1


def test_the_demo_evaluates_what_did_not_choose_the_photos(journey: Path) -> None:
    retrieved_by = Release.open(journey).facts["provenance"]["encoder"]["model"]
    evaluated = Stream.load(journey / "stream")
    assert evaluated.facts["features"] == FEATURES
    assert retrieved_by == BUILT_IN
    page = (journey / "report" / "index.html").read_text(encoding="utf-8")
    for said in ("trained on photos of 2004 only", "Keypad brick with an aerial"):
        assert said in page


SAID = re.compile("Models age|of the best models age|Ageing is shown|age on this stream")


@pytest.mark.proof("statistics")
def test_photos_of_the_demo_with_years_drawn_again_within_each_class_do_not_age() -> None:
    photos = encoded(EncoderSpec(encoder="backbone", model="test_resnet", weights=built_in(OF_2004)))
    x, y = (
        np.concatenate([getattr(step[side], name) for step in photos for side in ("train", "test")]) for name in "xy"
    )

    def again(seed: int) -> Stream:
        rng, steps, start = np.random.default_rng(seed), [], 0
        drawn = np.empty(len(y), np.int64)  # the photo in each place, of the class that was there
        for c in np.unique(y):
            drawn[y == c] = rng.permutation(np.flatnonzero(y == c))
        for step in photos:
            splits = {}
            for side in ("train", "test"):
                rows = drawn[start : start + len(step[side])]
                start += len(rows)
                splits[side] = Split(x[rows], y[rows], rows.astype(str), step[side].time)
            steps.append(replace(step, splits=splits))
        return replace(photos, steps=steps, sha256=f"again {seed}")

    assert np.mean([bool(SAID.search(screen(again(seed), both)["text"])) for seed in range(WORLDS)]) <= 0.1
