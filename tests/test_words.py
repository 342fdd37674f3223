"""What users read has the terms of the field, and pages stay short."""

from pathlib import Path

from support import words

ROOT = Path(__file__).resolve().parents[1]
MOST = 28_000  # words of README, CONTRIBUTING, CHANGELOG and the manual without the lab book


def test_no_private_word_in_what_users_see() -> None:
    assert words.private_words() == []


def test_the_manual_is_short() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += [p for p in (ROOT / "docs").rglob("*.md") if p.name != "lab_book.md" and not words.is_generated(p)]
    assert len(pages[0].read_text(encoding="utf-8").split()) <= 600
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= MOST
