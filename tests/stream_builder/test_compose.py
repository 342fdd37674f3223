"""Composition: which samples are drawn, which steps share them, growing shifts, and what `paper-code` changes."""

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.helpers import dataset, numbers

from driftline.curate.core.errors import BadArray, BadConfig, BadInput, IncompatibleStream, IntegrityError, Shortage
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.sampling import Composition, draw_positions
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import Dataset, Samples, open_dataset
from driftline.stream_builder.measures import shift_distance
from driftline.stream_builder.measures.shift_distance import measure
from driftline.stream_builder.shifts.grammar import PAPER, SIZES, parse, sizes_of
from driftline.stream_builder.stream import Stream


def ids(stream: Stream, step: int, split: str) -> set[str]:
    return set(stream.steps[step][split].ids.tolist())


class TestOverlap:
    SIZES = (80, 60, 80)

    def test_clean_validation_images_train_no_step(self) -> None:
        made = compose(dataset(), "C:R", self.SIZES, 40, 0)
        trains = set().union(*(ids(made, t, "train") for t in range(3)))
        assert not any(ids(made, t, "val") & trains for t in range(3))
        assert made.facts["shared"]["final_validation_in_earlier_training"] == 0

    def test_the_papers_code_lets_them(self) -> None:
        made = compose(dataset(), "C:R", self.SIZES, 40, 0, Composition(fidelity="paper-code"))
        assert made.facts["overlap"] == "independent"
        assert made.facts["shared"]["final_validation_in_earlier_training"] > 0

    def test_a_dataset_is_shared_by_steps_only_as_far_as_it_is_too_small_and_the_stream_says_so(self) -> None:
        assert compose(dataset(), "C:R", self.SIZES, 40, 0).facts["overlap"] == "disjoint"
        assert compose(dataset(), "C:R", (120, 100, 120), 40, 0).facts["overlap"] == "validation"
        made = compose(dataset(), "C:R", (200, 160, 200), 40, 0)
        assert made.facts["overlap"] == "independent"
        with pytest.raises(Shortage):
            compose(dataset(), "C:R", (200, 160, 200), 40, 0, Composition(overlap="validation"))

    def test_disjoint_steps_share_nothing(self) -> None:
        made = compose(dataset(), "C:R", self.SIZES, 40, 0, Composition(overlap="disjoint"))
        assert made.facts["shared"]["images_in_several_steps"] == 0
        with pytest.raises(Shortage, match="--overlap independent"):
            compose(dataset(), "C:R", (120, 120, 80), 40, 0, Composition(overlap="disjoint"))


def test_a_class_that_lacks_one_sample_is_named() -> None:
    with pytest.raises(Shortage, match="Class 1 has 60 images, the step needs 61"):
        draw_positions(dataset().train, np.array([[60], [61]]), rng_for(0))


class TestPublishedDraws:
    """A dataset with draws in which a validation image of the last step trains the first step, as in the paper's."""

    SIZES = (8, 8)

    def published(self) -> Dataset:
        rows = {"t0_train": [0, 1, 60, 61, 120, 180], "t0_valid": [121, 181], "t1_test": [0, 60, 120, 180]}
        rows |= {"t1_train": [2, 3, 62, 63, 122, 182], "t1_valid": [0, 60]}
        return replace(dataset(), draws={name: np.array(numbers) for name, numbers in rows.items()})

    def test_the_papers_code_takes_them(self) -> None:
        made = compose(self.published(), "C", self.SIZES, 4, 0, Composition(fidelity="paper-code"))
        assert made.facts["draws"] == "published"
        assert ids(made, 1, "val") == {"train-0", "train-60"}
        assert made.facts["shared"]["final_validation_in_earlier_training"] == 2

    def test_clean_streams_draw_their_own(self) -> None:
        made = compose(self.published(), "C", self.SIZES, 4, 0)
        assert (made.facts["draws"], made.facts["overlap"]) == ("own", "disjoint")
        assert made.facts["shared"] == {"final_validation_in_earlier_training": 0, "images_in_several_steps": 0}

    def test_half_of_them_is_said(self) -> None:
        half = self.published()
        half = replace(half, draws={name: rows for name, rows in half.draws.items() if name != "t1_valid"})
        with pytest.raises(BadInput, match="published samples of .* have no t1_valid. Expected both of each step"):
            compose(half, "C", self.SIZES, 4, 0, Composition(fidelity="paper-code"))

    def test_clean_streams_take_them_by_name(self) -> None:
        made = compose(self.published(), "C", self.SIZES, 4, 0, Composition(draws="published"))
        assert made.facts["draws"] == "published"


