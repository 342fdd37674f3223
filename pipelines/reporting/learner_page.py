"""docs/guides/learners.md: every learner of driftline with its family, source, needs, cost, protocols and use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from driftline.eval.learner import Family, Guide
from driftline.eval.learners import LEARNERS

NEEDS = {  # declared need → what the page says; the first that a learner has
    "class_texts": "vectors with class texts",
    "all_steps": "all steps, the last one is tested",
    "future": "all steps at once",
    "unlabelled": "whole steps with unlabelled samples",
    "whole_steps": "whole steps",
    "first_step": "a whole first step",
    "texts": "raw texts or images",
    "images": "images",
}
TOP = """# Learners

This page is generated: `driftline list learners --markdown > docs/guides/learners.md`. A learner runs under each
protocol whose assumptions it meets; `driftline eval` skips it elsewhere, with the reason. The manual (`make docs`) has
all settings.

*Needs*: "batches" means that a learner takes samples in any portions, so that it runs on streams, too. *Cost* is of
learning one step. n: its samples, D: their width, C: classes, E: epochs, M: samples in memory or random features, N:
all samples so far.

Closed forms on frozen features are exact: one sample after the other gives what all at once gives. Their settings
`half_life` and `window` (both in samples) make them forget. Their answers do not depend on the unit of the features.
"""


def page(protocols: Mapping[str, Sequence[str]]) -> str:
    """The page. protocols: learner → those under which it may run."""
    every = max(protocols.values(), key=len)
    guides: dict[str, Guide] = {name: guide for name in protocols if (guide := LEARNERS[name].guide)}
    parts = [TOP]
    for family in get_args(Family):
        own = {name: guide for name, guide in guides.items() if guide.family == family}
        rows = [_row(name, guide, protocols[name], every) for name, guide in own.items()]
        head = "| learner | source | needs | cost | protocols | use it for |\n|---|---|---|---|---|---|"
        parts.append(f"## {family[0].upper()}{family[1:]}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(name: str, guide: Guide, protocols: Sequence[str], every: Sequence[str]) -> str:
    allowed = "all" if set(protocols) == set(every) else ", ".join(protocols)
    cells = [f"`{name}`", guide.source or "–", needs(LEARNERS[name]), guide.cost, allowed, guide.use]
    return f"| {' | '.join(cells)} |"


def needs(kind: Any) -> str:
    """What a learner must be shown."""
    return next((text for need, text in NEEDS.items() if getattr(kind.needs, need)), "batches")
