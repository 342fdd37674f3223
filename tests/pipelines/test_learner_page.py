"""docs/guides/learners.md is what its command prints, and names every learner."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from driftline.curate.core.registry import HOME
from driftline.eval.learner import Family
from driftline.eval.learners import LEARNERS
from driftline.pipelines.cli.listing import learner_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "learners.md"


def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == learner_page(), (
        "driftline list learners --markdown > docs/guides/learners.md"
    )


@pytest.mark.parametrize("name", [name for name in LEARNERS if LEARNERS.entry(name).origin == HOME])
def test_every_learner_of_driftline_has_a_line_of_its_own(name: str) -> None:
    guide = vars(LEARNERS[name]).get("guide")
    assert guide is not None, f"{LEARNERS[name].__name__} declares no guide = Guide(family, source, cost, use)"
    assert guide.family in get_args(Family)
    assert f"| `{name}` | {guide.source or '–'} |" in PAGE.read_text(encoding="utf-8")
