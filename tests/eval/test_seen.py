"""Time-gated evaluation: steps before and after what an encoder may have seen, and the gap between them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.eval import outcomes
from driftline.eval.protocols.clear import Iid
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate
from driftline.eval.scoring.encoder_cutoff import end_of, newer_samples
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
