"""Every registered shift keeps shape and dtype, leaves its input alone and is repeatable; count 0 changes nothing."""

import numpy as np
import pytest

from driftline.curate.core.errors import BadArray
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.shifts import SHIFTS
from driftline.stream_builder.shifts.base import ORDER, Shift

C = 10


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(0, "shifts")
    return rng.integers(0, 256, (30, 12, 12, 3)).astype(np.uint8), np.arange(30, dtype=np.int64) % C


@pytest.mark.parametrize("name", SHIFTS)
class TestShift:
    def test_keeps_shape_and_dtype_and_leaves_the_input_alone(self, name: str) -> None:
        x, y = data()
        before = x.copy(), y.copy()
        x.flags.writeable = y.flags.writeable = False
        shift: Shift = SHIFTS[name]()
        for count in range(4):
            new_x, new_y = shift.apply(x, y, count, C, rng_for(1))
            assert (new_x.shape, new_x.dtype) == (x.shape, x.dtype)
            assert (new_y.shape, new_y.dtype) == (y.shape, y.dtype)
            assert set(new_y.tolist()) <= set(range(C))
        assert (x == before[0]).all()
        assert (y == before[1]).all()

    def test_count_0_is_the_identity(self, name: str) -> None:
        x, y = data()
        new_x, new_y = SHIFTS[name]().apply(x, y, 0, C, rng_for(1))
        assert (new_x == x).all()
        assert (new_y == y).all()

    def test_the_same_generator_gives_the_same_result(self, name: str) -> None:
        x, y = data()
        (a, b), (c, d) = (SHIFTS[name]().apply(x, y, 2, C, rng_for(7)) for _ in range(2))
        assert (a == c).all()
        assert (b == d).all()

    def test_changes_only_what_it_acts_on(self, name: str) -> None:
        x, y = data()
        shift: Shift = SHIFTS[name]()
        assert shift.code == name
        assert shift.acts_on in ORDER
        new_x, new_y = shift.apply(x, y, 1, C, rng_for(1))
        changed = (not (new_x == x).all(), not (new_y == y).all())
        assert changed == {"label": (False, True), "sampling": (False, False)}.get(shift.acts_on, (True, False))

    def test_only_a_shift_of_sampling_has_shares(self, name: str) -> None:
        shift: Shift = SHIFTS[name]()
        shares = shift.shares(1, 2, C, 5)
        assert (shares is not None) == (shift.acts_on == "sampling")
        if shares is not None:
            assert shares.shape == (C, 5)
            assert (shares >= 0).all()
            assert shares.sum() > 0


@pytest.mark.parametrize("name", [name for name in SHIFTS if SHIFTS[name]().by_image])
def test_some_images_at_a_time_give_the_same_as_all_if_it_says_so(name: str) -> None:
    shift, rng, (x, y) = SHIFTS[name](), rng_for(7), data()
    new_x, new_y = shift.apply(x, y, 2, C, rng)
    parts = [shift.apply(x[low : low + 4], y[low : low + 4], 2, C, rng) for low in range(0, len(x), 4)]
    assert (new_x == np.concatenate([part for part, _ in parts])).all()
    assert (new_y == y).all(), "labels are changed by shifts of labels"
    assert rng.bit_generator.state == rng_for(7).bit_generator.state, "it draws no random numbers"


@pytest.mark.parametrize("name", [name for name in SHIFTS if SHIFTS[name]().fractional])
def test_a_fractional_shift_grows(name: str) -> None:
    shift, (x, y) = SHIFTS[name](), data()
    moved = [np.abs(shift.apply(x, y, t, C, rng_for(1))[0].astype(int) - x).mean() for t in (0, 0.5, 1)]
    assert moved[0] == 0 < moved[1]


LAYOUTS = [np.zeros((2, 4, 4, 3), np.float32), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4, 4), np.uint8)]


@pytest.mark.parametrize("name", [name for name in SHIFTS if SHIFTS[name]().acts_on not in ("label", "sampling")])
@pytest.mark.parametrize("bad", LAYOUTS, ids=["float", "grey", "RGBA"])
def test_shifts_of_images_refuse_other_layouts(name: str, bad: np.ndarray) -> None:
    with pytest.raises(BadArray, match=r"uint8 \(N, H, W, 3\)"):
        SHIFTS[name]().apply(bad, np.zeros(2, np.int64), 1, C, rng_for(1))
