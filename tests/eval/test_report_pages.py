"""The report as a site: pages of protocols, learners and streams; links lead somewhere; anybody can read it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting
from support.pages import chromium_browser, open_report

from driftline.eval import rows
from driftline.eval.learners import LEARNERS as LEARNERS_BY_NAME
from driftline.eval.reporting.pages import page as page_of_stream
from driftline.eval.reporting.pages import slug
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Run, digest
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

LEARNERS = ["nearest-mean", "majority", "er(memory=30)", "er(memory=60)", "substrate"]


class Page(HTMLParser):
    """Links, anchors and what else is looked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "a":
            self.links.append(told["href"] or "")
        if "id" in told:
            self.ids.append(told["id"] or "")
        loads = told.get("src") or (told.get("href") if tag == "link" else None) or ""
        if loads and not loads.startswith("data:"):
            self.outside.append(loads)


def pictured() -> Stream:
    rng = np.random.default_rng(0)
    steps = []
    for t in range(3):
        splits = {
            side: Split(
                rng.integers(0, 256, (n, 8, 8, 3), np.uint8),
                np.arange(n, dtype=np.int64) % 3,
                np.array([f"{t}{side}{i}" for i in range(n)]),
                np.arange(n, dtype=np.int64) + 1000 * t,
            )
            for side, n in (("train", 24), ("test", 12))
        }
        steps.append(Step(t, f"year {t}", splits))
    return Stream("pictures & <more>", steps, ["a", "b", "c"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Stream]]:
    """Two streams, three protocols, two seeds; one learner with two settings."""
    here = tmp_path_factory.mktemp("site")
    streams = [drifting(steps=3).save(here / "a"), pictured().save(here / "b")]
    for stream in streams:
        for protocol in ("clear-iid", "clear-streaming", "near-future"):
            settings = {} if protocol == "near-future" else {"epochs": 2}  # which has a budget instead
            evaluate(stream, protocol, LEARNERS, [0, 1], settings, here / "runs")
    write(results_of([here / "runs"]), here / "out", streams=streams)
    return here, streams


def pages_of(folder: Path) -> dict[str, Page]:
    return {path.name: Page(path.read_text(encoding="utf-8")) for path in folder.glob("*.html")}


def test_there_is_a_page_for_each_protocol_and_stream(made: tuple[Path, list[Stream]]) -> None:
    names = {path.name for path in (made[0] / "out").glob("*.html")}
    assert {"index.html", "protocol-clear-iid.html", "protocol-near-future.html"} <= names
    assert sum(name.startswith("stream-") for name in names) == 2


def test_every_link_leads_to_an_anchor_that_is_there_once(made: tuple[Path, list[Stream]]) -> None:
    pages = pages_of(made[0] / "out")
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name
        for link in page.links:
            file, _, anchor = link.partition("#")
            target = pages[file or name]
            assert not anchor or anchor in target.ids, (name, link)


def test_every_page_needs_one_file_beside_it(made: tuple[Path, list[Stream]]) -> None:
    for name, page in pages_of(made[0] / "out").items():
        assert page.outside == [], name
    assert (made[0] / "out" / "report.js").stat().st_size < 1_000_000
    for path in (made[0] / "out").glob("*.html"):
        text = path.read_text()
        assert 'src: "report.js"' in text, "read when the first pictures are painted"
        assert "<more>" not in text
        assert not re.search(r"\{[a-z.]+\}", text.partition("</style>")[2]), "a name in braces was not filled in"


def test_equal_runs_have_equal_hashes_and_others_do_not(made: tuple[Path, list[Stream]]) -> None:
    run = rows.find([made[0] / "runs"])[0]
    later = Run(run.about | {"seconds": 9.0}, [replace(r, seconds=r.seconds + 1) for r in run.rows])
    other = Run(run.about, [replace(run.rows[0], n_correct=run.rows[0].n_correct + 1), *run.rows[1:]])
    assert digest(later) == digest(run)
    assert digest(other) != digest(run)


