"""The cards in `data_cards/` have no missing sections."""

from pathlib import Path

import pytest

from driftline.curate.release.data_card import UNWRITTEN

CARDS = Path(__file__).resolve().parents[1] / "data_cards"


@pytest.mark.parametrize("card", sorted(CARDS.glob("*.md")), ids=lambda p: p.stem)
def test_no_card_has_a_missing_section(card: Path) -> None:
    assert UNWRITTEN not in card.read_text()


def test_the_template_is_that_of_the_code() -> None:
    template = CARDS.parent / "curate" / "release" / "templates" / "card.md.j2"
    assert (CARDS / "template.md.j2").resolve() == template.resolve()
