"""Interactive charts in a real browser: drawn from the page alone, usable by keys, and names from outside are text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from support.pages import chromium_browser

from driftline.eval.plotting import vega
from driftline.eval.plotting.charts import Figure, lines, points, slopes
from driftline.eval.plotting.embed import as_json, figure, script

PAYLOADS = [
    "<script>window.hacked=1</script>", "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>", "\"];window.hacked=1;//", "'+(window.hacked=1)+'", "datum.c0", "{{7*7}}",
    "${window.hacked=1}", "[c0]", "a.b\\.c", "__proto__", "constructor", "a\nb", "<!--", "]]>",
    "javascript:window.hacked=1", "\u2028", "=1+1", "a|b", "x" * 300,
]  # fmt: skip
CHARTS = {
    "lines": lines({"a": ([0, 1], [0.1, 0.2]), "b": ([0, 1], [0.3, 0.4])}, "age", bands={"a": ([0, 0.1], [0.2, 0.3])}),
    "levels": lines({"a": ([0, 1], [0.1, 0.2])}, "age", log=True, levels={"chance": 0.1}, marks={"S": 1}),
    "slopes": slopes({"a": (0.1, 0.2), "b": (0.3, 0.1)}, "online", "near future"),
    "points": points({"a": (10.0, 0.5), "b": (20.0, 0.4)}, ["a"], "bytes"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium_browser() as opened:
        yield opened


def page_of(folder: Path, *charts: Figure) -> str:
    """The address of a page with these charts."""
    (folder / "report.js").write_text(script(), encoding="utf-8")
    body = "".join(figure(chart) for chart in charts)
    page = f"<!DOCTYPE html><meta charset=utf-8><title>x</title><main>{body}</main><footer></footer>"
    (folder / "page.html").write_text(f"{page}<script src=report.js defer></script>", encoding="utf-8")
    return (folder / "page.html").resolve().as_uri()


def opened(browser: Any, address: str) -> Any:
    """The page with its first chart drawn."""
    page = browser.new_page(viewport={"width": 900, "height": 700}, accept_downloads=True)
    page.goto(address)
    page.wait_for_selector(".vega svg")
    return page


@pytest.mark.parametrize("name", CHARTS)
def test_the_library_understands_every_specification(name: str) -> None:
    chart = CHARTS[name]
    rows = [{f"c{i}": value for i, value in enumerate(row)} for row in chart.rows]
    spec = {**vega.whole(dict(chart.spec)), "data": {"name": "rows", "values": rows}, "width": 600}
    svg = vl_convert.vegalite_to_svg(spec)
    assert "<path" in svg
    assert "currentColor" in svg


def test_the_shipped_library_is_what_vl_convert_writes() -> None:
    text = files("driftline.eval.plotting").joinpath("static/vega.js").read_text(encoding="utf-8")
    banner, _, library = text.partition("*/\n")
    assert "Redistribution and use" in banner
    assert library.rstrip("\n") == vl_convert.javascript_bundle().rstrip("\n")


@pytest.mark.parametrize("colour", vega.COLOURS)
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


def test_names_from_outside_are_text_in_the_library_too(browser: Any, tmp_path: Path) -> None:
    many = {name: ([0.0, 1.0], [0.1, 0.2 + i / 50]) for i, name in enumerate(PAYLOADS)}
    pairs = {name: (0.1, 0.2 + i / 50) for i, name in enumerate(PAYLOADS)}
    dots = {name: (10.0 + i, 0.5) for i, name in enumerate(PAYLOADS)}
    charts = [
        Figure(PAYLOADS[0], PAYLOADS[1], lines(many, PAYLOADS[1], levels={PAYLOADS[0]: 0.1}, marks={PAYLOADS[2]: 1.0})),
        Figure("slopes", "", slopes(pairs, PAYLOADS[1], PAYLOADS[2])),
        Figure("points", "", points(dots, [PAYLOADS[0]], PAYLOADS[1])),
    ]
    page = opened(browser, page_of(tmp_path, *charts))
    for chart in page.locator(".plot").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".vega svg").wait_for()
        chart.locator(".mark-symbol path").last.hover(force=True)
        page.locator("#vg-tooltip-element.visible", has_text=PAYLOADS[-1][:20]).wait_for()
    for details in page.locator("details.data summary").all():
        details.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script:not([type]):not([src])").count() == 0
    chips = page.locator(".chips").first.locator(".chip").all_inner_texts()
    assert [re.sub(r"\s+", " ", chip).strip() for chip in chips] == [re.sub(r"\s+", " ", n).strip() for n in PAYLOADS]
    page.close()


def test_no_two_lines_look_the_same_in_the_legend(browser: Any, tmp_path: Path) -> None:
    """Colours come again from the eleventh line on: its dashes are in its button, too."""
    many = {f"learner {i}": ([0.0, 1.0], [0.1, 0.2 + i / 50]) for i in range(len(vega.COLOURS) + 1)}
    page = opened(browser, page_of(tmp_path, Figure("t", "", lines(many, "age"))))
    looks = page.locator(".chip .swatch").evaluate_all("all => all.map(s => s.style.background)")
    assert len(set(looks)) == len(many)
    page.close()


def test_a_name_is_hidden_and_the_address_remembers_it(browser: Any, tmp_path: Path) -> None:
    address = page_of(tmp_path, Figure("t", "", CHARTS["lines"]))
    page = opened(browser, address)

    def drawn() -> int:
        return int(page.locator(".vega .mark-line path").count())

    both = drawn()
    page.get_by_role("button", name="b", exact=True).press("Enter")
    page.wait_for_timeout(300)
    assert drawn() == both - 1
    link = page.url
    page.close()
    again = opened(browser, link)
    assert again.get_by_role("button", name="b", exact=True).get_attribute("aria-pressed") == "false"
    again.close()


def test_a_chart_is_saved_as_csv_svg_and_png(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, page_of(tmp_path, Figure("A title", "", CHARTS["slopes"])))
    found = {}
    for kind in ("CSV", "SVG", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=kind, exact=True).click()
        found[kind] = Path(download.value.path()).read_bytes()
        assert download.value.suggested_filename == f"A-title.{kind.lower()}"
    assert found["CSV"].decode().splitlines()[:2] == ["series,score,per cent", "a,online,10"]
    assert found["SVG"].startswith(b"<svg")
    assert found["PNG"].startswith(b"\x89PNG")
    page.close()


def test_without_scripts_the_picture_is_there(browser: Any, tmp_path: Path) -> None:
    address = page_of(tmp_path, Figure("t", "", CHARTS["lines"]))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert "ends at" in str(page.locator(".plot > svg").get_attribute("aria-label"))
    assert page.locator(".plot > svg").is_visible()
    context.close()
