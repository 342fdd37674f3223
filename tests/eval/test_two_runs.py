"""Two sets of runs against each other, and results for other programs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.console import answer, driftline, handed
from support.helpers import drifting
from support.pages import chromium_browser, open_report, violations

from driftline.eval.reporting.exports import scores_tex
from driftline.eval.reporting.report import results_of
from driftline.eval.reporting.two_runs import _table, two_runs
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Stream

YEAR = 31_557_600  # seconds


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a: 3 seeds; b: the same, and one learner trained too little."""
    here = tmp_path_factory.mktemp("two")
    stream = drifting(steps=3, n=120, noise=2.0)
    evaluate(stream, "clear-iid", ["nearest-mean", "reservoir(epochs=20)"], [0, 1, 2], {"lr": 1.0}, here / "a")
    evaluate(stream, "clear-iid", ["nearest-mean"], [0, 1, 2], out=here / "b")
    evaluate(stream, "clear-iid", ["majority"], [0, 1, 2], out=here / "c")
    for folder in (here / "b" / "clear-iid").glob("nearest*"):  # an answer that got worse
        shutil.rmtree(folder)
    evaluate(drifting(steps=3, n=120, noise=2.0), "clear-iid", ["nearest-mean"], [0, 1, 2], out=here / "b")
    return here


def test_equal_runs_do_not_differ(runs: Path, tmp_path: Path) -> None:
    found = answer("compare", str(runs / "a"), str(runs / "b"), "--out", str(tmp_path), "--json")
    (one,) = found["differences"]
    assert one["learner"] == "nearest-mean"
    assert one["a"] == one["b"]
    assert one["difference"] == 0
    assert one["p"] is None or one["p"] == 1
    page = Path(found["report"]).read_text()
    assert page.index("What changed") < page.index("class='plot"), "before the first chart"
    assert all(f"clear-iid on drifting, {side}</h2>" in page for side in "AB")


def test_a_learner_that_got_worse_is_found(runs: Path, tmp_path: Path) -> None:
    """Rows of `majority` under the name of `nearest-mean`: what a broken version would write."""
    shutil.copytree(runs / "c", tmp_path / "broken")
    for record in (tmp_path / "broken").rglob("run.json"):
        about = json.loads(record.read_text()) | {"learner": "nearest-mean"}
        good = next(iter((runs / "a").rglob("nearest*/run.json")))
        record.write_text(json.dumps(about | {"settings": json.loads(good.read_text())["settings"]}))
    command = ("compare", str(runs / "a"), str(tmp_path / "broken"), "--out", str(tmp_path / "out"), "--json")
    (one,) = answer(*command)["differences"]
    assert one["difference"] < -0.2
    assert one["interval"][1] < 0
    assert one["p"] < 0.05
    assert "lower with 1" in (tmp_path / "out" / "index.html").read_text()


def yearly(name: str) -> Stream:
    """A step a year."""
    stream = drifting(steps=3)
    steps = [
        replace(
            step,
            splits={
                side: replace(part, time=step.index * YEAR + part.time % 1000) for side, part in step.splits.items()
            },
        )
        for step in stream.steps
    ]
    return replace(stream, name=name, steps=steps, sha256=name)


@pytest.mark.proof("browser")
def test_axe_finds_nothing_on_pages_of_streams_with_dates(tmp_path: Path) -> None:
    stream = yearly("photos & <more>")
    for side in ("a", "b"):
        evaluate(stream, "clear-iid", ["nearest-mean", "majority"], [0, 1], out=tmp_path / side)
    page, _ = two_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "out", [stream])
    assert "points a year" in page.read_text()
    found = {}
    with chromium_browser() as browser:
        for scheme, paths in (("light", sorted(page.parent.glob("*.html"))), ("dark", [page])):
            tab = browser.new_page(color_scheme=scheme)
            for path in paths:
                open_report(tab, path)
                found |= {(scheme, path.name, rule): nodes for rule, nodes in violations(tab).items()}
    assert not found


