"""Whole-column text decoding against the standard library, value by value."""

from urllib.parse import unquote_plus

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.curate.core.parsing import plus_decode

pieces = st.sampled_from(
    ["%", "%4", "%41", "%c3%a9", "%E9", "%00", "%zz", "+", "a", "é", "%F0%9F%98%80", "%F0%9F", "2"]
)
values = st.one_of(st.none(), st.lists(pieces, max_size=8).map("".join), st.text(max_size=8))


@given(st.lists(values, max_size=12), st.integers(0, 5))
@example(["%4", "1"], 0)  # an escape does not reach into the next value
@example(["é%A9"], 0)
@example(["+%41\0%42", "%00\0+", "%E9%C3%A9"], 0)
def test_every_value_is_what_unquote_plus_makes_of_it(texts: list[str | None], skip: int) -> None:
    column = pa.array(texts, pa.string()).slice(min(skip, len(texts)))  # a slice: offsets do not begin at 0
    expected = [None if t is None else unquote_plus(t, errors="replace").replace("\0", "\ufffd") for t in texts[skip:]]
    decoded = plus_decode(column)
    decoded.validate(full=True)
    assert decoded.to_pylist() == expected
