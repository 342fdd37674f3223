"""Case 39: labels that come later than their samples, each at its own time, and which one each protocol shows when."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from support.helpers import correlated, drifting

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.history import Past
from driftline.eval.learner import Array, Labels, Learner, Needs, Task
from driftline.eval.protocols.near_future.protocol import NearFuture
from driftline.eval.reporting.report import write
from driftline.eval.run import evaluate, plan
from driftline.stream_builder.step import NEVER, Split
from driftline.stream_builder.stream import Stream

STREAM = correlated(n=600, classes=6)  # 540 training samples, a minute apart but for those that are held out
STEPS = drifting(steps=3, classes=4, n=40, noise=2.0)
N = len(STREAM.flat("train"))
PLACES = {row.tobytes(): i for stream in (STREAM, STEPS) for i, row in enumerate(stream.flat("train").x)}
QUICK = {"shift": 10, "batch": 20, "prefix": 0, "points": 1000}


@dataclass
class Spy(Learner):
    """Writes down the positions that it learned with each batch; answers the last label."""

    log: list[list[int]] = field(default_factory=list)
    seed: list[int] = field(default_factory=list)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.log, self.seed, self.last, self.asked = [], [], 0, 0

    def predict(self, x: Array) -> Labels:
        if len(x) == 1:
            self.log.append([])
        return np.full(len(x), self.last, np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.seed = self._places(x)

    def learn_from(self, past: Past) -> None:
        x, y = past.newest()
        self.log.append(self._places(x))
        self.last = int(y[-1])

    def correct(self, x: Array, y: Labels) -> None:
        self.log[-1] += self._places(x)

    def _places(self, x: Array) -> list[int]:
        return [PLACES[row.tobytes()] for row in x]


class OneByOne(Spy):
    needs = Needs(single_samples=True)


def timed(stream: Stream, label_time: Callable[[Split], Any], name: str = "late") -> Stream:
    """The same, with the label_time that a function gives the training samples; the tests' labels come at once."""
    steps = []
    for step in stream.steps:
        splits = {"train": replace(step["train"], label_time=label_time(step["train"]))}
        splits["test"] = replace(step["test"], label_time=step["test"].time)
        steps.append(replace(step, splits=splits))
    return replace(stream, steps=steps, sha256=name)


def late(stream: Stream, label_time: Any, name: str = "late") -> Stream:
    """The same, with label_time (N,) of all training samples."""
    parts = iter(np.split(np.asarray(label_time, np.int64), np.cumsum([len(s["train"]) for s in stream.steps])[:-1]))
    return timed(stream, lambda train: next(parts), name)


def spied(stream: Stream, kind: type[Spy] = Spy, **changed: Any) -> tuple[Spy, list[tuple[str, int, int, int]]]:
    """What a spy saw under near-future, and its rows."""
    protocol = NearFuture(**{**QUICK, **changed})
    protocol.check(stream)
    spy = kind()
    spy.begin(protocol.task(stream), rng_for(0))
    rows = [(r.tested_on, r.n, r.n_correct, r.seen) for r in protocol.run(stream, spy, rng_for(0))]
    spy.log = [lot for lot in spy.log if lot]
    return spy, rows


def random_delays(seed: int) -> Any:
    """(N,) label_time: half at once, others up to the length of the stream later, a tenth never."""
    rng, time = rng_for(seed), STREAM.flat("train").time
    waits = np.where(rng.random(N) < 0.5, 0, rng.integers(0, 60 * N, N))
    return np.where(rng.random(N) < 0.1, NEVER, time + waits)