def test_other_seeds_are_said_to_be_why_nothing_is_tested() -> None:
    charts = {"learner": "er", "a": 0.5, "b": 0.6, "difference": 0.1, "interval": None, "protocol": "p", "stream": "s"}
    charts |= {"settings": {}, "seeds": [[0], [1]], "left_out": [], "uploaders": ""}
    pages = [_table([{**charts, "p": p}], [Path("A"), Path("B")]) for p in (None, 0.2)]
    assert ["Not testable: no seed in both" in page for page in pages] == [True, False]


def test_the_seeds_that_both_have_are_compared_and_settings_that_differ_are_named(tmp_path: Path) -> None:
    stream, folders = drifting(steps=3, n=120), [tmp_path / "a", tmp_path / "b"]
    for folder, seeds, half_life in zip(folders, ([0, 1, 2], [1, 2, 3]), (50, 60), strict=True):
        evaluate(stream, "clear-iid", ["nearest-mean", "majority"], seeds, {"half_life": half_life}, folder)
    page, entries = two_runs(folders, tmp_path / "out")
    nearest = next(entry for entry in entries if entry["learner"] == "nearest-mean")
    assert nearest["seeds"] == [[1, 2], [1, 2]]
    assert nearest["left_out"] == [0, 3]
    assert nearest["settings"] == {"half_life": [50, 60]}
    for folder, side, shared in zip(folders, "ab", (slice(1, 3), slice(0, 2)), strict=True):
        (document,) = results_of([folder])
        (result,) = [result for result in document["results"] if result["learner"] == "nearest-mean"]
        assert nearest[side] == pytest.approx(np.mean(result["scores"]["next_domain"]["values"][shared]))
    assert "half_life 50 → 60; seeds 1, 2 of both" in page.read_text(encoding="utf-8")


def test_runs_on_other_streams_are_not_compared(runs: Path, tmp_path: Path) -> None:
    evaluate(drifting(steps=4), "clear-streaming", ["majority"], out=tmp_path / "other")
    done = driftline("compare", str(runs / "a"), str(tmp_path / "other"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "have no protocol on the same stream in common" in done.stderr
    assert "clear-streaming on drifting" in done.stderr


def test_a_release_is_not_compared_with_rows(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "release.json").write_text("{}")
    done = driftline("compare", str(tmp_path), str(runs / "a"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "is a release" in done.stderr


def test_ties_are_letters_in_latex(runs: Path) -> None:
    text = scores_tex(results_of([runs / "a"]))
    assert "common letter" in text
    assert "}^{a}$" in text


def test_the_command_knows_the_streams_that_are_named_and_a_title(runs: Path, tmp_path: Path) -> None:
    stream = drifting(steps=3, n=120, noise=2.0).save(tmp_path / "S")
    words = ("compare", runs / "a", runs / "b", "--stream", tmp_path / "S", "--out", tmp_path / "out", "--title", "T")
    found = handed("driftline.eval.reporting.two_runs.two_runs", *words)
    assert [each.sha256 for each in found["streams"]] == [stream.sha256]
    assert found["title"] == "T"


def test_a_protocol_of_ones_own_is_trusted_if_it_is_named(runs: Path, tmp_path: Path) -> None:
    words = ("compare", runs / "a", runs / "b", "--out", tmp_path, "--plugin", "mine:Own")
    assert list(handed("driftline.eval.protocol.protocol_named", *words).values()) == ["mine:Own"]


@pytest.mark.parametrize(("words", "reuse"), [((), "same"), (("--reuse", "any"), "any")])
def test_finished_runs_of_other_code_are_taken_only_if_asked_for(words, reuse, tmp_path):
    drifting().save(tmp_path / "S")
    command = ("eval", tmp_path / "S", "--protocol", "clear-iid", "--learners", "majority", "--out", tmp_path / "runs")
    assert handed("driftline.eval.run.plan", *command, *words)["reuse"] == reuse
