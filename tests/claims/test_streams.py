"""Composed streams: what a sequence, a size and a share promise is what the samples have."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.sampling import Composition, quotas
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.shifts.base import Shift
from driftline.stream_builder.shifts.grammar import accumulated, parse
from driftline.stream_builder.stream import Split


def dataset(classes: int, per_class: int, subclasses: int = 0, grey: int = 40) -> Dataset:
    """Grey images, in the order of their classes, numbered from 0 on both sides."""

    def samples() -> Samples:
        y = np.repeat(np.arange(classes), per_class)
        of_class = np.arange(len(y)) % subclasses if subclasses else None
        return Samples(np.full((len(y), 2, 2, 3), grey, np.uint8), y, np.arange(len(y)), of_class)

    return Dataset("grey", samples(), samples(), [str(c) for c in range(classes)])


def red(split: Split) -> np.ndarray:
    """(N,) levels that each image's red channel was raised by."""
    return np.asarray(split.x)[:, 0, 0, 0].astype(int) - 40


class TestAGrowingShiftHasNothingToDoWithTheClass:
    @pytest.mark.parametrize("sequence", ["~T(64)", "T:~T(64)", "L:~T(64)"])
    def test_in_every_split(self, sequence: str) -> None:
        """The correlation of amount and class of n independent samples is below 5/√n, but once in two million."""
        made = compose(dataset(10, 200), sequence, (400,) * (1 + sequence.count(":") + 1), 400, 0)
        for split in made.steps[-1].splits.values():
            assert abs(np.corrcoef(red(split), split.y)[0, 1]) < 5 / np.sqrt(len(split))

    def test_with_published_draws_in_the_order_of_their_classes(self) -> None:
        base = dataset(10, 60)
        rows = np.concatenate([np.arange(40) + 60 * c for c in range(10)])
        draws = {f"t{t}_{name}": rows[k::2] for t in (0, 1) for k, name in enumerate(("train", "valid"))}
        base = Dataset(base.name, base.train, base.test, base.classes, draws | {"t1_test": rows})
        code = Composition(fidelity="paper-code")
        plain = compose(base, "T(64)", (400, 400), 400, 0, code)
        grown = compose(base, "~T(64)", (400, 400), 400, 0, code)
        assert plain.facts["draws"] == grown.facts["draws"] == "published"
        assert plain.steps[1]["test"].ids.tolist() == [f"test-{i}" for i in rows]  # where nothing grows: as published
        for name, split in grown.steps[1].splits.items():
            assert sorted(split.ids.tolist()) == sorted(plain.steps[1][name].ids.tolist())
            assert abs(np.corrcoef(red(split), split.y)[0, 1]) < 5 / np.sqrt(len(split))


class TestAGrowingShiftStartsWhereTheStepDoes:
    @pytest.mark.parametrize(
        ("sequence", "least", "most"),
        [("~T(64)", 1, 64), ("T(50),~T(50)", 51, 100), ("~T(50),T(50)", 51, 100), ("T(20):T(30),~T(50)", 51, 100)],
    )
    def test_a_fixed_part_is_there_from_the_first_sample_on(self, sequence: str, least: int, most: int) -> None:
        made = compose(dataset(4, 400), sequence, (200,) * (2 + sequence.count(":")), 0, 0)
        amounts = red(made.steps[-1]["train"])
        assert (amounts.min(), amounts.max()) == (least, most)
        assert (np.diff(amounts) >= 0).all()

    def test_two_growing_parts_grow_together(self) -> None:
        (rendering,) = accumulated(parse("~T(50),~T(50)"))[1:]
        (start,) = rendering.starts.values()
        assert (start, *rendering.counts.values()) == (0, 2)


