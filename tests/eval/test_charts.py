"""Interactive charts in a real browser: drawn from the page alone, usable by keys, and names from outside are text."""

import io
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.console import answer
from support.helpers import correlated, drifting, spaced

from driftline.curate.core.errors import BadConfig
from driftline.eval.plotting.cells import BINS, OF_BUCKETS, Strip, cells, strips, timeline
from driftline.eval.plotting.charts import INCHES, KINDS, Figure, front, lines, save, save_kinds, scatter, slopes
from driftline.eval.plotting.frames import COLOURS, GAP, GREY, SHADED, colour, ink
from driftline.eval.protocol import Result, Score
from driftline.eval.protocols.clear import Iid
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.markup import as_json, environment, render, script
from driftline.eval.reporting.pages import linked
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import _mean_curve
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.stream import Stream

PAYLOADS = [
    "<script>window.hacked=1</script>", "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>", "\"];window.hacked=1;//", "'+(window.hacked=1)+'", "datum.c0", "{{7*7}}",
    "${window.hacked=1}", "[c0]", "a.b\\.c", "__proto__", "constructor", "a\nb", "<!--", "]]>",
    "javascript:window.hacked=1", "\u2028", "=1+1", "a|b", "x" * 300,
]  # fmt: skip
CHARTS = {
    "lines": lines({"a": ([0, 1], [0.1, 0.2]), "b": ([0, 1], [0.3, 0.4])}, "age", bands={"a": ([0, 0.1], [0.2, 0.3])}),
    "levels": lines({"a": ([0, 1], [0.1, 0.2])}, "age", log=True, levels={"chance": 0.1}, marks={"S": 1}),
    "slopes": slopes({"a": (0.1, 0.2), "b": (0.3, 0.1)}, ("online", "near future")),
    "scatter": scatter({"a": (10.0, 0.5), "b": (20.0, 0.4)}, ["a"], "bytes", "right"),
    "strips": strips(
        {"a": Strip([0.1, 0.4], 0.3, 0.2, 0.5), "b": Strip([], 0.2, np.nan, np.nan)}, "points", {"0": 0.0}
    ),
}


def page_of(folder: Path, *charts: Figure) -> str:
    """The address of a page with these charts."""
    (folder / "report.js").write_text(script(), encoding="utf-8")
    body = "".join(render("figure", chart) for chart in charts)
    style = environment().get_template("report.css").render()
    page = f"<!DOCTYPE html><meta charset=utf-8><title>x</title><style>{style}</style><main>{body}</main>"
    page += "<meta name=viewport content='width=device-width, initial-scale=1'><footer></footer>"
    (folder / "page.html").write_text(f"{page}<script src=report.js defer></script>", encoding="utf-8")
    return (folder / "page.html").resolve().as_uri()


def opened(browser: Any, address: str, width: int = 900) -> Any:
    """The page when its script has run."""
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.goto(address)
    page.wait_for_selector("footer button", state="attached")
    return page


def place(mark: Any, point: int = 0) -> list[float]:
    """Where on the screen a point of a line, or a dot, is."""
    return mark.evaluate(
        """(mark, k) => {
            const { x, y } = mark.points ? mark.points[k] : { x: mark.cx.baseVal.value, y: mark.cy.baseVal.value };
            const at = new DOMPoint(x, y).matrixTransform(mark.getScreenCTM());
            return [at.x, at.y];
        }""",
        point,
    )


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_chart_is_a_file_of_its_own_and_looks_the_same_every_time(name: str, kind: str, tmp_path: Path) -> None:
    data = save(CHARTS[name], tmp_path / f"a{kind}").read_bytes()
    again = save(CHARTS[name], tmp_path / f"b{kind}").read_bytes()
    assert data == again if kind != ".pdf" else len(data) == len(again)
    assert data.startswith({".svg": b"<svg xmlns=", ".pdf": b"%PDF", ".png": b"\x89PNG"}[kind])
    if kind == ".png":
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).reshape(-1, 3).astype(int)
        assert (pixels > 240).all(1).mean() > 0.5, "paper"
        assert (pixels < 60).all(1).any(), "names in ink"
        blue = np.abs(pixels - [0x1B, 0x7F, 0xB3]).sum(1) < 12
        assert blue.any(), "the first line"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"ends in \.svg, \.pdf, \.png"):
        save(CHARTS["lines"], tmp_path / "a.gif")


