"""Shifts are exact: against torchvision and the specification's tables, and in their order; and their grammar."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import dataset, numbers, write_base

from driftline.curate.core.errors import BadConfig, BadInput, BadPlugin, MissingFile, Shortage, UnknownName
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import open_dataset
from driftline.stream_builder.measures.shift_distance import measure, wasserstein2
from driftline.stream_builder.shifts.base import rotate
from driftline.stream_builder.shifts.grammar import parse
from driftline.stream_builder.shifts.paper import ConditionalRotation, Corruption, LabelFlip


@pytest.mark.parametrize("degrees", [30, 60, 90, 120, -30, -60, 45, 210])
@pytest.mark.parametrize("size", [(32, 32), (7, 7), (12, 20)])
def test_rotation_equals_torchvisions_pixel_by_pixel(degrees: float, size: tuple[int, int]) -> None:
    from torchvision.transforms.functional import InterpolationMode
    from torchvision.transforms.functional import rotate as reference

    x = rng_for(0, "rotation").integers(0, 256, (5, *size, 3)).astype(np.uint8)
    theirs = reference(torch.from_numpy(x).permute(0, 3, 1, 2), float(degrees), InterpolationMode.NEAREST)
    ours = rotate(x, degrees)
    differ = (ours != theirs.permute(0, 2, 3, 1).numpy()).any(-1).mean()
    assert differ <= (0.05 if size[0] % 2 else 0.01), "only where a source falls between two pixels: odd sizes, 30°"


def test_corruption_draws_from_minus_three_to_two() -> None:
    x = np.full((50, 10, 10, 3), 100, np.uint8)
    noisy, _ = Corruption().apply(x, np.zeros(50, np.int64), 1, 10, rng_for(0))
    values, counts = np.unique(noisy.astype(int) - 100, return_counts=True)
    assert values.tolist() == [-3, -2, -1, 0, 1, 2]
    assert np.abs(counts / counts.sum() - 1 / 6).max() < 0.01


def flipped(shift: LabelFlip, count: int, classes: int = 10) -> list[int]:
    """What `count` flips make of the labels 0, 1, ….

    The images do not matter.
    """
    y = np.arange(classes)
    new: list[int] = shift.apply(np.zeros((classes, 1, 1, 3), np.uint8), y, count, classes, rng_for(0))[1].tolist()
    return new


@pytest.mark.parametrize("schedule", ["growing", "paper"])
def test_three_label_flips_follow_the_papers_table(schedule: str) -> None:
    shift = LabelFlip(schedule=schedule)  # type: ignore[arg-type]
    assert flipped(shift, 1) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert flipped(shift, 2) == [(9 - c + 2) % 10 for c in range(10)]
    assert flipped(shift, 3) == [(c - 2) % 10 for c in range(10)]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_fourth_label_flip_restores_the_source_in_the_paper_only(step: int) -> None:
    assert flipped(LabelFlip(step, "paper"), 4) == list(range(10))
    assert flipped(LabelFlip(step), 4) != list(range(10))


@pytest.mark.parametrize("classes", [10, 20])
def test_nine_label_flips_give_nine_different_label_maps_and_the_tenth_does_not_restore(classes: int) -> None:
    maps = [tuple(flipped(LabelFlip(), count, classes)) for count in range(11)]
    assert len(set(maps[:10])) == 10
    assert maps[10] != maps[0]


def test_even_classes_turn_left_and_odd_ones_right() -> None:
    x = rng_for(0).integers(0, 256, (2, 9, 9, 3)).astype(np.uint8)
    turned, _ = ConditionalRotation().apply(x, np.array([4, 7]), 3, 10, rng_for(0))
    assert (turned[0] == np.rot90(x[0])).all()
    assert (turned[1] == np.rot90(x[1], -1)).all()


def test_the_grammar() -> None:
    steps = parse("C,T(60):L:R(45)")
    assert [[s.code for s in step.shifts] for step in steps] == [[], ["C", "T"], ["L"], ["R"]]
    assert steps[1].shifts[1].amount == 60  # type: ignore[attr-defined]
    assert steps[3].shifts[0].degrees == 45  # type: ignore[attr-defined]
    assert [len(parse(f"rotations-{n}")) for n in range(2, 9)] == list(range(2, 9))
    assert [s.code for step in parse("RCL") for s in step.shifts] == ["R", "C", "L"]


def test_settings_are_given_in_order_or_by_name() -> None:
    assert parse("C(5)") == parse("C(amount=5)") == parse(" C( amount = 5 ) ")
    assert parse("jpeg(3)") == parse("jpeg(severity=3)") != parse("jpeg(2)")


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        ("C:Q", "Unknown shift 'Q'. Available: "),
        ("jpg", "Did you mean 'jpeg'?"),
        ("C:", "cannot be read from '' on"),
        ("C,,T", "cannot be read from ',T' on"),
        ("R(45", "cannot be read from 'R(45' on"),
        ("C(x)", "C(x): amount is 'x'. Expected a whole number"),
        ("C(200)", "C(200): amount is '200'. Expected a whole number"),
        ("R(nan)", "R(nan): degrees is 'nan'. Expected a number."),
        ("R(angle=3)", "R(angle=3): Unknown setting 'angle'. Available: degrees."),
        ("R(degree=3)", "Did you mean 'degrees'?"),
        ("s(3)", "Unknown setting '3'. Available: none."),
        ("mypkg.mine:Fade", "or {package.module:Name}, in braces."),
    ],
)
def test_a_wrong_sequence_is_one_sentence(sequence: str, message: str) -> None:
    with pytest.raises((BadConfig, UnknownName), match=re.escape(message)):
        parse(sequence)


PLUGIN = """
from dataclasses import dataclass
from typing import Annotated, ClassVar
import numpy as np
from pydantic import Field
from driftline.stream_builder.shifts.base import Shift