class TestQuotas:
    @pytest.mark.parametrize(("size", "classes"), [(4000, 77), (10, 3), (5, 8), (1000, 1000), (1, 3)])
    def test_equal_shares_differ_by_one_at_most(self, size: int, classes: int) -> None:
        counts = quotas(size, np.ones((classes, 1)), rng_for(0))[:, 0]
        assert counts.sum() == size
        assert counts.max() - counts.min() <= 1

    def test_every_class_gets_its_exact_share_in_the_mean(self) -> None:
        """10,000 draws: a mean is within 5 standard errors of size × share, but once in two million."""
        shares = np.array([[0.05, 0], [0.3, 0.15], [0.31, 0], [0.1, 0.09]])
        draws = np.array([quotas(7, shares, rng_for(0, k)) for k in range(10_000)])
        assert (draws.sum((1, 2)) == 7).all()
        of_class = draws.sum(2)
        exact = 7 * shares.sum(1)
        assert ((of_class >= np.floor(exact)) & (of_class <= np.ceil(exact))).all()
        assert np.abs(draws.mean(0) - 7 * shares).max() < 5 * 0.5 / 100

    def test_the_papers_code_gives_the_rest_to_the_last(self) -> None:
        assert quotas(4000, np.ones((77, 1)), rng_for(0), as_paper=True)[:, 0].tolist() == [51] * 76 + [124]

    @pytest.mark.parametrize("overlap", ["independent", "validation", "disjoint"])
    def test_a_composed_step_is_balanced_in_both_splits(self, overlap: str) -> None:
        made = compose(dataset(7, 60), "C", (100, 100), 50, 0, Composition(overlap=overlap))  # type: ignore[arg-type]
        for step in made.steps:
            for split in step.splits.values():
                counts = Counter(split.y.tolist())
                assert max(counts.values()) - min(counts.values()) <= 1
        assert [len(step["train"]) + len(step["val"]) for step in made.steps] == [100, 100]

    def test_a_seed_rounds_the_classes_of_its_own_stream(self) -> None:
        larger = {
            tuple(sorted(Counter(compose(dataset(7, 60), "C", (10, 10), 0, seed).flat("train").y.tolist()).items()))
            for seed in range(8)
        }
        assert len(larger) > 1


class TestIds:
    def test_an_id_names_one_image(self) -> None:
        """Training and test images are numbered from 0: 52 of 80 ids stood for two images."""
        made = compose(dataset(4, 40), "C:R", (80, 40, 40), 80, 0)
        sides: dict[str, set[str]] = {}
        for step in made.steps:
            for name, split in step.splits.items():
                sides.setdefault("test" if name == "test" else "train", set()).update(split.ids.tolist())
        assert not sides["train"] & sides["test"]

    def test_an_image_in_several_steps_keeps_its_id(self) -> None:
        made = compose(dataset(4, 40), "R", (160, 160), 0, 0)
        assert set(made.steps[0]["train"].ids.tolist()) & set(made.steps[1]["train"].ids.tolist())


@dataclass(frozen=True)
class WithoutTheFirst(Shift):
    """A shift of somebody else: class 0 leaves."""

    code: ClassVar[str] = "w"
    acts_on: ClassVar[str] = "sampling"

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Any:
        return np.arange(classes)[:, None] > (0 if count else -1)


class TestShares:
    @pytest.mark.parametrize("classes", [2, 3, 4, 5, 11])
    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_p_takes_what_it_says_from_even_classes(self, classes: int, times: int) -> None:
        (*_, rendering) = accumulated(parse(":".join(["p"] * times)))
        ((shift, count),) = rendering.counts.items()
        shares = shift.shares(count, count, classes, 0)
        counts = quotas(6000 * classes, shares / shares.sum(), rng_for(0))[:, 0]
        assert np.abs(counts[::2] - 6000 * (1 - 0.3 * times)).max() <= 1
        assert counts[1::2].max() - counts[1::2].min() <= 1

    def test_p_needs_two_classes(self) -> None:
        with pytest.raises(IncompatibleStream, match="p moves shares between classes; the dataset has one class"):
            compose(dataset(1, 80), "p", (20, 20), 0, 0)

    def test_priors_and_a_shift_that_leave_no_class_are_one_sentence(self) -> None:
        priors = np.array([[1.0, 1, 1, 1], [1, 0, 0, 0]])
        with pytest.raises(IncompatibleStream, match=r"Step 1 has no class left: w, .*together exclude all 4 classes"):
            compose(dataset(4, 80), "{claims.test_streams:WithoutTheFirst}", (20, 20), 0, 0, Composition(priors=priors))