def contrast(*colours: str) -> float:
    """Of two colours, as WCAG 2 defines it."""
    parts = [[int(hexed[k : k + 2], 16) / 255 for k in (1, 3, 5)] for hexed in colours]
    linear = [[p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in of] for of in parts]
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("stroke", COLOURS)
def test_colours_stand_out_on_light_and_dark_paper(stroke: str) -> None:
    assert min(contrast(stroke, paper) for paper in ("#fbfbf9", "#14181a")) > 3


def test_ink_is_readable_on_every_colour() -> None:
    values = np.linspace(0, 1, 101).tolist()
    assert min(contrast(colour(value, (0, 1)), ink(value, (0, 1))) for value in values) >= 4.5


def test_data_cannot_end_its_element() -> None:
    text = as_json({"a": "</script><!--", "b": [float("inf")]})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><!--", "b": [None]}


@pytest.mark.proof("browser")
def test_names_from_outside_are_text_in_the_library_too(browser: Any, tmp_path: Path) -> None:
    many = {name: ([0.0, 1.0], [0.1, 0.2 + i / 50]) for i, name in enumerate(PAYLOADS)}
    pairs = {name: (0.1, 0.2 + i / 50) for i, name in enumerate(PAYLOADS)}
    dots = {name: (10.0 + i, 0.5) for i, name in enumerate(PAYLOADS)}
    charts = [
        Figure(PAYLOADS[0], PAYLOADS[1], lines(many, PAYLOADS[1], levels={PAYLOADS[0]: 0.1}, marks={PAYLOADS[2]: 1.0})),
        Figure("slopes", "", slopes(pairs, PAYLOADS[1:3])),
        Figure("scatter", "", scatter(dots, [PAYLOADS[0]], PAYLOADS[1], PAYLOADS[2])),
    ]
    page = opened(browser, page_of(tmp_path, *charts))
    for chart in page.locator(".plot").all():
        chart.scroll_into_view_if_needed()
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # scrolled
        mark = chart.locator("[data-row]").last
        page.mouse.move(*place(mark, 1))
        page.locator(".tip").wait_for(state="visible", timeout=5000)
        assert page.locator(".tip strong").text_content() == mark.evaluate("mark => mark.closest('[data-n]').dataset.n")
    for details in page.locator("details.data summary").all():
        details.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script:not([type]):not([src])").count() == 0
    chips = page.locator(".chips").first.locator(".chip").all_inner_texts()
    assert [re.sub(r"\s+", " ", chip).strip() for chip in chips] == [re.sub(r"\s+", " ", n).strip() for n in PAYLOADS]
    page.close()


@pytest.mark.proof("browser")
def test_no_two_lines_look_the_same_in_the_legend(browser: Any, tmp_path: Path) -> None:
    """Colours come again from the eleventh line on: its dashes are in its button, too."""
    many = {f"learner {i}": ([0.0, 1.0], [0.1, 0.2 + i / 50]) for i in range(len(COLOURS) + 1)}
    page = opened(browser, page_of(tmp_path, Figure("t", "", lines(many, "age"))))
    looks = page.locator(".chip .swatch").evaluate_all("all => all.map(s => s.style.background)")
    assert len(set(looks)) == len(many)
    page.close()


@pytest.mark.proof("browser")
def test_a_name_is_hidden_and_the_address_remembers_it(browser: Any, tmp_path: Path) -> None:
    address = page_of(tmp_path, Figure("t", "", CHARTS["lines"]))
    page = opened(browser, address)

    def drawn() -> int:
        return int(page.locator(".series polyline:visible").count())

    both = drawn()
    page.get_by_role("button", name="b", exact=True).press("Enter")
    assert drawn() == both - 1
    assert page.locator(".name:visible").count() == both - 1
    link = page.url
    page.close()
    again = opened(browser, link)
    assert again.get_by_role("button", name="b", exact=True).get_attribute("aria-pressed") == "false"
    again.close()


