"""Buckets: equal counts by time, half-open spans, the same whatever the order of input."""

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from driftline.curate.bucketing.assign import OUTSIDE, THIN, UNDECIDED, assign, assign_frozen, freeze, most_concerned
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.errors import Shortage
from driftline.curate.core.seeding import tie_ranks, time_order

DAY = 86_400
times = st.lists(st.integers(-(10**9), 2 * 10**9), min_size=11, max_size=60)


def of(uploaded: list[int], rules: BucketSettings, ids: list[str] | None = None) -> tuple[list[int], list[str]]:
    where, buckets = assign(np.array(uploaded, np.int64), ids or [str(i) for i in range(len(uploaded))], rules)
    return where.tolist(), [b.name for b in buckets]


@given(times, st.randoms())
def test_equal_buckets_are_equal_ordered_and_independent_of_input_order(uploaded: list[int], random: object) -> None:
    where, _ = of(uploaded, BucketSettings(count=11))
    sizes = np.bincount(where, minlength=11)
    base, extra = divmod(len(uploaded), 11)
    assert sizes.tolist() == [base + (i < extra) for i in range(11)]
    order = time_order(uploaded, [str(i) for i in range(len(uploaded))])
    assert (np.diff(np.array(where)[order]) >= 0).all()
    shuffle = list(range(len(uploaded)))
    random.shuffle(shuffle)  # type: ignore[attr-defined]
    again, _ = of([uploaded[i] for i in shuffle], BucketSettings(count=11), [str(i) for i in shuffle])
    assert again == [where[i] for i in shuffle]


def test_ids_in_order_of_class_do_not_decide_which_bucket_a_second_goes_to() -> None:
    """1,000 photos of one day, whose ids begin with their class: each bucket gets about half of each."""
    ids = [f"class{i // 500}/{i:04d}" for i in range(1000)]
    where, _ = of([5] * 1000, BucketSettings(count=2), ids)
    assert abs(sum(where[:500]) - 250) < 4 * (1000 / 16) ** 0.5