@dataclass(frozen=True)
class Fade(Shift):
    code: ClassVar[str] = "fade"
    acts_on: ClassVar[str] = "colour"
    share: Annotated[float, Field(gt=0, le=1)] = 0.5

    def apply(self, x, y, count, n_classes, rng):
        return (x * (1 - self.share) ** count).astype(np.uint8), y

@dataclass
class Mutable(Shift):
    code: ClassVar[str] = "m"
    acts_on: ClassVar[str] = "colour"
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with shifts."""
    (tmp_path / "plugin_shifts.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    return "plugin_shifts"


def test_a_class_of_another_package_stands_in_braces(plugin: str) -> None:
    fade = f"{{{plugin}:Fade}}"
    made = compose(dataset(40), f"{fade}(0.25),L:{fade}(share=0.25)", [80, 80, 80], 40, 0)
    assert [step.name for step in made.steps] == ["0 source", "1 fade,L", "2 fade"]
    x = dataset(40).test.x[numbers(made.steps[2]["test"])]
    assert (made.steps[2]["test"].x == (x * 0.75**2).astype(np.uint8)).all()


def test_what_is_not_a_shift_is_named(plugin: str) -> None:
    with pytest.raises(BadPlugin, match=r"plugin_shifts:Mutable.*Expected a frozen dataclass that declares code"):
        parse(f"{{{plugin}:Mutable}}")
    with pytest.raises(BadPlugin, match="Expected a class derived from"):
        parse("{pathlib:Path}")
    with pytest.raises(BadConfig, match="Expected a number"):
        parse(f"{{{plugin}:Fade}}(0)")


def test_shifts_accumulate_and_are_rendered_once_in_a_fixed_order() -> None:
    b = dataset(40)
    one = compose(b, "R:R:R", [80, 80, 80, 80], 40, 0)
    x = b.test.x[numbers(one.steps[3]["test"])]
    assert (one.steps[3]["test"].x == np.stack([np.rot90(i) for i in x])).all(), (
        "3 × 30° is one turn by 90°, corners and all"
    )
    forward, back = (compose(b, s, [80, 80], 40, 0).steps[1]["train"] for s in ("T,R", "R,T"))
    assert (forward.x == back.x).all(), "the order within a step does not matter"


def test_draws_are_balanced_without_repetition_and_do_not_depend_on_the_shifts() -> None:
    b = dataset(40)
    a, c = compose(b, "C:L", [80, 40, 80], 40, 0), compose(b, "T:R", [80, 40, 80], 40, 0)
    for step_a, step_c in zip(a.steps, c.steps, strict=True):
        for side, split in step_a.splits.items():
            assert split.ids.tolist() == step_c[side].ids.tolist()
    train, val = a.steps[0]["train"], a.steps[0]["val"]
    assert (len(train), len(val)) == (64, 16)
    assert len(set(train.ids.tolist()) | set(val.ids.tolist())) == 80
    assert np.bincount(val.y).tolist() == [4, 4, 4, 4]
    assert [list(s.splits) for s in a.steps] == [["train", "val"], ["train", "val"], ["train", "val", "test"]]


def test_bad_datasets_and_sizes_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="does not exist"):
        open_dataset(tmp_path / "nowhere")
    write_base(tmp_path / "grey", "L")
    with pytest.raises(BadInput, match="row 1: an image of mode L. Expected RGB"):
        open_dataset(tmp_path / "grey")
    with pytest.raises(BadConfig, match="2 numbers for 3 steps"):
        compose(dataset(40), "C:L", [10, 10], 10, 0)
    with pytest.raises(Shortage, match="Class 0 has 40 images, the step needs 50"):
        compose(dataset(40), "C", [200, 40], 10, 0)


class TestMeasure:
    def test_equals_brute_force_on_all_permutations(self) -> None:
        from itertools import permutations

        rng = rng_for(0, "w2")
        a, b = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
        best = min(np.mean([((a[i] - b[j]) ** 2).sum() for i, j in enumerate(p)]) for p in permutations(range(6)))
        assert wasserstein2(a, b) == pytest.approx(np.sqrt(best))

    def test_a_step_before_the_shift_is_farther_than_one_after_it(self) -> None:
        found = measure(compose(dataset(40), "T(90):C(1)", [80, 80, 80], 40, 0))
        for kind in ("covariate", "conditional"):
            before, after = found[kind]
            assert before > after + 0.05
            assert after == pytest.approx(1, abs=0.05)