@pytest.mark.proof("browser")
def test_without_scripts_the_picture_is_there(browser: Any, tmp_path: Path) -> None:
    address = page_of(tmp_path, Figure("t", "", CHARTS["lines"]))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert "ends at" in str(page.locator(".plot > svg").get_attribute("aria-label"))
    assert page.locator(".plot > svg").is_visible()
    context.close()


@pytest.mark.proof("browser")
def test_the_pointer_shows_the_numbers_and_the_band_of_one_line(browser: Any, tmp_path: Path) -> None:
    names = [f"learner {i}" for i in range(SHADED + 1)]
    many = {name: ([0.0, 1.0], [0.1 * i, 0.1 * i + 0.05]) for i, name in enumerate(names)}
    bands = {name: ([y - 0.01 for y in ys], [y + 0.01 for y in ys]) for name, (_, ys) in many.items()}
    page = opened(browser, page_of(tmp_path, Figure("t", "", lines(many, "age", bands=bands))))
    seen = "all => all.map(one => getComputedStyle(one).visibility)"
    assert set(page.locator(".far").evaluate_all(seen)) == {"hidden"}
    x, y = place(page.locator(".series polyline").nth(2), 1)
    page.mouse.move(x - 3, y + 2)
    expected = ["learner 2", "age: 1", "%: 25", "low: 24", "high: 26"]
    assert page.locator(".tip").inner_text().splitlines() == expected
    assert page.locator(".far").evaluate_all(seen) == ["visible" if i == 2 else "hidden" for i in range(SHADED + 1)]
    page.mouse.move(1, 1)
    assert page.locator(".tip").is_hidden()
    page.close()


