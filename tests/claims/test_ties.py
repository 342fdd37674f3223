"""Promise: the order of ids, of rows, and of samples within a second, day or year decides nothing; of importers, see
`test_importers.py`. Every protocol is found in its registry.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contracts.test_protocols import with_val
from typer.testing import CliRunner

from driftline.curate.bucketing.assign import assign, assign_frozen, freeze
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.seeding import rng_for, tie_ranks, time_order
from driftline.curate.release.choice import _later_copies
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate
from driftline.eval.settings import setting_names
from driftline.pipelines.cli import app
from driftline.pipelines.reporting.audit import audit_stream
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.table import in_time_order
from driftline.stream_builder.measures.label_correlation import blind_curve, correlation_of_stream
from driftline.stream_builder.measures.shift_distance import label_statistics
from driftline.stream_builder.rows import Rows
from driftline.stream_builder.step import SPLITS
from driftline.stream_builder.stream import Split, Step, Stream


def made(
    n: int = 240, ids: Callable[[int, int], str] = "class{1}/{0:04d}".format, seed: int = 0, rows: Any = None,
    years: int = 3,
) -> Stream:  # fmt: skip
    """Four classes that can be told apart half the time, in some years; the seed draws ties and test samples."""
    rng = rng_for(0, "ties", n)
    y = np.sort(rng.integers(0, 4, n))
    x = (np.eye(4)[y] + rng.normal(0, 0.8, (n, 4))).astype(np.float32)
    time = np.arange(n) % years + 2000
    names = np.array([ids(i, label) for i, label in enumerate(y.tolist())])
    rows = np.arange(n) if rows is None else rows
    data = Rows("made", Split(x[rows], y[rows], names[rows], time[rows]), [f"class{c}" for c in range(4)])
    return in_time_order(data, period=3, test_share=0.3, seed=seed)


LEARNERS = ["nearest-mean", "overadapt", "bounded-fifo(capacity=30)", "blind"]
QUICK = {"epochs": 2, "batch": 16, "shift": 0, "prefix": 0, "every": 60, "lr": 1.0, "budget": "small"}


def scores(name: str, stream: Stream) -> dict[str, float]:
    """Learner and score → its value, under the protocol `name`."""
    stream = with_val(stream) if name == "seq-to-final" else stream
    known = setting_names(PROTOCOLS[name])
    settings = {key: value for key, value in QUICK.items() if key in known or key in ("epochs", "lr")}
    if name == "near-future":  # which has a budget instead
        del settings["epochs"]
    found = evaluate(stream, name, LEARNERS, settings=settings)["results"]
    assert found
    return {
        f"{result['learner']} {score}": value["mean"]
        for result in found
        for score, value in result["scores"].items()
        if value is not None and value["mean"] is not None
    }


@pytest.mark.parametrize("name", PROTOCOLS)
def test_permuted_file_rows_change_no_score(name: str) -> None:
    """Exactly: a sample's place among equal times depends on its id and the seed alone."""
    assert scores(name, made(rows=rng_for(1, "rows").permutation(240))) == scores(name, made())


DRAWS = 8


@pytest.mark.parametrize("name", PROTOCOLS)
def test_ids_in_order_of_class_change_no_score_beyond_the_noise_of_the_draw(name: str) -> None:
    """Eight draws with ids that begin with the class against eight with random ids: their means differ by at most four
    standard errors. With normal scores, one comparison in 700 would fail; the draws here are the same each time."""
    sorted_, random = (
        [scores(name, made(ids=ids, seed=seed)) for seed in range(DRAWS)]
        for ids in ("class{1}/{0:04d}".format, lambda i, label: str(tie_ranks([f"{i}"], 7)[0]))
    )
    for key in sorted_[0]:
        a, b = (np.array([draw[key] for draw in draws if key in draw]) for draws in (sorted_, random))
        if min(len(a), len(b)) < DRAWS:
            continue  # a goal that some draws did not reach: the mean of the others says nothing
        error = ((a.var(ddof=1) + b.var(ddof=1)) / DRAWS) ** 0.5
        assert abs(a.mean() - b.mean()) <= 4 * error + 1e-9, key


def test_the_blind_classifier_is_at_chance_on_random_labels_with_ids_of_their_class() -> None:
    """.978 where ids ordered them."""
    curve = correlation_of_stream(made(n=4000))["blind"]
    assert curve["best"][0] < curve["chance"] + 0.02
    assert curve["suggested_shift"] == 0


