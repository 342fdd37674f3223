"""Time-gated evaluation: steps before and after what an encoder may have seen, and the gap between them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.eval import outcomes
from driftline.eval.protocols.clear.protocol import Iid
from driftline.eval.reporting import pages
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate
from driftline.eval.scoring.encoder_cutoff import end_of, newer_samples
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.stream import Stream

YEAR = 31_556_952


def dated(**facts: str) -> Stream:
    """Four steps of 2010 to 2013; samples of the last two are harder to tell apart."""
    steps = []
    for t, step in enumerate(drifting(drift=0.1, n=90).steps):
        noise = np.random.default_rng(t).normal(0, 2.5 if t > 1 else 0, (135, 8)).astype(np.float32)
        splits = {
            name: replace(split, x=split.x + noise[: len(split)], time=np.full(len(split), (40 + t) * YEAR + 1))
            for name, split in step.splits.items()
        }
        steps.append(replace(step, splits=splits))
    return Stream("dated", steps, ["a", "b", "c"], sha256="dated", facts=facts)


def test_the_end_of_a_year_month_and_day() -> None:
    assert end_of("2021") == np.datetime64("2022-01-01T00:00:00").astype(int)
    assert end_of("2021-12") == end_of("2021") == end_of("2021-12-31")
    assert [end_of(text) for text in ("unknown", "2021-13", "now", "")] == [None] * 4


def test_samples_are_before_or_after() -> None:
    end = end_of("2011")
    assert end is not None
    newer = newer_samples(dated(), end)
    assert newer is not None
    assert newer.tolist() == [False] * 270 + [True] * 270
    without = [replace(s, splits={k: replace(v, time=None) for k, v in s.splits.items()}) for s in drifting().steps]
    assert newer_samples(replace(drifting(), steps=without), end) is None


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seen")
    evaluate(dated(), "clear-iid", ["majority", "nearest-mean", "slda"], [0, 1], out=folder)
    return folder


def document(rows: Path, stream: Stream) -> Any:
    return results_of([rows], [stream])[0]


def test_the_gap_is_the_difference_of_accuracies_with_an_interval(rows: Path) -> None:
    stream = dated(encoder_cutoff="2011", encoder_data="photos", encoder_source="us")
    seen = document(rows, stream)["seen"]
    assert seen["newer"] == [False, False, True, True]
    runs, _ = outcomes.find([rows])
    learners = [result["learner"] for result in document(rows, stream)["results"]]
    for found, learner in zip(seen["results"], learners, strict=True):
        accuracy: dict[bool, list[bool]] = {False: [], True: []}
        for run in (run for run in runs if run.about["learner"] == learner):
            for row in Iid.roles.decisive(run.rows):
                assert row.answers is not None
                accuracy[int(row.tested_on) > 1] += (row.answers.label == row.answers.predicted).tolist()
        gap = np.mean(accuracy[False]) - np.mean(accuracy[True])
        assert found["gap"].value == pytest.approx(gap, abs=1e-6)
        assert found["gap"].low < gap < found["gap"].high
        assert found["gap"].low > 0 or learner == "majority"


def test_the_report_marks_newer_steps_and_says_the_source(rows: Path, tmp_path: Path) -> None:
    stream = dated(encoder_cutoff="2011", encoder_data="<photos>", encoder_source="us")
    made = document(rows, stream)
    page = write([made], tmp_path, streams=[stream]).read_text()
    for result, found in zip(made["results"], made["seen"]["results"], strict=True):  # the page ranks learners
        row = f"<th scope='row'>{result['learner']}</th><td>{100 * found['before'].value:.1f}<br>"
        assert row in page
    assert '<th scope="col">2010-12</th><th scope="col">2012-01 †</th>' in page
    assert "What the encoder may have seen" in page
    assert "&lt;photos&gt;; us" in page


@pytest.mark.parametrize(
    ("cutoff", "text"),
    [
        ("unknown", "is unknown: it may have seen every test sample"),
        ("2020", "samples are not newer"),
        ("2000", "are newer"),
    ],
)
def test_without_two_sides_there_is_no_gap(rows: Path, tmp_path: Path, cutoff: str, text: str) -> None:
    stream = dated(encoder_cutoff=cutoff)
    found = document(rows, stream)
    assert found["seen"]["results"] == []
    assert text in write([found], tmp_path, streams=[stream]).read_text()


def test_a_stream_of_an_unnamed_encoder_has_no_section(rows: Path) -> None:
    assert "seen" not in document(rows, dated())


def part_of(made: Any) -> Any:
    (part,) = parts(pages.linked([made])[0])
    return part


def figure_of(made: Any, title: str) -> Any:
    return next(one for one in shown(part_of(made), dated())["figures"] if one.title == title)


def dashed(picture: Any) -> list[float]:
    """x of the dashed lines, from both ends of a chart's axis: 0 … 1."""
    left, right = map(
        float, re.findall(r"<line x1='([\d.]+)' y1='[\d.]+' x2='([\d.]+)'", picture.svg)[0]
    )  # of the grid
    return [(float(x) - left) / (right - left) for x in re.findall(r"<line x1='([\d.]+)'[^>]*4 4", picture.svg)]