class TestOracle:
    SIZES = (80, 60, 80)

    def test_it_has_as_many_samples_as_all_steps_and_those_of_the_last_among_them(self) -> None:
        made = compose(dataset(120), "C:R", self.SIZES, 40, 0)
        oracle = made.oracle
        assert oracle is not None
        assert len(oracle["train"]) + len(oracle["val"]) == sum(self.SIZES)
        for side in ("train", "val"):
            assert ids(made, 2, side) <= set(oracle[side].ids.tolist())
        assert not set(oracle["train"].ids.tolist()) & set(oracle["val"].ids.tolist())
        assert oracle.index == 3
        assert "test" not in oracle.splits

    def test_its_images_have_had_all_shifts(self) -> None:
        made = compose(dataset(120), "R:L", self.SIZES, 40, 0)
        assert made.oracle is not None
        where = {i: k for k, i in enumerate(made.oracle["train"].ids.tolist())}
        last = made.steps[-1]["train"]
        at = [where[i] for i in last.ids.tolist()]
        assert (made.oracle["train"].x[at] == last.x).all()
        assert (made.oracle["train"].y[at] == last.y).all()

    def test_a_dataset_that_is_too_small_has_none(self) -> None:
        assert compose(dataset(60), "C:R", (100, 100, 100), 40, 0).oracle is None
        assert compose(dataset(120), "C:R", self.SIZES, 40, 0, oracle=False).oracle is None

    def test_it_is_saved_with_the_stream_and_verified(self, tmp_path: Path) -> None:
        made = compose(dataset(120), "C:R", self.SIZES, 40, 0)
        saved = made.save(tmp_path / "S")
        assert saved.oracle is not None
        assert made.oracle is not None
        assert len(saved.steps) == 3
        assert (saved.oracle["val"].y == made.oracle["val"].y).all()
        saved.verify(tmp_path / "S")
        assert saved.sha256 != compose(dataset(120), "C:R", self.SIZES, 40, 0, oracle=False).save(tmp_path / "T").sha256
        np.save(tmp_path / "S" / "step_00003" / "val_y.npy", saved.oracle["val"].y[::-1])
        with pytest.raises(IntegrityError, match="'oracle', split val"):
            Stream.load(tmp_path / "S").verify(tmp_path / "S")


