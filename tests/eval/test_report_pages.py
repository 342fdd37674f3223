"""The report as a site: pages of protocols, learners and streams; links lead somewhere; anybody can read it."""

import cProfile
import json
import os
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import answer, driftline
from support.helpers import drifting, grouped, spaced
from support.pages import open_report

from driftline.curate.core.executor import Executor
from driftline.eval import predictions, rows
from driftline.eval.learners import LEARNERS as LEARNERS_BY_NAME
from driftline.eval.reporting import ageing, exports, report
from driftline.eval.reporting.document import MATRICES, shown
from driftline.eval.reporting.pages import linked, slug
from driftline.eval.reporting.pages import page as page_of_stream
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Run, digest
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import plain
from driftline.eval.scoring.ranking import parts
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
    rng, steps = np.random.default_rng(0), []
    for t in range(3):
        splits = {}
        for side, n in (("train", 24), ("test", 12)):
            x, k = rng.integers(0, 256, (n, 8, 8, 3), np.uint8), np.arange(n, dtype=np.int64)
            splits[side] = Split(x, k % 3, np.array([f"{t}{side}{i}" for i in range(n)]), k + 1000 * t)
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
    steps = page_of_stream(spaced(drifting(steps=3), 86_400))["sections"][0]
    assert "<th scope='row'>2</th><td>1970-01-03</td><td>1970-01-03</td>" in steps.html


# ---- the first screen of a report: what it says follows from the rows; poor streams and old rows say what is missing


YEAR = 31_557_600
ANSWERING = ["nearest-mean", "majority", "reservoir(epochs=2)", "nap(epochs=2)"]


def text_of(page: str) -> str:
    """Headline, key sentence, takeaways and what may be concluded of the first part, without tags."""
    return re.sub(r"<[^>]+>", "", page[page.index('class="headline"') :].partition("</dl>")[0])


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream]:
    """Runs of two seeds on a stream that drifts over eight years."""
    here = tmp_path_factory.mktemp("aged")
    stream = spaced(drifting(steps=5, n=120, drift=1.0, noise=2.5), 2 * YEAR).save(here / "s")
    evaluate(stream, "clear-iid", ANSWERING, [0, 1], out=here / "runs")
    return here, stream


def test_the_first_screen_says_what_can_be_concluded_and_what_cannot(aged: tuple[Path, Stream]) -> None:
    here, stream = aged
    page = write(results_of([here / "runs"], [stream]), here / "out", streams=[stream]).read_text()
    text = text_of(page)
    assert "points per year behind newer models of the same method, which have also seen more data" in text
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


def test_groups_of_learners_have_a_column_where_they_were_tested(made: tuple[Path, list[Stream]]) -> None:
    part = parts(results_of([made[0] / "runs"])[0])[0]
    assert [shown(one, None)["tied"] for one in (part, {**part, "compared": []})] == [True, False]


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


def test_two_steps_are_enough_and_it_says_so(tmp_path: Path) -> None:
    stream = spaced(drifting(steps=2), 2 * YEAR)
    evaluate(stream, "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "runs")
    evaluate(stream, "clear-streaming", ["nearest-mean", "majority"], out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    assert "tested at one age only" in page
    assert "2.0 years old" in page


def test_without_dates_ages_are_in_steps(tmp_path: Path) -> None:
    bare = drifting(steps=3)
    steps = [replace(s, splits={k: replace(split, time=None) for k, split in s.splits.items()}) for s in bare.steps]
    evaluate(replace(bare, steps=steps), "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    assert "What is missing: No dates: ages are in steps." in page
    assert "steps from training to test" in page


def test_rows_without_predictions_or_with_damaged_ones_still_report(aged: tuple[Path, Stream], tmp_path: Path) -> None:
    stream = drifting(steps=3)
    evaluate(stream, "clear-iid", ["nearest-mean", "er(epochs=1)"], out=tmp_path / "runs")
    first, second = sorted((tmp_path / "runs").rglob(predictions.FILE))
    first.unlink()
    second.write_bytes(second.read_bytes()[:50])
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    assert "no per-sample predictions were read: there are no ageing curves" in page
    assert str(second) in page
    assert "Accuracy by age" not in page


def test_one_class_in_a_step_is_no_trouble(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = []
    for t in range(3):
        sizes = {"train": 40, "test": 20}
        labels = {side: np.full(n, t % 2, np.int64) if t else np.arange(n) % 2 for side, n in sizes.items()}
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


def test_a_report_costs_the_same_for_each_further_run() -> None:
    """Calls of functions, which no processor makes fewer. Their number follows that of runs, since no run is compared
    with each other one; and each test of a run costs a few, since it is counted once."""
    stream = drifting()
    (template,) = evaluate(stream, "clear-iid", "nearest-mean").runs
    rng = np.random.default_rng(0)

    def calls(seeds: int) -> int:
        runs = []
        for seed, learner in product(range(seeds), "abcd"):
            told = [answers for row in template.rows if (answers := row.answers) is not None]
            changed = [replace(one, predicted=np.where(rng.random(len(one)) < 0.8, one.label, 0)) for one in told]
            pairs = zip(template.rows, changed, strict=True)
            tests = [replace(row, n_correct=int(one.right.sum()), answers=one) for row, one in pairs]
            runs.append(Run({**template.about, "learner": learner, "seed": seed}, tests))
        with cProfile.Profile() as profile:
            report.document_of(runs, rows.key_of(template.about), stream, few=True)
        return sum(entry.callcount for entry in profile.getstats())

    calls(2)  # imports
    few, more, many = calls(5), calls(10), calls(40)
    assert many - more < 1.1 * 6 * (more - few)
    assert (many - more) / (4 * 30) < 90 * len(template.rows)


def test_what_is_missing_is_said_once_not_for_each_run(tmp_path: Path) -> None:
    evaluate(drifting(), "clear-iid", ["majority"], list(range(6)), out=tmp_path)
    for path in tmp_path.rglob(predictions.FILE):
        path.unlink()
    (document,) = results_of([tmp_path])
    assert len(document["unread"]) == report.NAMED + 1
    assert document["unread"][-1] == "So it is with 3 more runs."


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