def test_a_streams_page_shows_its_steps_drift_and_labels(made: tuple[Path, list[Stream]]) -> None:
    out = made[0] / "out"
    (page,) = (path.read_text() for path in out.glob("stream-pictures*.html"))
    for title in ("Steps", "Drift", "Label correlation"):
        assert f">{title}</h2>" in page
    assert "year 2" in page


def test_streams_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    for sha in ("one", "two"):
        evaluate(replace(drifting(), sha256=sha), "clear-iid", ["majority"], out=tmp_path / "runs")
    write(results_of([tmp_path / "runs"]), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("stream-*.html"))) == 2


def test_hostile_names_stay_in_the_folder() -> None:
    assert "/" not in slug("stream", "../../etc/passwd")
    assert slug("stream", "a/b") != slug("stream", "a.b")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium_browser() as opened:
        yield opened


OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}


@pytest.mark.proof("browser")
def test_axe_finds_nothing_that_shuts_people_out(made: tuple[Path, list[Stream]], browser: Any) -> None:
    """In the dark only what looks at colours runs again."""
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page()
    found = {}
    pages = sorted((made[0] / "out").glob("*.html"))
    assert {path.name.partition("-")[0] for path in pages} == {"index.html", "protocol", "stream"}
    for path in pages:
        page.emulate_media(color_scheme="light")
        open_report(page, path)
        for scheme, options in (("light", {}), ("dark", {"runOnly": OF_COLOURS})):
            page.emulate_media(color_scheme=scheme)
            for one in Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]:
                found[path.name, scheme, one["id"]] = [node["html"][:120] for node in one["nodes"][:2]]
    page.close()
    assert not found, json.dumps({f"{k}": v for k, v in found.items()}, indent=1)


@pytest.mark.proof("browser")
def test_on_a_phone_only_tables_scroll(made: tuple[Path, list[Stream]], browser: Any) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740})
    for path in sorted((made[0] / "out").glob("*.html")):
        open_report(page, path)
        page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path.name
    page.close()