def test_samples_of_one_time_are_mixed_over_train_and_test() -> None:
    """A step as a whole, as clear-streaming trains on it: neither side comes first."""
    step = made(years=1).steps[0]
    whole, tests = step.everything(), set(step["test"].ids.tolist())
    places = np.array([id_ in tests for id_ in whole.ids.tolist()])
    assert abs(np.flatnonzero(places).mean() / len(whole) - 0.5) < 4 * (1 / 12 / places.sum()) ** 0.5
    for side in ("train", "test"):
        own = [id_ for id_ in whole.ids.tolist() if id_ in set(step[side].ids.tolist())]
        assert own == step[side].ids.tolist(), "each side keeps its own order"


def test_sorting_under_near_future_draws_the_order_of_equal_times() -> None:
    n = 400
    y = np.repeat(np.arange(4), n // 4)
    ids = np.array([f"class{c}/{i:03d}" for i, c in enumerate(y.tolist())])
    data = {"x": np.zeros((n, 2), np.float32), "y": y, "id": ids, "time": np.arange(n) % 2, "step": np.zeros(n, int)}
    orders = []
    for rows in (np.arange(n), rng_for(0, "rows").permutation(n)):
        stream = from_arrays({key: array[rows] for key, array in data.items()}, test_share=0)
        (train,) = PROTOCOLS["near-future"](sort=True).trains(stream)
        assert (np.diff(train.time) >= 0).all()
        orders.append(train.ids.tolist())
    assert orders[0] == orders[1]
    assert abs(float(np.mean(train.y[1:] == train.y[:-1])) - 0.25) < 4 * (3 / 16 / n) ** 0.5


def test_two_seeds_draw_independent_orders_and_one_id_has_one_place() -> None:
    """Ids in sequence, as files have: no correlation with their order or between seeds."""
    n = 4000
    ids = [f"photo{i:05d}" for i in range(n)]
    ranks = [np.argsort(np.argsort(tie_ranks(ids, seed))) for seed in (0, 1)]
    for a, b in ((ranks[0], np.arange(n)), (ranks[1], np.arange(n)), (ranks[0], ranks[1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / n**0.5
        assert abs(np.corrcoef(a[1:], b[:-1])[0, 1]) < 4 / n**0.5
    assert tie_ranks(ids[:9]).tolist() == tie_ranks([*ids[:9], "a far longer id"])[:9].tolist()
    assert len(set(tie_ranks(ids).tolist())) == n
    same = time_order(np.zeros(n), ["user"] * n)
    assert abs(np.corrcoef(same, np.arange(n))[0, 1]) < 4 / n**0.5


def test_three_places_give_one_answer_about_one_stream() -> None:
    """S was 32 and 256, blind .957 and .304, where orders and windows differed."""
    rng = rng_for(0, "three places")
    n = 900
    y = np.repeat(rng.integers(0, 6, n // 9), 9)
    x = rng.normal(0, 1, (n, 3)).astype(np.float32)
    ids = np.array([f"{i:04d}" for i in range(n)])
    steps = []
    for t, rows in enumerate(np.array_split(np.arange(n), 3)):
        train, test = rows[rows % 10 > 0], rows[rows % 10 == 0]
        back = train[::-1]  # in the reverse of its order of time
        sides = {"train": back, "test": test}
        steps.append(Step(t, str(t), {s: Split(x[r], y[r], ids[r], r * 60) for s, r in sides.items()}))
    stream = Stream("three", steps, [str(c) for c in range(6)], sha256="three")
    measured, audited = label_statistics(stream), audit_stream(stream)["label_correlation"]
    (found,) = evaluate(stream, "near-future", ["majority"], settings={"sort": True})["results"]
    assert measured["blind"] == audited["blind"] == found["told"]["blind"]
    assert measured["suggested_shift"] == audited["suggested_shift"] == found["settings"]["shift"] > 0
    assert measured["ties"] == audited["ties"] == found["told"]["ties"] == {"share": 0.0, "largest": 1}


SHAPES = [(classes, skew) for classes in (2, 5, 20, 80) for skew in (0.0, 0.7, 2.0)]


@pytest.mark.proof("statistics")
def test_of_200_streams_in_random_order_at_least_95_per_cent_have_the_shift_0() -> None:
    """Class counts from 2 to 80, even to heavy-tailed, 100 to 500 labels."""
    wrong = 0
    for stream in range(200):
        (classes, skew), rng = SHAPES[stream % len(SHAPES)], rng_for(stream, "iid")
        share = np.arange(1, classes + 1) ** -skew
        y = rng.choice(classes, (100, 250, 500)[stream // len(SHAPES) % 3], p=share / share.sum())
        wrong += blind_curve(y).suggested != 0
    assert wrong <= 10


@pytest.mark.proof("statistics")
@pytest.mark.parametrize(("stay", "classes", "n"), [(0.5, 10, 1000), (0.9, 4, 2000), (0.9, 40, 2000), (0.97, 10, 6000)])
def test_the_shift_of_a_correlated_stream_is_where_its_correlation_ends(stay: float, classes: int, n: int) -> None:
    """Labels that stay with probability ρ: k = 1 is ρ^(S+1) (1 − 1/C) above chance at S. In each of five streams of
    180 runs and more, S is beyond where that is .15, and no later than one step after where it is .01."""
    for seed in range(5):
        rng = rng_for(seed, "markov")
        fresh, stays = rng.integers(0, classes, n), rng.random(n) < stay
        stays[0] = False
        suggested = blind_curve(fresh[np.maximum.accumulate(np.where(stays, 0, np.arange(n)))]).suggested
        excess = {s: stay ** (s + 1) * (1 - 1 / classes) for s in (0, *(2**e for e in range(1, 12)))}
        assert suggested > max(s for s, value in excess.items() if value > 0.15)
        assert suggested <= 2 * min(s for s, value in excess.items() if value < 0.01)


def test_how_many_tie_is_written_and_shown(tmp_path: Path) -> None:
    stream = made().save(tmp_path / "S")
    assert stream.facts["ties"] == {"share": 1.0, "largest": 56}
    shown = CliRunner().invoke(app, ["stream", "show", str(tmp_path / "S")]).output
    assert "100.0% of the training samples have the time of another one (up to 56 the same)" in shown
    assert "in random order, seed 0" in shown


def test_one_time_for_all_is_no_order_and_says_so(tmp_path: Path) -> None:
    """S is 0 by construction: the order is a draw, whatever the labels of this draw look like."""
    stream = made(years=1)
    (found,) = evaluate(stream, "near-future", ["majority"])["results"]
    assert found["settings"]["shift"] == 0
    assert "All 168 training samples have the same time, so there is no order of time" in found["told"]["ties_text"]
    assert all(
        set(np.diff(step[side].time).tolist()) == {0} for step in stream.steps for side in SPLITS if side in step.splits
    )


def test_arrays_keep_their_order_and_their_ties_are_counted() -> None:
    y = np.repeat(np.arange(3), 20)
    stream = from_arrays({"x": np.zeros((60, 2), np.float32), "y": y, "time": np.zeros(60, int)}, test_share=0)
    assert stream.flat("train").y.tolist() == y.tolist()
    assert "All 60 training samples have the same time" in stream.ties_text()
    assert "they are in the order of the source" in stream.ties_text()
    assert correlation_of_stream(stream)["suggested_shift"] != 0, "that order has meaning"


def test_of_near_copies_of_one_second_the_order_of_ids_does_not_choose(tmp_path: Path) -> None:
    """200 pairs, one of each class: a release without near-duplicates keeps about half of each, and the same whatever
    the order of the rows."""
    rows = [{"id": f"class{c}/{i:03d}"} for c in (0, 1) for i in range(200)]
    group = {row["id"]: row["id"][-3:] for row in rows}
    pq.write_table(pa.table({"id": [row["id"] for row in rows], "uploaded": [5] * 400}), tmp_path / "members.parquet")
    later = _later_copies(rows, group, tmp_path / "members.parquet", 0)
    assert later == _later_copies(rows[::-1], group, tmp_path / "members.parquet", 0)
    assert len(later) == 200
    assert abs(sum(id_.startswith("class0") for id_ in later) - 100) < 4 * 50**0.5
    known = [row["id"] for row in rows[:200]]
    assert later != _later_copies(rows, group, tmp_path / "members.parquet", 0, known) == {r["id"] for r in rows[200:]}


def test_a_collection_that_grows_keeps_the_division_of_a_second() -> None:
    ids, times, settings = [f"class{i // 50}/{i:03d}" for i in range(100)], np.full(100, 7), BucketSettings(count=2)
    number, buckets = assign(times, ids, settings)
    until = pa.nulls(100, pa.int64())
    members = pa.table({"id": ids, "uploaded": times, "until": until, "bucket": number})
    frozen = freeze([b.plain() for b in buckets], members, settings)
    assert assign_frozen(times, pa.array(ids), frozen, settings)[0].tolist() == number.tolist()
