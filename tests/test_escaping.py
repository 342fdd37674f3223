"""Names from outside in every kind of file that another program interprets."""

import csv
import io
import re
from typing import Any

import pytest

from driftline.curate.foreign.escaping import latex, markdown, no_formula
from driftline.curate.release.compose import attribution
from driftline.eval.reporting.exports import scores_csv, scores_tex

PAYLOADS = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://evil","x")', "=cmd|' /C calc'!A0",
    r"\write18{id}", r"\input{/etc/passwd}", "a}b{c", "50% off", "$x$", "x & y", "#1", "a_b^c~d", "a\nb\\\\",
    "a|b", "a\r\n# heading", "[text](http://evil)", "![x](http://evil)", "<script>", "`code`", "**bold**",
    "http://evil", "www.evil.example", "@everyone",
]  # fmt: skip


def document(name: str) -> dict[str, Any]:
    """A result whose learner and stream have this name."""
    scores = {"online": 0.5, "near_future": 0.5, "retention": 0.5}
    results = [
        {
            "learner": name,
            "shown": name,
            "settings": {},
            "seeds": [0],
            "scores": {k: {"mean": v, "sd": 0.0, "values": [v]} for k, v in scores.items()},
        }
    ]
    return {"protocol": "near-future", "stream": {"name": name, "sha256": "0"}, "results": results, "skipped": []}


@pytest.mark.parametrize("name", PAYLOADS)
def test_no_cell_of_the_scores_is_a_formula(name: str) -> None:
    for row in csv.reader(io.StringIO(scores_csv([document(name)]), newline="")):
        assert not [cell for cell in row if cell[:1] in tuple("=+-@\t\r\n")]


@pytest.mark.parametrize("name", PAYLOADS)
def test_no_cell_of_the_attribution_is_a_formula(name: str) -> None:
    row = {"id": "1", "title": name, "creator": name, "sha256": "0"}
    for cells in csv.reader(io.StringIO(attribution([row]), newline="")):
        assert not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r\n")]


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_name_is_no_command_in_the_latex_table(name: str) -> None:
    text = scores_tex([document(name)])
    known = r"\\(begin|end|toprule|midrule|bottomrule|mathbf|pm|quad|text[a-z]+|[&%$#_{}])|\\\\\n"
    assert "\\" not in re.sub(known, "", text)
    assert len(text.splitlines()) == len(scores_tex([document("x")]).splitlines()), (
        "a line more is outside of a comment"
    )


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_name_stays_in_its_cell_of_a_markdown_table(name: str) -> None:
    cell = markdown(name)
    assert "\n" not in cell
    assert "\r" not in cell
    assert not re.search(r"(?<!\\)[|\[\]*`<>]", cell)
    assert "://" not in cell
    assert "www." not in cell


def test_what_needs_no_escape_stays() -> None:
    assert [f("ResNet 18") for f in (no_formula, latex, markdown)] == ["ResNet 18"] * 3
    assert no_formula(-0.5) == -0.5
