"""The first screen of a report: what it says follows from the rows; poor streams and old rows say what is missing."""

import json
import os
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import answer, driftline
from support.helpers import drifting, grouped

from driftline.curate.core.executor import Executor
from driftline.eval import outcomes
from driftline.eval.plain import plain
from driftline.eval.reporting import ageing, exports, report
from driftline.eval.reporting.compared import letters
from driftline.eval.reporting.document import MATRICES, shown
from driftline.eval.reporting.pages import linked
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.stream import Split, Step, Stream

YEAR = 31_557_600
LEARNERS = ["nearest-mean", "majority", "reservoir(epochs=2)", "nap(epochs=2)"]


def dated(stream: Stream, years: int = 2) -> Stream:
    """The stream with its steps some years apart."""
    steps = [
        replace(step, splits={name: replace(s, time=s.time + t * years * YEAR) for name, s in step.splits.items()})
        for t, step in enumerate(stream.steps)
        if all(s.time is not None for s in step.splits.values())
    ]
    return replace(stream, steps=steps, sha256=f"{stream.sha256}-{years}")


def text_of(page: str) -> str:
    """Headline, key sentence, takeaways and what may be concluded of the first part, without tags."""
    return re.sub(r"<[^>]+>", "", page[page.index('class="headline"') :].partition("</dl>")[0])


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream]:
    """Runs of two seeds on a stream that drifts over eight years."""
    here = tmp_path_factory.mktemp("aged")
    stream = dated(drifting(steps=5, n=120, drift=1.0, noise=2.5)).save(here / "s")
    evaluate(stream, "clear-iid", LEARNERS, [0, 1], out=here / "runs")
    return here, stream


def test_the_first_screen_says_what_can_be_concluded_and_what_cannot(aged: tuple[Path, Stream]) -> None:
    here, stream = aged
    page = write(results_of([here / "runs"], [stream]), here / "out", streams=[stream]).read_text()
    text = text_of(page)
    assert "points a year behind newer models of the same method, which have also seen more data" in text
    assert re.search(r"When \d\.\d years old, .* \d\d\.\d % of \d+ test samples", text)
    assert "You may not conclude" in text
    assert page.index('class="answer"') < page.index("class='plot") < page.index('class="takeaways"')


def test_the_command_prints_the_answer_and_that_uploaders_are_not_known(aged, tmp_path):
    here = aged[0]
    found = answer("report", str(here / "runs"), "--out", str(tmp_path / "a"), "--json")
    assert set(found["answer"]) == {"headline", "sentences", "may_conclude", "may_not_conclude"}
    assert any("give --stream" in one for one in found["answer"]["may_not_conclude"])
    told = driftline("report", str(here / "runs"), "--out", str(tmp_path / "b"), "--stream", str(here / "s"))
    assert told.stdout.startswith(found["answer"]["headline"])
    assert "Uploaders are not known" not in told.stdout


def test_never_retrained_models_have_a_panel_of_their_own(aged: tuple[Path, Stream]) -> None:
    here, stream = aged
    part = parts(linked(results_of([here / "runs"], [stream]))[0])[0]
    full = shown(part, stream)
    in_first = {row[0] for row in full["first"].picture.rows}
    assert "nap(epochs=2)" not in in_first
    matrix = {r["label"]: np.array(r["matrix"]) for r in full["results"]}
    name = next(row[0] for row in full["second"].picture.rows).removesuffix(", newly trained")
    newest = [row[2] for row in full["second"].picture.rows if row[0].endswith("newly trained")]
    assert newest == pytest.approx((100 * np.diagonal(matrix[name])).tolist(), abs=0.01), "the same test periods"
    frozen = [row[2] for row in full["second"].picture.rows if row[0] == "nap(epochs=2)"]
    assert frozen == pytest.approx((100 * matrix["nap(epochs=2)"][0]).tolist(), abs=0.01)


def test_all_lines_of_the_chart_have_the_same_test_periods(aged: tuple[Path, Stream]) -> None:
    here, stream = aged
    part = parts(linked(results_of([here / "runs"], [stream]))[0])[0]
    lines = ageing.together(part)
    assert len(lines) > 1
    assert len({tuple(one.curve.tested.tolist()) for _, one in lines}) == 1


def test_learners_with_a_common_letter_do_not_differ(aged: tuple[Path, Stream]) -> None:
    here, stream = aged
    (document,) = results_of([here / "runs"], [stream])
    found = letters(document)
    names = {i: r["learner"] for i, r in enumerate(document["results"])}
    for pair in document["compared"][0]["pairs"]:
        a, b = pair["of"]
        if pair["p"] is not None and pair["p"] < 0.05:
            assert not set(found[a]) & set(found[b]), (names[a], names[b])


def test_a_difference_is_significant_only_if_its_interval_leaves_zero_out(tmp_path: Path) -> None:
    """Replicates that draw no sample of a tiny test have no score."""
    stream = drifting(steps=3, n=8, noise=2.0)
    evaluate(stream, "clear-iid", ["nearest-mean", "majority", "reservoir(epochs=1)"], [0, 1, 2], out=tmp_path)
    (document,) = results_of([tmp_path])
    for pair in document["compared"][0]["pairs"]:
        _, low, high = pair["difference"]
        assert not (low < 0 < high and pair["p"] < 0.05), pair