class TestNearFuture:
    @pytest.mark.parametrize(("batch", "delay"), [(20, 0), (20, 3), (1, 7), (9, 2)])
    @pytest.mark.parametrize("kind", [Spy, OneByOne])
    def test_an_equal_delay_of_all_is_the_setting_delay(self, kind: type[Spy], batch: int, delay: int) -> None:
        time = np.append(np.asarray(STREAM.flat("train").time), [NEVER] * batch * delay)
        stream = late(STREAM, time[batch * delay :])
        shown, rows = spied(stream, kind, batch=batch)
        expected, expected_rows = spied(STREAM, kind, batch=batch, delay=delay)
        assert shown.log == expected.log
        assert rows == expected_rows
        assert NearFuture(**{**QUICK, "batch": batch}).task(stream).shifts[0] == batch * delay  # type: ignore[arg-type]

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("batch", "delay"), [(20, 0), (7, 0), (20, 2), (7, 1), (1, 0), (1, 9)])
    def test_labels_come_in_the_order_of_label_time_and_none_before_it(self, seed: int, batch: int, delay: int) -> None:
        due, time = random_delays(seed), np.asarray(STREAM.flat("train").time)
        spy, _ = spied(late(STREAM, due), batch=batch, delay=delay)
        learned: set[int] = set()
        expected = []
        for t in range(-(-N // batch)):
            now = time[min(N, (t + 1) * batch) - 1]
            new = [i for i in range(N) if i // batch + delay <= t and due[i] <= now and i not in learned]
            expected += [sorted(new, key=lambda i: (due[i], i))] if new else []
            learned |= {*new}
        assert spy.log == expected

    def test_sample_by_sample_a_label_is_shown_before_the_first_prediction_after_its_time(self) -> None:
        due, time = random_delays(5), np.asarray(STREAM.flat("train").time)
        spy, _ = spied(late(STREAM, due), OneByOne)
        learned = [i for batch in spy.log for i in batch]
        assert learned == sorted((i for i in range(N) if due[i] <= time[-1]), key=lambda i: (due[i], i))

    def test_of_equal_times_no_label_is_shown_before_its_sample_has_come(self) -> None:
        same = [replace(s, splits={n: replace(p, time=p.time * 0) for n, p in s.splits.items()}) for s in STREAM.steps]  # type: ignore[operator]
        spy, _ = spied(late(replace(STREAM, steps=same), np.zeros(N)))
        assert spy.log == [list(range(low, low + 20)) for low in range(0, N, 20)]

    def test_a_label_that_never_comes_is_never_learned_and_is_scored(self) -> None:
        due = np.where(np.arange(N) % 3 == 1, NEVER, np.asarray(STREAM.flat("train").time))
        spy, rows = spied(late(STREAM, due))
        assert sorted(i for batch in spy.log for i in batch) == [i for i in range(N) if i % 3 != 1]
        _, whole = spied(STREAM)
        assert [(name, n, seen) for name, n, _, seen in rows] == [(name, n, seen) for name, n, _, seen in whole]

    def test_the_record_counts_labels_that_are_not_shown_and_the_budget_no_batches_without_labels(self) -> None:
        time = np.asarray(STREAM.flat("train").time)
        due = np.where(np.arange(N) < N // 2, time, NEVER)
        (result,) = evaluate(late(STREAM, due), "near-future", ["fc-only(lr=1)"], settings=QUICK)["results"]
        assert result["told"]["labels_not_shown"] == N // 2
        assert result["budget"] == {"updates_paid": 14.0, "updates_taken": 14.0}

    def test_where_no_label_comes_in_time_the_stream_is_refused(self) -> None:
        with pytest.raises(IncompatibleStream, match="no label comes before the stream ends"):
            evaluate(late(STREAM, np.full(N, NEVER)), "near-future", ["majority"], settings=QUICK)

    def test_tests_begin_when_the_first_label_has_come(self) -> None:
        _, rows = spied(late(STREAM, np.asarray(STREAM.flat("train").time) + 60 * 200))
        first = next(seen for name, _, _, seen in rows if name == "online")
        _, at_once = spied(STREAM)
        assert first > 100 + next(seen for name, _, _, seen in at_once if name == "online")

    def test_a_majority_is_of_the_labels_that_were_shown(self) -> None:
        due = random_delays(8)
        (result,) = evaluate(late(STREAM, due), "near-future", ["majority"], settings=QUICK)["results"]
        near = result["scores"]["near_future"]["mean"]
        assert result["references"]["most frequent class so far"] == pytest.approx(near)


@pytest.mark.parametrize("protocol", ["near-future", "ocrr"])
def test_half_a_column_is_refused(protocol: str) -> None:
    steps = [STEPS.steps[0], *timed(STEPS, lambda train: train.time).steps[1:]]
    with pytest.raises(IncompatibleStream, match="Some training samples of 'drifting' have a label_time"):
        evaluate(replace(STEPS, steps=steps), protocol, ["majority"])


def corrections(stream: Stream, **changed: Any) -> tuple[Spy, dict[str, Any]]:
    """What a spy saw under ocrr: one list for each sample of the stream; numbers are places among training samples."""
    spy = Spy()
    if changed.get("scenario") == "categorical":
        changed["held_out"] = 2
    return spy, evaluate(stream, "ocrr", [spy], settings={"every": 10, **changed})["results"][0]


class TestOcrr:
    @pytest.mark.parametrize("wait", [0, 1, 9])
    def test_an_equal_delay_of_all_is_the_policy_delayed(self, wait: int) -> None:
        """Samples are a second apart."""
        one, ours = corrections(timed(STEPS, lambda train: np.asarray(train.time) + wait))
        other, theirs = corrections(STEPS, policy=f"delayed:{wait}")
        assert one.log == other.log
        assert sum(map(len, one.log)) > 5
        assert (ours["scores"], ours["curve"]) == (theirs["scores"], theirs["curve"])

    @pytest.mark.parametrize("scenario", ["temporal", "categorical", "within-class"])
    def test_corrections_come_in_the_order_of_label_time_and_none_before_it(self, scenario: str) -> None:
        rng = rng_for(3)
        stream = timed(STEPS, lambda train: np.asarray(train.time) + rng.integers(0, 30, len(train)))
        train = stream.flat("train")
        spy, _ = corrections(stream, scenario=scenario)
        shown = [which for lot in spy.log for which in lot]
        assert train.label_time[shown].tolist() == sorted(train.label_time[shown].tolist())
        times = train.time[np.setdiff1d(np.arange(len(train)), spy.seed)]
        for now, lot in zip(np.sort(times)[1:], spy.log, strict=False):  # after a sample was asked, before the next is
            assert all(train.label_time[which] <= now for which in lot)

    def test_a_label_that_never_comes_is_neither_seed_nor_correction_and_costs_no_budget(self) -> None:
        odd = timed(STEPS, lambda train: np.where(np.arange(len(train)) % 2, NEVER, np.asarray(train.time)))
        for scenario in ("temporal", "categorical"):
            spy, _ = corrections(odd, scenario=scenario, policy="budget:8")
            shown = [which for lot in spy.log for which in lot]
            assert len(shown) == 8
            assert all(which % 2 == 0 for which in shown + spy.seed)
            whole, _ = corrections(STEPS, scenario=scenario, policy="budget:8")
            assert len(spy.seed) == len(whole.seed) // 2
            assert len(spy.log) == len(whole.log), "as many samples are predicted"

    def test_the_seed_data_of_a_novel_last_step_has_the_labels_that_had_come_then(self) -> None:
        """Steps begin at 0, 1,000 and 2,000."""
        spy, _ = corrections(timed(STEPS, lambda train: np.asarray(train.time) + 990))
        time = np.asarray(STEPS.flat("train").time)
        assert sorted(spy.seed) == np.flatnonzero(time + 990 <= 2000).tolist()
        assert 40 < len(spy.seed) < 80


class TestOthers:
    def test_a_protocol_that_does_not_use_it_says_so_in_plan_record_and_report(self, tmp_path: Any) -> None:
        stream = timed(STEPS, lambda train: np.asarray(train.time) + 5)
        note = "label_time is not used by clear-iid."
        assert plan(stream, "clear-iid", ["majority"], [0]).label_time == note
        document = evaluate(stream, "clear-iid", ["majority"])
        assert document["results"][0]["label_time"] == note
        write([document], tmp_path)
        assert note in (tmp_path / "index.html").read_text()

    def test_its_scores_are_those_of_the_stream_without(self) -> None:
        stream = timed(STEPS, lambda train: np.full(len(train), NEVER))
        for protocol in ("clear-iid", "clear-streaming"):
            ours, theirs = (evaluate(s, protocol, ["nearest-mean"])["results"][0] for s in (stream, STEPS))
            assert ours["scores"] == theirs["scores"], protocol

    def test_near_future_says_that_it_uses_it_and_other_streams_say_nothing(self) -> None:
        used = plan(late(STREAM, random_delays(0)), "near-future", ["majority"], [0], settings=QUICK)
        assert used.label_time == "Labels come in the order of label_time."
        assert not plan(STREAM, "near-future", ["majority"], [0], settings=QUICK).label_time
        assert "label_time" not in evaluate(STREAM, "near-future", ["majority"], settings=QUICK)["results"][0]


def test_a_learning_rate_is_chosen_by_labels_that_come_within_the_prefix() -> None:
    rows = late(STREAM, random_delays(1))
    (result,) = evaluate(rows, "near-future", ["fc-only"], settings={**QUICK, "prefix": 120})["results"]
    assert result["selection"][0]["samples"] == 120