@pytest.mark.parametrize(
    ("cutoff", "text"),
    [
        ("2011", "† All of these tests"), ("2012-06", "† 1 of 2 of these tests"), ("2020", None), ("unknown", None),
    ],
)  # fmt: skip
def test_ageing_curves_say_which_of_their_tests_are_newer(rows: Path, cutoff: str, text: str | None) -> None:
    stream = dated(encoder_cutoff=cutoff)
    full = shown(part_of(document(rows, stream)), stream)
    for figure in (full["first"], full["by_class"]):
        assert (text or "†") in figure.caption if text else "†" not in figure.caption, figure.caption


def test_curves_along_the_stream_mark_where_newer_samples_begin(tmp_path: Path) -> None:
    stream = dated(encoder_cutoff="2011")
    evaluate(stream, "near-future", ["majority"], settings={"batch": 10, "shift": 20, "points": 100}, out=tmp_path)
    made = document(tmp_path, stream)
    seen = sum(len(step["train"]) for step in stream.steps[:2])
    assert made["seen"]["samples"] == seen
    for title, at, ahead in (("Near-future", "at", 20), ("Online", "online_at", 0)):
        figure, along = figure_of(made, f"{title} accuracy along the stream"), made["results"][0]["curve"][at]
        share = (seen - ahead - along[0]) / (along[-1] - along[0])
        assert dashed(figure.picture) == [pytest.approx(share, abs=1e-3)]
        assert "† From here on" in figure.caption
    assert dashed(figure_of(made, "Retention").picture) == [pytest.approx(2 / 3, abs=1e-3)]
    early = document(tmp_path, dated(encoder_cutoff="2020"))
    assert "†" not in "".join(one.caption + one.picture.svg for one in shown(part_of(early), dated())["figures"])


def test_recovery_says_how_much_of_a_test_is_newer(tmp_path: Path) -> None:
    stream = dated(encoder_cutoff="2011")
    evaluate(stream, "ocrr", ["nearest-mean"], settings={"every": 30}, out=tmp_path / "runs")
    made = document(tmp_path / "runs", stream)
    assert "† 100 % of the novel" in write([made], tmp_path / "report").read_text()  # without the stream, too
    assert made["seen"]["tests"] == {"novel": 1.0, "original": pytest.approx(1 / 3)}
    assert "† 100 % of the novel samples are newer" in figure_of(made, "Recovery").caption
    assert "† 33 % of the original samples are newer" in figure_of(made, "Retention during recovery").caption
    assert "† 33 % of the original samples are newer" in shown(part_of(made), stream)["note"]
