"""The manual's page of learners names every learner of driftline, with a guide of its own."""

import runpy
from pathlib import Path
from typing import get_args

import pytest

from driftline.curate.core.registry import HOME
from driftline.eval.learner import Family
from driftline.eval.learners import LEARNERS

PAGE = Path(__file__).parents[2] / "docs" / "learner_page.py"


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