def test_two_steps_are_enough_and_it_says_so(tmp_path: Path) -> None:
    stream = dated(drifting(steps=2))
    evaluate(stream, "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "runs")
    evaluate(stream, "clear-streaming", ["nearest-mean", "majority"], out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    assert "tested at one age only" in page
    assert "2.0 years old" in page


def test_without_dates_ages_are_in_steps(tmp_path: Path) -> None:
    bare = drifting(steps=3)
    steps = [
        replace(step, splits={name: replace(split, time=None) for name, split in step.splits.items()})
        for step in bare.steps
    ]
    evaluate(replace(bare, steps=steps), "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    assert "What is missing: No dates: ages are in steps." in page
    assert "steps from training to test" in page


def test_rows_without_outcomes_or_with_damaged_ones_still_report(aged: tuple[Path, Stream], tmp_path: Path) -> None:
    stream = drifting(steps=3)
    evaluate(stream, "clear-iid", ["nearest-mean", "er(epochs=1)"], out=tmp_path / "runs")
    first, second = sorted((tmp_path / "runs").rglob(outcomes.FILE))
    first.unlink()
    second.write_bytes(second.read_bytes()[:50])
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    assert "no outcomes were read: there are no ageing curves" in page
    assert str(second) in page
    assert "Accuracy by age" not in page


def test_one_class_in_a_step_is_no_trouble(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = []
    for t in range(3):
        labels = {
            side: np.full(n, t % 2, np.int64) if t else np.arange(n) % 2 for side, n in (("train", 40), ("test", 20))
        }
        splits = {side: Split(rng.normal(0, 1, (len(y), 4)).astype(np.float32), y) for side, y in labels.items()}
        steps.append(Step(t, str(t), splits))
    evaluate(Stream("s", steps, ["a", "b"], sha256="s"), "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "r")
    page = write(results_of([tmp_path / "r"]), tmp_path / "out").read_text()
    assert "Accuracy by age, s" in page
    assert "nan" not in text_of(page)


def test_the_document_of_an_evaluation_reports_without_rows(tmp_path: Path) -> None:
    found = evaluate(drifting(steps=3), "clear-iid", ["nearest-mean", "majority"])
    page = write([found], tmp_path / "out").read_text()
    assert "there are no ageing curves" in page
    assert "nearest-mean: 95.0 %. Majority reaches 33.3 %." in text_of(page)


def test_a_process_without_the_samples_makes_the_same_document(aged, monkeypatch):
    here, stream = aged
    grouped_stream = grouped(stream)
    given: list[Any] = []

    class Recorded(Executor):
        def run_tasks(self, work: Any, tasks: Any, *more: Any, **options: Any) -> Any:
            given.append((self.workers, pickle.dumps(tasks)))
            return ((i, work(pickle.loads(pickle.dumps(task)))) for i, task in enumerate(tasks))

    expected = results_of([here / "runs"], [grouped_stream])
    monkeypatch.setattr(report, "Executor", Recorded)
    monkeypatch.setattr(report, "MANY_RUNS", 1)
    found = results_of([here / "runs"], [grouped_stream])
    ((workers, sent),) = given
    assert workers == len(os.sched_getaffinity(0))
    assert np.asarray(stream.steps[0]["train"].x).tobytes() not in sent
    assert json.dumps(plain(found)) == json.dumps(plain(expected))


def test_what_is_missing_is_said_once_not_for_each_run(tmp_path: Path) -> None:
    evaluate(drifting(), "clear-iid", ["majority"], list(range(6)), out=tmp_path)
    for path in tmp_path.rglob(outcomes.FILE):
        path.unlink()
    (document,) = results_of([tmp_path])
    assert len(document["unread"]) == report.NAMED + 1
    assert document["unread"][-1] == "So it is with 3 more runs."


def test_runs_share_what_they_were_tested_on(aged: tuple[Path, Stream]) -> None:
    """A report of thousands of runs has their samples once."""
    runs, _ = outcomes.find([aged[0] / "runs"])
    by_step: dict[str, set[int]] = {}
    for run in runs:
        for row in run.rows:
            assert row.answers is not None
            by_step.setdefault(row.tested_on, set()).update({id(row.answers.sample), id(row.answers.label)})
    assert all(len(arrays) == 2 for arrays in by_step.values())


def test_a_page_has_each_matrix_once(aged: tuple[Path, Stream], tmp_path: Path) -> None:
    (document,) = results_of([aged[0] / "runs"])
    plain = {key: document[key] for key in ("protocol", "stream", "skipped")}
    results = [{**r, "learner": f"{r['learner']}{i}"} for i in range(10) for r in document["results"]]
    page = write([{**plain, "results": results}], tmp_path).read_text()
    assert page.count('<table class="matrix"') == MATRICES


def test_results_json_has_the_documents(aged: tuple[Path, Stream], tmp_path: Path) -> None:
    (document,) = results_of([aged[0] / "runs"], [aged[1]])
    documents = [document, {**document, "stream": {"name": 'a "b" & ü', "sha256": "x"}}]
    write(documents, tmp_path)
    given = json.loads(json.dumps(plain(documents, exports.LEFT_OUT)), parse_float=lambda text: round(float(text), 9))
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == given
