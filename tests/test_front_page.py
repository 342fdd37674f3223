"""What people search for and cite stands on the first pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support.console import driftline

ROOT = Path(__file__).resolve().parents[1]
README, LANDING = (
    " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("README.md", "docs/index.md")
)
REFERENCES = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]


@pytest.mark.parametrize("term", ["distribution shift", "concept drift", "continual learning"])
def test_the_terms_of_the_field_are_in_the_first_screen_and_in_the_glossary(term: str) -> None:
    assert term in README[:600]
    assert term in LANDING[:600]
    assert f"- **{term}**: " in (ROOT / "docs" / "start" / "concepts.md").read_text(encoding="utf-8")


def test_all_four_papers_are_cited_alike() -> None:
    assert len(REFERENCES) == 4
    for paper in REFERENCES:
        title = paper["title"].partition(":")[0].rstrip("?")
        assert title in README
        assert str(paper["year"]) in README
        assert paper.get("url", title) in README
        for author in paper["authors"]:
            assert author["family-names"] in README


def test_exit_codes_and_activation_are_told() -> None:
    codes = (
        "Exit codes: 0 done, 1 failed or unfinished, 2 wrong usage, 3 waiting for answers of people, 4 a limit of "
        "age --alarm is crossed, 130 stopped"
    )
    assert codes in README
    assert codes in " ".join(driftline("--help").stdout.split())
    for text in (README, page("start/install.md")):
        assert "source .venv/bin/activate" in text


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_numbers_of_the_first_page_are_those_of_the_pages_that_measure_them() -> None:
    """Each of them says how; `bench` renews those on speed."""
    half_lives = re.findall(r"\| [a-z-]+ \| [\d.]+ \| (more than \d+ years) \| [\d.]+ \(", page("studies/usda.md"))
    assert set(half_lives) == {"more than 29 years"}
    assert "no model reaches its half-life within 29 years" in README
    of_first, of_newer = (
        re.search(rf"\(`{name}`\) is right on (\d+ %) of the", page("start/tutorial.md"))
        for name in ("nap", "cumulative")
    )
    assert of_first is not None
    assert of_newer is not None
    assert f"is right on {of_first[1]} of the last period's photos, eight years later" in README
    assert f"(`cumulative`) on {of_newer[1]} of the same" in README
