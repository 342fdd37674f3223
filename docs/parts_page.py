"""The manual's page of parts: what is registered, as `driftline list` prints it, and the columns of results."""

from inspect import isclass

from driftline.curate.core.registry import HOME, Registry
from driftline.eval.predictions import MEANING
from driftline.eval.rows import Row
from driftline.eval.settings import described
from driftline.pipelines.actions.listing import KINDS, REGISTRIES, entries_of
from driftline.stream_builder.shifts import SHIFTS

TOP = """# Parts

Everything that has a name, by kind. `driftline list KIND` prints the same, with the parts of installed packages.
[Extend](../guides/extend.md) adds parts. Learners and protocols have [a page of their own](learners.md).
"""


def page() -> str:
    """The page."""
    parts = [TOP]
    for kind, (target, used) in KINDS.items():
        module, _, name = target.partition(":")
        registry = REGISTRIES[kind]
        group = registry.group if isinstance(registry, Registry) else ""
        entry = f" Entry point: `driftline.{group}`." if group else ""
        parts += [f"## {kind}", "", f"Used by {used}. Registry: `{name}` of `{module}`.{entry}", ""]
        if kind not in ("learners", "protocols"):
            parts += [*(_line(kind, **row) for row in entries_of(kind) if row["origin"] == HOME), ""]
    columns = [f"- `{column.name}`: {column.meaning}" for column in described(Row) if column.name != "answers"]
    of_predictions = [f"- `{name}`: {meaning}" for name, meaning in MEANING.items()]
    parts += ["## columns of results", "", *columns, "", "## columns of predictions", "", *of_predictions, ""]
    return "\n".join(parts)


def _line(kind: str, name: str, summary: str, **_: str) -> str:
    """A name and what it is; of a shift also its settings."""
    settings = described(SHIFTS[name]) if kind == "shifts" and isclass(SHIFTS[name]) else []
    more = "".join(f" `{s.name}` ({s.default}): {s.meaning}." for s in settings)
    return f"- `{name}`: {summary}{more}".replace("*", r"\*")
