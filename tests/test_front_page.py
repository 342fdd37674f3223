"""What people search for and cite stands on the first pages."""

from __future__ import annotations

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
