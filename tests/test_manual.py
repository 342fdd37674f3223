"""The manual builds without a warning, and its reference holds every command and every public name."""

import re
import runpy
import shutil
from pathlib import Path
from typing import get_args

import pytest
import yaml
from support.console import python
from test_docs import GENERATED

from driftline.curate.core.registry import HOME
from driftline.eval.learner import Family
from driftline.eval.learners import LEARNERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because the reference is written into the folder of the pages."""
    folder = tmp_path_factory.mktemp("manual")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("_build"))
    shutil.copytree(ROOT / "examples" / "mybench", folder / "examples" / "mybench")  # the guide includes its files
    for page in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / page, folder)
    words = ["-W", "--keep-going", "-q", "-b", "html", str(folder / "docs"), str(folder / "html")]
    done = python(f"import sys; from sphinx.cmd.build import main; sys.exit(main({words!r}))", ROOT)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.proof("docs")
def test_every_page_is_in_the_manual(manual: Path) -> None:
    for page in (ROOT / "docs").glob("*/*.md"):
        assert (manual / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()


@pytest.mark.proof("docs")
def test_pages_from_the_code_are_those_that_git_ignores(manual: Path) -> None:
    pages = {path.name.removesuffix(".txt") for path in (manual / "_sources" / "reference").glob("*.md.txt")}
    committed = {path.name for path in (ROOT / "docs" / "reference").glob("*.md")} - {path.name for path in GENERATED}
    assert pages - committed == {path.name for path in GENERATED}


@pytest.mark.proof("docs")
def test_links_between_pages_lead_somewhere(manual: Path) -> None:
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in manual.rglob("*.html")}
    for page, text in texts.items():
        for target, anchor in re.findall(r'<a [^>]*href="([^"#:]+)(?:#([^"]*))?"', text):
            path = (page.parent / target).resolve()
            assert path.exists(), (page, target)
            assert not anchor or f'id="{anchor}"' in texts[path], (page, target, anchor)


def test_the_citation_is_whole() -> None:
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(told)


# ---- the manual's page of learners names every learner of driftline, with a guide of its own


PAGE = ROOT / "docs" / "learner_page.py"


@pytest.fixture(scope="module")
def text() -> str:
    return runpy.run_path(str(PAGE))["page"]()


@pytest.mark.parametrize("name", [name for name in LEARNERS if LEARNERS.entry(name).origin == HOME])
def test_every_learner_of_driftline_has_a_line_and_settings_of_its_own(name: str, text: str) -> None:
    guide = vars(LEARNERS[name]).get("guide")
    assert guide is not None, f"{LEARNERS[name].__name__} declares no guide = Guide(family, source, cost, use)"
    assert guide.family in get_args(Family)
    assert f"| `{name}` | {guide.source or '–'} |" in text
    assert f"\n### {name}\n" in text


def test_a_learner_is_listed_under_the_protocols_whose_needs_it_meets(text: str) -> None:
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in text.splitlines() if line.count(" | ") == 5]
    allowed = {row[1]: row[5] for row in rows}
    assert allowed["majority"] == "all"
    assert allowed["oracle"] == "seq-to-final"
    assert allowed["cumulative"] == "clear-iid, clear-streaming, seq-to-final"