class TestFidelity:
    """Where `clean` and `paper-code` differ, one test each [spec, sections 1 and 4]; everything else is the same."""

    def test_images_are_augmented_and_normalised_or_raw(self) -> None:
        clean, code = (
            compose(dataset(), "C", (40, 40), 20, 0, Composition(fidelity=f)) for f in ("clean", "paper-code")
        )  # type: ignore[arg-type]
        assert clean.facts["loading"] == {"augment": ["flip", "crop", "rotate"], "normalise": True}
        assert code.facts["loading"] == {"augment": [], "normalise": False}

    def test_without_s_the_code_takes_two_sub_classes_only(self) -> None:
        b = dataset(subs=5)
        at = {f"train-{i}": int(s) for i, s in zip(b.train.index, b.train.subclass, strict=True)}  # type: ignore[arg-type]
        for fidelity, expected in (("clean", {0, 1, 2, 3, 4}), ("paper-code", {0, 1})):
            made = compose(b, "C", (60, 40), 20, 0, Composition(fidelity=fidelity))  # type: ignore[arg-type]
            assert {at[i] for i in ids(made, 0, "train")} == expected

    def test_the_solver_of_distances_ends_where_the_references_did(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (shift_distance.STOPPED, shift_distance.ITERATIONS) == (100_000, 20_000_000)
        monkeypatch.setattr(shift_distance, "STOPPED", 10)
        monkeypatch.setattr(shift_distance, "ITERATIONS", 20)
        made = compose(dataset(), "C", (40, 40), 20, 0, Composition(fidelity="paper-code"))
        with warnings.catch_warnings(action="error"):
            assert measure(made)["covariate"]
        with pytest.raises(IncompatibleStream, match="was not found in 20 iterations"):
            measure(made, "clean")

    def test_the_pixels_of_the_same_draws_are_the_same(self) -> None:
        same = {"overlap": "independent"}
        clean, code = (
            compose(dataset(), "C,T:L", (40, 40, 40), 20, 0, Composition(fidelity=f, **same))  # type: ignore[arg-type]
            for f in ("clean", "paper-code")
        )
        for a, b in zip(clean.steps, code.steps, strict=True):
            assert all((a[s].x == b[s].x).all() and (a[s].y == b[s].y).all() for s in a.splits)


class TestSampling:
    def test_sub_populations_follow_the_table(self) -> None:
        b = dataset(per_class=300, subs=5)
        at = {f"train-{i}": int(s) for i, s in zip(b.train.index, b.train.subclass, strict=True)}  # type: ignore[arg-type]
        made = compose(b, "sss", (240, 240, 240, 240), 240, 0, Composition(overlap="independent"))
        found = [Counter(at[i] for i in [*s["train"].ids.tolist(), *s["val"].ids.tolist()]) for s in made.steps]
        assert [sorted(f) for f in found] == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
        assert set(found[0].values()) == {120}
        assert set(found[3].values()) == {80}

    def test_s_needs_sub_classes_and_ends_with_its_table(self) -> None:
        with pytest.raises(IncompatibleStream, match="the dataset has none per class.*--labels coarse"):
            compose(dataset(), "s", (40, 40), 20, 0)
        with pytest.raises(IncompatibleStream, match="s occurs 4 times"):
            compose(dataset(subs=5, per_class=300), "s:s:s:s", (60,) * 5, 60, 0)

    def test_label_shift_takes_from_even_classes_and_ends_before_they_are_gone(self) -> None:
        made = compose(dataset(per_class=200), "p:p", (200, 200, 200), 100, 0)
        assert [Counter(s["train"].y.tolist())[0] for s in made.steps] == [40, 28, 16]
        with pytest.raises(IncompatibleStream, match="p takes 120% of the even classes' share"):
            compose(dataset(), "p:p:p:p", (40,) * 5, 20, 0)

    def test_priors_may_be_given_as_a_table(self) -> None:
        table = np.array([[1.0, 1, 0, 0], [0, 0, 1, 3]])
        made = compose(dataset(per_class=200), "C", (80, 80), 40, 0, Composition(priors=table))
        assert sorted(set(made.steps[0]["train"].y.tolist())) == [0, 1]
        assert Counter(made.steps[1]["test"].y.tolist()) == {2: 10, 3: 30}
        with pytest.raises(BadConfig, match="a row for each step and 4 columns"):
            compose(dataset(), "C", (80, 80), 40, 0, Composition(priors=table[:, :3]))

    def test_natural_counts_are_those_of_the_dataset(self) -> None:
        b = dataset()
        y = np.concatenate([np.zeros(180, np.int64), np.full(60, 3)])
        uneven = Dataset("uneven", Samples(b.train.x, y, b.train.index), b.test, b.classes)
        made = compose(uneven, "C", (40, 40), 20, 0, Composition(balanced="natural", overlap="independent"))
        assert Counter(made.steps[0]["train"].y.tolist()) == {0: 24, 3: 8}


class TestGrowing:
    def test_what_cannot_grow_says_what_can(self) -> None:
        with pytest.raises(BadConfig, match=r"The shift L cannot grow\. Expected one of R, r, T, t after"):
            parse("~L")


def test_features_take_only_shifts_of_labels_and_sampling() -> None:
    b = dataset()

    def flat(samples: Samples) -> Samples:
        return replace(samples, x=samples.x.reshape(len(samples), -1).astype(np.float32))

    features = Dataset("features", flat(b.train), flat(b.test), b.classes)
    made = compose(features, "L:p", (80, 80, 80), 40, 0)
    assert made.steps[1]["train"].x.dtype == np.float32
    with pytest.raises(IncompatibleStream, match="R changes images; features has features of dtype float32"):
        compose(features, "R", (80, 80), 40, 0)


def test_named_sequences_have_the_papers_sizes() -> None:
    assert sizes_of("RCL") == sizes_of("R:C:L") == PAPER
    assert {name: sum(SIZES[name]) for name in SIZES if name.startswith("rot")} == dict.fromkeys(
        (f"rotations-{n}" for n in range(2, 9)), 20_000
    )
    with pytest.raises(BadConfig, match="no published sizes"):
        sizes_of("C:C")


@pytest.mark.parametrize(
    ("ways", "canonical"),
    [
        (
            ("R(30):R(60)", " R : R(degrees=60.0)", "{driftline.stream_builder.shifts.paper:Rotation}(30):R(60)"),
            "R:R(60)",
        ),
        (("T,R", "R,T", "R(30),T(amount=30)"), "R,T"),
        (("L(2):L(2, growing)", "L:L"), "L:L"),
        (("TTT",), "T:T:T"),
        (("L(schedule=paper)", "L(2,paper)"), "L(schedule=paper)"),
        (("jpeg(1):~R", "jpeg:~R(30)"), "jpeg:~R"),
    ],
)
def test_sequences_that_mean_the_same_have_one_form_and_one_hash(ways, canonical, tmp_path):
    steps = canonical.count(":") + 2
    made = [compose(dataset(), way, (20,) * steps, 20, 0) for way in (*ways, canonical)]
    assert {each.facts["sequence"] for each in made} == {canonical}
    assert {each.name for each in made} == {f"toy-{canonical}"}
    assert len({each.save(tmp_path / str(k)).sha256 for k, each in enumerate(made)}) == 1


class TestCounters:
    """Shifts of one letter are counted together, whatever their settings."""

    @pytest.mark.parametrize(
        ("mixed", "plain"),
        [
            ("R(30):R(60)", "R:R,R"),
            ("R(-30):R(-15)", "R(-15),R(-15):R(-15)"),
            ("r(20):r(40)", "r(20):r(20),r(20)"),
            ("T(10):~T(20)", "T(10):~T(10),~T(10)"),
            ("t(10):t(20)", "t(10):t(10),t(10)"),
            ("jpeg(1):jpeg(2)", "jpeg:jpeg,jpeg"),
            ("gaussian_noise(2):gaussian_noise(1)", "gaussian_noise,gaussian_noise:gaussian_noise"),
            ("p(20):p(10)", "p(10),p(10):p(10)"),
        ],
    )
    def test_a_shift_and_its_multiple_are_rendered_as_one(self, mixed: str, plain: str) -> None:
        """Two rotations by 30° and 60° in a row would interpolate twice and cut corners twice."""
        one, other = (compose(dataset(), sequence, (20, 20, 20), 20, 0) for sequence in (mixed, plain))
        for a, b in zip(one.steps, other.steps, strict=True):
            assert all((a[name].x == b[name].x).all() and (a[name].y == b[name].y).all() for name in a.splits)

    def test_a_flip_with_another_step_is_the_second_flip(self) -> None:
        made = compose(dataset(), "L:L(1):L", (20,) * 4, 20, 0)
        y = [dataset().train.y[numbers(step["train"])] for step in made.steps]
        assert (made.steps[1]["train"].y == 3 - y[1]).all()
        assert (made.steps[2]["train"].y == (3 - y[2] + 1) % 4).all()
        assert (made.steps[3]["train"].y == 3 - (3 - y[3] + 1) % 4).all()

    def test_the_papers_code_restores_labels_at_the_fourth_flip(self) -> None:
        for fidelity, restored in (("paper-code", True), ("clean", False)):
            made = compose(dataset(), "L:L:L:L", (20,) * 5, 20, 0, Composition(fidelity=fidelity))  # type: ignore[arg-type]
            last = made.steps[4]["train"]
            assert (last.y == dataset().train.y[numbers(last)]).all() == restored


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"train_x": np.zeros((4, 8, 8, 3), np.float64)}, "dtype float64"),
        ({"train_x": np.zeros((4, 8, 8), np.uint8)}, "Convert grey or RGBA"),
        ({"train_x": np.zeros((4, 8, 8, 4), np.uint8)}, "Convert grey or RGBA"),
        ({"train_y": np.array([0, 1, -1, 1])}, "label -1 at index 2"),
        ({"train_x": np.zeros((0, 8, 8, 3), np.uint8), "train_y": np.zeros(0, np.int64)}, "bad has no train samples"),
    ],
)
def test_arrays_that_no_learner_could_take_are_refused(tmp_path, arrays, told):
    good = {f"{s}_{k}": v for s in ("train", "test")
            for k, v in (("x", np.zeros((4, 8, 8, 3), np.uint8)), ("y", np.array([0, 1, 0, 1])))}  # fmt: skip
    np.savez(tmp_path / "bad.npz", **(good | arrays))
    with pytest.raises(BadArray, match=told):
        open_dataset(tmp_path / "bad.npz")
