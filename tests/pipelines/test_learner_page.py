"""docs/guides/learners.md is what its command prints, and names every learner."""

from __future__ import annotations

from pathlib import Path

from driftline.curate.core.registry import HOME
from driftline.eval.experiment.learner_guide import GUIDE
from driftline.eval.learners import LEARNERS
from driftline.pipelines.cli.listing import learner_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "learners.md"


def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == learner_page(), (
        "driftline list learners --markdown > docs/guides/learners.md"
    )


def test_every_learner_of_driftline_has_an_entry_and_no_other() -> None:
    assert sorted(GUIDE) == sorted(name for name in LEARNERS if LEARNERS.entry(name).origin == HOME)
