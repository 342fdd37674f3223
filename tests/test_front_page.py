"""What people search for and cite stands on the first pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
README, LANDING = (
    " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("README.md", "docs/index.md")
)
REFERENCES = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]


@pytest.mark.parametrize("term", ["distribution shift", "concept drift", "continual learning"])
def test_the_terms_of_the_field_are_in_the_first_screen_and_in_the_glossary(term: str) -> None:
    assert term in README[:600]
    assert term in LANDING[:600]
    assert f"| {term} |" in (ROOT / "docs" / "start" / "concepts.md").read_text(encoding="utf-8")


def test_all_four_papers_are_cited_alike() -> None:
    assert len(REFERENCES) == 4
    for paper in REFERENCES:
        title = paper["title"].partition(":")[0].rstrip("?")
        for page in (README, LANDING):
            assert title in page
            assert str(paper["year"]) in page
            assert paper.get("url", title) in page
            for author in paper["authors"]:
                assert author["family-names"] in page


@pytest.mark.parametrize("page", ["README.md", "docs/guides/build.md", "docs/start/install.md"])
def test_exit_codes_and_activation_are_told(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    codes = "Exit codes: 0 done, 1 failed or unfinished, 2 wrong usage, 3 waiting for answers of people, 130 stopped"
    assert codes in " ".join(text.split())
    assert "guides/build" in page or "source .venv/bin/activate" in text


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_numbers_of_the_first_page_are_those_of_the_pages_that_measure_them() -> None:
    """Each of them says how; `bench` renews those on speed."""
    table = re.findall(r"\| ([a-z-]+) \| [\d.]+ \| (more than \d+ years) \| ([\d.]+) \(", page("papers/usda.md"))
    assert {half_life for _, half_life, _ in table} == {"more than 29 years"}
    assert "within 29 years (95 % interval of the half-life: more than 29 years)" in README
    years = {learner: f"{float(number):.0f}" for learner, _, number in table}
    first, last = years["scratch"], years["nearest-mean"]
    assert f"five points after {first} (`scratch`) to {last} (`nearest-mean`) years" in README
    of_first, of_newer = (
        re.search(rf"\(`{name}`\) is right on (\d+ %) of the", page("start/tutorial.md"))
        for name in ("nap", "cumulative")
    )
    assert of_first is not None
    assert of_newer is not None
    assert f"is right on {of_first[1]} of the last period's photos, eight years later" in README
    assert f"(`cumulative`) on {of_newer[1]} of the same" in README
    assert "beat training from scratch for all 12 learners" in page("papers/usda_past.md")
    assert "all twelve learners" in README
