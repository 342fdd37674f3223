"""What the demo's report says of the demo."""

from __future__ import annotations

from markupsafe import Markup

from driftline.eval.reporting.markup import Cell, table
from driftline.pipelines.demo.draw import CHANGES, CONCEPTS, HALFWAY
from driftline.pipelines.demo.world import END, START
from driftline.pipelines.web.rendering import template

WORKER_ERROR = 0.05
NOTICE = (
    "Demonstration: the photos are rendered by a program and the workers are simulated "
    f"(each answer is wrong with probability {WORKER_ERROR:.0%}). "
    "The pipeline, the download, the model and the evaluation are the real ones."
)


def shown(macro: str, *values: object) -> Markup:
    """What a macro of about.html.j2 says."""
    return Markup(getattr(template("driftline.pipelines.demo", "about.html.j2").module, macro)(*values))


def about(seconds: float) -> Markup:
    """What is not real, which features are evaluated, and what the world draws differently each year.

    seconds: time of all steps.
    """
    rows = []
    for name, draw in CONCEPTS.items():
        year = (START + (HALFWAY - CHANGES[name]) * (END - START)).year
        old, _, new = (draw.__doc__ or "").rstrip(".").partition(" → ")
        rows.append([name, Cell(old, kind="left"), Cell(new, kind="left"), year])
    heads = ["class", Cell("old form", kind="left"), Cell("new form", kind="left"), "around"]
    return shown("about", NOTICE, table(heads, rows, "plain"), f"{seconds:.0f}")
