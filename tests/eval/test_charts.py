"""Interactive charts in a real browser: drawn from the page alone, usable by keys, and names from outside are text."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.pages import chromium_browser

from driftline.curate.core.errors import BadConfig
from driftline.eval.plotting.cells import Strip, strips
from driftline.eval.plotting.charts import KINDS, Figure, lines, save, scatter, slopes
from driftline.eval.plotting.frames import COLOURS, SHADED
from driftline.eval.reporting.markup import as_json, environment, render, script

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium_browser() as opened:
        yield opened


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
    pixels: list[float] = mark.evaluate(
        """(mark, k) => {
            const { x, y } = mark.points ? mark.points[k] : { x: mark.cx.baseVal.value, y: mark.cy.baseVal.value };
            const at = new DOMPoint(x, y).matrixTransform(mark.getScreenCTM());
            return [at.x, at.y];
        }""",
        point,
    )
    return pixels


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


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_stand_out_on_light_and_dark_paper(colour: str) -> None:
    def luminance(hexed: str) -> float:
        parts = [int(hexed[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for paper in ("#fbfbf9", "#14181a"):
        low, high = sorted([luminance(paper), luminance(colour)])
        assert (high + 0.05) / (low + 0.05) > 3


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
    expected = ["learner 2", "age: 1", "per cent: 25", "low: 24", "high: 26"]
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