@given(times)
def test_together_never_cuts_through_a_second(uploaded: list[int]) -> None:
    uploaded = [t // 10**8 for t in uploaded]
    where, _ = of(uploaded, BucketSettings(count=4, ties="together"))
    assert len({(t, w) for t, w in zip(uploaded, where, strict=True)}) == len(set(uploaded))


def test_calendar_years_decades_and_dates_before_1970() -> None:
    uploaded = [-1, 0, 366 * DAY, -365 * 30 * DAY]
    where, names = of(uploaded, BucketSettings(kind="calendar", unit="year"))
    assert names == ["1940", "1969", "1970", "1971"]
    assert where == [1, 2, 3, 0]
    assert of(uploaded, BucketSettings(kind="calendar", unit="decade"))[1] == ["1940s", "1960s", "1970s"]


def test_thin_years_are_joined_with_those_that_follow_and_the_rest_with_those_before() -> None:
    years = [2008] * 3 + [2009] + [2010] * 2 + [2012] * 3 + [2013]
    rules = BucketSettings(kind="calendar", min_photos=3)
    uploaded = [int(datetime.fromisoformat(f"{year}-03-01T00:00:00+00:00").timestamp()) for year in years]
    where, names = of(uploaded, rules)
    assert (where, names) == ([0] * 3 + [1] * 3 + [2] * 4, ["2008", "2009 to 2010", "2012 to 2013"])
    assert of(uploaded[3:4], rules) == ([0], ["2009"]), "all that there is"
    begin, end = (int(datetime.fromisoformat(f"{y}-01-01T00:00:00+00:00").timestamp()) for y in (2009, 2010))
    where, _ = assign(np.array([*uploaded, begin]), [str(i) for i in range(11)], rules, np.array([*uploaded, end]))
    assert where[-1] == 1, "2009 or 2010"


@given(st.lists(st.integers(0, 40 * DAY), min_size=1, max_size=60), st.integers(1, 6), st.integers(1, 12))
def test_joined_days_that_grow_keep_their_borders_and_members_and_no_new_bucket_is_thin(uploaded, least, each):
    rules = BucketSettings(kind="calendar", unit="day", min_photos=least)
    times, ids = np.sort(np.array(uploaded, np.int64)), pa.array([f"{i:03d}" for i in range(len(uploaded))])
    days, first = times // DAY, times[0] // DAY + each
    before, frozen, number = [], None, np.array([], np.int64)
    for until in range(first, 42 + each, each):
        n = int((days < until).sum())
        if frozen is None:
            now, buckets = assign(times[:n], ids[:n], rules)
        else:
            now, buckets = assign_frozen(times[:n], ids[:n], frozen, rules)
        members = now[: len(number)][number >= 0]
        assert members.tolist() == number[number >= 0].tolist()
        assert [(b.name, b.start, b.end) for b in buckets][: len(before)] == before
        assert all(b.count >= least for b in buckets[1:])
        assert int((now == THIN).sum()) < least
        assert (now != OUTSIDE).all()
        number, before = now, [(b.name, b.start, b.end) for b in buckets]
        table = pa.table({"id": ids[:n], "uploaded": times[:n], "until": pa.nulls(n, pa.int64()), "bucket": now})
        frozen = freeze([b.plain() for b in buckets], table, rules)


def test_spans_in_words() -> None:
    _, buckets = assign(np.array([0, DAY, 2 * DAY]), ["a", "b", "c"], BucketSettings(count=3))
    assert [b.plain()["start"] for b in buckets] == [
        "1970-01-01T00:00:00Z",
        "1970-01-02T00:00:00Z",
        "1970-01-03T00:00:00Z",
    ]
    assert [b.end for b in buckets] == [DAY, 2 * DAY, 2 * DAY + 1]


def test_bad_rules_are_named() -> None:
    with pytest.raises(Shortage, match="2 photos for 3"):
        of([1, 2], BucketSettings(count=3))
    with pytest.raises(ValidationError, match="rising order"):
        BucketSettings(kind="cuts", cuts=(5, 5))
    with pytest.raises(ValidationError, match="do not overlap"):
        BucketSettings(kind="spans", spans=((0, 5), (4, 6)))


@given(st.lists(st.integers(0, 6), min_size=4, max_size=40), st.integers(2, 4), st.booleans(), st.randoms())
def test_equal_buckets_are_those_of_a_plain_sort_by_time_and_rank(uploaded, count, numbers, random):
    ids = [str(i) if numbers else f"p{i}" for i in range(len(uploaded))]
    random.shuffle(ids)  # type: ignore[attr-defined]
    where, buckets = assign(np.array(uploaded, np.int64), ids, BucketSettings(count=count))
    ranks = [int(tie_ranks([id_])[0]) for id_ in ids]
    order = sorted(range(len(ids)), key=lambda i: (uploaded[i], ranks[i]))
    base, extra = divmod(len(ids), count)
    expected = [b for b in range(count) for _ in range(base + (b < extra))]
    assert where[order].tolist() == expected
    assert [b.start for b in buckets] == [uploaded[order[expected.index(b)]] for b in range(count)]


@pytest.mark.shared(twin="tests/curate/test_buckets.py::test_equal_buckets_are_those_of_a_plain_sort_by_time_and_rank")
def test_as_clear_has_the_published_spans(shared: Path) -> None:
    published = json.loads((shared / "clear" / "clear_10_time.json").read_text())
    ends = [int(datetime.fromisoformat(p[k][:19] + "+00:00").timestamp()) for p in published for k in ("start", "end")]
    where, buckets = assign(np.array([*ends, 0], np.int64), [str(i) for i in range(23)], BucketSettings(kind="clear"))
    assert where.tolist() == [i for i in range(11) for _ in range(2)] + [-1]
    assert [b.start for b in buckets] == ends[::2]


RULES = {
    "equal": BucketSettings(count=3),
    "year": BucketSettings(kind="calendar", unit="year"),
    "month": BucketSettings(kind="calendar", unit="month"),
    "decade": BucketSettings(kind="calendar", unit="decade"),
    "cuts": BucketSettings(kind="cuts", cuts=("1970-06-01", "1971-01-01")),
    "spans": BucketSettings(kind="spans", spans=(("1970-01-01", "1970-03-01"), ("1970-06-01", "1972-01-01"))),
}
dated = st.lists(
    st.tuples(st.integers(0, 1000), st.sampled_from(("year", "month", "day", "")), st.booleans()), min_size=6
)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@given(photos=dated)
def test_a_photo_is_in_a_bucket_only_if_its_whole_interval_is(rules, photos):
    first, last = [], []
    for days, precision, at_midnight in photos:
        moment = np.datetime64(days * DAY + (0 if at_midnight else 3600), "s")
        unit = {"year": "Y", "month": "M", "day": "D", "": "s"}[precision]
        first.append(moment.astype(f"datetime64[{unit}]").astype("datetime64[s]").astype(np.int64))
        last.append((moment.astype(f"datetime64[{unit}]") + 1).astype("datetime64[s]").astype(np.int64) - 1)
    first, last = np.array(first), np.array(last)
    ids = [str(i) for i in range(len(first))]
    where, buckets = assign(first, ids, rules, last)
    spans = [(b.start if b.start is not None else -np.inf, b.end if b.end is not None else np.inf) for b in buckets]
    for number, a, b in zip(where.tolist(), first.tolist(), last.tolist(), strict=True):
        inside = [i for i, (start, end) in enumerate(spans) if start <= a and b < end]
        touched = [i for i, (start, end) in enumerate(spans) if start <= b and a < end]
        if b > a:
            assert number == (inside[-1] if inside else UNDECIDED if touched or rules.kind == "calendar" else OUTSIDE)
        else:
            assert number in (inside or [OUTSIDE]) or (rules.kind == "equal" and spans[number][1] == a)
    assert [bucket.count for bucket in buckets] == np.bincount(where[where >= 0], minlength=len(buckets)).tolist()
    if rules.kind in ("equal", "calendar") and buckets:
        until = pa.array(last, mask=last == first)
        members = pa.table({"id": ids, "uploaded": first, "until": until, "bucket": where}).filter(where >= 0)
        frozen = freeze([bucket.plain() for bucket in buckets], members, rules)
        again = assign_frozen(first, pa.array(ids), frozen, rules, last)[0]
        gaps = [(-np.inf, spans[0][0]), *((left[1], right[0]) for left, right in pairwise(spans))]
        in_a_gap = [any(low <= a and b < high for low, high in gaps) for a, b in zip(first, last, strict=True)]
        assert again.tolist() == np.where(in_a_gap, OUTSIDE, where).tolist()


def test_equal_buckets_do_not_cut_within_a_year_of_which_nothing_more_is_known() -> None:
    years = np.array([1905] * 8 + [1906] * 2 + [1907] * 2)
    first, last = (np.array([np.datetime64(f"{y + more}", "s").astype(int) for y in years]) - more for more in (0, 1))
    where, buckets = assign(first, [str(i) for i in range(12)], BucketSettings(count=3), last)
    assert where.tolist() == [0] * 8 + [1] * 4
    assert len(buckets) == 2


def test_how_much_undecided_photos_could_matter() -> None:
    day = np.array([10, 20, 40, 50, 20]) * DAY
    last = day + np.array([0, 0, 0, 0, 30 * DAY])
    number, buckets = assign(day, list("abcde"), BucketSettings(kind="calendar", unit="month"), last)
    assert most_concerned(day, last, number, buckets) == {"photos": 1, "bucket": "1970-01", "share": 0.3333}
    assert most_concerned(day, day, *assign(day, list("abcde"), BucketSettings(count=2))) is None


def test_a_span_has_its_first_second_and_not_its_end() -> None:
    days = ("2010-01-01", "2010-01-02", "2010-01-03", "2010-01-05")
    rules = BucketSettings(kind="spans", spans=(days[:2], days[2:]), unlabelled=())
    start, end, again, last = (int(np.datetime64(day, "s").astype(np.int64)) for day in days)
    times = np.array([start - 1, start, end - 1, end, again - 1, again, last - 1, last])
    number, buckets = assign(times, [str(i) for i in range(8)], rules)
    assert number.tolist() == [-1, 0, 0, -1, -1, 1, 1, -1]
    assert [bucket.count for bucket in buckets] == [2, 2]


def test_a_cut_is_the_first_second_of_the_later_bucket() -> None:
    cut = 14_610 * DAY
    where, _ = of([cut - 1, cut], BucketSettings(kind="cuts", cuts=("2010-01-01",), unlabelled=()))
    assert where == [0, 1]
