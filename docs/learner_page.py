"""The manual's page of learners: every learner of driftline with its family, source, needs, cost, protocols and use."""

from collections.abc import Sequence
from typing import Any, get_args

from driftline.curate.core.registry import HOME, Registry
from driftline.eval.learner import Family, Guide
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.settings import described

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

A learner runs under each protocol whose needs it meets. `driftline eval` skips it elsewhere and says why.
[Which one to begin with](../guides/evaluate.md#which-learner); the [last section](#settings) has all settings.

*Needs*: "batches" means that a learner takes samples in any portions, so that it runs on streams, too. *Cost* is that
of learning one step. n: its samples, D: their width, C: classes, E: epochs, M: samples in memory or random features,
N: all samples so far.

Closed-form classifiers on frozen features are exact: one sample after the other gives what all at once gives. Their
setting `half_life` (in samples) makes them forget. Their answers do not depend on the unit of the features.
"""


def page() -> str:
    """The page."""
    under: dict[str, list[str]] = {}  # learner → the protocols whose needs it meets
    for protocol in _own(PROTOCOLS):
        for name in _own(LEARNERS):
            if not any(getattr(LEARNERS[name].needs, need) for need in PROTOCOLS[protocol].refuses):
                under.setdefault(name, []).append(protocol)
    guides: dict[str, Guide] = {name: guide for name in under if (guide := LEARNERS[name].guide)}
    parts = [TOP]
    for family in get_args(Family):
        own = {name: guide for name, guide in guides.items() if guide.family == family}
        rows = [_row(name, guide, under[name]) for name, guide in own.items()]
        head = "| learner | source | needs | cost | protocols | use it for |\n|---|---|---|---|---|---|"
        parts.append(f"## {family[0].upper()}{family[1:]}\n\n{head}\n" + "\n".join(rows) + "\n")
    parts.append("## Settings\n\nOf protocols, then of learners.\n")
    return "\n".join([*parts, *_settings_of(PROTOCOLS), *_settings_of(LEARNERS)])


def _own(registry: Registry) -> list[str]:
    """Names of driftline's own entries, not those of installed packages."""
    return [name for name in registry if registry.entry(name).origin == HOME]


def _row(name: str, guide: Guide, protocols: Sequence[str]) -> str:
    allowed = "all" if len(protocols) == len(_own(PROTOCOLS)) else ", ".join(protocols)
    cells = [f"`{name}`", guide.source or "–", needs(LEARNERS[name]), guide.cost, allowed, guide.use]
    return f"| {' | '.join(cells)} |"


def _settings_of(registry: Registry) -> list[str]:
    """A table for each learner or protocol, as on its page in a report."""
    parts = []
    for name in _own(registry):
        rows = [f"| `{s.name}` | {s.default} | {s.meaning} |".replace("*", r"\*") for s in described(registry[name])]
        table = ["| setting | default | meaning |", "|---|---|---|", *rows] if rows else ["No settings."]
        parts += [f"### {name}", "", registry.summary(name), "", *table, ""]
    return parts


def needs(kind: Any) -> str:
    """What a learner must be shown."""
    return next((text for need, text in NEEDS.items() if getattr(kind.needs, need)), "batches")
