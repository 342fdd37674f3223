"""Two sets of runs against each other, and results for other programs."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import answer, driftline, handed
from support.helpers import drifting, spaced
from support.pages import chromium_browser, open_report, violations

from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.reporting.exports import scores_tex
from driftline.eval.reporting.overview import compared, overview, versions_section
from driftline.eval.reporting.report import results_of, write
from driftline.eval.reporting.two_runs import _table, two_runs
from driftline.eval.run import evaluate
from driftline.eval.timeline import shared
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


@pytest.mark.proof("browser")
def test_axe_finds_nothing_on_pages_of_streams_with_dates(tmp_path: Path) -> None:
    stream = replace(spaced(drifting(steps=3), YEAR), name="photos & <more>")
    for side in ("a", "b"):
        evaluate(stream, "clear-iid", ["nearest-mean", "majority"], [0, 1], out=tmp_path / side)
    page, _ = two_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "out", [stream])
    assert "points per year" in page.read_text()
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
    for folder, side, both in zip(folders, "ab", (slice(1, 3), slice(0, 2)), strict=True):
        (document,) = results_of([folder])
        (result,) = [result for result in document["results"] if result["learner"] == "nearest-mean"]
        assert nearest[side] == pytest.approx(np.mean(result["scores"]["next_domain"]["values"][both]))
    assert "half_life 50 → 60; seeds 1, 2 of both" in page.read_text(encoding="utf-8")


def test_a_title_that_is_no_text_is_one_sentence(runs: Path, tmp_path: Path) -> None:
    done = driftline("compare", str(runs / "a"), str(runs / "b"), "--title", "\udcff", "--out", str(tmp_path / "out"))
    assert (done.returncode, list(tmp_path.rglob("*.html"))) == (1, [])
    assert done.stderr == "driftline: A text has '\\udcff'. Expected characters that UTF-8 can write.\n"


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


@pytest.mark.parametrize(("words", "reuse"), [((), "same"), (("--reuse", "any"), "any")])
def test_finished_runs_of_other_code_are_taken_only_if_asked_for(words, reuse, tmp_path):
    drifting().save(tmp_path / "S")
    command = ("eval", tmp_path / "S", "--protocol", "clear-iid", "--learners", "majority", "--out", tmp_path / "runs")
    assert handed("driftline.eval.run.plan", *command, *words)["reuse"] == reuse


# ---- streams of two versions of one release: their scores are compared on what they share, and refused elsewhere


def versioned(version: str, steps: int, other: int | None = None) -> Stream:
    """A stream of so many steps, as if from a release. other: a step whose data are not those of other versions."""
    stream = drifting(steps=4, n=60, noise=2.0)
    buckets = [{"name": str(2010 + i), "train": f"t{i}", "test": f"e{i}"} for i in range(steps)]
    made = list(stream.steps[:steps])
    if other is not None:
        buckets[other] |= {"train": "another"}
        train = made[other]["train"]
        flipped = replace(train, y=train.y[::-1].copy())
        made[other] = replace(made[other], splits={**made[other].splits, "train": flipped})
    facts = {"from": "release", "release": "photos", "version": version, "buckets": buckets}
    return replace(stream, steps=made, sha256=f"photos{version}", facts=facts)


def told(version: str, hashes: str) -> Any:
    """A version whose steps are the same where the letters are."""
    buckets = [{"name": str(i), "train": letter, "test": letter} for i, letter in enumerate(hashes)]
    return {"name": "photos", "version": version, "buckets": buckets}


@pytest.mark.parametrize(
    ("a", "b", "same", "learned"),
    [
        ("abc", "abc", (0, 1, 2), 3), ("abc", "abcd", (0, 1, 2), 3), ("abc", "axc", (0, 2), 1), ("ab", "xb", (1,), 0),
    ],
)  # fmt: skip
def test_what_two_versions_share(a: str, b: str, same: Any, learned: int) -> None:
    found = shared(told("1", a), told("2", b))
    assert (found.same, found.learned) == (same, learned)
    assert found.cells(unlabelled=False) == [(i, j) for i in range(learned) for j in same]


@pytest.fixture(scope="module")
def version_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 has three buckets; v2 one more; v3 other training data in bucket 1."""
    here = tmp_path_factory.mktemp("versions")
    for name, stream in (
        ("v1", versioned("1.0.0", 3)), ("v2", versioned("1.1.0", 4)), ("v3", versioned("2.0.0", 3, other=1)),
    ):  # fmt: skip
        evaluate(stream, "clear-iid", ["nearest-mean", "joint"], [0], out=here / name)
    return here