@pytest.mark.proof("browser")
@pytest.mark.parametrize("name", CHARTS)
def test_a_phone_scrolls_a_chart_inside_the_page(browser: Any, tmp_path: Path, name: str) -> None:
    page = opened(browser, page_of(tmp_path, Figure("t", "", CHARTS[name])), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    svg = page.locator(".plot > svg").first.bounding_box()
    boxes = page.locator("g[data-n] > text").evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")
    assert boxes
    for box in boxes:
        assert 9 < box["height"] < 30
        assert svg["x"] <= box["left"]
        assert box["right"] <= svg["x"] + svg["width"]
        assert svg["y"] <= box["top"]
        assert box["bottom"] <= svg["y"] + svg["height"] + 1
    page.close()


def test_a_line_that_is_like_another_has_its_colour_and_dashes() -> None:
    picture = lines({"a": ([0, 1], [0.1, 0.2]), "a, if": ([0, 1], [0.1, 0.1])}, "age", like={"a, if": "a"})
    looks = re.findall(r"<polyline[^>]*stroke='(#\w+)'[^>]*stroke-dasharray='([^']*)'", picture.svg)
    assert looks == [(COLOURS[0], ""), (COLOURS[0], "6 3")]


def test_a_strip_shows_its_dots_and_only_a_known_interval() -> None:
    svg = CHARTS["strips"].svg
    first, second = re.findall(r"<g data-n='[ab]'>(.*?)</g>", svg)
    assert (first.count("<circle"), second.count("<circle")) == (3, 1)
    assert (first.count("<line"), second.count("<line")) == (1, 0)
    assert CHARTS["strips"].rows == [["a", 0.3, 0.2, 0.5, 2], ["b", 0.2, None, None, 0]]


# ---- charts: well-formed, legible, and told in words too; the near-future page holds the paper's figures


MANY = {f"learner {i}": ([0, 1, 2], [0.5, 0.5, 0.5 + i / 1000]) for i in range(40)}


def test_names_stand_apart_and_inside_however_many_there_are() -> None:
    svg = lines(MANY, "samples seen").svg
    height = float(ElementTree.fromstring(svg).attrib["viewBox"].split()[-1])
    spots = sorted(float(y) for y in re.findall(r"class='name' data-n='learner [^>]*translate\(\S+ (\S+)\)", svg))
    assert len(spots) == 40
    assert min(b - a for a, b in pairwise(spots)) >= GAP - 0.11
    assert spots[0] > 0
    assert spots[-1] <= height


def test_a_chart_says_in_words_what_it_shows() -> None:
    chart = slopes({"er": (0.9, 0.5), "blind": (0.7, 0.1)}, ("online", "near future"))
    label = ElementTree.fromstring(chart.svg).attrib
    assert label["role"] == "img"
    assert "er 90.0 to 50.0; blind 70.0 to 10.0" in label["aria-label"]


def test_points_lie_where_their_values_are() -> None:
    svg = lines({"a": ([0, 10], [0.0, 1.0])}, "x").svg
    (path,) = re.findall(r"<polyline points='([^']*)'", svg)
    (x0, y0), (x1, y1) = (tuple(map(float, p.split(","))) for p in path.split())
    assert x0 < x1
    assert y0 > y1


@pytest.mark.parametrize("series", [{}, {"a": ([], [])}, {"a": ([5], [0.0])}])
def test_little_to_show_is_no_trouble(series: dict[str, tuple[list[float], list[float]]]) -> None:
    ElementTree.fromstring(lines(series, "x").svg)


def test_the_near_future_page_has_the_papers_figures(tmp_path: Path) -> None:
    learners = ["blind", "fc-only(sampler=fifo)", "fc-only(sampler=uniform)", "acm"]
    settings = {"shift": 64, "also": "8+256"}
    found = evaluate(correlated(), "near-future", learners, seeds=[0, 1], settings=settings, out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    for title in ("The blind classifier", "Samplers", "Accuracy over lookaheads", "Retention by period"):
        assert f"<h3>{title}</h3>" in page, title
    assert "At S = 64, labels alone " in page
    assert "Batches of 64." in page
    for r in found["results"]:
        shown_scores = (f"{100 * r['scores'][k]['mean']:.1f}" for k in ("online", "near_future", "retention"))
        assert " → ".join(shown_scores) in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(svg)


ENDS = {  # title of a chart → the score of each row at which its line ends, or its only point is
    "near-future": {
        "Near-future accuracy along the stream": "near_future", "Online accuracy along the stream": "online",
        "Retention": "retention", "Cost against accuracy": "near_future",
    },
    "ocrr": {"Recovery": "novel", "Retention during recovery": "original", "Cost against accuracy": "worst"},
}  # fmt: skip


@pytest.mark.parametrize("protocol", ENDS)
def test_every_row_is_a_line_that_ends_at_its_score(protocol: str, tmp_path: Path) -> None:
    """Three rates of one learner are three lines; seeds whose streams of corrections differ in length count alike."""
    if protocol == "near-future":
        stream, settings = correlated(), {"shift": 64}
    else:
        stream, settings = drifting(steps=1, classes=8, n=400, noise=1.5), {"held_out": 2, "every": 20}
    learners = ["finetune", "nearest-mean"] if protocol == "ocrr" else ["fc-only", "majority"]
    for lr in (0.1, 1.0, 10.0):
        evaluate(stream, protocol, learners, [0, 1, 2], settings | {"lr": lr}, out=tmp_path)
    (document,) = linked(results_of([tmp_path]))
    (part,) = parts(document)
    full = shown(part, None)
    names = {r["label"] for r in full["results"]}
    assert len(names) == len(document["results"]) == 4, "three rates and one without"
    figures = {figure.title: figure.picture for figure in [*full["figures"], full["cost"]]}
    for title, score in ENDS[protocol].items():
        ends = {row[0]: row[2] for row in figures[title].rows}
        assert ends == {r["label"]: pytest.approx(100 * r["scores"][score]["mean"], abs=0.006) for r in part["results"]}


def test_curves_of_several_lengths_end_at_the_mean_of_their_ends() -> None:
    """A seed with fewer corrections keeps its last accuracy."""
    long, short = {"at": [0, 10, 20], "value": [0.0, 0.5, 0.9]}, {"at": [0, 6], "value": [0.1, 0.7]}
    assert _mean_curve([long, short]) == {"at": [0, 8, 13], "value": pytest.approx([0.05, 0.6, 0.8])}
    assert _mean_curve([long, {"at": [], "value": []}]) == {"at": [], "value": []}


class Counting(Iid):
    """A protocol of somebody else: a count, and a curve."""

    scores = (Score("asked", "labels asked", False, "labels"), Score("right", "right"))
    primary = "asked"

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        tests = [row for row in rows if row.learned_to >= 0]
        shares = np.cumsum([row.n_correct for row in tests]) / np.cumsum([row.n for row in tests])
        asked = np.cumsum([row.n for row in tests]).tolist()
        first = shares[:1].tolist() * len(tests)
        curve = {"at": list(range(len(tests))), "value": asked, "right": shares.tolist(), "first": first}
        return Result({"asked": float(asked[-1]), "right": float(shares[-1])}, curve=curve)


def test_the_curve_of_a_strangers_protocol_is_drawn_and_its_counts_are_counts(tmp_path: Path) -> None:
    result = evaluate(drifting(steps=3), Counting(), ["nearest-mean", "majority"])
    page = write([result], tmp_path).read_text()
    (part,) = parts(linked([result])[0])
    asked, right, first = shown(part, None)["figures"]
    for figure, score, what in ((asked, "asked", "labels"), (right, "right", "%")):
        assert figure.picture.columns[2] == what
        ends = {row[0]: row[2] for row in figure.picture.rows}
        factor = 1 if what == "labels" else 100
        expected = {r["learner"]: factor * r["scores"][score]["mean"] for r in result["results"]}
        assert ends == pytest.approx(expected, abs=0.01)
        assert "not the end" not in figure.caption
    assert "The score first is not the end of its curve." in first.caption
    number = f"{result['results'][0]['scores']['asked']['mean']:.0f}"
    assert f">{number} <" in page
    assert f"{number}00" not in page


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_nobody_beats(pairs: list[tuple[int, int]]) -> None:
    places = {str(i): (x / 10, y / 10) for i, (x, y) in enumerate(pairs)}
    found = front(places)
    assert found
    for name, (x, y) in places.items():
        beaten = any(p >= x and q >= y and (p, q) != (x, y) for p, q in places.values())
        assert (name in found) != beaten


def test_the_timeline_shows_every_photo_in_the_shade_of_its_bucket() -> None:
    uploaded = np.arange(0, 10**8, 10**5)
    bucket = np.arange(1000) // 250
    bucket[:100] = -1
    picture = timeline(uploaded, bucket, {i: f"bucket {i}" for i in range(4)})
    photos = {name: sum(row[2] for row in picture.rows if row[0] == name) for name, _, _ in picture.rows}
    assert photos == {"none": 100, "bucket 0": 150, "bucket 1": 250, "bucket 2": 250, "bucket 3": 250}
    bars = re.findall(r"<rect x='([\d.]+)' [^>]*height='([\d.]+)' fill='(#\w+)'", picture.svg)
    fills = [fill for _, fill in sorted((float(x), fill) for x, _, fill in bars)]
    assert fills[0] == GREY
    assert {*fills[10:14], fills[-1]} == set(OF_BUCKETS)
    most = int(np.histogram(uploaded, BINS)[0].max())
    height = sum(float(height) for _, height, _ in bars) / len(uploaded)
    assert height * most == pytest.approx(116, rel=0.01), "all photos are drawn, each as high"
    assert re.findall(r">(bucket \d)</text>", picture.svg) == [f"bucket {i}" for i in range(4)]
    ElementTree.fromstring(timeline(uploaded[:0], bucket[:0], {}).svg)


def test_a_reports_charts_are_saved_with_legend_names_bands_and_dates(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    stream = spaced(drifting(steps=4), 31_556_952, 34 * 31_556_952 + 9_000_000)
    evaluate(stream, "clear-iid", ["nearest-mean", "finetune"], seeds=[0, 1], out=runs)
    saved = answer("report", str(runs), "--out", str(tmp_path / "page"), "--figures", str(out), "--json")["figures"]
    assert sorted(map(str, out.iterdir())) == sorted(saved)
    assert {Path(one).suffix for one in saved} == {".svg", ".pdf", ".png"}
    (svg,) = (Path(one).read_text() for one in saved if one.endswith("accuracy-by-age.svg"))
    assert svg.count("data-n='nearest-mean'") == svg.count("data-n='finetune'") == 2, "a line and its name"
    assert svg.count("<polygon") == 2
    (matrix,) = (Path(one).read_text() for one in saved if one.endswith("matrix-finetune.svg"))
    assert all(matrix.count(f">{year}</text>") == 2 for year in range(2004, 2008)), "of rows and columns"


TWO = {"a": ([0, 1, 2], [0.1, 0.2, 0.3]), "b": ([0, 1, 2], [0.3, 0.4, 0.5])}
DRAWN = {
    "lines": lines(TWO, "age", bands={"a": ([0, 0.1, 0.2], [0.2, 0.3, 0.4])}, y_name="loss"),
    "many": lines(MANY, "samples seen"),
    "slopes": slopes({"a": (0.1, 0.2), "b": (0.3, 0.1)}, ("online", "near future")),
    "scatter": scatter({f"learner {i}": (10.0 + i, 0.5) for i in range(25)}, ["learner 1"], "bytes", "right"),
    "cells": cells({"a": {"cup": [0.1, None], "car": [0.9, 1.0]}}, "12", (0, 1), "c", ("class", "age")),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_chart_on_paper_is_no_wider_than_its_text_and_its_letters_have_7_to_9_pt(name: str, tmp_path: Path) -> None:
    svg, pdf, png = (path.read_bytes() for path in save_kinds(DRAWN[name], tmp_path, name))
    root = ElementTree.fromstring(svg.decode())
    inches = float(root.attrib["width"].removesuffix("in"))
    assert inches == INCHES if name != "cells" else inches < INCHES
    assert float(root.attrib["height"].removesuffix("in")) < 9.5, "a page of paper"
    point = 72 * inches / float(root.attrib["viewBox"].split()[2])
    sizes = [float(one.attrib["font-size"]) * point for one in root.iter() if "font-size" in one.attrib]
    assert 6.95 < min(sizes) <= max(sizes) < 9
    assert b"/FontFile" in pdf
    (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) [\d.]+\]", pdf)
    assert float(box) == pytest.approx(72 * inches, abs=0.1)
    with Image.open(io.BytesIO(png)) as image:
        assert image.width == pytest.approx(300 * inches, abs=1)
        assert image.info["dpi"][0] == pytest.approx(300, abs=1)


def test_saved_charts_name_the_classes_of_a_stream_that_is_at_hand(tmp_path: Path) -> None:
    stream = drifting(steps=3, classes=3)
    stream = Stream("named", stream.steps, ["cup", "car", "cat"]).save(tmp_path / "s")
    evaluate(stream, "clear-iid", ["nearest-mean"], out=tmp_path / "runs")
    titles = {}
    for more in ([], ["--stream", str(tmp_path / "s")]):
        out = tmp_path / f"out{len(more)}"
        places = (str(tmp_path / "runs"), "--out", str(tmp_path / "page"), "--figures", str(out))
        saved = answer("report", *places, "--json", *more)["figures"]
        (svg,) = (Path(one).read_text() for one in saved if one.endswith("accuracy-of-each-class.svg"))
        titles[len(more)] = set(re.findall(r"text-anchor='end' font-size='11' fill='currentColor'>([^<]*)<", svg))
    assert titles == {0: {"0", "1", "2"}, 2: {"cup", "car", "cat"}}
