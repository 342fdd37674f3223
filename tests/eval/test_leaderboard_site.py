"""The leaderboard's site: every table and file is there, names of strangers are text, ties and costs are shown."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.helpers import drifting
from support.pages import chromium_browser, violations_everywhere

from driftline.curate.core.atomic_io import sha256_file
from driftline.eval.leaderboard import site as module
from driftline.eval.leaderboard.site import ties_of, write_site
from driftline.eval.leaderboard.submission import pack
from driftline.eval.leaderboard.verification import Verdict, examined
from driftline.eval.run import evaluate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Verdict], list[Path]]:
    folder = tmp_path_factory.mktemp("site")
    first = replace(drifting(steps=3, n=30), facts={"encoder": "clip", "encoder_cutoff": "2021-07"}).save(folder / "S1")
    second = replace(drifting(steps=3, n=30, drift=2.0), name="faster").save(folder / "S2")
    for stream in (first, second):
        evaluate(stream, "clear-iid", ["nearest-mean", "majority"], [0, 1], out=folder / "runs")
    evaluate(first, "clear-streaming", ["nearest-mean"], [0], out=folder / "runs")
    pack([folder / "runs"], "<script>alert(1)</script>", folder / "ours.zip")
    streams = [folder / "S1", folder / "S2"]
    path = folder / "ours.zip"
    found = examined(path, {first.sha256: first, second.sha256: second})
    verdict = Verdict(found["name"], found["documents"], not_again=found["runs"], sha256=sha256_file(path))
    return folder, path, [verdict], streams


@pytest.fixture(scope="module")
def page(made: tuple[Path, Path, list[Verdict], list[Path]]) -> Path:
    folder, path, verdicts, streams = made
    assert write_site([path], verdicts, streams, folder / "site") == {"tables": 3, "lite": 3, "submissions": 1}
    return folder / "site" / "index.html"


def test_every_protocol_and_stream_has_a_table(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r"<h2 id=\"[^\"]+\">([^<]+ on [^<]+)</h2>", text)
    assert sorted(heads) == [
        "clear-iid on drifting (lite)",
        "clear-iid on faster (lite)",
        "clear-streaming on drifting (lite)",
    ]
    assert "Samples from 1970-01-01 to 1970-01-01." in text
    assert "Encoder: clip; newest data that it saw: 2021-07." in text
    assert "not re-run" in text
    assert re.search(r"<th>seconds a run</th>", text)


@pytest.mark.proof("browser")
def test_axe_finds_nothing_on_it(page: Path) -> None:
    with chromium_browser() as browser:
        tab = browser.new_page()
        tab.goto(page.resolve().as_uri())
        assert violations_everywhere(tab) == {}


def test_names_of_strangers_are_text(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_every_link_leads_to_a_file_with_rows_and_outcomes(page: Path) -> None:
    for name in ("index.html", "lite.html"):
        for target in re.findall(r'href="([^"#]+)(?:#[^"]*)?"', (page.parent / name).read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), target
    (file,) = (page.parent / "submissions").iterdir()
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    assert sum(name.endswith("rows.parquet") for name in names) == 9
    assert sum(name.endswith("outcomes.parquet") for name in names) == 9


def test_learners_that_differ_have_no_common_letter(made: tuple[Path, Path, list[Verdict], list[Path]]) -> None:
    _, path, verdicts, _ = made
    ties = ties_of([path])
    for document in verdicts[0].documents:
        if len(document["results"]) == 2 and document["stream"]["name"] == "drifting":  # 90 against 33 %
            mine, theirs = ({ties[run] for run in result["runs"]} for result in document["results"])
            assert not mine & theirs


def test_a_long_table_is_not_in_the_lite_track(made, tmp_path, monkeypatch):
    _, path, verdicts, streams = made
    monkeypatch.setattr(module, "LITE_MINUTES", -1)
    monkeypatch.setattr(module, "ties_of", lambda *_: {})
    monkeypatch.setattr(module, "bound", lambda result: result["learner"] == "majority")
    assert write_site([path], verdicts, streams, tmp_path)["lite"] == 0
    assert "There is no table yet." in (tmp_path / "lite.html").read_text(encoding="utf-8")
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<th>tie</th>" not in text, "a column without a letter"
    assert "majority: learns from data that others may not have" in text