def test_a_site_holds_two_versions_and_compares_what_they_share(version_runs: Path, tmp_path: Path) -> None:
    a, b = results_of([version_runs / "v1", version_runs / "v2"])
    (row,) = compared(a, b)
    assert (row["learner"], row["cells"]) == ("nearest-mean", 9), "joint sees all buckets at once"
    assert row["a"] == row["b"] == np.mean(next(r for r in a["results"] if r["learner"] == "nearest-mean")["matrix"])
    text = write([a, b], tmp_path).read_text()
    assert "Versions of one release" in text
    assert "clear-iid: photos 1.0.0 and 1.1.0" in text


def test_only_cells_before_the_first_difference_are_compared(version_runs: Path) -> None:
    a, b = results_of([version_runs / "v1", version_runs / "v3"])
    (row,) = compared(a, b)
    assert row["cells"] == 2
    matrix = next(r for r in a["results"] if r["learner"] == "nearest-mean")["matrix"]
    assert row["a"] == row["b"] == (matrix[0][0] + matrix[0][2]) / 2


def test_splits_that_are_drawn_from_all_buckets_are_not_compared(tmp_path: Path) -> None:
    for name, stream in (("v1", versioned("1.0.0", 3)), ("v2", versioned("1.1.0", 4))):
        evaluate(stream, "clear-iid", ["nearest-mean"], [0], {"splits": "random"}, tmp_path / name)
    text = versions_section(results_of([tmp_path]))
    assert "No score may be compared" in text


# ---- the table over all protocols and streams: what differs, what was skipped


def document(protocol: str, stream: str, **means: float | None) -> dict[str, Any]:
    results = [
        {
            "learner": name,
            "settings": {},
            "scores": {"first": {"mean": mean, "sd": 0.0, "values": [mean]}},
            "seeds": [0],
        }
        for name, mean in means.items()
    ]
    return {"protocol": protocol, "stream": {"name": stream, "sha256": stream}, "results": results, "skipped": []}


DOCUMENTS = [document("a", "x", one=0.9, two=0.8, three=0.7), document("a", "y", one=0.9, two=0.9, three=0.1),
             document("b", "x", one=0.2, two=0.3, three=0.1, four=0.9)]  # fmt: skip


def test_the_table_has_the_best_of_each_column_and_dashes_for_what_is_missing() -> None:
    page = overview(DOCUMENTS)
    assert page.count("class='best'") == 1 + 2 + 1
    assert page.count("<td>–</td>") == 2  # four, in two columns
    assert overview(DOCUMENTS[:1]) == ""


def test_the_best_follows_the_direction_of_the_primary_score(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = [{**d, "protocol": "ocrr"} for d in DOCUMENTS[:2]]
    for one in fewer:
        one["results"] = [{**r, "scores": {"corrections_to_50": r["scores"]["first"]}} for r in one["results"]]
    monkeypatch.setattr(Ocrr, "primary", "corrections_to_50")
    assert re.findall(r"scope='row'>(\w+)</th><td class='best'>", overview(fewer)) == ["three"]


def test_all_protocols_on_several_streams_say_what_cannot_be(tmp_path: Path) -> None:
    """Settings may be said to one protocol alone."""
    for name, steps in (("S", 4), ("T", 3)):
        drifting(steps=steps).save(tmp_path / name)
    command = [
        "eval", str(tmp_path / "S"), str(tmp_path / "T"), "--protocol", "all",
        "--learners", "nearest-mean,majority,substrate", "--set", "ocrr.every=20", "--json",
        "--out", str(tmp_path / "runs"),
    ]  # fmt: skip
    documents = answer(*command)
    assert len(documents) == 2 * 5
    because = [d["skipped"][0]["because"] for d in documents if not d["results"]]
    assert len(because) == 2
    assert all("no val split" in text for text in because)
    page = write(documents, tmp_path / "page").read_text()
    assert "All protocols and streams" in page