@pytest.fixture(scope="module")
def large(made: tuple[Path, list[Stream]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 75 learners in three protocols on one stream."""
    documents = []
    for one in results_of([made[0] / "runs"]):
        if one["stream"]["name"] == "drifting":
            results = [{**r, "learner": f"{r['learner']} {i}"} for i in range(15) for r in one["results"]]
            plain = {key: one[key] for key in ("protocol", "stream", "skipped")}
            documents.append({**plain, "results": results})
    return write(documents, tmp_path_factory.mktemp("large"))


def test_each_protocol_is_folded_and_a_result_alone_is_open(large: Path, made: tuple[Path, list[Stream]]) -> None:
    index = large.read_text()
    assert index.count('<details class="part">') == 3
    protocol = (made[0] / "out" / "protocol-clear-iid.html").read_text()
    assert protocol.count('<details class="part">') == 2, "one for each stream"
    document = next(d for d in results_of([made[0] / "runs"]) if d["protocol"] == "clear-iid")
    assert write([document], large.parent / "one").read_text().count('<details class="part" open>') == 1


@pytest.mark.proof("browser")
def test_an_unopened_page_is_at_most_8000_pixels_tall_and_a_link_opens_its_part(large: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    for path in sorted(large.parent.glob("*.html"))[:12]:
        open_report(page, path)
        assert page.evaluate("document.documentElement.scrollHeight") <= 8000, path.name
    page.goto(f"{large.resolve().as_uri()}#r2")
    page.locator("details.part[open]").wait_for()
    assert page.locator("details.part[open] h2").get_attribute("id") == "r2"
    assert page.locator("details.part[open] .plot").first.bounding_box()["width"] > 500, "drawn for the width"
    page.close()


@pytest.mark.proof("browser")
@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_first_screen_says_and_shows_how_models_age(made, browser, width, height):
    page = browser.new_page(viewport={"width": width, "height": height})
    open_report(page, made[0] / "out" / "index.html")
    assert page.locator(".answer").first.bounding_box()["y"] < height / 4
    chart = page.locator(".plot").first.bounding_box()
    assert chart["y"] + chart["height"] <= height
    page.close()


@pytest.mark.proof("browser")
def test_tables_sort_and_filter_and_the_address_remembers(made, browser, tmp_path):
    document = next(d for d in results_of([made[0] / "runs"]) if d["protocol"] == "clear-iid")
    results = [{**r, "learner": f"{r['learner']} {i}"} for i in ("red", "blue") for r in document["results"]]
    plain = {key: document[key] for key in ("protocol", "stream", "skipped")}
    path = write([{**plain, "results": results}], tmp_path)
    means = {r["learner"]: 100 * r["scores"]["accuracy"]["mean"] for r in results}
    shown = "[...document.querySelectorAll('table.scores tbody')[0].rows].filter(r => !r.hidden).map(r => r.cells[0])"

    def learners(page: Any) -> list[str]:
        return [str(name).strip() for name in page.evaluate(f"{shown}.map(c => c.firstChild.textContent)")]

    page = browser.new_page()
    open_report(page, path)
    table = page.locator("table.scores").first
    table.get_by_role("button", name="accuracy", exact=True).click()
    assert table.locator("th[aria-sort=descending]").inner_text().strip() == "accuracy"
    in_order = learners(page)
    assert sorted(in_order) == sorted(means)
    assert [means[name] for name in in_order] == sorted(means.values(), reverse=True)
    page.get_by_label("Filter the rows of this table").first.fill("MAJORITY BLUE")
    assert learners(page) == ["majority blue"]
    link = page.url
    page.close()
    again = browser.new_page()
    again.goto(link)
    again.get_by_label("Filter the rows of this table").first.wait_for()
    assert learners(again) == ["majority blue"]
    assert again.locator("table.scores th[aria-sort=descending]").first.inner_text().strip() == "accuracy"
    again.close()


@pytest.mark.proof("browser")
def test_it_prints_without_its_navigation(made: tuple[Path, list[Stream]], browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    open_report(page, made[0] / "out" / "index.html")
    page.emulate_media(media="print")
    assert not page.locator("nav").first.is_visible()
    page.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
    page.close()


class Fragile(LEARNERS_BY_NAME["majority"]):  # type: ignore[misc]
    """A stranger's learner that does not bear eight features."""

    def learn(self, x: Any, y: Any) -> None:
        if x.shape[1:] == (8,):
            raise ZeroDivisionError("eight")
        super().learn(x, y)


@pytest.mark.parametrize("protocol", ["clear-iid", "near-future"])
def test_a_learner_that_crashes_on_one_stream_leaves_the_others_alone(tmp_path: Path, protocol: str) -> None:
    for stream in (drifting(), replace(pictured(), sha256="pictured")):
        evaluate(stream, protocol, [Fragile(), "nearest-mean"], out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    row = page[page.index(">Fragile</th>") :].partition("</tr>")[0]
    assert "It crashed: ZeroDivisionError: eight, test_report_pages.py line" in row
    assert re.search(r"<td[^>]*>\d+\.\d<", row)


def test_who_was_skipped_once_and_runs_now_is_not_listed(tmp_path: Path) -> None:
    class Late(Fragile):  # type: ignore[misc]
        """Broken first."""

    evaluate(drifting(), "clear-iid", [Late()], out=tmp_path)
    Late.learn = LEARNERS_BY_NAME["majority"].learn  # type: ignore[method-assign]
    evaluate(drifting(), "clear-iid", [Late()], out=tmp_path)
    (document,) = results_of([tmp_path])
    assert document["skipped"] == []
    assert [r["learner"] for r in document["results"]] == ["Late"]


def test_the_page_of_a_stream_has_the_dates_of_its_steps() -> None:
    stream = drifting(steps=3)
    late = [replace(s, splits={n: replace(p, time=p.time + 86_400 * s.index) for n, p in s.splits.items()})
            for s in stream.steps if all(p.time is not None for p in s.splits.values())]  # fmt: skip
    steps = page_of_stream(replace(stream, steps=late))["sections"][0]
    assert "<th scope='row'>2</th><td>1970-01-03</td><td>1970-01-03</td>" in steps.html
