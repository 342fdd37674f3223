"""The manual builds without a warning, and its reference holds every command and every public name."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from support.console import python
from test_docs import GENERATED

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
